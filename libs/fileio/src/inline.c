/* Answers without waiting: what the page cache holds is copied at once, as long as the inline budget
 * lasts. */
#include "budget.h"
#include "calls.h"
#include "internal.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A longer read is left to the engine, since its copy alone would exceed a turn's budget. */
#define INLINE_BYTES_MAX (512u << 10)

/* A direct read with RWF_NOWAIT still waits for the disk; only an aligned one can be a direct read. */
static bool may_be_direct(struct tdl_fio *f, const struct tdl_fop *op, uint64_t length)
{
    return ((uintptr_t)op->at.buffer & 3) == 0 && tdl__is_on_sector(length | op->offset) &&
           tdl__budget_is_direct(f, op->fd);
}

static int try_read(struct tdl_fio *f, struct tdl_fop *op)
{
    uint64_t length = op->length;
    if (length == 0 || length > INLINE_BYTES_MAX || op->offset > INT64_MAX || may_be_direct(f, op, length)) {
        return 0;
    }
    if (tdl__budget_skips(f, length) || tdl__fio_provide(f, op) != 0) {
        return 0;
    }
    for (unsigned calls = 1;; calls++) {
        struct iovec one = {.iov_base = (char *)op->at.buffer + op->done,
                            .iov_len = (size_t)(length - op->done)};
        ssize_t got = tdl__preadv2(op->fd, &one, 1, (off_t)(op->offset + op->done), RWF_NOWAIT);
        if (got < 0) {
            tdl__budget_spend(f, calls, op->done);
            tdl__budget_miss(f);
            return 0; /* what was copied stays: the staged operation goes on behind it */
        }
        op->done += (uint64_t)got;
        TDL_ASSERT(op->done <= length);
        if (got == 0 || op->done == length) {
            op->result = (int64_t)op->done;
            tdl__budget_spend(f, calls, op->done);
            tdl__budget_hit(f);
            return 1;
        }
    }
}

/* A cached path is opened without touching the disk, and O_NONBLOCK keeps a FIFO from waiting for its
 * writer. */
static int open_cached(const struct tdl_fop *op)
{
    struct open_how how = {.flags = op->flags | O_NONBLOCK, .mode = 0, .resolve = RESOLVE_CACHED};
    return (int)syscall(SYS_openat2, op->fd, op->at.path, &how, sizeof how);
}

static int try_read_file(struct tdl_fio *f, struct tdl_fop *op)
{
    if (op->length == 0 || op->length > INLINE_BYTES_MAX || tdl__fio_provide(f, op) != 0) {
        return 0;
    }
    int fd = open_cached(op);
    tdl__budget_spend(f, 4, 0);
    if (fd < 0) {
        return 0;
    }
    uint64_t done = 0;
    ssize_t got = -1;
    while (done < op->length) {
        struct iovec one = {.iov_base = (char *)op->to.buffer + done, .iov_len = (size_t)(op->length - done)};
        got = tdl__preadv2(fd, &one, 1, (off_t)done, RWF_NOWAIT);
        if (got <= 0) {
            break;
        }
        done += (uint64_t)got;
        TDL_ASSERT(done <= op->length);
    }
    (void)close(fd);
    tdl__budget_spend(f, 0, done);
    if (got < 0) {
        return 0;
    }
    op->result = (int64_t)done;
    f->stats.inlined++;
    return 1;
}

static int try_statx(struct tdl_fio *f, struct tdl_fop *op)
{
    /* The inode of an open file is in memory; a path may have to be read from the disk. */
    if ((op->flags & AT_EMPTY_PATH) == 0 || op->at.path[0] != '\0') {
        return 0;
    }
    int rc = tdl__statx(op->fd, op->at.path, (int)(op->flags | AT_STATX_DONT_SYNC), op->mode, op->to.statx);
    tdl__budget_spend(f, 1, 0);
    if (rc != 0) {
        return 0;
    }
    op->result = 0;
    f->stats.inlined++;
    return 1;
}

int tdl_fio_try(struct tdl_fio *f, struct tdl_fop *op)
{
    if (f->options.no_inline || tdl_fio_step_is_spent(f) || f->state == TDL_FIO_CLOSED) {
        return 0;
    }
    switch ((enum tdl_fop_code)op->code) {
    case TDL_FOP_READ:
        return try_read(f, op);
    case TDL_FOP_READ_FILE:
        return try_read_file(f, op);
    case TDL_FOP_STATX:
        return try_statx(f, op);
    default:
        return 0;
    }
}
