/* The operations as plain blocking calls: what workers run, and what the simulated engine does at once. */
#include "calls.h"
#include "internal.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COPY_BUFFER 65536u
/* Most that one call moves between two looks at the stop, where the calls are many anyway. */
#define STEP_BYTES (16u << 20)
/* Times that something may be ready and yet not to be had. */
#define READY_MAX 1000u

static int64_t code_of(int64_t res)
{
    return res < 0 ? -(int64_t)errno : res;
}

/* How the calls of a transfer are made. */
struct manner {
    bool waits;     /* for another program, and so beside the stop and not in the call */
    int flags;      /* of preadv2 */
    uint64_t limit; /* bytes of one call that has to be made without RWF_NOWAIT */
};

/* An offset of -1 is the descriptor's own position. */
static int64_t transfer_once(const struct tdl_fop *op, const struct tdl__span *span, int flags)
{
    struct iovec one = {.iov_base = span->buffer, .iov_len = span->length};
    const struct iovec *vector = tdl__fop_is_vectored(op) ? span->vector : &one;
    int count = tdl__fop_is_vectored(op) ? (int)span->count : 1;
    off_t offset = span->offset == TDL_FOP_POSITION ? -1 : (off_t)span->offset;
    return code_of(tdl__fop_is_write(op) ? tdl__pwritev2(op->fd, vector, count, offset, flags)
                                         : tdl__preadv2(op->fd, vector, count, offset, flags));
}

/* A piece of a direct transfer, by way of memory that the disk can reach. */
static int64_t transfer_by_bounce(const struct tdl_fop *op, const struct tdl__span *span)
{
    struct tdl__span piece = *span;
    piece.length = span->length < TDL__BOUNCE_BYTES ? span->length : TDL__BOUNCE_BYTES;
    char *memory = (char *)tdl_malloc(piece.length + TDL__BOUNCE_ALIGNMENT);
    if (memory == NULL) {
        return -ENOMEM;
    }
    piece.buffer = tdl__bounce_align(memory);
    if (tdl__fop_is_write(op)) {
        memcpy(piece.buffer, span->buffer, piece.length);
    }
    int64_t res = transfer_once(op, &piece, 0);
    if (res > 0 && !tdl__fop_is_write(op)) {
        memcpy(span->buffer, piece.buffer, (size_t)res);
    }
    tdl_free(memory);
    return res;
}

/* A ring ignores the offset of what has none; the positioned calls refuse it, so they are made without.
 * Each further call is one that a cancel keeps from being made: once it is asked for, the number may be
 * another file's. */
static int64_t transfer_once_anywhere(const struct tdl_fop *op, struct tdl__span *span, int flags,
                                      const struct tdl__stop *stop)
{
    int64_t res = TDL_FAIL(TDL_FAIL_SYSCALL) ? -EIO : transfer_once(op, span, flags);
    if (res == -ESPIPE && !tdl__stop_is_asked(stop)) {
        span->offset = TDL_FOP_POSITION;
        res = transfer_once(op, span, flags);
    }
    if (res == -EINVAL && !tdl__stop_is_asked(stop) && tdl__transfer_wants_bounce(op)) {
        res = transfer_by_bounce(op, span);
    }
    return res;
}

/* The file type of what may wait for another program, 0 for what only waits for a disk or does not wait. */
static mode_t waiting_type(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || S_ISREG(st.st_mode) || S_ISBLK(st.st_mode) || S_ISDIR(st.st_mode)) {
        return 0;
    }
    return (st.st_mode & S_IFMT) != 0 ? st.st_mode & S_IFMT
                                      : S_IFCHR; /* eventfds and their like have no type */
}

