/* Rounds of a transfer: the kernel may move less than asked, and never more than about 2 GiB at once. */
#include "internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t vector_total(const struct iovec *vector, uint64_t count)
{
    uint64_t total = 0;
    for (uint64_t i = 0; i < count; i++) {
        total += vector[i].iov_len;
    }
    return total;
}

static uint64_t transfer_total(const struct tdl_fop *op)
{
    return tdl__fop_is_vectored(op) ? vector_total(op->at.vector, op->length) : op->length;
}

/* The first vector that still has bytes to move. */
static unsigned vectors_done(const struct tdl_fop *op, uint64_t *into)
{
    uint64_t left = op->done;
    unsigned index = 0;
    while (index < op->length && left >= op->at.vector[index].iov_len) {
        left -= op->at.vector[index].iov_len;
        index++;
    }
    *into = left;
    return index;
}

static char *bounce_of(const struct tdl_fop *op)
{
    return tdl__bounce_align(op->own.bounce);
}

void tdl__transfer_span(const struct tdl_fop *op, uint64_t chunk_max, struct tdl__span *span)
{
    span->offset = op->offset == TDL_FOP_POSITION ? TDL_FOP_POSITION : op->offset + op->done;
    if (tdl__fop_is_vectored(op)) {
        uint64_t into;
        unsigned index = op->own.rest != NULL ? vectors_done(op, &into) : 0;
        span->buffer = NULL;
        span->vector = op->own.rest != NULL ? op->own.rest : op->at.vector;
        span->count = (unsigned)(op->length - index);
        span->length = 0;
        return;
    }
    TDL_ASSERT(op->done <= op->length);
    uint64_t left = op->length - op->done;
    span->buffer = (char *)op->at.buffer + op->done;
    span->vector = NULL;
    span->count = 0;
    span->length = (size_t)(left < chunk_max ? left : chunk_max);
    if (op->own.bounce == NULL) {
        return;
    }
    if (span->length > TDL__BOUNCE_BYTES) {
        span->length = TDL__BOUNCE_BYTES;
    }
    if (tdl__fop_is_write(op)) {
        memcpy(bounce_of(op), span->buffer, span->length);
    }
    span->buffer = bounce_of(op);
}

/* The caller's vector is not ours to change, so what is left of it goes into a copy. */
static bool vector_advance(struct tdl_fop *op)
{
    uint64_t into;
    unsigned index = vectors_done(op, &into);
    TDL_ASSERT(index < op->length);
    unsigned count = (unsigned)(op->length - index);
    if (op->own.rest == NULL) {
        op->own.rest = (struct iovec *)tdl_malloc(sizeof *op->own.rest * (size_t)op->length);
        if (op->own.rest == NULL) {
            return false;
        }
    }
    memcpy(op->own.rest, op->at.vector + index, sizeof *op->own.rest * count);
    op->own.rest[0].iov_base = (char *)op->own.rest[0].iov_base + into;
    op->own.rest[0].iov_len -= into;
    return true;
}

/* Only files that end somewhere are asked again after a short transfer; a pipe would block for data nobody
 * promised. */
static bool more_may_come(const struct tdl_fop *op)
{
    struct stat st;
    if (fstat(op->fd, &st) != 0) {
        return false;
    }
    if (S_ISBLK(st.st_mode)) {
        return true;
    }
    if (!S_ISREG(st.st_mode)) {
        return false;
    }
    /* Files of /proc are regular, have size 0, and still give bytes. */
    if (tdl__fop_is_write(op) || op->offset == TDL_FOP_POSITION || st.st_size == 0) {
        return true;
    }
    return op->offset + op->done < (uint64_t)st.st_size;
}

bool tdl__fd_is_file(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode));
}

bool tdl__transfer_is_unaligned(const struct tdl_fop *op)
{
    if (op->code != TDL_FOP_READ && op->code != TDL_FOP_WRITE) {
        return false;
    }
    uint64_t place = op->offset == TDL_FOP_POSITION ? 0 : op->offset;
    return !tdl__is_on_sector((uintptr_t)op->at.buffer) && tdl__is_on_sector(place | op->length) &&
           op->length > 0;
}

bool tdl__transfer_wants_bounce(const struct tdl_fop *op)
{
    if (!tdl__transfer_is_unaligned(op)) {
        return false;
    }
    int flags = fcntl(op->fd, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) != 0;
}

bool tdl__transfer_make_bounce(struct tdl_fop *op)
{
    size_t length = op->length < TDL__BOUNCE_BYTES ? (size_t)op->length : TDL__BOUNCE_BYTES;
    TDL_ASSERT(op->own.bounce == NULL && !tdl__fop_is_vectored(op));
    op->own.bounce = (char *)tdl_malloc(length + TDL__BOUNCE_ALIGNMENT);
    return op->own.bounce != NULL;
}

void tdl__transfer_take_bounce(struct tdl_fop *op, int64_t res)
{
    if (res > 0 && op->code == TDL_FOP_READ) {
        memcpy((char *)op->at.buffer + op->done, bounce_of(op), (size_t)res);
    }
}

bool tdl__transfer_round(struct tdl_fop *op, int64_t res, uint64_t chunk_max, bool must)
{
    op->rounds++;
    if (res == -EINTR && !op->asked) {
        return true;
    }
    if (res < 0) {
        /* What has been moved is moved; the error shows again at the next call, as with read(2). */
        op->result = op->done > 0 ? (int64_t)op->done : res;
        return false;
    }
    uint64_t total = transfer_total(op);
    uint64_t asked = total - op->done < chunk_max ? total - op->done : chunk_max;
    TDL_ASSERT((uint64_t)res <= asked || tdl__fop_is_vectored(op));
    bool whole = (uint64_t)res == asked && !tdl__fop_is_vectored(op);
    op->done += (uint64_t)res;
    op->result = (int64_t)op->done;
    if (op->done >= total || res == 0 || op->asked) {
        return false;
    }
    if (!whole && !must && !more_may_come(op)) {
        return false;
    }
    return !tdl__fop_is_vectored(op) || vector_advance(op);
}
