/* The operations as plain blocking calls: what workers run, and what the simulated engine does at once. */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

#define COPY_BUFFER 65536u
#define ALIGNED_COPY (1u << 20)
#define ALIGNMENT 4096u

static int64_t code_of(int64_t res)
{
    return res < 0 ? -(int64_t)errno : res;
}

static int64_t transfer_once(const struct tdl_fop *op, const struct tdl__span *span)
{
    bool positioned = span->offset != TDL_FOP_POSITION;
    off_t offset = (off_t)span->offset;
    if (tdl__fop_is_vectored(op)) {
        int count = (int)span->count;
        if (tdl__fop_is_write(op))
            return positioned ? pwritev(op->fd, span->vector, count, offset)
                              : writev(op->fd, span->vector, count);
        return positioned ? preadv(op->fd, span->vector, count, offset) : readv(op->fd, span->vector, count);
    }
    if (tdl__fop_is_write(op))
        return positioned ? pwrite(op->fd, span->buffer, span->length, offset)
                          : write(op->fd, span->buffer, span->length);
    return positioned ? pread(op->fd, span->buffer, span->length, offset)
                      : read(op->fd, span->buffer, span->length);
}

/* A piece of a direct transfer, by way of memory that the disk can reach. */
static int64_t transfer_by_aligned_copy(const struct tdl_fop *op, const struct tdl__span *span)
{
    struct tdl__span piece = *span;
    piece.length = span->length < ALIGNED_COPY ? span->length : ALIGNED_COPY;
    char *memory = (char *)tdl_malloc(piece.length + ALIGNMENT);
    if (memory == NULL)
        return -ENOMEM;
    piece.buffer = memory + (ALIGNMENT - (uintptr_t)memory % ALIGNMENT);
    if (tdl__fop_is_write(op))
        memcpy(piece.buffer, span->buffer, piece.length);
    int64_t res = code_of(transfer_once(op, &piece));
    if (res > 0 && !tdl__fop_is_write(op))
        memcpy(span->buffer, piece.buffer, (size_t)res);
    tdl_free(memory);
    return res;
}

/* A ring ignores the offset of what has none; the positioned calls refuse it, so they are made without. */
static int64_t transfer_once_anywhere(const struct tdl_fop *op, struct tdl__span *span)
{
    int64_t res = code_of(TDL_SYSCALL(EIO, transfer_once(op, span)));
    if (res == -ESPIPE) {
        span->offset = TDL_FOP_POSITION;
        res = code_of(transfer_once(op, span));
    }
    if (res == -EINVAL && tdl__transfer_wants_aligned_copy(op))
        res = transfer_by_aligned_copy(op, span);
    return res;
}

/* The file type of what may wait for another program, 0 for what only waits for a disk or does not wait. */
static mode_t waiting_type(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || S_ISREG(st.st_mode) || S_ISBLK(st.st_mode) || S_ISDIR(st.st_mode))
        return 0;
    return st.st_mode & S_IFMT;
}

/* Waits here and not in the call itself, which nothing could interrupt; -ECANCELED once the context closes. */
static int wait_for_turn(int fd, short events, int stop_fd)
{
    struct pollfd both[] = {{.fd = fd, .events = events, .revents = 0},
                            {.fd = stop_fd, .events = POLLIN, .revents = 0}};
    while (poll(both, 2, -1) < 0)
        if (errno != EINTR)
            return -errno;
    return both[0].revents != 0 ? 0 : -ECANCELED;
}

static int64_t transfer(struct tdl_fop *op, uint64_t chunk_max, int stop_fd)
{
    mode_t type = stop_fd >= 0 ? waiting_type(op->fd) : 0;
    bool waits = type != 0 && (fcntl(op->fd, F_GETFL) & O_NONBLOCK) == 0;
    short events = tdl__fop_is_write(op) ? POLLOUT : POLLIN;
    /* A pipe that is ready has room for this much, more would wait inside the call. */
    if (waits && type == S_IFIFO && events == POLLOUT)
        chunk_max = PIPE_BUF;
    struct tdl__span span;
    int64_t res;
    do {
        tdl__transfer_span(op, chunk_max, &span);
        res = waits ? wait_for_turn(op->fd, events, stop_fd) : 0;
        if (res == 0)
            res = transfer_once_anywhere(op, &span);
    } while (tdl__transfer_round(op, res, chunk_max));
    return op->result;
}

