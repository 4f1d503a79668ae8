/* A context for file operations: stage many, submit them with one system call, collect what is finished.
 * One owner thread drives it. Results are not called back, reap returns a list; the one thing that is
 * called is options.provide, by a submission, for a read that has no buffer yet.
 *
 *     struct tdl_fio fio;
 *     struct tdl_fop op;
 *     struct tdl_queue finished;
 *     tdl_fio_open(&fio, NULL);
 *     tdl_fop_read(&op, fd, buffer, sizeof buffer, 0);
 *     tdl_fio_stage(&fio, &op);
 *     tdl_queue_init(&finished);
 *     tdl_fio_drain(&fio, &finished);
 *     tdl_fio_close(&fio, &finished);
 *
 * States of a context:
 *     NEW      opened; no kernel object yet, so it may still be handed to the thread that will own it
 *     RUNNING  its engine is started, on the thread of the first stage, flush or fd
 *     CLOSED   everything was returned; only open may follow
 *
 * MEMORY ORDER: a ring's tail is published with release, its completion tail read with acquire (MO-7);
 * with a polling kernel thread a full fence stands between the tail and the look at NEED_WAKEUP (MO-6).
 * Workers hand results over by tdl_inbox (MO-1, MO-4). All else belongs to the owner thread. */
#ifndef TREADLE_FILEIO_H
#define TREADLE_FILEIO_H

#include <stdbool.h>
#include <stdint.h>

#include "treadle/fop.h"
#include "treadle/list.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tdl_pool;
struct tdl__fio_engine;
struct tdl__fio_workers;

enum tdl_fio_engine {
    TDL_FIO_AUTO,        /* the ring, else threads */
    TDL_FIO_LINUX_URING, /* io_uring */
    TDL_FIO_LINUX_AIO,   /* io_submit; blocks in flush for files that are not O_DIRECT */
    TDL_FIO_THREADS,     /* blocking calls on workers */
    TDL_FIO_SIMULATED,   /* the calls made at once, results held back, reordered and broken by a seed */
    TDL_FIO_ENGINES,     /* how many there are */
};

/* Descriptors whose syncs may be joined at the same time, by the lowest bits of their numbers. */
#define TDL_FIO_LEADERS 8u

/* A turn has twice step_ns: of it this part of one step_ns is for submissions, and the rest for inline
 * answers. */
#define TDL_FIO_SUBMIT_SHARE 4u

enum tdl_fio_mode {
    TDL_FIO_ADAPTIVE,  /* the first operation at once while nothing is in flight, then batches */
    TDL_FIO_DEFERRED,  /* nothing before flush */
    TDL_FIO_IMMEDIATE, /* each stage flushes */
    TDL_FIO_MODES,     /* how many there are */
};

struct tdl_fio_simulation {
    uint64_t seed;
    uint32_t fault_permille; /* share of operations that fail with -EIO */
    uint32_t short_permille; /* share of transfers cut short */
    uint32_t delay_max;      /* reaps that a result may be held back */
};

struct tdl_fio_options {
    enum tdl_fio_engine engine;
    enum tdl_fio_mode mode;
    uint32_t inflight_max; /* operations in the kernel's or the workers' hands at once; 0 is 128 */
    uint32_t threads_max;  /* workers of an own pool; 0 is 4 */
    uint32_t step_ns;      /* what inline results may cost one caller without a pause; 0 is 100,000 */
    bool sqpoll;           /* ask for a kernel thread that polls the ring */
    bool sqpoll_when_busy; /* give that thread work only while the owner's thread has hardly any time left */
    bool any_thread;       /* several threads use the context, one at a time under the caller's lock */
    bool no_inline;        /* tdl_fio_try never answers */
    bool no_join;          /* each sync is a call of its own */
    uint32_t ring_flags_mask; /* setup flags that may be tried; 0 is all of them */
    uint64_t chunk_max;       /* most bytes of one submission; 0 is what the kernel takes */
    struct tdl_pool *pool;    /* workers of the caller, NULL to make some when first needed */
    /* Called at submission, on the owner's thread, for a read or read_file that was prepared without a
     * buffer: puts one of `length` bytes there and returns 0, or a negative code that becomes the result.
     * It may not call the context. */
    int (*provide)(struct tdl_fop *op);
    struct tdl_fio_simulation simulation;
};

