/* Goal: a pool opens only with sound options, and detach and close return at once and leave nothing behind.
 * Method: gated jobs hold workers inside work while the owner goes away. */
#include "post_box.h"

#include <check.h>

#include "treadle/failpoint.h"
#include "treadle/status.h"

static struct gate gate;

static void set_up(void)
{
    gate_init(&gate, false);
}

static void tear_down(void)
{
    gate_open(&gate);
    wait_no_pool_alive();
}

static struct gated_job *submit(struct tdl_pool *pool, struct post_box *box)
{
    struct gated_job *gated = gated_job_new(&gate, 0);
    ck_assert_int_eq(tdl_pool_submit(pool, &gated->job, 0, &box->inbox, &gated->done), 0);
    return gated;
}

START_TEST(bad_options_are_refused)
{
    const uint32_t none[] = {0};
    const uint32_t one[] = {1, 1, 1, 1, 1};
    struct tdl_pool *pool;
    struct tdl_pool_options cases[] = {
        {.slots = NULL, .classes = 1},
        {.slots = one, .classes = 0},
        {.slots = one, .classes = TDL_POOL_CLASS_MAX + 1},
        {.slots = none, .classes = 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq(tdl_pool_open(&pool, &cases[i]), TDL_EINVAL);
        ck_assert_ptr_null(pool);
    }
    ck_assert_int_eq(tdl_pool_open(&pool, NULL), TDL_EINVAL);
    ck_assert_ptr_null(pool);
    ck_assert_uint_eq(tdl_pool_alive(), 0);
}
END_TEST

START_TEST(what_is_no_pool_and_no_job_gets_a_code)
{
    const uint32_t slots[] = {1};
    struct tdl_pool_options options = {.slots = slots, .classes = 1};
    struct tdl_pool *pool = pool_of(1, 0);
    struct post_box box;
    post_box_open(&box);
    struct gated_job *gated = gated_job_new(&gate, 0);
    ck_assert_int_eq(tdl_pool_open(NULL, &options), TDL_EINVAL);
    ck_assert_int_eq(tdl_pool_submit(NULL, &gated->job, 0, &box.inbox, &gated->done), TDL_EINVAL);
    ck_assert_int_eq(tdl_pool_submit(pool, &gated->job, 1, &box.inbox, &gated->done), TDL_EINVAL);
    ck_assert_int_eq(tdl_pool_submit(pool, &gated->job, 0, NULL, &gated->done), TDL_EINVAL);
    ck_assert_int_eq(tdl_pool_submit(pool, &gated->job, 0, &box.inbox, NULL), TDL_EINVAL);
    ck_assert_int_eq(tdl_pool_submit(pool, &gated->job, 0, &box.inbox, &gated->done), 0);
    ck_assert_int_eq(tdl_pool_submit(pool, &gated->job, 0, &box.inbox, &gated->done), TDL_EINVAL);
    gate_open(&gate);
    ck_assert_ptr_eq(post_box_wait(&box), &gated->done);
    tdl_job_received(&gated->job);
    free(gated);
    tdl_pool_close(NULL);
    tdl_pool_close(pool);
    post_box_close(&box);
}
END_TEST

START_TEST(an_idle_pool_has_no_thread)
{
    struct tdl_pool *pool = pool_of(4, 0);
    struct tdl_pool_counts counts;
    tdl_pool_counts(pool, &counts);
    ck_assert_uint_eq(counts.threads, 0);
    tdl_pool_close(pool);
    ck_assert_uint_eq(tdl_pool_alive(), 0);
}
END_TEST

START_TEST(close_returns_while_a_hundred_jobs_execute)
{
    struct post_box box;
    post_box_open(&box);
    struct tdl_pool *pool = pool_of(100, 0);
    for (int i = 0; i < 150; i++) {
        (void)submit(pool, &box);
    }
    gate_wait_inside(&gate, 100);
    tdl_pool_close(pool);
    ck_assert_uint_eq(gate.released, 50);
    post_box_close(&box);
    gate_open(&gate);
    gate_wait_released(&gate, 150);
    ck_assert_uint_eq(gate.worked, 100);
}
END_TEST

START_TEST(detach_takes_only_the_jobs_of_its_inbox)
{
    struct post_box leaving;
    struct post_box staying;
    post_box_open(&leaving);
    post_box_open(&staying);
    struct tdl_pool *pool = pool_of(2, 0);
    (void)submit(pool, &leaving);
    gate_wait_inside(&gate, 1);
    struct gated_job *runs = submit(pool, &staying);
    gate_wait_inside(&gate, 2);
    (void)submit(pool, &leaving);
    struct gated_job *waits = submit(pool, &staying);
    tdl_pool_detach(pool, &leaving.inbox);
    ck_assert_uint_eq(gate.released, 1);
    post_box_close(&leaving);
    gate_open(&gate);
    struct tdl_link *arrived[] = {post_box_wait(&staying), post_box_wait(&staying)};
    ck_assert_ptr_eq(arrived[0] == &runs->done ? arrived[1] : arrived[0], &waits->done);
    gate_wait_released(&gate, 2);
    free(runs);
    free(waits);
    tdl_pool_close(pool);
    post_box_close(&staying);
}
END_TEST

START_TEST(an_unposted_result_is_released)
{
    struct post_box box;
    post_box_open(&box);
    struct tdl_pool *pool = pool_of(1, 0);
    (void)submit(pool, &box);
    gate_wait_inside(&gate, 1);
    (void)tdl_inbox_close(&box.inbox);
    gate_open(&gate);
    gate_wait_released(&gate, 1);
    tdl_pool_close(pool);
    tdl_wake_close(&box.wake);
}
END_TEST

#ifdef TDL_FAILPOINTS
START_TEST(a_pool_without_memory_is_refused)
{
    const uint32_t slots[] = {1};
    struct tdl_pool_options options = {.slots = slots, .classes = 1};
    struct tdl_pool *pool;
    tdl_failpoint_set(TDL_FAIL_ALLOC, 1);
    ck_assert_int_eq(tdl_pool_open(&pool, &options), TDL_ENOMEM);
    tdl_failpoint_set(TDL_FAIL_ALLOC, 0);
    ck_assert_ptr_null(pool);
    ck_assert_uint_eq(tdl_pool_alive(), 0);
}
END_TEST

START_TEST(a_job_that_gets_no_thread_is_refused_and_stays_the_callers)
{
    struct post_box box;
    post_box_open(&box);
    struct tdl_pool *pool = pool_of(1, 0);
    struct gated_job *gated = gated_job_new(&gate, 0);
    tdl_failpoint_set(TDL_FAIL_THREAD, 1);
    ck_assert_int_eq(tdl_pool_submit(pool, &gated->job, 0, &box.inbox, &gated->done), TDL_EAGAIN);
    tdl_failpoint_set(TDL_FAIL_ALLOC, 1);
    ck_assert_int_eq(tdl_pool_submit(pool, &gated->job, 0, &box.inbox, &gated->done), 0);
    tdl_failpoint_set(TDL_FAIL_ALLOC, 0);
    gate_open(&gate);
    ck_assert_ptr_eq(post_box_wait(&box), &gated->done);
    free(gated);
    tdl_pool_close(pool);
    post_box_close(&box);
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *tcase = tcase_create("pool");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, bad_options_are_refused);
    tcase_add_test(tcase, what_is_no_pool_and_no_job_gets_a_code);
    tcase_add_test(tcase, an_idle_pool_has_no_thread);
    tcase_add_test(tcase, close_returns_while_a_hundred_jobs_execute);
    tcase_add_test(tcase, detach_takes_only_the_jobs_of_its_inbox);
    tcase_add_test(tcase, an_unposted_result_is_released);
#ifdef TDL_FAILPOINTS
    tcase_add_test(tcase, a_pool_without_memory_is_refused);
    tcase_add_test(tcase, a_job_that_gets_no_thread_is_refused_and_stays_the_callers);
#endif
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
