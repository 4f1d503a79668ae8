/* Goal: threads carry their name, block every signal, have the stack that was asked for, and leave when idle.
 * Method: a job that looks at its own thread; the idle time is one nanosecond where a thread has to leave. */
#include "post_box.h"

#include <check.h>
#include <signal.h>
#include <string.h>

struct seen {
    struct tdl_job job;
    struct tdl_link done;
    char name[16];
    bool all_blocked;
    size_t stack_bytes;
};

static struct post_box box;

static void set_up(void)
{
    post_box_open(&box);
}

static void tear_down(void)
{
    wait_no_pool_alive();
    post_box_close(&box);
}

static void look(struct tdl_job *job)
{
    struct seen *seen = TDL_CONTAINER_OF(job, struct seen, job);
    sigset_t blocked;
    pthread_attr_t attr;
    (void)pthread_getname_np(pthread_self(), seen->name, sizeof seen->name);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    seen->all_blocked = sigismember(&blocked, SIGINT) == 1 && sigismember(&blocked, SIGTERM) == 1 &&
                        sigismember(&blocked, SIGCHLD) == 1 && sigismember(&blocked, SIGUSR1) == 1;
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        (void)pthread_attr_getstacksize(&attr, &seen->stack_bytes);
        (void)pthread_attr_destroy(&attr);
    }
}

static struct seen look_in(const struct tdl_pool_options *options)
{
    struct tdl_pool *pool;
    struct seen seen = {0};
    tdl_job_init(&seen.job, look, NULL);
    TDL_ASSERT(tdl_pool_open(&pool, options) == 0);
    TDL_ASSERT(tdl_pool_submit(pool, &seen.job, 0, &box.inbox, &seen.done) == 0);
    (void)post_box_wait(&box);
    tdl_pool_close(pool);
    return seen;
}

START_TEST(threads_are_named_and_block_signals)
{
    const uint32_t slots[] = {1};
    sigset_t mask;
    struct tdl_pool_options options = {.slots = slots, .classes = 1, .name = "a-long-name-is-cut"};
    struct seen seen = look_in(&options);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    ck_assert_str_eq(seen.name, "a-long-nam-0");
    ck_assert(seen.all_blocked);
    for (int number = 1; number < SIGRTMIN; number++) {
        ck_assert_msg(sigismember(&mask, number) != 1, "the caller's signal %d is blocked", number);
    }
}
END_TEST

START_TEST(the_stack_size_is_the_one_asked_for)
{
    const uint32_t slots[] = {1};
    struct tdl_pool_options options = {.slots = slots, .classes = 1, .stack_bytes = 512 * 1024};
    size_t stack_bytes = look_in(&options).stack_bytes; /* sanitizers add to it */
    ck_assert_uint_ge(stack_bytes, 512 * 1024);
    ck_assert_uint_lt(stack_bytes, 2 * 1024 * 1024);
    options.stack_bytes = 1;
    ck_assert_uint_gt(look_in(&options).stack_bytes, 1);
}
END_TEST

START_TEST(an_idle_thread_leaves_and_a_new_one_comes)
{
    const uint32_t slots[] = {2};
    struct tdl_pool_options options = {.slots = slots, .classes = 1, .idle_ns = 1};
    struct tdl_pool_counts counts;
    struct tdl_pool *pool;
    struct seen seen = {0};
    tdl_job_init(&seen.job, look, NULL);
    ck_assert_int_eq(tdl_pool_open(&pool, &options), 0);
    for (unsigned i = 0; i < 5; i++) {
        ck_assert_int_eq(tdl_pool_submit(pool, &seen.job, 0, &box.inbox, &seen.done), 0);
        ck_assert_ptr_eq(post_box_wait(&box), &seen.done);
        tdl_job_received(&seen.job);
        do {
            sched_yield();
            tdl_pool_counts(pool, &counts);
        } while (counts.threads != 0);
        ck_assert_uint_eq(counts.threads_started, i + 1);
    }
    tdl_pool_close(pool);
}
END_TEST

/* Twenty jobs, each when the thread of the one before is idle again, are done by that thread. */
static void one_thread_does_all(const struct tdl_pool_options *options)
{
    struct tdl_pool_counts counts;
    struct tdl_pool *pool;
    struct seen seen = {0};
    tdl_job_init(&seen.job, look, NULL);
    ck_assert_int_eq(tdl_pool_open(&pool, options), 0);
    for (unsigned i = 0; i < 20; i++) {
        ck_assert_int_eq(tdl_pool_submit(pool, &seen.job, 0, &box.inbox, &seen.done), 0);
        ck_assert_ptr_eq(post_box_wait(&box), &seen.done);
        tdl_job_received(&seen.job);
        do {
            sched_yield();
            tdl_pool_counts(pool, &counts);
        } while (counts.idle != 1);
    }
    ck_assert_uint_eq(counts.threads_started, 1);
    tdl_pool_close(pool);
}

START_TEST(an_idle_thread_is_used_again)
{
    const uint32_t slots[] = {4};
    one_thread_does_all(&(struct tdl_pool_options){.slots = slots, .classes = 1});
}
END_TEST

/* A thread that lingers gets no signal, so only its watching brings it to the jobs, and to the end of the
 * pool. */
START_TEST(a_lingering_thread_comes_for_the_next_job)
{
    const uint32_t slots[] = {4};
    one_thread_does_all(
        &(struct tdl_pool_options){.slots = slots, .classes = 1, .linger_ns = UINT64_C(1000000000000)});
}
END_TEST

START_TEST(while_one_thread_lingers_the_others_sleep_and_come_too)
{
    const uint32_t slots[] = {4};
    struct tdl_pool_options options = {.slots = slots, .classes = 1, .linger_ns = UINT64_C(1000000000000)};
    struct tdl_pool_counts counts;
    struct tdl_pool *pool;
    ck_assert_int_eq(tdl_pool_open(&pool, &options), 0);
    for (unsigned round = 0; round < 20; round++) {
        struct gate gate;
        gate_init(&gate, false);
        for (unsigned i = 0; i < 4; i++) {
            struct gated_job *gated = gated_job_new(&gate, i);
            ck_assert_int_eq(tdl_pool_submit(pool, &gated->job, 0, &box.inbox, &gated->done), 0);
        }
        gate_wait_inside(&gate, 4);
        gate_open(&gate);
        for (unsigned i = 0; i < 4; i++) {
            free(gated_job_of(post_box_wait(&box)));
        }
        do {
            sched_yield();
            tdl_pool_counts(pool, &counts);
        } while (counts.idle != 4);
    }
    ck_assert_uint_eq(counts.threads_started, 4);
    tdl_pool_close(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("worker");
    TCase *tcase = tcase_create("worker");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, threads_are_named_and_block_signals);
    tcase_add_test(tcase, the_stack_size_is_the_one_asked_for);
    tcase_add_test(tcase, an_idle_thread_leaves_and_a_new_one_comes);
    tcase_add_test(tcase, an_idle_thread_is_used_again);
    tcase_add_test(tcase, a_lingering_thread_comes_for_the_next_job);
    tcase_add_test(tcase, while_one_thread_lingers_the_others_sleep_and_come_too);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