/* What is really in force, after the engine was started. */
struct tdl_fio_caps {
    enum tdl_fio_engine engine;
    enum tdl_fio_mode mode;
    enum tdl_fio_engine refused_engine; /* the engine that was preferred and could not start, else AUTO */
    int refused_code;                   /* why, a negative code, else 0 */
    uint32_t inflight_max;
    uint32_t ring_flags; /* IORING_SETUP_* that the kernel took */
    uint32_t sq_entries;
    uint32_t cq_entries;
    uint32_t kernel_ops; /* bit per enum tdl_fop_code that the kernel runs itself; workers run the others */
    bool sqpoll;
    bool single_syscall; /* a flush costs one system call however many are staged */
};

struct tdl_fio_stats {
    uint64_t submissions;  /* operations given to the kernel or to workers, continuations included */
    uint64_t submit_calls; /* system calls made for that */
    uint64_t other_calls;  /* system calls made to fetch completions or to cancel */
    uint64_t completed;
    uint64_t inlined;     /* answered by tdl_fio_try */
    uint64_t missed;      /* tried and not in the page cache */
    uint64_t polled;      /* submissions that a polling kernel thread took */
    uint64_t canceled;    /* that never reached the kernel */
    uint64_t joined;      /* syncs that another one's call served */
    uint64_t handed_over; /* to workers, because the kernel does not do them */
};

enum tdl_fio_state {
    TDL_FIO_CLOSED, /* first, so that a struct of zeros is a closed one */
    TDL_FIO_NEW,
    TDL_FIO_RUNNING,
};

/* How much a turn may spend on answers out of the page cache (docs/fileio.md), and when an attempt is
 * worth its call. */
struct tdl_fio_budget {
    uint32_t spent_ns; /* estimated cost of this turn's inline answers */
    uint32_t limit_ns; /* how far that may go for the caller who is about to go on */
    uint32_t
        submit_spent_ns; /* estimated cost of the reads of the page cache among this turn's submissions */
    uint32_t skip_ns;    /* estimated cost of the reads to skip before the next inline attempt */
    int direct_fd;       /* descriptor whose O_DIRECT flag was read in this turn, -1 if none */
    bool direct;         /* that flag */
    bool hot;            /* the last inline attempt to read hit the page cache */
    uint8_t misses;      /* inline attempts to read that missed, in a row */
};

struct tdl_fio {
    const struct tdl__fio_engine *engine;
    void *backend; /* the engine's own struct */
    struct tdl__fio_workers *workers;
    struct tdl_node waiting;
    struct tdl_node staged;
    struct tdl_node inflight;
    struct tdl_node closing;                  /* closes that wait for the others on their descriptor */
    struct tdl_node joined;                   /* syncs that wait for another one's result */
    struct tdl_fop *leaders[TDL_FIO_LEADERS]; /* syncs that may still be joined, by descriptor */
    struct tdl_queue finished;
    uint32_t staged_count;
    uint32_t inflight_count;
    uint32_t inflight_max;
    int bounced_fd; /* last one that required an aligned buffer, -1 if none; it may be another file's by
                     * now */
    uint32_t fork_epoch;
    const char *pinned; /* memory that the kernel holds, NULL for none */
    size_t pinned_bytes;
    uint32_t resubmit; /* continuations staged by a completion */
    bool held;         /* more is about to be staged: tdl_fio_hold */
    bool deaf;         /* workers run whose results no descriptor shows: flush tries to have them shown */
    struct tdl_fio_budget budget;
    enum tdl_fio_state state;
    struct tdl_fio_options options;
    struct tdl_fio_caps caps;
    struct tdl_fio_stats stats;
};

/* Open a context; NULL options are the defaults. No thread, ring or descriptor is made yet.
 * Thread:  any; the thread of the first other call becomes the owner
 * Owns:    the caller frees the struct after tdl_fio_close; options.pool must outlive it
 * Errors:  -EINVAL for options that are unknown or contradict each other; the context is closed then
 * Cost:    O(1), no syscall, no allocation */
int tdl_fio_open(struct tdl_fio *f, const struct tdl_fio_options *options);

/* Start the engine now instead of with the first operation.
 * Thread:  owner, from here on this thread
 * Owns:    nothing new
 * Errors:  what the kernel says when the engine asked for is refused; with TDL_FIO_AUTO the next engine is
 *          taken and caps say why
 * Cost:    tens of microseconds the first time, then O(1) */
int tdl_fio_start(struct tdl_fio *f);

/* The descriptor that is readable while reap would return something. Level-triggered, never to be read by
 * the caller.
 * Thread:  owner
 * Owns:    the context; valid until tdl_fio_close, and replaced in a forked child
 * Errors:  as tdl_fio_start
 * Cost:    O(1) once started */
int tdl_fio_fd(struct tdl_fio *f);

