#include "treadle/clock.h"

static uint64_t read_ns(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * TDL_NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t tdl_clock_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t tdl_clock_thread_ns(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t tdl_clock_process_ns(void)
{
    return read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

struct timespec tdl_clock_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / TDL_NS_PER_S), .tv_nsec = (long)(ns % TDL_NS_PER_S)};
}
