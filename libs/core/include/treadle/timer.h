/* Timers: items with a deadline in nanoseconds on whatever clock the host keeps. They lie in a heap while
 * armed, leave it at once when disarmed, and are pushed to the ready queue when due.
 *
 * Example:
 *     struct tdl_sched sched;
 *     struct tdl_timer timer;
 *     tdl_sched_init(&sched);
 *     tdl_timer_init(&timer, NULL);
 *     if (tdl_timer_arm(&sched, &timer, 1000) == 0)
 *         printf("%d\n", tdl_sched_timeout(&sched, 400) == 600);
 *     tdl_timer_disarm(&sched, &timer);
 *
 * A timer's states are its item's (sched.h): IDLE, ARMED in the heap, QUEUED when due, CANCELED when it was
 * canceled after it became due.
 */
#ifndef TREADLE_TIMER_H
#define TREADLE_TIMER_H

#include "treadle/sched.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An item with a deadline; callers embed it. While it is armed, `item.link.next` is its sibling in the heap
 * and `item.link.mark` its arming number. */
struct tdl_timer {
    struct tdl_item item;
    struct tdl_timer *child;
    struct tdl_timer *prev;
    uint64_t deadline_ns;
};

/* Makes an idle timer.
 * Thread:  owner
 * Owns:    the caller keeps the timer
 * Errors:  none
 * Cost:    O(1) */
void tdl_timer_init(struct tdl_timer *t, void (*run)(struct tdl_item *));

/* Arms an idle timer, or moves an armed one to a new deadline, behind those that have the same already.
 * Thread:  owner
 * Owns:    the timer stays valid until it ran, was dropped or was disarmed
 * Errors:  TDL_ESTATE and no change if the timer is due already and waits in the ready queue
 * Cost:    O(1); moving O(log timers) amortised */
int tdl_timer_arm(struct tdl_sched *s, struct tdl_timer *t, uint64_t deadline_ns);

/* Takes an armed timer out of the heap; true if it was armed. One that is due already is canceled by
 * tdl_sched_cancel.
 * Thread:  owner
 * Owns:    the timer is the caller's again if true
 * Errors:  false and no change if the timer is not armed
 * Cost:    O(log timers) amortised */
bool tdl_timer_disarm(struct tdl_sched *s, struct tdl_timer *t);

/* Pushes the timers with a deadline of `now_ns` or before to the ready queue, in deadline order, equal
 * deadlines in arming order; returns how many.
 * Thread:  owner
 * Owns:    as push
 * Errors:  none
 * Cost:    O(due log timers) amortised */
size_t tdl_sched_expire(struct tdl_sched *s, uint64_t now_ns);

/* Returns the nanoseconds from `now_ns` to the next deadline, 0 if it is due, UINT64_MAX without timers.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
uint64_t tdl_sched_timeout(const struct tdl_sched *s, uint64_t now_ns);

/* Says whether a timer is armed.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
bool tdl_sched_has_timers(const struct tdl_sched *s);

#ifdef __cplusplus
}
#endif

#endif
