#include "treadle/failpoint.h"

#include "treadle/atomic.h"

#ifdef TDL_FAILPOINTS

/* Per process, since a failing call does not know whose test it is in. */
static struct {
    tdl_atomic_u64 passed;
    tdl_atomic_u64 nth;
} failpoints[TDL_FAIL_KINDS];

bool tdl_failpoint_hit(enum tdl_failpoint kind)
{
    uint64_t pass = tdl_fetch_add_relaxed_u64(&failpoints[kind].passed, 1) + 1;
    return pass == tdl_load_relaxed_u64(&failpoints[kind].nth);
}

void tdl_failpoint_set(enum tdl_failpoint kind, uint64_t nth)
{
    tdl_store_relaxed_u64(&failpoints[kind].passed, 0);
    tdl_store_relaxed_u64(&failpoints[kind].nth, nth);
}

uint64_t tdl_failpoint_count(enum tdl_failpoint kind)
{
    return tdl_load_relaxed_u64(&failpoints[kind].passed);
}

#else
/* ISO C forbids an empty translation unit. */
typedef int failpoints_are_off;
#endif
