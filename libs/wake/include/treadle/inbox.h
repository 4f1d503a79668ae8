/* A queue from any thread to one: producers post links without a lock, the owner takes all of them at once,
 * oldest first, and is woken when it sleeps. Closing waits out the posters in flight.
 *
 * Example:
 *     struct tdl_wake wake;
 *     struct tdl_inbox inbox;
 *     struct tdl_link link = {0};
 *     if (tdl_wake_open(&wake, NULL) == 0) {
 *         tdl_inbox_init(&inbox, &wake, NULL);
 *         tdl_inbox_post(&inbox, &link);
 *         printf("%d\n", tdl_inbox_take(&inbox) == &link);
 *         tdl_inbox_close(&inbox);
 *         tdl_wake_close(&wake);
 *     }
 *
 * States: open, closed. The gate word counts the posters in flight and carries the closed bit.
 *
 * MEMORY ORDER
 *   MO-1  the push is sequentially consistent and comes before notify's load of the wake's word; is_empty
 *         and take are sequentially consistent and come after park_begin's store to it.
 *   MO-3  a poster enters the gate before it looks at the closed bit and leaves it as its last access;
 *         close sets the bit and then waits for the gate to empty.
 *   MO-4  the mark is read and written to the link before the push publishes it.
 */
#ifndef TREADLE_INBOX_H
#define TREADLE_INBOX_H

#include "treadle/atomic.h"
#include "treadle/list.h"
#include "treadle/wake.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Many producers, one consumer. All fields are private to wake. */
struct tdl_inbox {
    tdl_atomic_ptr head; /* the newest link; `next` leads to older ones */
    tdl_atomic_u32 gate; /* posters in flight, and TDL__INBOX_CLOSED */
    struct tdl_wake *wake;
    const tdl_atomic_u32 *mark_source;
};

/* Makes an empty, open inbox that notifies `wake`. `mark_source` is the word a post stamps its link with
 * (tdl_sched_mark_source); NULL stamps 0.
 * Thread:  owner
 * Owns:    the caller keeps the inbox, the wake and the source valid until the inbox is closed
 * Errors:  none
 * Cost:    O(1) */
void tdl_inbox_init(struct tdl_inbox *in, struct tdl_wake *wake, const tdl_atomic_u32 *mark_source);

/* Queues the link and wakes the owner if it sleeps. Links of one producer stay in its order.
 * Thread:  any, signal-safe
 * Owns:    the link is the inbox's until it is taken, or given back by close
 * Errors:  TDL_ECLOSED after close: the link is untouched and the caller's
 * Cost:    three locked operations; one write if the owner sleeps */
int tdl_inbox_post(struct tdl_inbox *in, struct tdl_link *link);

/* Takes everything that was posted, oldest first, as a chain by `next`; NULL if there is nothing.
 * Thread:  owner
 * Owns:    the links are the caller's
 * Errors:  none
 * Cost:    O(links); one load if empty */
struct tdl_link *tdl_inbox_take(struct tdl_inbox *in);

/* Says whether nothing is posted; exact for what was posted before park_begin announced the park.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none
 * Cost:    one load */
bool tdl_inbox_is_empty(const struct tdl_inbox *in);

/* Closes the inbox and returns what was left in it, oldest first. Posters in flight are waited for; on
 * return none of them touches the inbox, the wake or the mark source any more, and later posts are refused
 * (for which only the inbox itself must still be there). Closing again returns NULL.
 * Thread:  owner; not from a signal handler that may have interrupted a post of the same thread
 * Owns:    the links are the caller's
 * Errors:  none
 * Cost:    O(links), and the time of the posts in flight */
struct tdl_link *tdl_inbox_close(struct tdl_inbox *in);

/* Forgets the posters that were in flight in the parent, since they do not exist in the child of a fork.
 * Thread:  owner, in the child, after tdl_wake_after_fork and before anything else of the inbox is used
 * Owns:    links posted before the fork are still in the inbox
 * Errors:  none
 * Cost:    O(1) */
void tdl_inbox_after_fork(struct tdl_inbox *in);

#ifdef __cplusplus
}
#endif

#endif
