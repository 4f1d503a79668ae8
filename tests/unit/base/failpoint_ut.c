/* Goal: exactly the n-th pass fails, per kind, and without the build option nothing does. Method: count. */
#include "suite.h"

#include <unistd.h>

#include "treadle/failpoint.h"

#ifdef TDL_FAILPOINTS

START_TEST(exactly_the_nth_pass_fails)
{
    for (uint64_t nth = 1; nth <= 5; nth++) {
        tdl_failpoint_set(TDL_FAIL_ALLOC, nth);
        for (uint64_t pass = 1; pass <= 8; pass++) {
            ck_assert_int_eq(TDL_FAIL(TDL_FAIL_ALLOC), pass == nth);
        }
        ck_assert_uint_eq(tdl_failpoint_count(TDL_FAIL_ALLOC), 8);
    }
    tdl_failpoint_set(TDL_FAIL_ALLOC, 0);
    ck_assert(!TDL_FAIL(TDL_FAIL_ALLOC));
}
END_TEST

START_TEST(kinds_count_apart)
{
    tdl_failpoint_set(TDL_FAIL_ALLOC, 1);
    tdl_failpoint_set(TDL_FAIL_SYSCALL, 0);
    ck_assert(!TDL_FAIL(TDL_FAIL_SYSCALL));
    ck_assert(TDL_FAIL(TDL_FAIL_ALLOC));
    ck_assert_uint_eq(tdl_failpoint_count(TDL_FAIL_SYSCALL), 1);
    tdl_failpoint_set(TDL_FAIL_ALLOC, 0);
}
END_TEST

START_TEST(a_failed_system_call_is_not_made_and_sets_the_error_named)
{
    tdl_failpoint_set(TDL_FAIL_SYSCALL, 1);
    errno = 0;
    ck_assert_int_eq(TDL_SYSCALL(EMFILE, dup(STDOUT_FILENO)), -1);
    ck_assert_int_eq(errno, EMFILE);
    int fd = TDL_SYSCALL(EMFILE, dup(STDOUT_FILENO));
    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    tdl_failpoint_set(TDL_FAIL_SYSCALL, 0);
}
END_TEST

SUITE("base/failpoint", exactly_the_nth_pass_fails, kinds_count_apart,
      a_failed_system_call_is_not_made_and_sets_the_error_named)

#else

START_TEST(without_the_option_nothing_fails)
{
    ck_assert(!TDL_FAIL(TDL_FAIL_ALLOC));
    ck_assert_int_eq(TDL_SYSCALL(EMFILE, 5), 5);
}
END_TEST

SUITE("base/failpoint", without_the_option_nothing_fails)

#endif
