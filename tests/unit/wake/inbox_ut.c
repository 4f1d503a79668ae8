/* Goal: posts come out oldest first with their marks, wake a parked owner, and are refused after close.
 * Method: on one thread; what needs several is in tests/race. */
#include "suite.h"

#include <sys/wait.h>
#include <unistd.h>

#include "treadle/inbox.h"
#include "treadle/status.h"

static struct tdl_wake wake;
static struct tdl_inbox inbox;
static tdl_atomic_u32 mark;
static struct tdl_link links[8];

static void setup(void)
{
    ck_assert_int_eq(tdl_wake_open(&wake, NULL), 0);
    tdl_store_relaxed_u32(&mark, 0);
    tdl_inbox_init(&inbox, &wake, &mark);
}

static void teardown(void)
{
    ck_assert_ptr_null(tdl_inbox_close(&inbox));
    tdl_wake_close(&wake);
}

static void check_chain(const struct tdl_link *chain, int from, int count)
{
    for (int i = from; i < from + count; i++) {
        ck_assert_ptr_eq(chain, &links[i]);
        chain = chain->next;
    }
    ck_assert_ptr_null(chain);
}

START_TEST(posts_are_taken_oldest_first_and_only_once)
{
    setup();
    ck_assert(tdl_inbox_is_empty(&inbox));
    ck_assert_ptr_null(tdl_inbox_take(&inbox));
    for (int count = 1; count <= 4; count++) {
        for (int i = 0; i < count; i++) {
            ck_assert_int_eq(tdl_inbox_post(&inbox, &links[i]), 0);
        }
        ck_assert(!tdl_inbox_is_empty(&inbox));
        check_chain(tdl_inbox_take(&inbox), 0, count);
        ck_assert(tdl_inbox_is_empty(&inbox));
    }
    teardown();
}
END_TEST

START_TEST(each_link_carries_the_mark_at_its_post)
{
    setup();
    for (uint32_t i = 0; i < 4; i++) {
        tdl_store_release_u32(&mark, 10 * i);
        ck_assert_int_eq(tdl_inbox_post(&inbox, &links[i]), 0);
    }
    uint32_t expected = 0;
    for (const struct tdl_link *link = tdl_inbox_take(&inbox); link != NULL; link = link->next) {
        ck_assert_uint_eq(link->mark, expected);
        expected += 10;
    }
    ck_assert_uint_eq(expected, 40);
    teardown();
}
END_TEST

START_TEST(without_a_mark_source_the_mark_is_zero)
{
    ck_assert_int_eq(tdl_wake_open(&wake, NULL), 0);
    tdl_inbox_init(&inbox, &wake, NULL);
    links[0].mark = 99;
    ck_assert_int_eq(tdl_inbox_post(&inbox, &links[0]), 0);
    check_chain(tdl_inbox_take(&inbox), 0, 1);
    ck_assert_uint_eq(links[0].mark, 0);
    teardown();
}
END_TEST

START_TEST(a_post_leaves_state_flags_and_user_alone)
{
    setup();
    links[0].state = 3;
    links[0].flags = 4;
    links[0].user = 5;
    ck_assert_int_eq(tdl_inbox_post(&inbox, &links[0]), 0);
    check_chain(tdl_inbox_take(&inbox), 0, 1);
    ck_assert_int_eq(links[0].state, 3);
    ck_assert_int_eq(links[0].flags, 4);
    ck_assert_int_eq(links[0].user, 5);
    teardown();
}
END_TEST

START_TEST(a_post_wakes_a_parked_owner_and_a_recheck_sees_one_before_the_park)
{
    setup();
    ck_assert_int_eq(tdl_inbox_post(&inbox, &links[0]), 0);
    tdl_wake_park_begin(&wake);
    ck_assert(!tdl_inbox_is_empty(&inbox));
    ck_assert(!tdl_wake_park_end(&wake));
    check_chain(tdl_inbox_take(&inbox), 0, 1);

    tdl_wake_park_begin(&wake);
    ck_assert(tdl_inbox_is_empty(&inbox));
    ck_assert_int_eq(tdl_inbox_post(&inbox, &links[1]), 0);
    ck_assert_int_eq(tdl_wake_wait(&wake, UINT64_MAX), 0);
    ck_assert(tdl_wake_park_end(&wake));
    check_chain(tdl_inbox_take(&inbox), 1, 1);
    teardown();
}
END_TEST

START_TEST(close_gives_back_what_is_left_and_refuses_what_comes)
{
    setup();
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(tdl_inbox_post(&inbox, &links[i]), 0);
    }
    check_chain(tdl_inbox_close(&inbox), 0, 3);
    links[3].mark = 77;
    ck_assert_int_eq(tdl_inbox_post(&inbox, &links[3]), TDL_ECLOSED);
    ck_assert_uint_eq(links[3].mark, 77);
    ck_assert(tdl_inbox_is_empty(&inbox));
    ck_assert_ptr_null(tdl_inbox_close(&inbox));
    tdl_wake_close(&wake);
}
END_TEST

START_TEST(after_a_fork_the_childs_close_does_not_wait_for_posters_of_the_parent)
{
    int status = -1;
    setup();
    /* A poster of the parent that is in flight while it forks. */
    (void)tdl_fetch_add_acq_rel_u32(&inbox.gate, 1);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        bool ok = tdl_wake_after_fork(&wake) == 0;
        tdl_inbox_after_fork(&inbox);
        ok = ok && tdl_inbox_post(&inbox, &links[0]) == 0 && tdl_inbox_close(&inbox) == &links[0];
        tdl_inbox_after_fork(&inbox);
        ok = ok && tdl_inbox_post(&inbox, &links[0]) == TDL_ECLOSED;
        _exit(ok ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    (void)tdl_fetch_sub_release_u32(&inbox.gate, 1);
    teardown();
}
END_TEST

SUITE("wake/inbox", posts_are_taken_oldest_first_and_only_once, each_link_carries_the_mark_at_its_post,
      without_a_mark_source_the_mark_is_zero, a_post_leaves_state_flags_and_user_alone,
      a_post_wakes_a_parked_owner_and_a_recheck_sees_one_before_the_park,
      close_gives_back_what_is_left_and_refuses_what_comes,
      after_a_fork_the_childs_close_does_not_wait_for_posters_of_the_parent)
