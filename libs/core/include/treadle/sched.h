/* The turn scheduler: a FIFO of items that run in generations. What is ready when a turn freezes runs in
 * that turn, what it schedules waits for the next. Pure: no system call, clock, thread or allocation.
 *
 * Example:
 *     struct tdl_sched sched;
 *     struct tdl_item item;
 *     tdl_sched_init(&sched);
 *     tdl_item_init(&item, NULL);
 *     tdl_sched_push(&sched, &item);
 *     bool was_queued = tdl_sched_cancel(&sched, &item);
 *     tdl_sched_freeze(&sched);
 *     size_t ran = tdl_sched_run(&sched);
 *     printf("%d %zu\n", was_queued, ran);
 *
 * Item states, in `link.state`:
 *   IDLE      in no queue; may be pushed
 *   QUEUED    in the ready queue, will run
 *   CANCELED  still in the ready queue; when its time comes it is dropped instead of run, and IDLE again
 *   ARMED     a timer in the heap (timer.h)
 * An item is IDLE before its `run` or the scheduler's `drop` is called, and the scheduler does not touch
 * it afterwards: both may push it again or free it.
 *
 * Marks: every local push takes the next number. A remote item carries the number it read when it was
 * posted, and merge puts it behind exactly the local items with that number or a lower one (MO-4). Marks
 * are 32 bits and compared by difference, so they may wrap as long as fewer than 2^31 pushes happen while
 * one item waits.
 */
#ifndef TREADLE_SCHED_H
#define TREADLE_SCHED_H

#include "treadle/atomic.h"
#include "treadle/list.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tdl_item_state {
    TDL_ITEM_IDLE = 0, /* in no queue */
    TDL_ITEM_QUEUED,   /* in the ready queue, will run */
    TDL_ITEM_CANCELED, /* in the ready queue, will be dropped */
    TDL_ITEM_ARMED     /* in the timer heap */
};

/* Something to run once; callers embed it. `run`, `link.flags` and `link.user` are the caller's, and core
 * only clears them in tdl_item_init; the rest of `link` is the scheduler's. */
struct tdl_item {
    struct tdl_link link;
    void (*run)(struct tdl_item *item);
};

struct tdl_timer;

/* One loop's scheduler. All fields but `drop` are private to core. */
struct tdl_sched {
    struct tdl_queue ready; /* by mark; the frozen generation is its front */
    size_t ready_count;     /* items in `ready`, canceled ones included */
    size_t frozen;          /* items of the generation still to run */
    struct tdl_queue after; /* items to run as soon as the running one returns */
    struct tdl_queue last;  /* items to run at the generation's end */
    tdl_atomic_u32 pushed;  /* local pushes so far; written by the owner only */
    uint32_t armed;         /* armings so far, orders equal deadlines */
    bool stopping;
    bool running;
    struct tdl_timer *timers; /* root of the heap */
    size_t timer_count;
    void (*drop)(struct tdl_item *); /* called instead of `run` for canceled items; may be NULL */
};

/* Makes an idle item.
 * Thread:  any, before the item is shared
 * Owns:    the caller keeps the item
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE void tdl_item_init(struct tdl_item *item, void (*run)(struct tdl_item *))
{
    item->link.next = NULL;
    item->link.mark = 0;
    item->link.state = TDL_ITEM_IDLE;
    item->link.flags = 0;
    item->link.user = 0;
    item->run = run;
}

/* The item of a link.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE struct tdl_item *tdl_item_of(struct tdl_link *link)
{
    return TDL_CONTAINER_OF(link, struct tdl_item, link);
}

/* Makes an empty scheduler. Set `drop` afterwards to be told of canceled items when their time comes.
 * Thread:  owner
 * Owns:    the caller keeps the scheduler until it has drained it
 * Errors:  none
 * Cost:    O(1) */
void tdl_sched_init(struct tdl_sched *s);

/* Queues an idle item behind everything that is ready; it runs in a later turn than the caller's.
 * Thread:  owner
 * Owns:    the item stays valid until its `run` or the drop is called
 * Errors:  none; an item that is not idle is an assertion
 * Cost:    O(1) */
void tdl_sched_push(struct tdl_sched *s, struct tdl_item *item);

/* Returns the local pushes so far, modulo 2^32: the mark of a remote item posted now.
 * Thread:  any, signal-safe
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
uint32_t tdl_sched_mark(const struct tdl_sched *s);

/* Returns the word that tdl_sched_mark reads, for an inbox that stamps marks itself.
 * Thread:  any
 * Owns:    valid as long as the scheduler
 * Errors:  none
 * Cost:    O(1) */
const tdl_atomic_u32 *tdl_sched_mark_source(const struct tdl_sched *s);

