/* Goal: a class never has more jobs at once than slots, starts them in order, and never holds up another
 * class. Method: gated jobs; the gate counts how many are inside, each job notes its place in the order of
 * starts. */
#include "post_box.h"

#include <check.h>

static struct post_box box;
static struct gate gate;
static struct gate other_gate;

static void set_up(void)
{
    post_box_open(&box);
    gate_init(&gate, false);
    gate_init(&other_gate, true);
}

static void tear_down(void)
{
    wait_no_pool_alive();
    post_box_close(&box);
}

static struct gated_job *submit(struct tdl_pool *pool, struct gate *at, uint32_t job_class, unsigned number)
{
    struct gated_job *gated = gated_job_new(at, number);
    ck_assert_int_eq(tdl_pool_submit(pool, &gated->job, job_class, &box.inbox, &gated->done), 0);
    return gated;
}

START_TEST(no_more_jobs_run_than_slots)
{
    struct tdl_pool *pool = pool_of(3, 0);
    struct tdl_pool_counts counts;
    for (unsigned i = 0; i < 20; i++) {
        (void)submit(pool, &gate, 0, i);
    }
    gate_wait_inside(&gate, 3);
    tdl_pool_counts(pool, &counts);
    ck_assert_uint_eq(counts.running[0], 3);
    ck_assert_uint_eq(counts.waiting[0], 17);
    ck_assert_uint_eq(counts.threads, 3);
    gate_open(&gate);
    for (unsigned i = 0; i < 20; i++) {
        free(gated_job_of(post_box_wait(&box)));
    }
    ck_assert_uint_le(gate.inside_most, 3);
    tdl_pool_close(pool);
}
END_TEST

START_TEST(waiting_jobs_start_in_order)
{
    struct tdl_pool *pool = pool_of(1, 0);
    for (unsigned i = 0; i < 100; i++) {
        (void)submit(pool, &gate, 0, i);
    }
    gate_open(&gate);
    for (unsigned i = 0; i < 100; i++) {
        struct gated_job *gated = gated_job_of(post_box_wait(&box));
        ck_assert_uint_eq(gated->number, i);
        ck_assert_uint_eq(gated->order, i + 1);
        free(gated);
    }
    tdl_pool_close(pool);
}
END_TEST

START_TEST(a_burst_of_a_thousand_starts_no_more_threads_than_slots)
{
    struct tdl_pool *pool = pool_of(6, 0);
    struct tdl_pool_counts counts;
    gate_open(&gate);
    for (unsigned i = 0; i < 1000; i++) {
        (void)submit(pool, &gate, 0, i);
    }
    for (unsigned i = 0; i < 1000; i++) {
        free(gated_job_of(post_box_wait(&box)));
    }
    tdl_pool_counts(pool, &counts);
    ck_assert_uint_le(counts.threads_started, 6);
    ck_assert_uint_le(gate.inside_most, 6);
    tdl_pool_close(pool);
}
END_TEST

START_TEST(another_class_starts_behind_a_full_one)
{
    struct tdl_pool *pool = pool_of(2, 2);
    for (unsigned i = 0; i < 1000; i++) {
        (void)submit(pool, &gate, 0, i);
    }
    gate_wait_inside(&gate, 2);
    struct gated_job *other = submit(pool, &other_gate, 1, 0);
    ck_assert_ptr_eq(post_box_wait(&box), &other->done);
    free(other);
    ck_assert_uint_eq(gate_worked(&gate), 2);
    tdl_pool_close(pool);
    ck_assert_uint_eq(gate.released, 998);
    gate_open(&gate);
    gate_wait_released(&gate, 1000);
}
END_TEST

START_TEST(classes_take_turns)
{
    struct tdl_pool *pool = pool_of(1, 1);
    for (unsigned i = 0; i < 50; i++) {
        (void)submit(pool, &other_gate, 0, i);
        (void)submit(pool, &other_gate, 1, i);
    }
    for (unsigned i = 0; i < 100; i++) {
        free(gated_job_of(post_box_wait(&box)));
    }
    tdl_pool_close(pool);
}
END_TEST

START_TEST(a_canceled_job_gives_its_place_to_the_next)
{
    struct tdl_pool *pool = pool_of(1, 0);
    struct gated_job *first = submit(pool, &gate, 0, 0);
    gate_wait_inside(&gate, 1);
    struct gated_job *second = submit(pool, &gate, 0, 1);
    struct gated_job *third = submit(pool, &gate, 0, 2);
    ck_assert(tdl_job_cancel(pool, &second->job));
    gate_open(&gate);
    ck_assert_ptr_eq(post_box_wait(&box), &first->done);
    ck_assert_ptr_eq(post_box_wait(&box), &third->done);
    ck_assert_uint_eq(third->order, 2);
    free(first);
    free(third);
    tdl_pool_close(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slots");
    TCase *tcase = tcase_create("slots");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, no_more_jobs_run_than_slots);
    tcase_add_test(tcase, waiting_jobs_start_in_order);
    tcase_add_test(tcase, a_burst_of_a_thousand_starts_no_more_threads_than_slots);
    tcase_add_test(tcase, another_class_starts_behind_a_full_one);
    tcase_add_test(tcase, classes_take_turns);
    tcase_add_test(tcase, a_canceled_job_gives_its_place_to_the_next);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
