/* Goal: the clocks count in nanoseconds and only forward, and a span keeps each of its nanoseconds.
 * Method: compare. */
#include "suite.h"

#include "treadle/clock.h"

START_TEST(the_clock_is_the_monotonic_one_and_never_goes_back)
{
    struct timespec before, after;
    (void)clock_gettime(CLOCK_MONOTONIC, &before);
    uint64_t first = tdl_clock_ns();
    uint64_t second = tdl_clock_ns();
    (void)clock_gettime(CLOCK_MONOTONIC, &after);
    ck_assert_uint_le((uint64_t)before.tv_sec * TDL_NS_PER_S + (uint64_t)before.tv_nsec, first);
    ck_assert_uint_le(first, second);
    ck_assert_uint_le(second, (uint64_t)after.tv_sec * TDL_NS_PER_S + (uint64_t)after.tv_nsec);
}
END_TEST

START_TEST(a_thread_uses_no_more_than_its_process)
{
    uint64_t thread = tdl_clock_thread_ns();
    while (tdl_clock_thread_ns() == thread) {
    }
    ck_assert_uint_gt(tdl_clock_thread_ns(), thread);
    uint64_t used = tdl_clock_thread_ns();
    ck_assert_uint_ge(tdl_clock_process_ns(), used);
}
END_TEST

START_TEST(a_span_keeps_each_nanosecond)
{
    const uint64_t spans[] = {0, 1, TDL_NS_PER_MS, TDL_NS_PER_S - 1, TDL_NS_PER_S, 7 * TDL_NS_PER_S + 8};
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        struct timespec span = tdl_clock_timespec(spans[i]);
        ck_assert_int_ge(span.tv_nsec, 0);
        ck_assert_int_lt(span.tv_nsec, (long)TDL_NS_PER_S);
        ck_assert_uint_eq((uint64_t)span.tv_sec * TDL_NS_PER_S + (uint64_t)span.tv_nsec, spans[i]);
    }
}
END_TEST

SUITE("base/clock", the_clock_is_the_monotonic_one_and_never_goes_back,
      a_thread_uses_no_more_than_its_process, a_span_keeps_each_nanosecond)
