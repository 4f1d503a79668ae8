/* Goal: cancel and abandon do what their header says in every state of a job.
 * Method: jobs that wait inside work on a gate, so each state can be held for as long as the test looks at
 * it. */
#include "post_box.h"

#include <check.h>

static struct post_box box;
static struct gate gate;
static struct tdl_pool *pool;

static void set_up(void)
{
    post_box_open(&box);
    gate_init(&gate, false);
    pool = pool_of(1, 0);
}

static void tear_down(void)
{
    gate_open(&gate);
    tdl_pool_close(pool);
    wait_no_pool_alive();
    post_box_close(&box);
}

static struct gated_job *submit(unsigned number)
{
    struct gated_job *gated = gated_job_new(&gate, number);
    ck_assert_int_eq(tdl_pool_submit(pool, &gated->job, 0, &box.inbox, &gated->done), 0);
    return gated;
}

START_TEST(a_finished_job_arrives_in_its_inbox)
{
    struct gated_job *gated = submit(7);
    gate_open(&gate);
    ck_assert_ptr_eq(post_box_wait(&box), &gated->done);
    ck_assert_int_eq(tdl_job_state(&gated->job), TDL_JOB_DONE);
    ck_assert_uint_eq(gated->order, 1);
    free(gated);
}
END_TEST

START_TEST(a_received_job_can_be_submitted_again)
{
    struct gated_job *gated = submit(1);
    gate_open(&gate);
    for (int i = 0; i < 3; i++) {
        ck_assert_ptr_eq(post_box_wait(&box), &gated->done);
        tdl_job_received(&gated->job);
        ck_assert_int_eq(tdl_job_state(&gated->job), TDL_JOB_IDLE);
        ck_assert_int_eq(tdl_pool_submit(pool, &gated->job, 0, &box.inbox, &gated->done), 0);
    }
    ck_assert_ptr_eq(post_box_wait(&box), &gated->done);
    ck_assert_uint_eq(gate_worked(&gate), 4);
    free(gated);
}
END_TEST

START_TEST(a_waiting_job_that_is_canceled_is_never_worked)
{
    struct gated_job *first = submit(1);
    gate_wait_inside(&gate, 1);
    struct gated_job *second = submit(2);
    ck_assert_int_eq(tdl_job_state(&second->job), TDL_JOB_WAITING);
    ck_assert(tdl_job_cancel(pool, &second->job));
    ck_assert_uint_eq(gate.released, 1);
    ck_assert(pthread_equal(gate.released_on, pthread_self()));
    gate_open(&gate);
    ck_assert_ptr_eq(post_box_wait(&box), &first->done);
    ck_assert_uint_eq(gate_worked(&gate), 1);
    free(first);
}
END_TEST

START_TEST(a_running_or_done_job_is_not_canceled)
{
    struct gated_job *gated = submit(1);
    gate_wait_inside(&gate, 1);
    ck_assert(!tdl_job_cancel(pool, &gated->job));
    gate_open(&gate);
    ck_assert_ptr_eq(post_box_wait(&box), &gated->done);
    ck_assert(!tdl_job_cancel(pool, &gated->job));
    tdl_job_received(&gated->job);
    ck_assert(!tdl_job_cancel(pool, &gated->job));
    free(gated);
}
END_TEST

START_TEST(a_waiting_job_that_is_abandoned_is_released_at_once)
{
    struct gated_job *first = submit(1);
    gate_wait_inside(&gate, 1);
    struct gated_job *second = submit(2);
    ck_assert(tdl_job_abandon(pool, &second->job));
    ck_assert_uint_eq(gate.released, 1);
    gate_open(&gate);
    ck_assert_ptr_eq(post_box_wait(&box), &first->done);
    ck_assert_uint_eq(gate_worked(&gate), 1);
    free(first);
}
END_TEST

START_TEST(a_running_job_that_is_abandoned_is_released_by_its_worker)
{
    struct gated_job *gated = submit(1);
    gate_wait_inside(&gate, 1);
    ck_assert(tdl_job_abandon(pool, &gated->job));
    gate_open(&gate);
    gate_wait_released(&gate, 1);
    ck_assert(!pthread_equal(gate.released_on, pthread_self()));
    ck_assert_ptr_null(post_box_poll(&box));
}
END_TEST

START_TEST(a_done_job_that_is_abandoned_still_arrives)
{
    struct gated_job *gated = submit(1);
    gate_open(&gate);
    while (tdl_job_state(&gated->job) != TDL_JOB_DONE) {
        sched_yield();
    }
    ck_assert(!tdl_job_abandon(pool, &gated->job));
    ck_assert_ptr_eq(post_box_wait(&box), &gated->done);
    tdl_job_received(&gated->job);
    free(gated);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("job");
    TCase *tcase = tcase_create("job");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_finished_job_arrives_in_its_inbox);
    tcase_add_test(tcase, a_received_job_can_be_submitted_again);
    tcase_add_test(tcase, a_waiting_job_that_is_canceled_is_never_worked);
    tcase_add_test(tcase, a_running_or_done_job_is_not_canceled);
    tcase_add_test(tcase, a_waiting_job_that_is_abandoned_is_released_at_once);
    tcase_add_test(tcase, a_running_job_that_is_abandoned_is_released_by_its_worker);
    tcase_add_test(tcase, a_done_job_that_is_abandoned_still_arrives);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
