/* The readiness filter of a poller: tells from shared memory that a descriptor, as a rule an epoll's, did
 * not become ready, so that a poll which would not have waited can be left out. A small io_uring polls the
 * descriptor once for many events, and the kernel writes a completion when it becomes ready; to look for
 * one costs a load.
 *
 * Example (fd is the poller's, poll_now polls it without waiting and says whether it found something):
 *     struct tdl_filter filter;
 *     tdl_filter_init(&filter, false);
 *     for (int turn = 0; turn < 100; turn++) {
 *         if (tdl_filter_skips(&filter, fd))
 *             continue;
 *         tdl_filter_before_poll(&filter);
 *         tdl_filter_polled(&filter, poll_now(fd));
 *     }
 *     tdl_filter_disarm(&filter); // before a poll that waits: an armed one makes each wake-up dearer
 *     tdl_filter_close(&filter);
 *
 * Completions are taken before a poll, never behind it: the poll then finds what they told of, and what
 * comes while it is under way is told of again. MO-7: the kernel writes the completion tail and the flags;
 * they are read with acquire.
 *
 * In a forked child a filter begins anew by itself and leaves the parent's alone.
 */
#ifndef TREADLE_FILTER_H
#define TREADLE_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "treadle/ring.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tdl_filter_state {
    TDL_FILTER_NEW,     /* no ring yet: made once some polls in a row were empty */
    TDL_FILTER_OFF,     /* switched off by the user, for good */
    TDL_FILTER_REFUSED, /* the kernel refused io_uring, for good: every turn polls */
    TDL_FILTER_IDLE,    /* the ring is there, no poll stands in it */
    TDL_FILTER_ARMED,   /* the kernel watches the descriptor */
};

struct tdl_filter {
    enum tdl_filter_state state;
    int error; /* why io_uring was refused, an errno */
    uint32_t empty_polls;
    uint32_t sequence; /* of the poll in the ring that counts; completions of earlier ones are ignored */
    uint32_t fork_count;
    struct tdl_ring ring;
};

/* Puts a filter into its first state, NEW or OFF.
 * Thread:  any
 * Owns:    the caller keeps the struct at its address until tdl_filter_close
 * Errors:  none
 * Cost:    O(1), no system call */
void tdl_filter_init(struct tdl_filter *f, bool off);

/* True when the poll of `fd` may be left out: nothing became ready since the last one. Arms the filter
 * after some empty polls, and says false in that turn, which covers what came before.
 * Thread:  owner
 * Owns:    `fd` stays open and the same until tdl_filter_disarm or tdl_filter_close
 * Errors:  none; where the kernel refuses, it is false from then on
 * Cost:    two loads; some system calls when it is armed */
bool tdl_filter_skips(struct tdl_filter *f, int fd);

/* To be called before each poll that is made: takes the completions that this poll answers.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    two loads; one system call when completions overflowed */
void tdl_filter_before_poll(struct tdl_filter *f);

/* To be called behind each poll: whether it found something.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
void tdl_filter_polled(struct tdl_filter *f, bool handled);

/* Takes the poll back before the thread sleeps, or before the descriptor is closed.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    one system call if it is armed */
void tdl_filter_disarm(struct tdl_filter *f);

/* Closes the ring; OFF and REFUSED stay, else the filter is NEW again.
 * Thread:  owner
 * Owns:    the struct is the caller's
 * Errors:  none
 * Cost:    some system calls if there is a ring */
void tdl_filter_close(struct tdl_filter *f);

/* What users read of the state: off, refused or io_uring.
 * Thread:  owner
 * Owns:    a static string
 * Errors:  none
 * Cost:    O(1) */
const char *tdl_filter_name(const struct tdl_filter *f);

#ifdef __cplusplus
}
#endif

#endif
