/* What the parts of fileio share: the engine table and the four moves an operation makes. */
#ifndef TREADLE_FILEIO_INTERNAL_H
#define TREADLE_FILEIO_INTERNAL_H

#include "treadle/alloc.h"
#include "treadle/assert.h"
#include "treadle/atomic.h"
#include "treadle/clock.h"
#include "treadle/failpoint.h"
#include "treadle/fileio.h"
#include "treadle/fork.h"
#include "treadle/status.h"

/* What the kernel moves at most in one call. */
#define TDL__CHUNK_MAX 0x7ffff000u

/* A direct transfer from memory that no disk can reach goes through a bounce buffer: so much in one round,
 * and on a boundary that every disk is content with. */
#define TDL__BOUNCE_BYTES (1u << 20)
#define TDL__BOUNCE_ALIGNMENT 4096u

/* The smallest block of a disk: a direct transfer has memory, place and length in multiples of it. */
#define TDL__SECTOR 512u

static inline bool tdl__is_on_sector(uint64_t value)
{
    return value % TDL__SECTOR == 0;
}

static inline char *tdl__bounce_align(char *memory)
{
    return memory + (TDL__BOUNCE_ALIGNMENT - (uintptr_t)memory % TDL__BOUNCE_ALIGNMENT);
}

/* Operations that an adaptive context collects before it flushes by itself. */
#define TDL__BATCH 16u

/* Values of tdl_fop.routed. */
enum tdl__route {
    TDL__ROUTE_ENGINE,
    TDL__ROUTE_POLLER,  /* the ring with the kernel thread */
    TDL__ROUTE_WORKERS, /* a blocking call on the pool */
};

/* An engine moves operations from the stage to flight and from flight to tdl__fio_complete; it never calls
 * the user. start fills f->backend and f->caps or leaves both untouched; stop is called with nothing in
 * flight; forget is called in a forked child and may not touch memory or kernel objects shared with the
 * parent. */
struct tdl__fio_engine {
    enum tdl_fio_engine id;
    int (*start)(struct tdl_fio *f);
    void (*stop)(struct tdl_fio *f);
    void (*forget)(struct tdl_fio *f);
    int (*fd)(struct tdl_fio *f);
    void (*submit)(struct tdl_fio *f);
    void (*reap)(struct tdl_fio *f);
    void (*cancel)(struct tdl_fio *f, struct tdl_fop *op);
    void (*cancel_all)(struct tdl_fio *f);
    int (*wait)(struct tdl_fio *f, uint64_t timeout_ns);
    int (*pin)(struct tdl_fio *f, void *memory, size_t length); /* NULL where it would not help */
    /* Whether the engine may still look up the descriptors of an operation in flight by their numbers. */
    bool (*borrows)(const struct tdl_fio *f, const struct tdl_fop *op);
};

extern const struct tdl__fio_engine tdl__fio_uring;
extern const struct tdl__fio_engine tdl__fio_aio;
extern const struct tdl__fio_engine tdl__fio_threads;
extern const struct tdl__fio_engine tdl__fio_simulated;

/* The engine of a number; io_uring for TDL_FIO_AUTO. */
const struct tdl__fio_engine *tdl__engine_of(enum tdl_fio_engine id);

/* To the next state; asserts that the move is one of those in fop.h. A close goes from the stage back to
 * those who wait, and what was returned may be put back and returned again. Inline, since each caller
 * names the state: the table is a constant. */
static inline void tdl__fop_enter(struct tdl_fop *op, enum tdl_fop_state state)
{
    static const uint8_t before[] = {
        [TDL_FOP_IDLE] = 1u << TDL_FOP_DONE | 1u << TDL_FOP_IDLE,
        [TDL_FOP_WAITING] = 1u << TDL_FOP_IDLE | 1u << TDL_FOP_STAGED,
        [TDL_FOP_STAGED] = 1u << TDL_FOP_WAITING | 1u << TDL_FOP_INFLIGHT,
        [TDL_FOP_INFLIGHT] = 1u << TDL_FOP_STAGED,
        [TDL_FOP_DONE] = 1u << TDL_FOP_WAITING | 1u << TDL_FOP_STAGED | 1u << TDL_FOP_INFLIGHT,
    };
    TDL_ASSERT((before[state] >> op->link.state & 1u) != 0);
    op->link.state = state;
}

/* Refills the stage from those who wait; the limit counts what is staged and what is in flight. */
void tdl__fio_admit(struct tdl_fio *f);