/* Answer a read or write at once if that needs no waiting; returns 1 with the result set, 0 when it must
 * be staged.
 * Thread:  owner
 * Owns:    nothing: the operation stays IDLE
 * Errors:  none; what the kernel refuses is found again by the staged operation
 * Cost:    one syscall for a page-cache hit; nothing after step_ns worth of hits since the last
 *          tdl_fio_step */
int tdl_fio_try(struct tdl_fio *f, struct tdl_fop *op);

/* A new turn began: inline answers may be given again.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE void tdl_fio_step(struct tdl_fio *f)
{
    f->budget.spent_ns = 0;
    f->budget.limit_ns = f->options.step_ns;
    f->budget.submit_spent_ns = 0;
    f->budget.direct_fd = -1;
}

/* Divides what is left of the turn's inline budget among `callers`, the callers that go on in this turn,
 * of which the next one is about to: it gets its share, step_ns at most. All together get 1.75 times
 * step_ns, a submission a quarter of it.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE void tdl_fio_share(struct tdl_fio *f, size_t callers)
{
    const struct tdl_fio_budget *b = &f->budget;
    uint32_t step_ns = f->options.step_ns, all = step_ns * 2 - step_ns / TDL_FIO_SUBMIT_SHARE;
    uint32_t left = b->spent_ns < all ? (uint32_t)((all - b->spent_ns) / callers) : 0;
    f->budget.limit_ns = b->spent_ns + (left < step_ns ? left : step_ns);
}

/* True when this turn's inline answers are used up.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE bool tdl_fio_step_is_spent(const struct tdl_fio *f)
{
    return f->budget.spent_ns >= f->budget.limit_ns;
}

/* Take an operation for the next flush, or flush at once where the mode says so. Over the in-flight limit
 * it waits its turn.
 * Thread:  owner
 * Owns:    the operation and its buffers belong to the context until reap, drain or close returns it;
 *          until then its descriptors stay open, which tdl_fop_close sees to by itself. Syncs of one
 *          descriptor that are staged together become one call, whose result all of them get
 * Errors:  TDL_ECLOSED, -EINVAL for an operation that is not IDLE, or as tdl_fio_start; the operation
 *          stays as it was. What the kernel refuses becomes the result
 * Cost:    O(1); one syscall where the mode flushes */
int tdl_fio_stage(struct tdl_fio *f, struct tdl_fop *op);

/* Submit everything staged; returns how many operations were submitted. While reads hit the page cache, a
 * submission copies their bytes itself, so it stops after a quarter of step_ns until tdl_fio_step begins
 * the next turn.
 * Thread:  owner
 * Owns:    nothing new
 * Errors:  as tdl_fio_start; operations that the kernel refuses complete with its error, all others go on
 * Cost:    one syscall for all of them on a ring, two chained ones when they exceed its submission queue */
int tdl_fio_flush(struct tdl_fio *f);

/* While held, an adaptive context does not submit the first operation at once: the caller is about to
 * stage more and flush.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE void tdl_fio_hold(struct tdl_fio *f, bool held)
{
    f->held = held;
}

/* True when flush has something to do.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE bool tdl_fio_wants_flush(const struct tdl_fio *f)
{
    return f->staged_count != 0 || f->deaf;
}

/* True when reap would return something that has finished already.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE bool tdl_fio_has_finished(const struct tdl_fio *f)
{
    return !tdl_queue_is_empty(&f->finished);
}

/* Give back what reap returned and the caller will look at later; the next reap returns it first.
 * Thread:  owner
 * Owns:    the operations in `taken`, which is empty then, belong to the context again
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE void tdl_fio_put_back(struct tdl_fio *f, struct tdl_queue *taken)
{
    tdl_queue_splice(taken, &f->finished);
    tdl_queue_splice(&f->finished, taken);
}

/* Counts of what was done so far.
 * Thread:  owner
 * Owns:    the context
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE const struct tdl_fio_stats *tdl_fio_stats(const struct tdl_fio *f)
{
    return &f->stats;
}

/* Operations that may be staged and in flight at once; the others wait.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE uint32_t tdl_fio_inflight_max(const struct tdl_fio *f)
{
    return f->inflight_max;
}

/* Append the finished operations to `out`, in the order in which they finished; returns how many.
 * Waiting operations are staged in their place. Nothing is called back, so it cannot be re-entered.
 * Thread:  owner
 * Owns:    the returned operations and their buffers are the caller's again
 * Errors:  none
 * Cost:    O(finished), usually no syscall; one when completions overflowed or a transfer goes on */
size_t tdl_fio_reap(struct tdl_fio *f, struct tdl_queue *out);

/* Block until reap would return something, or `timeout_ns` passed (UINT64_MAX: for ever). Staged
 * operations are flushed first.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  -ETIMEDOUT; -EDEADLK when nothing is staged, in flight or finished
 * Cost:    one or two syscalls */
