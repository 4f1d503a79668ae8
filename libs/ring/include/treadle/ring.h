/* One io_uring, its memory mapped by hand: submission entries, completions, and the call that exchanges
 * them. It knows nothing of operations; its user fills entries (ring_abi.h) and reads completions.
 *
 * Example:
 *     struct tdl_ring ring;
 *     const struct tdl_ring_options options = {.sq_entries = 8};
 *     if (tdl_ring_open_proven(&ring, &options) == 0) {
 *         tdl_sqe_fill(tdl_ring_sqe(&ring), IORING_OP_NOP, -1, NULL, 0, 0);
 *         tdl_ring_enter(&ring, tdl_ring_publish(&ring), 1, IORING_ENTER_GETEVENTS, UINT64_MAX);
 *         if (tdl_ring_ready(&ring) > 0)
 *             printf("%d\n", tdl_ring_cqe(&ring, 0)->res);
 *         tdl_ring_seen(&ring, tdl_ring_ready(&ring));
 *         tdl_ring_close(&ring);
 *     }
 *
 * MEMORY ORDER: who fills entries publishes the tail with release, and the reader of a tail loads it with
 * acquire (MO-7); with a polling kernel thread a full fence stands between the tail and the look at
 * NEED_WAKEUP (MO-6).
 */
#ifndef TREADLE_RING_H
#define TREADLE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "treadle/atomic.h"
#include "treadle/list.h"
#include "treadle/ring_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tdl_ring_options {
    uint32_t sq_entries;  /* submission entries wanted */
    uint32_t cq_entries;  /* completions that fit; 0 is twice the submission entries */
    uint32_t flags_mask;  /* setup flags that may be tried; 0 is all of them */
    uint32_t flags_exact; /* these setup flags or a refusal; 0 steps down from the newest set */
    bool sqpoll;          /* a kernel thread that polls the submission queue */
    bool any_thread;      /* several threads enter, one at a time */
};

struct tdl_ring {
    uint32_t *sq_head; /* the kernel's */
    uint32_t *sq_tail; /* ours, published */
    uint32_t *sq_flags;
    uint32_t *cq_head; /* ours */
    uint32_t *cq_tail; /* the kernel's */
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    void *ring_map;
    size_t ring_bytes;
    void *cq_map; /* NULL where one map serves both */
    size_t cq_bytes;
    size_t sqe_bytes;
    uint32_t sq_entries;
    uint32_t cq_entries;
    uint32_t tail; /* entries filled, published or not */
    uint32_t setup_flags;
    uint32_t features;
    int fd;
};

/* Opens a ring: steps down from the newest setup flags to none on EINVAL, and to fewer entries on ENOMEM.
 * Thread:  any; with IORING_SETUP_SINGLE_ISSUER the caller is the owner from here on
 * Owns:    the caller keeps the struct at its address until tdl_ring_close or tdl_ring_forget
 * Errors:  the kernel's refusal, a negative errno; the ring is closed then
 * Cost:    some system calls */
int tdl_ring_open(struct tdl_ring *r, const struct tdl_ring_options *options);

/* Opens a ring and sends one no-op through it: a filter of system calls may allow the setup and refuse the
 * entering.
 * Thread:  as tdl_ring_open
 * Owns:    as tdl_ring_open
 * Errors:  a negative errno; the ring is closed then
 * Cost:    one system call more than tdl_ring_open */
int tdl_ring_open_proven(struct tdl_ring *r, const struct tdl_ring_options *options);

/* Closes the ring and its maps; a closed or zeroed one with fd -1 stays as it is.
 * Thread:  owner
 * Owns:    what is in flight belongs to the kernel until it has ended it
 * Errors:  none
 * Cost:    some system calls */
void tdl_ring_close(struct tdl_ring *r);

/* Closes the descriptor alone, in a forked child, where the maps are not (MADV_DONTFORK). Nothing else may
 * be called there.
 * Thread:  any
 * Owns:    the parent's ring is left alone
 * Errors:  none
 * Cost:    one system call */
void tdl_ring_forget(struct tdl_ring *r);

/* Free submission entries.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    one load */
uint32_t tdl_ring_space(const struct tdl_ring *r);

/* The next submission entry, cleared; there must be space.
 * Thread:  owner
 * Owns:    the entry is the caller's until tdl_ring_publish
 * Errors:  none
 * Cost:    O(1) */
struct io_uring_sqe *tdl_ring_sqe(struct tdl_ring *r);

/* Makes the filled entries visible to the kernel (MO-7); returns how many it has not taken yet.
 * Thread:  owner
 * Owns:    the entries are the kernel's
 * Errors:  none
 * Cost:    one store, one load */
uint32_t tdl_ring_publish(struct tdl_ring *r);

/* Takes back the entries that the kernel did not consume; returns how many. Not with a polling thread,
 * which may be reading them.
 * Thread:  owner
 * Owns:    the entries are the caller's again
 * Errors:  none
 * Cost:    O(1) */
uint32_t tdl_ring_retract(struct tdl_ring *r);

/* With a polling thread: whether it sleeps and must be woken (MO-6).
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    one full fence */
bool tdl_ring_sleeps(const struct tdl_ring *r);

/* io_uring_enter: submits published entries, waits for `wait` completions; a timeout_ns of UINT64_MAX is
 * none.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  the count of entries taken, or a negative errno: -EINTR, -ETIME, -EBUSY when completions must
 *          be read first
 * Cost:    one system call */
int tdl_ring_enter(const struct tdl_ring *r, uint32_t submit, uint32_t wait, uint32_t flags,
                   uint64_t timeout_ns);

/* io_uring_register of files, memory or a probe.
 * Thread:  owner
 * Owns:    as the kernel says of `code`
 * Errors:  0 or more, or a negative errno
 * Cost:    one system call */
int tdl_ring_register(const struct tdl_ring *r, uint32_t code, const void *arg, uint32_t count);

/* Completions that can be read now; index them from tdl_ring_cqe(r, 0).
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    one load */
TDL_INLINE uint32_t tdl_ring_ready(const struct tdl_ring *r)
{
    return tdl_load_acquire_shared_u32(r->cq_tail) - *r->cq_head; /* MO-7 */
}

/* The index-th completion that was not seen yet.
 * Thread:  owner
 * Owns:    the kernel may write over it after tdl_ring_seen
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE const struct io_uring_cqe *tdl_ring_cqe(const struct tdl_ring *r, uint32_t index)
{
    return &r->cqes[(*r->cq_head + index) & (r->cq_entries - 1)];
}

/* Gives `count` read completions back to the kernel (MO-7).
 * Thread:  owner
 * Owns:    those completions are the kernel's
 * Errors:  none
 * Cost:    one store */
TDL_INLINE void tdl_ring_seen(struct tdl_ring *r, uint32_t count)
{
    tdl_store_release_shared_u32(r->cq_head, *r->cq_head + count); /* MO-7 */
}

/* True when completions lie in the kernel, not in the ring: they overflowed, or work waits for this thread
 * to enter.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    one load */
bool tdl_ring_holds_back(const struct tdl_ring *r);

#ifdef __cplusplus
}
#endif

#endif