/* The first staged operation, NULL if there is none or this turn may submit no more; it stays staged. */
struct tdl_fop *tdl__fio_first(struct tdl_fio *f);

/* Has a read's buffer made if it has none yet; 0, or the code that becomes its result. */
int tdl__fio_provide(struct tdl_fio *f, struct tdl_fop *op);

/* Staged to in flight. */
void tdl__fio_sent(struct tdl_fio *f, struct tdl_fop *op, enum tdl__route route);

/* In flight back to the front of the stage: the kernel did not take it. */
void tdl__fio_unsent(struct tdl_fio *f, struct tdl_fop *op);

/* One round of an operation in flight ended with `res`; it is finished, or staged again for the rest. */
void tdl__fio_complete(struct tdl_fio *f, struct tdl_fop *op, int64_t res);

/* Anything but IDLE to finished, with this result. */
void tdl__fio_finish(struct tdl_fio *f, struct tdl_fop *op, int64_t result);

/* A sync on its way to the stage: true when another one that is still there does its work, too. */
bool tdl__join(struct tdl_fio *f, struct tdl_fop *op);

/* The operation leaves the stage: nobody joins it any more. */
void tdl__join_ends(struct tdl_fio *f, const struct tdl_fop *leader);

/* Those who joined have its result. */
void tdl__join_finish(struct tdl_fio *f, struct tdl_fop *leader, int64_t result);

/* The leader is canceled before its submission: one of those who joined takes its place. */
void tdl__join_promote(struct tdl_fio *f, struct tdl_fop *leader);

/* Where the next round of a transfer begins, and how much of it one round may move. */
struct tdl__span {
    char *buffer; /* of a plain transfer */
    const struct iovec *vector;
    unsigned count;
    size_t length;
    uint64_t offset;
};

void tdl__transfer_span(const struct tdl_fop *op, uint64_t chunk_max, struct tdl__span *span);

/* Counts a round of `res` in; true when another round must follow, else op->result is set. A short round
 * is the last one where nobody promised more, unless all `must` be moved. */
bool tdl__transfer_round(struct tdl_fop *op, int64_t res, uint64_t chunk_max, bool must);

/* A direct transfer that only fails because its memory is not aligned; a copy in aligned memory does it. */
bool tdl__transfer_wants_bounce(const struct tdl_fop *op);

/* A whole number of the disk's blocks in memory that is not on their boundary. */
bool tdl__transfer_is_unaligned(const struct tdl_fop *op);

/* Gives the operation such memory, in place of the rest of a vector; false without memory. */
bool tdl__transfer_make_bounce(struct tdl_fop *op);

/* A round of `res` bytes came into that memory. */
void tdl__transfer_take_bounce(struct tdl_fop *op, int64_t res);

bool tdl__fop_is_transfer(const struct tdl_fop *op);
bool tdl__fop_is_vectored(const struct tdl_fop *op);
bool tdl__fop_is_write(const struct tdl_fop *op);

/* How a call on a worker hears of a cancel. */
struct tdl__stop {
    tdl_atomic_u32 asked;
    tdl_atomic_u32 fd; /* readable once asked: the number and one, 0 while there is none */
};

void tdl__stop_init(struct tdl__stop *s);

/* By the owner, when the worker is done with it. */
void tdl__stop_close(struct tdl__stop *s);

/* By the owner: the worker makes no further step and waits no more. */
void tdl__stop_ask(struct tdl__stop *s);

/* NULL is never asked. */
bool tdl__stop_is_asked(const struct tdl__stop *s);

/* Waits for one of `events` on fd, and not in the call itself, which nothing could interrupt; 0, or
 * -ECANCELED once asked. */
int tdl__stop_wait(struct tdl__stop *s, int fd, short events);

/* Makes the blocking calls of an operation until it is complete; the result, not stored. With a stop it
 * makes no call after the stop was asked for, and waits for other programs beside it. */
int64_t tdl__fop_execute(struct tdl_fop *op, uint64_t chunk_max, struct tdl__stop *stop);

/* An open file that ends somewhere: a transfer of it is continued when it was short, and waits for nothing
 * but a disk. */
bool tdl__fd_is_file(int fd);

/* In a forked child: everything fails with -ECANCELED, the parent's engine is forgotten, the next call
 * starts a fresh one. */
void tdl__fio_after_fork(struct tdl_fio *f);

/* poll() on one descriptor, its own function so that a stack trace says what is waited for. */
int tdl__fio_wait_readable(int fd, uint64_t timeout_ns);

#endif
