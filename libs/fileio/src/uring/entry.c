/* From an operation to submission entries. */
#include "uring.h"

#include <fcntl.h>
#include <string.h>

/* Pinned memory is known to the plain ring alone. */
static bool is_pinned(const struct tdl_fio *f, const struct tdl_ring *r, const struct tdl__span *span)
{
    const struct tdl__uring *u = (const struct tdl__uring *)f->backend;
    uintptr_t base = (uintptr_t)f->pinned, at = (uintptr_t)span->buffer;
    return f->pinned != NULL && r == &u->main && at >= base && at - base <= f->pinned_bytes &&
           span->length <= f->pinned_bytes - (at - base);
}

static void prepare_transfer(const struct tdl_fio *f, const struct tdl_ring *r, struct io_uring_sqe *sqe,
                             const struct tdl_fop *op)
{
    TDL_ASSERT(op->done <= op->length || tdl__fop_is_vectored(op));
    struct tdl__span span;
    tdl__transfer_span(op, f->options.chunk_max, &span);
    bool pinned = span.buffer != NULL && is_pinned(f, r, &span);
    switch ((enum tdl_fop_code)op->code) {
    case TDL_FOP_READ:
        tdl_sqe_fill(sqe, pinned ? IORING_OP_READ_FIXED : IORING_OP_READ, op->fd, span.buffer,
                     (uint32_t)span.length, span.offset);
        break;
    case TDL_FOP_WRITE:
        tdl_sqe_fill(sqe, pinned ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE, op->fd, span.buffer,
                     (uint32_t)span.length, span.offset);
        break;
    case TDL_FOP_READV:
        tdl_sqe_fill(sqe, IORING_OP_READV, op->fd, span.vector, span.count, span.offset);
        break;
    default:
        tdl_sqe_fill(sqe, IORING_OP_WRITEV, op->fd, span.vector, span.count, span.offset);
        break;
    }
}

static void prepare_single(struct io_uring_sqe *sqe, const struct tdl_fop *op)
{
    switch ((enum tdl_fop_code)op->code) {
    case TDL_FOP_FSYNC:
        tdl_sqe_fill(sqe, IORING_OP_FSYNC, op->fd, NULL, 0, 0);
        break;
    case TDL_FOP_FDATASYNC:
        tdl_sqe_fill(sqe, IORING_OP_FSYNC, op->fd, NULL, 0, 0);
        sqe->fsync_flags = IORING_FSYNC_DATASYNC;
        break;
    case TDL_FOP_OPEN:
        tdl_sqe_fill(sqe, IORING_OP_OPENAT, op->fd, op->at.path, op->mode, 0);
        sqe->open_flags = op->flags;
        break;
    case TDL_FOP_CLOSE:
        tdl_sqe_fill(sqe, IORING_OP_CLOSE, op->fd, NULL, 0, 0);
        break;
    case TDL_FOP_STATX:
        tdl_sqe_fill(sqe, IORING_OP_STATX, op->fd, op->at.path, op->mode, (uint64_t)(uintptr_t)op->to.statx);
        sqe->statx_flags = op->flags;
        break;
    case TDL_FOP_FALLOCATE:
        tdl_sqe_fill(sqe, IORING_OP_FALLOCATE, op->fd, NULL, op->mode, op->offset);
        sqe->addr = op->length;
        break;
    case TDL_FOP_TRUNCATE:
        tdl_sqe_fill(sqe, TDL_RING_OP_FTRUNCATE, op->fd, NULL, 0, op->length);
        break;
    case TDL_FOP_RENAME:
        tdl_sqe_fill(sqe, IORING_OP_RENAMEAT, op->fd, op->at.path, (uint32_t)op->fd2,
                     (uint64_t)(uintptr_t)op->to.path);
        sqe->rename_flags = op->flags;
        break;
    case TDL_FOP_UNLINK:
        tdl_sqe_fill(sqe, IORING_OP_UNLINKAT, op->fd, op->at.path, 0, 0);
        sqe->unlink_flags = op->flags;
        break;
    case TDL_FOP_MKDIR:
        tdl_sqe_fill(sqe, IORING_OP_MKDIRAT, op->fd, op->at.path, op->mode, 0);
        break;
    case TDL_FOP_SPLICE:
        tdl_sqe_fill(sqe, IORING_OP_SPLICE, op->fd2, NULL,
                     (uint32_t)(op->length < TDL__CHUNK_MAX ? op->length : TDL__CHUNK_MAX), op->offset2);
        sqe->splice_fd_in = op->fd;
        sqe->splice_off_in = op->offset;
        sqe->splice_flags = op->flags;
        break;
    default:
        tdl_sqe_fill(sqe, IORING_OP_NOP, -1, NULL, 0, 0);
        break;
    }
}

