/* One turn of a loop, the same on every host: a table of functions gives it a clock, a poller and remote
 * items. The order is asyncio's, which polls first and runs last, so that stop and restart behave alike.
 *
 * Example (now, take, before_poll and poll are the host's four functions):
 *     struct tdl_sched sched;
 *     struct tdl_host host = {now, take, before_poll, poll};
 *     tdl_sched_init(&sched);
 *     tdl_sched_stop(&sched);
 *     do
 *         tdl_turn(&sched, &host);
 *     while (!tdl_sched_stopping(&sched));
 */
#ifndef TREADLE_TURN_H
#define TREADLE_TURN_H

#include "treadle/sched.h"
#include "treadle/timer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a turn needs of the world. Hosts embed it; every function is called by the owner only. */
struct tdl_host {
    /* The time on a clock that never goes back. */
    uint64_t (*now_ns)(struct tdl_host *host);
    /* All remote items posted so far, oldest first, each with its mark; NULL if none. */
    struct tdl_link *(*take)(struct tdl_host *host);
    /* Hands what the last run gathered to the kernel: queued writes, staged file operations. */
    void (*before_poll)(struct tdl_host *host);
    /* Waits for events, no longer than timeout_ns (0: not at all, UINT64_MAX: for ever), and appends the
     * items they make ready. It wakes when a remote item is posted, and may return early for no reason. */
    void (*poll)(struct tdl_host *host, uint64_t timeout_ns, struct tdl_queue *io);
};

/* Takes one turn: before_poll, poll, queue the I/O items, merge the remote items, expire timers, freeze,
 * run. Returns how many items ran.
 * Thread:  owner, outside of run
 * Owns:    the host keeps itself valid
 * Errors:  none; a host keeps its own failures and stops the scheduler
 * Cost:    the host's calls, one now_ns if timers are armed (two if it may wait), O(items) */
size_t tdl_turn(struct tdl_sched *s, struct tdl_host *host);

#ifdef __cplusplus
}
#endif

#endif
