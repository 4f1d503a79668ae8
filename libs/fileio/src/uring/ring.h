/* One io_uring: mapped memory, tails and heads, and the enter call. Knows nothing of operations. */
#ifndef TREADLE_FILEIO_RING_H
#define TREADLE_FILEIO_RING_H

#include "abi.h"

#include <stdbool.h>
#include <stdint.h>

struct tdl__ring_wish {
    uint32_t sq_entries;
    uint32_t cq_entries;
    uint32_t flags_mask; /* setup flags that may be tried */
    bool sqpoll;
    bool any_thread;
};

struct tdl__ring {
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

/* 0 or the kernel's refusal; steps down from the newest flags to none on EINVAL and to fewer entries on ENOMEM. */
int tdl__ring_open(struct tdl__ring *r, const struct tdl__ring_wish *wish);

/* As tdl__ring_open, and one no-op made its way through; else the ring is closed again. */
int tdl__ring_open_proven(struct tdl__ring *r, const struct tdl__ring_wish *wish);

void tdl__ring_close(struct tdl__ring *r);

/* In a forked child: the maps are not there (DONTFORK), only the descriptor is. */
void tdl__ring_forget(struct tdl__ring *r);

/* Free submission entries. */
uint32_t tdl__ring_space(const struct tdl__ring *r);

/* The next cleared submission entry; there must be space. */
struct io_uring_sqe *tdl__ring_sqe(struct tdl__ring *r);

/* Makes the filled entries visible to the kernel (MO-7) and returns how many it has not taken yet. */
uint32_t tdl__ring_publish(struct tdl__ring *r);

/* Takes back the entries that the kernel did not consume; returns how many. Not with a polling thread, which may be reading them. */
uint32_t tdl__ring_retract(struct tdl__ring *r);

/* With a polling thread: whether it sleeps and must be woken (MO-6). */
bool tdl__ring_sleeps(const struct tdl__ring *r);

/* io_uring_enter; timeout_ns of UINT64_MAX is none. The count or -errno. */
int tdl__ring_enter(struct tdl__ring *r, uint32_t submit, uint32_t wait, uint32_t flags, uint64_t timeout_ns);

/* Completions to be read now; index them from tdl__ring_cqe(r, 0). */
uint32_t tdl__ring_ready(const struct tdl__ring *r);

static inline const struct io_uring_cqe *tdl__ring_cqe(const struct tdl__ring *r, uint32_t index)
{
    return &r->cqes[(*r->cq_head + index) & (r->cq_entries - 1)];
}

/* Gives `count` read completions back to the kernel (MO-7). */
void tdl__ring_seen(struct tdl__ring *r, uint32_t count);

/* True when completions lie in the kernel, not in the ring: overflowed, or work that waits for this thread to enter. */
bool tdl__ring_holds_back(const struct tdl__ring *r);

#endif