void tdl__uring_prepare(const struct tdl_fio *f, struct tdl_ring *r, struct tdl_fop *op)
{
    if (op->code == TDL_FOP_READ_FILE) {
        tdl__chain_prepare(r, op);
        return;
    }
    TDL_ASSERT(op->link.state == TDL_FOP_STAGED && ((uintptr_t)op & TDL__PART_MASK) == 0);
    struct io_uring_sqe *sqe = tdl_ring_sqe(r);
    if (tdl__fop_is_transfer(op)) {
        prepare_transfer(f, r, sqe, op);
    } else {
        prepare_single(sqe, op);
    }
    sqe->user_data = tdl__uring_data(op, TDL__PART_WHOLE);
    op->engine.uring.parts = 1;
}

static const uint8_t kernel_op[TDL_FOP_CODES] = {
    [TDL_FOP_NOP] = IORING_OP_NOP,
    [TDL_FOP_READ] = IORING_OP_READ,
    [TDL_FOP_WRITE] = IORING_OP_WRITE,
    [TDL_FOP_READV] = IORING_OP_READV,
    [TDL_FOP_WRITEV] = IORING_OP_WRITEV,
    [TDL_FOP_FSYNC] = IORING_OP_FSYNC,
    [TDL_FOP_FDATASYNC] = IORING_OP_FSYNC,
    [TDL_FOP_OPEN] = IORING_OP_OPENAT,
    [TDL_FOP_CLOSE] = IORING_OP_CLOSE,
    [TDL_FOP_STATX] = IORING_OP_STATX,
    [TDL_FOP_FALLOCATE] = IORING_OP_FALLOCATE,
    [TDL_FOP_TRUNCATE] = TDL_RING_OP_FTRUNCATE,
    [TDL_FOP_RENAME] = IORING_OP_RENAMEAT,
    [TDL_FOP_UNLINK] = IORING_OP_UNLINKAT,
    [TDL_FOP_MKDIR] = IORING_OP_MKDIRAT,
    [TDL_FOP_SPLICE] = IORING_OP_SPLICE,
};

uint32_t tdl__uring_kernel_ops(const struct tdl_ring *r)
{
    enum { OPS = 256 };
    union {
        struct io_uring_probe probe;
        char room[sizeof(struct io_uring_probe) + OPS * sizeof(struct io_uring_probe_op)];
    } reply;
    memset(&reply, 0, sizeof reply);
    if (tdl_ring_register(r, IORING_REGISTER_PROBE, &reply, OPS) < 0) {
        return 1u << TDL_FOP_READV | 1u << TDL_FOP_WRITEV | 1u << TDL_FOP_FSYNC | 1u << TDL_FOP_FDATASYNC |
               1u << TDL_FOP_NOP;
    }
    uint32_t ops = 0;
    for (unsigned code = 0; code < TDL_FOP_COPY; code++) {
        unsigned op = kernel_op[code];
        if (op < reply.probe.ops_len && (reply.probe.ops[op].flags & IO_URING_OP_SUPPORTED) != 0) {
            ops |= 1u << code;
        }
    }
    return ops;
}