/* Without O_NONBLOCK the open of a FIFO would wait for its writer; the wait before the read does that instead. */
static int64_t read_whole_file(const struct tdl_fop *op, int stop_fd)
{
    int fd = openat(op->fd, op->at.path, (int)op->flags | O_NONBLOCK, 0);
    if (fd < 0)
        return -(int64_t)errno;
    bool waits = waiting_type(fd) != 0;
    uint64_t done = 0;
    int64_t res = 0;
    while (done < op->length) {
        size_t left = (size_t)(op->length - done);
        res = waits ? wait_for_turn(fd, POLLIN, stop_fd) : 0;
        if (res == 0)
            res = code_of(
                read(fd, (char *)op->to.buffer + done, left < TDL__CHUNK_MAX ? left : TDL__CHUNK_MAX));
        if (res == -EINTR || (res == -EAGAIN && waits))
            continue;
        if (res <= 0)
            break;
        done += (uint64_t)res;
    }
    close(fd);
    return res < 0 ? res : (int64_t)done;
}

static int64_t write_all(int fd, const char *buffer, size_t length, uint64_t offset)
{
    size_t done = 0;
    while (done < length) {
        int64_t res = code_of(pwrite(fd, buffer + done, length - done, (off_t)(offset + done)));
        if (res == -EINTR)
            continue;
        if (res < 0)
            return res;
        done += (size_t)res;
    }
    return 0;
}

static int64_t copy_by_buffer(const struct tdl_fop *op, uint64_t done)
{
    char *buffer = (char *)tdl_malloc(COPY_BUFFER);
    if (buffer == NULL)
        return done > 0 ? (int64_t)done : -ENOMEM;
    int64_t res = 0;
    while (done < op->length) {
        uint64_t left = op->length - done;
        res = code_of(pread(op->fd, buffer, left < COPY_BUFFER ? (size_t)left : COPY_BUFFER,
                            (off_t)(op->offset + done)));
        if (res == -EINTR)
            continue;
        if (res <= 0)
            break;
        int64_t wrote = write_all(op->fd2, buffer, (size_t)res, op->offset2 + done);
        if (wrote < 0) {
            res = wrote;
            break;
        }
        done += (uint64_t)res;
    }
    tdl_free(buffer);
    return res < 0 && done == 0 ? res : (int64_t)done;
}

static int64_t copy(const struct tdl_fop *op)
{
    uint64_t done = 0;
    while (done < op->length) {
        off_t in = (off_t)(op->offset + done), out = (off_t)(op->offset2 + done);
        uint64_t left = op->length - done;
        int64_t res = code_of(copy_file_range(op->fd, &in, op->fd2, &out,
                                              left < TDL__CHUNK_MAX ? (size_t)left : TDL__CHUNK_MAX, 0));
        if (res == -EINTR)
            continue;
        /* Files of /proc say 0 here and still have bytes; other file systems refuse the pair. */
        if (res <= 0)
            return copy_by_buffer(op, done);
        done += (uint64_t)res;
    }
    return (int64_t)done;
}

static int64_t splice_once(const struct tdl_fop *op)
{
    off_t in = (off_t)op->offset, out = (off_t)op->offset2;
    return splice(op->fd, op->offset == TDL_FOP_POSITION ? NULL : &in, op->fd2,
                  op->offset2 == TDL_FOP_POSITION ? NULL : &out, (size_t)op->length, op->flags);
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
        return statx(op->fd, op->at.path, (int)op->flags, op->mode, op->to.statx);
    case TDL_FOP_FALLOCATE:
        return fallocate(op->fd, (int)op->mode, (off_t)op->offset, (off_t)op->length);
    case TDL_FOP_TRUNCATE:
        return ftruncate(op->fd, (off_t)op->length);
    case TDL_FOP_RENAME:
        return renameat2(op->fd, op->at.path, op->fd2, op->to.path, op->flags);
    case TDL_FOP_UNLINK:
        return unlinkat(op->fd, op->at.path, (int)op->flags);
    case TDL_FOP_MKDIR:
        return mkdirat(op->fd, op->at.path, (mode_t)op->mode);
    case TDL_FOP_SPLICE:
        return splice_once(op);
    default:
        return 0;
    }
}

int64_t tdl__fop_execute(struct tdl_fop *op, uint64_t chunk_max, int stop_fd)
{
    if (tdl__fop_is_transfer(op))
        return transfer(op, chunk_max, stop_fd);
    if (op->code == TDL_FOP_COPY)
        return copy(op);
    if (op->code == TDL_FOP_READ_FILE)
        return read_whole_file(op, stop_fd);
    int64_t res;
    do
        res = code_of(TDL_SYSCALL(EIO, execute_once(op)));
    while (res == -EINTR && op->code != TDL_FOP_CLOSE);
    return res;
}
