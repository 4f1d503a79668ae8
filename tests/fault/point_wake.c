/* Goal: whichever allocation or system call of the scenario fails, the caller learns of it or it is made
 * good, and nothing is left open or lost. Method: failpoints, for k = 1, 2, ... until the k-th is never
 * reached; AddressSanitizer sees what is not freed. */
#include "suite.h"
#include "wake_scenario.h"

#include "treadle/failpoint.h"

static uint64_t fail_each(enum tdl_failpoint kind)
{
    unsigned descriptors = scenario_open_descriptors();
    uint64_t k = 1;

    for (;; k++) {
        tdl_failpoint_set(kind, k);
        int rc = scenario();
        bool reached = tdl_failpoint_count(kind) >= k;
        tdl_failpoint_set(kind, 0);
        ck_assert_uint_eq(scenario_open_descriptors(), descriptors);
        ck_assert_int_ne(rc, TDL_EIO);
        if (!reached) {
            ck_assert_int_eq(rc, 0);
            ck_assert_int_eq(scenario_ran, 2 * SCENARIO_ITEMS);
            return k - 1;
        }
        ck_assert(rc == 0 || rc == TDL_EMFILE || rc == TDL_ENOMEM);
    }
}

START_TEST(each_allocation_may_fail)
{
    ck_assert_uint_eq(fail_each(TDL_FAIL_ALLOC), 2 * SCENARIO_ITEMS);
}
END_TEST

START_TEST(each_system_call_may_fail)
{
    /* eventfd and its successor after the fork; a ppoll only where the word did not say it first. */
    ck_assert_uint_ge(fail_each(TDL_FAIL_SYSCALL), 2);
}
END_TEST

SUITE("fault/point_wake", each_allocation_may_fail, each_system_call_may_fail)
