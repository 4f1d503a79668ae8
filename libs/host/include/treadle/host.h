/* A whole loop in plain C: a host for core's turns that parks on a wake, takes remote items from an inbox,
 * and watches descriptors by epoll once there are any.
 *
 * Example (run is what the program wants done):
 *     struct tdl_epoll_host host;
 *     struct tdl_item item;
 *     tdl_item_init(&item, run);
 *     if (tdl_epoll_host_open(&host, NULL) == 0) {
 *         tdl_sched_push(&host.sched, &item);
 *         tdl_sched_stop(&host.sched);
 *         tdl_epoll_host_run(&host);
 *         tdl_epoll_host_close(&host);
 *     }
 *
 * States of a watch, in item.link.state: IDLE when nothing is due, QUEUED from a poll that found its
 * descriptor ready until its item runs, CANCELED when it was queued while its watch ended.
 * Level-triggered: what an item leaves unread queues it again in the next turn.
 */
#ifndef TREADLE_HOST_H
#define TREADLE_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "treadle/inbox.h"
#include "treadle/sched.h"
#include "treadle/turn.h"
#include "treadle/wake.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A descriptor to watch; its item runs when it is ready, again in each turn as long as it stays so. */
struct tdl_epoll_watch {
    struct tdl_item item;
    int fd;
    uint32_t ready; /* the epoll events of the poll that queued the item */
};

struct tdl_epoll_host {
    struct tdl_host host;
    struct tdl_sched sched;
    struct tdl_wake wake;
    struct tdl_inbox inbox;
    int epoll; /* -1 until the first watch */
    size_t polls;
};

/* Opens a host with an empty scheduler; `options` may be NULL.
 * Thread:  owner
 * Owns:    the caller keeps the host at its address until tdl_epoll_host_close
 * Errors:  a negative errno from the wake; the host is closed then
 * Cost:    one system call */
int tdl_epoll_host_open(struct tdl_epoll_host *h, const struct tdl_wake_options *options);

/* Closes the inbox, the descriptors and the wake. What was still posted is forgotten.
 * Thread:  owner, outside of a run
 * Owns:    items stay the caller's
 * Errors:  none
 * Cost:    waits for posters in flight */
void tdl_epoll_host_close(struct tdl_epoll_host *h);

/* Takes turns until one of them was asked to stop.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    the items */
void tdl_epoll_host_run(struct tdl_epoll_host *h);

/* Queues an item from any thread.
 * Thread:  any
 * Owns:    the caller keeps the item valid until it ran
 * Errors:  TDL_ECLOSED after close; the item stays the caller's
 * Cost:    O(1), at most one system call per park of the owner */
int tdl_epoll_host_post(struct tdl_epoll_host *h, struct tdl_item *item);

/* Watches `fd` for `events` (EPOLLIN, EPOLLOUT); `watch->item.run` is set by the caller.
 * Thread:  owner
 * Owns:    the caller keeps watch and descriptor valid until tdl_epoll_host_unwatch
 * Errors:  a negative errno; nothing is watched then
 * Cost:    one system call, one more the first time */
int tdl_epoll_host_watch(struct tdl_epoll_host *h, struct tdl_epoll_watch *watch, int fd, uint32_t events);

/* Changes what a watch waits for; 0 pauses it.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  a negative errno; what was watched stays watched
 * Cost:    one system call */
int tdl_epoll_host_rewatch(struct tdl_epoll_host *h, struct tdl_epoll_watch *watch, uint32_t events);

/* Ends the watch. An item that was queued already is dropped.
 * Thread:  owner
 * Owns:    the caller keeps the watch until the turn after this one, since the dropped item lies in it
 * Errors:  none
 * Cost:    one system call */
void tdl_epoll_host_unwatch(struct tdl_epoll_host *h, struct tdl_epoll_watch *watch);

#ifdef __cplusplus
}
#endif

#endif
