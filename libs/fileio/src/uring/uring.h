/* The io_uring engine's own struct, and the writing of entries. */
#ifndef TREADLE_FILEIO_URING_H
#define TREADLE_FILEIO_URING_H

#include "../internal.h"

#include "treadle/ring.h"

/* user_data that is no operation: an answer nobody reads, and the workers' wake. */
#define TDL__DATA_NOBODY 0u
#define TDL__DATA_WORKERS 1u

/* The low bits of an operation's user_data: which part of a whole-file chain it is. */
enum tdl__part {
    TDL__PART_WHOLE,
    TDL__PART_OPEN,
    TDL__PART_READ,
    TDL__PART_PROBE,
    TDL__PART_CLOSE,
};
#define TDL__PART_MASK 7u
#define TDL__CHAIN_PARTS 4u

/* Entries of a submission queue: a burst beyond them is two calls, not one. */
#define TDL__SUBMIT_ROOM_MIN 8u
#define TDL__SUBMIT_ROOM_MAX 256u

/* Registered file slots, so whole-file chains at once; the rest wait on the stage. */
#define TDL__CHAIN_SLOTS 64u

struct tdl__uring {
    struct tdl_ring main;
    struct tdl_ring poller; /* a ring with a kernel thread; fd is -1 without one */
    uint64_t free_slots;    /* bit per registered file of main */
    uint64_t last_flush_ns;
    uint32_t streak;           /* flushes in quick succession */
    uint64_t window_ns;        /* when the owner's share of a processor was last measured */
    uint64_t window_thread_ns; /* the processor time that it had used by then */
    bool owner_busy;
    int epoll_fd; /* joins the two rings' descriptors; -1 with one ring */
    bool workers_watched;
    bool probe_runs_on; /* of a chain that was asked to stop */
};

/* Entries that the operation takes. */
static inline uint32_t tdl__uring_entries(const struct tdl_fop *op)
{
    return op->code == TDL_FOP_READ_FILE ? TDL__CHAIN_PARTS : 1u;
}

static inline uint64_t tdl__uring_data(const struct tdl_fop *op, enum tdl__part part)
{
    return (uint64_t)(uintptr_t)op | (uint64_t)part;
}

static inline struct tdl_fop *tdl__uring_op(uint64_t data)
{
    return (struct tdl_fop *)(uintptr_t)(data & ~(uint64_t)TDL__PART_MASK);
}

/* Writes the operation's entries; the ring has the space, and a chain has its slot. */
void tdl__uring_prepare(const struct tdl_fio *f, struct tdl_ring *r, struct tdl_fop *op);

/* The operations that this ring's kernel runs, as bits of enum tdl_fop_code. */
uint32_t tdl__uring_kernel_ops(const struct tdl_ring *r);

static inline bool tdl__has_poller(const struct tdl__uring *u)
{
    return u->poller.fd >= 0;
}

/* uring.c: publishes and enters until the kernel took every entry, or refused it. */
void tdl__uring_kick(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring *r);

/* chain.c */
/* Makes the registered files, none of them open; a negative code where the kernel has none. */
int tdl__chain_register(struct tdl__uring *u);

/* False while all are in use. */
bool tdl__chain_take_slot(struct tdl__uring *u, struct tdl_fop *op);
void tdl__chain_give_slot(struct tdl__uring *u, const struct tdl_fop *op);

/* Writes the chain's entries. */
void tdl__chain_prepare(struct tdl_ring *r, struct tdl_fop *op);

/* One of them ended with `res`; the last one completes the operation. */
void tdl__chain_part(struct tdl_fio *f, struct tdl__uring *u, struct tdl_fop *op, enum tdl__part part,
                     int32_t res);

/* Cancels the probes of chains that were asked to stop and whose reads have ended. */
void tdl__chain_cancel_probes(struct tdl_fio *f, struct tdl__uring *u);

/* poller.c */
/* Opens the second ring and joins the two's descriptors in an epoll; without it there is one ring. */
void tdl__poller_open(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring_options wish);

/* The ring for what is staged now. */
struct tdl_ring *tdl__poller_choose(struct tdl_fio *f, struct tdl__uring *u);

/* Publishes, wakes the thread if it sleeps, and waits for room if the queue is full. */
void tdl__poller_kick(struct tdl_fio *f, struct tdl_ring *r, bool full);

uint32_t tdl__power_of_two(uint32_t n);

#endif