/* Puts remote items, given oldest first as a chain by `next` and each with its mark, among the ready ones:
 * behind the local items with the same mark or lower, and in order among themselves where marks are equal.
 * Thread:  owner
 * Owns:    as push
 * Errors:  none; a link that is neither idle nor canceled is an assertion
 * Cost:    O(list) when the marks are newer than all that is ready, else O(ready + list log list) */
void tdl_sched_merge(struct tdl_sched *s, struct tdl_link *list);

/* Queues what a poll made ready, in order, behind everything that is ready.
 * Thread:  owner
 * Owns:    as push; the queue is empty afterwards
 * Errors:  none; an item that is not idle is an assertion
 * Cost:    O(items) */
void tdl_sched_push_queue(struct tdl_sched *s, struct tdl_queue *items);

/* Declares all that is ready now the generation that the next run works off; returns its size.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none; inside of run it is an assertion
 * Cost:    O(1) */
size_t tdl_sched_freeze(struct tdl_sched *s);

/* Runs the frozen generation in order; returns how many items ran (dropped ones do not count).
 * Thread:  owner
 * Owns:    each item is the callee's before it is called
 * Errors:  none; inside of run it is an assertion
 * Cost:    O(generation) and what the items do */
size_t tdl_sched_run(struct tdl_sched *s);

/* Queues an idle item to run as soon as the running item returns, ahead of all that is ready and of an
 * interrupt.
 * Thread:  owner, from an item
 * Owns:    the item stays valid until its `run` is called
 * Errors:  none; outside of run, or an item that is not idle, is an assertion
 * Cost:    O(1) */
void tdl_sched_push_after(struct tdl_sched *s, struct tdl_item *item);

/* Queues an idle item to run when no more of this generation runs, because it is over or because of an
 * interrupt.
 * Thread:  owner, from an item
 * Owns:    the item stays valid until its `run` is called
 * Errors:  none; outside of run, or an item that is not idle, is an assertion
 * Cost:    O(1) */
void tdl_sched_push_last(struct tdl_sched *s, struct tdl_item *item);

/* Returns how many items of the generation are still to run: within a turn, another number for each item
 * that runs.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE size_t tdl_sched_left(const struct tdl_sched *s)
{
    return s->frozen;
}

/* Says whether an item runs now.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
bool tdl_sched_running(const struct tdl_sched *s);

/* Lets turns run inside of the running item, until tdl_sched_unnest. What is left of its generation is
 * part of the next, in order.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none; returns whether an item was running, for tdl_sched_unnest
 * Cost:    O(1) */
bool tdl_sched_nest(struct tdl_sched *s);

/* Ends what tdl_sched_nest began: its item runs on, and its generation is over with it.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none; inside of a nested run it is an assertion
 * Cost:    O(1) */
void tdl_sched_unnest(struct tdl_sched *s, bool was_running);

/* Makes the run that is going on return after the current item. The rest of its generation stays in front,
 * in order, for the next turn.
 * Thread:  owner, from an item
 * Owns:    nothing
 * Errors:  none; without effect outside of run
 * Cost:    O(1) */
void tdl_sched_interrupt(struct tdl_sched *s);

/* Turns a queued item into one that is dropped when its time comes; true if it was queued.
 * Thread:  owner
 * Owns:    the item stays valid until it is dropped
 * Errors:  false and no change if the item is not QUEUED
 * Cost:    O(1) */
bool tdl_sched_cancel(struct tdl_sched *s, struct tdl_item *item);

/* Asks for the turns to end: the next poll does not block, and tdl_sched_stopping says so after this turn.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
void tdl_sched_stop(struct tdl_sched *s);

/* Says whether a stop was asked for and not yet cleared.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
bool tdl_sched_stopping(const struct tdl_sched *s);

/* Takes the stop back, before or after a run of turns.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
void tdl_sched_clear_stop(struct tdl_sched *s);

/* Says whether an item is ready.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
bool tdl_sched_has_ready(const struct tdl_sched *s);

/* Takes every ready item and every timer out and calls `drop` on each, ready ones first in order, timers in
 * no order; what `drop` pushes or arms is taken out too.
 * Thread:  owner, outside of run
 * Owns:    each item is the callee's before it is called
 * Errors:  none
 * Cost:    O(ready + timers log timers) */
void tdl_sched_drain(struct tdl_sched *s, void (*drop)(struct tdl_item *));

/* Calls `visit` on every ready item, in order, and on every armed timer, in no order; nothing changes. For
 * owners that must account for what the queues hold, as a garbage collector does.
 * Thread:  owner, or any thread while the owner is excluded
 * Owns:    nothing
 * Errors:  none; `visit` must not push, arm or cancel
 * Cost:    O(ready + timers) */
void tdl_sched_visit(const struct tdl_sched *s, void (*visit)(struct tdl_item *, void *), void *arg);

/* Walks everything and says whether the counts, states and orders hold; for tests and TDL_VERIFY.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(ready + timers) */
bool tdl_sched_check(const struct tdl_sched *s);

#ifdef __cplusplus
}
#endif

#endif
