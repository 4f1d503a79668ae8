/* A host for core's turns in plain C: it parks on a wake, takes remote items from an inbox, and watches
 * descriptors by epoll when there are any.
 *
 *     struct tdl_wake_host host;
 *     if (tdl_wake_host_open(&host, NULL) == 0) {
 *         tdl_sched_push(&host.sched, &item);
 *         tdl_wake_host_run(&host);
 *         tdl_wake_host_close(&host);
 *     }
 */
#ifndef TREADLE_CLI_HOST_H
#define TREADLE_CLI_HOST_H

#include "treadle/inbox.h"
#include "treadle/sched.h"
#include "treadle/turn.h"
#include "treadle/wake.h"

/* A descriptor to watch; its item runs when it is ready, again in each turn as long as it stays so. */
struct tdl_watch {
    struct tdl_item item;
    int fd;
    uint32_t ready; /* the epoll events of the poll that queued the item */
};

struct tdl_wake_host {
    struct tdl_host host;
    struct tdl_sched sched;
    struct tdl_wake wake;
    struct tdl_inbox inbox;
    int epoll; /* -1 until the first watch */
    size_t polls;
};

/* Opens a host with an empty scheduler; `options` may be NULL.
 * Thread:  owner
 * Owns:    the caller keeps the host at its address until tdl_wake_host_close
 * Errors:  a negative errno from the wake; the host is closed then
 * Cost:    one system call */
int tdl_wake_host_open(struct tdl_wake_host *h, const struct tdl_wake_options *options);

/* Closes the inbox, the descriptors and the wake. What was still posted is forgotten.
 * Thread:  owner, outside of a run
 * Owns:    items stay the caller's
 * Errors:  none
 * Cost:    waits for posters in flight */
void tdl_wake_host_close(struct tdl_wake_host *h);

/* Takes turns until one of them was asked to stop.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    the items */
void tdl_wake_host_run(struct tdl_wake_host *h);

/* Queues an item from any thread.
 * Thread:  any
 * Owns:    the caller keeps the item valid until it ran
 * Errors:  TDL_ECLOSED after close; the item stays the caller's
 * Cost:    O(1), at most one system call per park of the owner */
int tdl_wake_host_post(struct tdl_wake_host *h, struct tdl_item *item);

/* Watches `fd` for `events` (EPOLLIN, EPOLLOUT); `watch->item.run` is set by the caller.
 * Thread:  owner
 * Owns:    the caller keeps watch and descriptor valid until tdl_wake_host_unwatch
 * Errors:  a negative errno; nothing is watched then
 * Cost:    one system call, one more the first time */
int tdl_wake_host_watch(struct tdl_wake_host *h, struct tdl_watch *watch, int fd, uint32_t events);

/* Changes what a watch waits for; 0 pauses it.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  a negative errno; what was watched stays watched
 * Cost:    one system call */
int tdl_wake_host_rewatch(struct tdl_wake_host *h, struct tdl_watch *watch, uint32_t events);

/* Ends the watch. An item that was queued already is dropped.
 * Thread:  owner
 * Owns:    the caller keeps the watch until the turn after this one, since the dropped item lies in it
 * Errors:  none
 * Cost:    one system call */
void tdl_wake_host_unwatch(struct tdl_wake_host *h, struct tdl_watch *watch);

#endif
