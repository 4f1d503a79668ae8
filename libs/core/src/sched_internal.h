/* What the files of core share. */
#ifndef TREADLE_SCHED_INTERNAL_H
#define TREADLE_SCHED_INTERNAL_H

#include "treadle/sched.h"
#include "treadle/timer.h"

/* Whether mark or arming number a comes after b, as long as they are less than 2^31 apart. */
static inline bool tdl__number_after(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

void tdl__timers_visit(const struct tdl_sched *s, void (*visit)(struct tdl_item *, void *), void *arg);
bool tdl__timers_check(const struct tdl_sched *s);
struct tdl_timer *tdl__timers_pop(struct tdl_sched *s);

#endif