static bool is_blocking(int fd)
{
    return (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
}

static struct manner manner_of(const struct tdl_fop *op, const struct tdl__stop *stop)
{
    struct manner m = {.waits = false, .flags = 0, .limit = UINT64_MAX};
    mode_t type = stop != NULL ? waiting_type(op->fd) : 0;
    if (type == 0 || !is_blocking(op->fd)) {
        return m;
    }
    m.waits = true;
    m.flags = RWF_NOWAIT;
    /* A pipe that is ready has room for this much, a terminal for one byte; more would wait inside the
     * call. */
    if (tdl__fop_is_write(op)) {
        m.limit = type == S_IFCHR && isatty(op->fd) ? 1 : PIPE_BUF;
    }
    return m;
}

/* The beginning of a span that fits into one call. */
static void shorten(struct tdl__span *span, uint64_t limit, struct iovec *first)
{
    if (span->vector == NULL) {
        span->length = span->length < limit ? span->length : (size_t)limit;
        return;
    }
    while (span->count > 1 && span->vector->iov_len == 0) {
        span->vector++;
        span->count--;
    }
    if (limit == UINT64_MAX || span->count == 0) {
        return;
    }
    *first = *span->vector;
    first->iov_len = first->iov_len < limit ? first->iov_len : (size_t)limit;
    span->vector = first;
    span->count = 1;
}

/* One call that moves something. What is not to be had without a wait is waited for beside the stop; where
 * the kernel has no calls that never wait, one is made when the descriptor is ready. */
static int64_t transfer_in_turn(const struct tdl_fop *op, struct tdl__span *span, struct manner *m,
                                struct tdl__stop *stop)
{
    short events = tdl__fop_is_write(op) ? POLLOUT : POLLIN;
    struct iovec first;
    for (unsigned tries = 0;; tries++) {
        /* Ready, and still nothing comes: somebody else was quicker, or the device does not mean it. */
        if (tries > READY_MAX) {
            m->flags = 0;
        }
        if (m->flags == 0) {
            shorten(span, m->limit, &first);
        }
        int rc = m->flags != 0 && tries == 0 ? 0 : tdl__stop_wait(stop, op->fd, events);
        if (rc != 0) {
            return rc;
        }
        int64_t res = transfer_once_anywhere(op, span, m->flags, stop);
        if (m->flags == 0 || (res != -EAGAIN && res != -EOPNOTSUPP)) {
            return res;
        }
        if (res == -EOPNOTSUPP) {
            m->flags = 0;
        }
    }
}

static int64_t transfer(struct tdl_fop *op, uint64_t chunk_max, struct tdl__stop *stop)
{
    struct manner m = manner_of(op, stop);
    struct tdl__span span;
    int64_t res;
    do {
        tdl__transfer_span(op, chunk_max, &span);
        if (tdl__stop_is_asked(stop)) {
            res = -ECANCELED;
        } else if (m.waits) {
            res = transfer_in_turn(op, &span, &m, stop);
        } else {
            res = transfer_once_anywhere(op, &span, 0, stop);
        }
    } while (tdl__transfer_round(op, res, chunk_max, m.waits && tdl__fop_is_write(op)));
    return op->result;
}

/* Without O_NONBLOCK the open of a FIFO would wait for its writer; the wait before the read does that
 * instead. */
static int64_t read_whole_file(const struct tdl_fop *op, struct tdl__stop *stop)
{
    int fd = openat(op->fd, op->at.path, (int)op->flags | O_NONBLOCK, 0);
    if (fd < 0) {
        return -(int64_t)errno;
    }
    bool waits = stop != NULL && waiting_type(fd) != 0;
    uint64_t done = 0;
    int64_t res = 0;
    while (done < op->length) {
        size_t left = (size_t)(op->length - done);
        if (waits) {
            res = tdl__stop_wait(stop, fd, POLLIN);
        } else {
            res = tdl__stop_is_asked(stop) ? -ECANCELED : 0;
        }
        if (res == 0) {
            res = code_of(read(fd, (char *)op->to.buffer + done, left < STEP_BYTES ? left : STEP_BYTES));
        }
        if (res == -EINTR || (res == -EAGAIN && waits)) {
            continue;
        }
        if (res <= 0) {
            break;
        }
        done += (uint64_t)res;
    }
    close(fd);
    return res < 0 ? res : (int64_t)done;
}

static int64_t write_all(int fd, const char *buffer, size_t length, uint64_t offset,
                         const struct tdl__stop *stop)
{
    size_t done = 0;
    while (done < length) {
        if (tdl__stop_is_asked(stop)) {
            return -ECANCELED;
        }
        int64_t res = code_of(pwrite(fd, buffer + done, length - done, (off_t)(offset + done)));
        if (res == -EINTR) {
            continue;
        }
        if (res < 0) {
            return res;
        }
        done += (size_t)res;
    }
    return 0;
}

static int64_t copy_by_buffer(const struct tdl_fop *op, uint64_t done, const struct tdl__stop *stop)
{
    char *buffer = (char *)tdl_malloc(COPY_BUFFER);
    if (buffer == NULL) {
        return done > 0 ? (int64_t)done : -ENOMEM;
    }
    int64_t res = 0;
    while (done < op->length) {
        uint64_t left = op->length - done;
        res = tdl__stop_is_asked(stop)
                  ? -ECANCELED
                  : code_of(pread(op->fd, buffer, left < COPY_BUFFER ? (size_t)left : COPY_BUFFER,
                                  (off_t)(op->offset + done)));
        if (res == -EINTR) {
            continue;
        }
        if (res <= 0) {
            break;
        }
        int64_t wrote = write_all(op->fd2, buffer, (size_t)res, op->offset2 + done, stop);
        if (wrote < 0) {
            res = wrote;
            break;
        }
        done += (uint64_t)res;
    }
    tdl_free(buffer);
    return res < 0 && done == 0 ? res : (int64_t)done;
}

static int64_t copy(const struct tdl_fop *op, const struct tdl__stop *stop)
{
    uint64_t done = 0;
    while (done < op->length && !tdl__stop_is_asked(stop)) {
        off_t in = (off_t)(op->offset + done), out = (off_t)(op->offset2 + done);
        uint64_t left = op->length - done;
        int64_t res = code_of(
            copy_file_range(op->fd, &in, op->fd2, &out, left < STEP_BYTES ? (size_t)left : STEP_BYTES, 0));
        if (res == -EINTR) {
            continue;
        }
        /* Files of /proc say 0 here and still have bytes; other file systems refuse the pair. */
        if (res <= 0) {
            return copy_by_buffer(op, done, stop);
        }
        done += (uint64_t)res;
    }
    return done > 0 || op->length == 0 ? (int64_t)done : -ECANCELED;
}

static int64_t splice_once(const struct tdl_fop *op, size_t length, unsigned more)
{
    off_t in = (off_t)op->offset, out = (off_t)op->offset2;
    return code_of(
        TDL_SYSCALL(EIO, splice(op->fd, op->offset == TDL_FOP_POSITION ? NULL : &in, op->fd2,
                                op->offset2 == TDL_FOP_POSITION ? NULL : &out, length, op->flags | more)));
}

/* Where both ends are ready it moves what it can without a wait; that is not known of a socket, so it gets
 * little. */
static int64_t splice_in_turn(const struct tdl_fop *op, struct tdl__stop *stop)
{
    mode_t in = waiting_type(op->fd), out = waiting_type(op->fd2);
    bool in_waits = in != 0 && is_blocking(op->fd), out_waits = out != 0 && is_blocking(op->fd2);
    bool waits = stop != NULL && (op->flags & SPLICE_F_NONBLOCK) == 0 && (in == S_IFIFO || out == S_IFIFO) &&
                 (in_waits || out_waits);
    size_t length = op->length < TDL__CHUNK_MAX ? (size_t)op->length : TDL__CHUNK_MAX;
    if (waits && out_waits && out != S_IFIFO && length > PIPE_BUF) {
        length = PIPE_BUF;
    }
    for (unsigned tries = 0;; tries++) {
        int rc = tdl__stop_is_asked(stop) ? -ECANCELED : 0;
        if (rc == 0 && waits && in_waits && length > 0) {
            rc = tdl__stop_wait(stop, op->fd, POLLIN);
        }
        if (rc == 0 && waits && out_waits && length > 0) {
            rc = tdl__stop_wait(stop, op->fd2, POLLOUT);
        }
        if (rc != 0) {
            return rc;
        }
        int64_t res = splice_once(op, length, waits && tries < READY_MAX ? SPLICE_F_NONBLOCK : 0);
        if (res != -EINTR && (res != -EAGAIN || !waits || tries >= READY_MAX)) {
            return res;
        }
    }
}

static int64_t execute_once(const struct tdl_fop *op)
{
    switch ((enum tdl_fop_code)op->code) {
    case TDL_FOP_FSYNC:
        return fsync(op->fd);
    case TDL_FOP_FDATASYNC:
        return fdatasync(op->fd);
    case TDL_FOP_OPEN:
        return openat(op->fd, op->at.path, (int)op->flags, (mode_t)op->mode);
    case TDL_FOP_CLOSE:
        return close(op->fd);
    case TDL_FOP_STATX:
        return tdl__statx(op->fd, op->at.path, (int)op->flags, op->mode, op->to.statx);
    case TDL_FOP_FALLOCATE:
        return fallocate(op->fd, (int)op->mode, (off_t)op->offset, (off_t)op->length);
    case TDL_FOP_TRUNCATE:
        return ftruncate(op->fd, (off_t)op->length);
    case TDL_FOP_RENAME:
        /* musl has no function for it. */
        return syscall(SYS_renameat2, op->fd, op->at.path, op->fd2, op->to.path, op->flags);
    case TDL_FOP_UNLINK:
        return unlinkat(op->fd, op->at.path, (int)op->flags);
    case TDL_FOP_MKDIR:
        return mkdirat(op->fd, op->at.path, (mode_t)op->mode);
    default:
        return 0;
    }
}

int64_t tdl__fop_execute(struct tdl_fop *op, uint64_t chunk_max, struct tdl__stop *stop)
{
    if (tdl__fop_is_transfer(op)) {
        return transfer(op, chunk_max, stop);
    }
    if (op->code == TDL_FOP_COPY) {
        return copy(op, stop);
    }
    if (op->code == TDL_FOP_SPLICE) {
        return splice_in_turn(op, stop);
    }
    if (op->code == TDL_FOP_READ_FILE) {
        return read_whole_file(op, stop);
    }
    int64_t res;
    do {
        res = tdl__stop_is_asked(stop) ? -ECANCELED : code_of(TDL_SYSCALL(EIO, execute_once(op)));
    } while (res == -EINTR && op->code != TDL_FOP_CLOSE);
    return res;
}
