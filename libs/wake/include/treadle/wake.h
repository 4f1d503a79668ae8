/* Parking and waking one thread: a word that says whether the owner sleeps, and an eventfd it sleeps on.
 * Notifying costs one load while the owner is awake, and writes the descriptor at most once per park.
 *
 * Example:
 *     struct tdl_wake wake;
 *     if (tdl_wake_open(&wake, NULL) == 0) {
 *         tdl_wake_park_begin(&wake);
 *         // re-check every queue here, and do not wait if one has something
 *         tdl_wake_notify(&wake);
 *         printf("%d\n", tdl_wake_wait(&wake, UINT64_MAX));
 *         tdl_wake_park_end(&wake);
 *         tdl_wake_close(&wake);
 *     }
 *
 * States of the word:
 *   AWAKE     the owner runs and will look at its queues before it sleeps; notify does nothing
 *   WAITING   the owner sleeps on the descriptor or is about to
 *   SPINNING  the owner spins on the word instead of sleeping on the descriptor
 *   SIGNALED  notified while spinning; the descriptor was not written
 *   NOTIFIED  notified while waiting; the descriptor was or is about to be written
 *
 * MEMORY ORDER
 *   MO-1  park_begin stores WAITING, then the owner loads its queues; a producer stores its work, then
 *         notify loads the word. All four are sequentially consistent, so at least one side sees the
 *         other: with release and acquire alone both stores could still be on their way when both loads run.
 *   MO-2  only the notifier whose CAS moves WAITING to NOTIFIED writes the descriptor.
 */
#ifndef TREADLE_WAKE_H
#define TREADLE_WAKE_H

#include "treadle/atomic.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tdl_wake_state {
    TDL_WAKE_AWAKE = 0, /* the owner runs */
    TDL_WAKE_WAITING,   /* the owner sleeps on the descriptor or is about to */
    TDL_WAKE_SPINNING,  /* the owner spins on the word */
    TDL_WAKE_SIGNALED,  /* notified while spinning, nothing written */
    TDL_WAKE_NOTIFIED   /* notified while waiting, one write done or under way */
};

struct tdl_wake_options {
    uint64_t spin_ns; /* how long a wait spins on the word before it sleeps; 0: not at all */
    bool edge; /* the owner sleeps on an edge-triggered poller of its own, which needs no write read back */
};

/* One parker, any number of notifiers. All fields are private to wake. */
struct tdl_wake {
    tdl_atomic_u32 state;
    int fd;
    uint32_t owed; /* writes announced by NOTIFIED that were not read back yet */
    uint64_t spin_ns;
    bool edge;
    bool open; /* so that the 0 of a struct of zeros is no descriptor */
};

/* Opens the descriptor; the owner is awake. `options` may be NULL for the defaults.
 * Thread:  owner
 * Owns:    the caller keeps the wake at one address until it is closed
 * Errors:  TDL_EMFILE, TDL_ENFILE, TDL_ENOMEM, TDL_ENODEV of eventfd; the wake is then closed
 * Cost:    one syscall */
int tdl_wake_open(struct tdl_wake *w, const struct tdl_wake_options *options);

/* Closes the descriptor. Harmless when closed already, when the open failed, and for a wake of zeros.
 * Thread:  owner, when no notifier can come any more (tdl_inbox_close sees to that)
 * Owns:    the memory is the caller's again
 * Errors:  none
 * Cost:    one syscall */
void tdl_wake_close(struct tdl_wake *w);

/* Returns the descriptor, readable when the owner was notified while it waited; for polling only.
 * Thread:  any
 * Owns:    the wake keeps it; it changes in after_fork
 * Errors:  -1 when closed
 * Cost:    O(1) */
int tdl_wake_fd(const struct tdl_wake *w);

/* Announces that the owner is about to sleep. It must look at all its queues after this and before it
 * sleeps; when it finds something, it calls park_end instead of sleeping.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none; a second park inside of one is an assertion
 * Cost:    one locked store */
void tdl_wake_park_begin(struct tdl_wake *w);

/* Ends the park, takes back what notify wrote to the descriptor, and says whether a notify came. Harmless
 * when not parked.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    one exchange; one read if a notify wrote the descriptor */
bool tdl_wake_park_end(struct tdl_wake *w);

/* Watches the word for spin_ns without sleeping; true if a notify came. For hosts that sleep on a poller of
 * their own, between park_begin and that.
 * Thread:  owner, between park_begin and park_end
 * Owns:    nothing
 * Errors:  none
 * Cost:    up to spin_ns; nothing if spin_ns is 0 */
bool tdl_wake_spin(struct tdl_wake *w);

/* Spins on the word for `watch_ns`, whatever spin_ns is; true if a notify came.
 * Thread:  owner, between park_begin and park_end
 * Owns:    nothing
 * Errors:  none
 * Cost:    up to watch_ns */
bool tdl_wake_watch(struct tdl_wake *w, uint64_t watch_ns);

/* Sets how long a wait, or tdl_wake_spin, spins on the word from now on; 0: not at all.
 * Thread:  owner, not parked
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
void tdl_wake_set_spin(struct tdl_wake *w, uint64_t spin_ns);

/* Waits for a notify, for at most timeout_ns (UINT64_MAX: for ever): spins first, then sleeps.
 * Thread:  owner, between park_begin and park_end
 * Owns:    nothing
 * Errors:  TDL_ETIMEDOUT, TDL_EINTR after a signal; the park goes on until park_end in each case
 * Cost:    up to spin_ns, then one syscall */
int tdl_wake_wait(struct tdl_wake *w, uint64_t timeout_ns);

/* Wakes the owner if it sleeps or is about to; does nothing while it is awake. Keeps errno.
 * Thread:  any, signal-safe
 * Owns:    the wake must be open
 * Errors:  none
 * Cost:    one load while the owner is awake; else one CAS, and one write per park */
void tdl_wake_notify(struct tdl_wake *w);

/* Gives the child of a fork a descriptor of its own, since the inherited one is the parent's too.
 * Thread:  owner, in the child, before anything else of the wake is used
 * Owns:    the inherited descriptor is closed in the child
 * Errors:  as open; the wake is then closed
 * Cost:    two syscalls */
int tdl_wake_after_fork(struct tdl_wake *w);

#ifdef __cplusplus
}
#endif

#endif
