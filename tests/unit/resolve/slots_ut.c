/* Goal: the number of slots follows the affinity mask.
 * Method: shrink the mask of this thread and compare. */
#include <check.h>
#include <sched.h>

#include "treadle/lookup.h"

START_TEST(slots_are_the_cpus_of_the_mask_and_four_at_most_thirty_two)
{
    cpu_set_t all;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    uint32_t expected = (uint32_t)CPU_COUNT(&all) + 4u;
    ck_assert_uint_eq(tdl_lookup_slots(), expected < 32u ? expected : 32u);
}
END_TEST

START_TEST(a_smaller_mask_gives_fewer_slots)
{
    cpu_set_t all;
    cpu_set_t one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &one);
            break;
        }
    }
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    uint32_t slots = tdl_lookup_slots();
    ck_assert_int_eq(sched_setaffinity(0, sizeof all, &all), 0);
    ck_assert_uint_eq(slots, 5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slots");
    TCase *tcase = tcase_create("slots");
    tcase_add_test(tcase, slots_are_the_cpus_of_the_mask_and_four_at_most_thirty_two);
    tcase_add_test(tcase, a_smaller_mask_gives_fewer_slots);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