int tdl_fio_wait(struct tdl_fio *f, uint64_t timeout_ns);

/* Have the kernel pin memory once, so that transfers inside it need not pin it each time: half the cost of
 * a direct read of 64 KiB, nothing for the page cache.
 * Thread:  owner
 * Owns:    the memory stays where it is until tdl_fio_close; a forked child's context has none
 * Errors:  -ENOTSUP where the engine has no use for it, -EBUSY the second time, -ENOMEM over the limit of
 *          locked memory; transfers work as before then
 * Cost:    one syscall, O(pages) */
int tdl_fio_register(struct tdl_fio *f, void *memory, size_t length);

/* Ask for an operation to be dropped. Before its submission it finishes with -ECANCELED and the kernel
 * never sees it; after, the kernel is asked, and the operation stays in flight, buffers included, until
 * the kernel or worker gives it back. A worker begins no further call for it and waits no more for another
 * program (see tdl_fio_borrows).
 * Thread:  owner
 * Owns:    unchanged: the operation comes back by reap in every case
 * Errors:  -EALREADY when it is done or canceled already, -ENOENT when the context does not hold it
 * Cost:    O(1); one syscall when it is in the kernel */
int tdl_fio_cancel(struct tdl_fio *f, struct tdl_fop *op);

/* True while a canceled operation may still look up one of its descriptors by its number, and do harm if
 * that is another file's by then: the caller keeps them open until it is false, or the operation came
 * back. A staged one was never seen by the kernel; one that a ring took has its file. What is left are
 * calls of workers, entries that a polling kernel thread has not read, and the few that a ring looks up on
 * a thread of its own.
 * Thread:  owner, after tdl_fio_cancel
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1), one syscall for a read on a worker */
bool tdl_fio_borrows(const struct tdl_fio *f, const struct tdl_fop *op);

/* True while the context holds an operation on this descriptor; a tdl_fop_close would go behind it.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(operations held) */
bool tdl_fio_names(const struct tdl_fio *f, int fd);

/* Flush, wait and reap until nothing is left; appends all to `out`.
 * Thread:  owner
 * Owns:    as tdl_fio_reap
 * Errors:  as tdl_fio_start
 * Cost:    blocks as long as the operations take */
int tdl_fio_drain(struct tdl_fio *f, struct tdl_queue *out);

/* Cancel everything, wait until the kernel and the workers gave back what they hold, append all to `out`,
 * and free the engine. A worker that waits for another program (a pipe, a socket, the open of a FIFO) is
 * not waited for.
 * Thread:  owner, or any other thread once the owner is gone
 * Owns:    every operation is the caller's again; f may be freed. `out` may be NULL if the caller knows
 *          its operations
 * Errors:  TDL_EBADF when somebody else closed the engine's descriptors and the kernel could not be asked
 *          for all: those come back with this code, and their buffers must never be freed. A second close
 *          does nothing, nor does that of a context of zeros or of one that could not be opened
 * Cost:    a few syscalls; blocks while a worker waits for a disk */
int tdl_fio_close(struct tdl_fio *f, struct tdl_queue *out);

/* Look at what is in force; starts the engine.
 * Thread:  owner
 * Owns:    the context
 * Errors:  NULL when no engine could be started
 * Cost:    O(1) once started */
const struct tdl_fio_caps *tdl_fio_caps(struct tdl_fio *f);

/* Operations that the context holds: waiting, staged, in flight or finished.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
bool tdl_fio_is_idle(const struct tdl_fio *f);

/* True where the kernel grants a polling kernel thread to this process. Tried once, on the first call.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none
 * Cost:    two syscalls the first time */
bool tdl_fio_sqpoll_is_allowed(void);

/* Whether the kernel has linux_aio and no filter forbids it; makes no context, since destroying one takes
 * 30 ms or a thread.
 * Thread:  any
 * Owns:    nothing
 * Errors:  0, or the code with which io_setup is refused
 * Cost:    one syscall */
int tdl_fio_aio_is_refused(void);

/* The name of an engine as users write it: linux_uring, linux_aio, threads, simulated, auto.
 * Thread:  any
 * Owns:    a static string
 * Errors:  "unknown" for a number that is no engine
 * Cost:    O(1) */
const char *tdl_fio_engine_name(unsigned engine);

/* The engine of a name, or a negative code.
 * Thread:  any
 * Owns:    nothing
 * Errors:  -EINVAL, also for NULL
 * Cost:    O(engines) */
int tdl_fio_engine_by_name(const char *name);

#ifdef __cplusplus
}
#endif
#endif
