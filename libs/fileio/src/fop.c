#include "treadle/fop.h"

#include "internal.h"

#include <fcntl.h>
#include <string.h>

static void prepare(struct tdl_fop *op, enum tdl_fop_code code, int fd)
{
    TDL_ASSERT(sizeof(struct tdl_fop) <= 192);
    op->link.next = NULL;
    op->link.mark = 0;
    op->link.state = TDL_FOP_IDLE;
    op->link.flags = 0;
    tdl_node_init(&op->node);
    op->result = 0;
    op->offset = 0;
    op->offset2 = 0;
    op->length = 0;
    op->done = 0;
    op->at.buffer = NULL;
    op->to.buffer = NULL;
    op->own.rest = NULL;
    op->with.leader = NULL;
    op->fd = fd;
    op->fd2 = -1;
    op->flags = 0;
    op->mode = 0;
    op->code = (uint8_t)code;
    op->asked = 0;
    op->routed = TDL__ROUTE_ENGINE;
    op->rounds = 0;
    op->leads = 0;
}

void tdl_fop_nop(struct tdl_fop *op)
{
    prepare(op, TDL_FOP_NOP, -1);
}

void tdl_fop_read(struct tdl_fop *op, int fd, void *buffer, size_t length, uint64_t offset)
{
    prepare(op, TDL_FOP_READ, fd);
    op->at.buffer = buffer;
    op->length = length;
    op->offset = offset;
}

void tdl_fop_write(struct tdl_fop *op, int fd, const void *buffer, size_t length, uint64_t offset)
{
    prepare(op, TDL_FOP_WRITE, fd);
    op->at.source = buffer;
    op->length = length;
    op->offset = offset;
}

void tdl_fop_readv(struct tdl_fop *op, int fd, const struct iovec *vector, unsigned count, uint64_t offset)
{
    prepare(op, TDL_FOP_READV, fd);
    op->at.vector = vector;
    op->length = count;
    op->offset = offset;
}

void tdl_fop_writev(struct tdl_fop *op, int fd, const struct iovec *vector, unsigned count, uint64_t offset)
{
    prepare(op, TDL_FOP_WRITEV, fd);
    op->at.vector = vector;
    op->length = count;
    op->offset = offset;
}

void tdl_fop_fsync(struct tdl_fop *op, int fd)
{
    prepare(op, TDL_FOP_FSYNC, fd);
}

void tdl_fop_fdatasync(struct tdl_fop *op, int fd)
{
    prepare(op, TDL_FOP_FDATASYNC, fd);
}

void tdl_fop_open(struct tdl_fop *op, int directory_fd, const char *path, int flags, mode_t mode)
{
    prepare(op, TDL_FOP_OPEN, directory_fd);
    op->at.path = path;
    op->flags = (uint32_t)flags | O_CLOEXEC;
    op->mode = mode;
}

void tdl_fop_close(struct tdl_fop *op, int fd)
{
    prepare(op, TDL_FOP_CLOSE, fd);
}

void tdl_fop_statx(struct tdl_fop *op, int directory_fd, const char *path, int flags, unsigned mask,
                   struct statx *out)
{
    prepare(op, TDL_FOP_STATX, directory_fd);
    op->at.path = path;
    op->to.statx = out;
    op->flags = (uint32_t)flags;
    op->mode = mask;
}

void tdl_fop_fallocate(struct tdl_fop *op, int fd, int mode, uint64_t offset, uint64_t length)
{
    prepare(op, TDL_FOP_FALLOCATE, fd);
    op->mode = (uint32_t)mode;
    op->offset = offset;
    op->length = length;
}

void tdl_fop_truncate(struct tdl_fop *op, int fd, uint64_t length)
{
    prepare(op, TDL_FOP_TRUNCATE, fd);
    op->length = length;
}

void tdl_fop_rename(struct tdl_fop *op, int from_fd, const char *from, int to_fd, const char *to,
                    unsigned flags)
{
    prepare(op, TDL_FOP_RENAME, from_fd);
    op->at.path = from;
    op->fd2 = to_fd;
    op->to.path = to;
    op->flags = flags;
}

void tdl_fop_unlink(struct tdl_fop *op, int directory_fd, const char *path, int flags)
{
    prepare(op, TDL_FOP_UNLINK, directory_fd);
    op->at.path = path;
    op->flags = (uint32_t)flags;
}

void tdl_fop_mkdir(struct tdl_fop *op, int directory_fd, const char *path, mode_t mode)
{
    prepare(op, TDL_FOP_MKDIR, directory_fd);
    op->at.path = path;
    op->mode = mode;
}

void tdl_fop_splice(struct tdl_fop *op, int in_fd, uint64_t in_offset, int out_fd, uint64_t out_offset,
                    size_t length, unsigned flags)
{
    prepare(op, TDL_FOP_SPLICE, in_fd);
    op->offset = in_offset;
    op->fd2 = out_fd;
    op->offset2 = out_offset;
    op->length = length;
    op->flags = flags;
}

void tdl_fop_copy(struct tdl_fop *op, int in_fd, uint64_t in_offset, int out_fd, uint64_t out_offset,
                  uint64_t length)
{
    prepare(op, TDL_FOP_COPY, in_fd);
    op->offset = in_offset;
    op->fd2 = out_fd;
    op->offset2 = out_offset;
    op->length = length;
}

void tdl_fop_read_file(struct tdl_fop *op, int directory_fd, const char *path, void *buffer, size_t length)
{
    prepare(op, TDL_FOP_READ_FILE, directory_fd);
    op->at.path = path;
    op->to.buffer = buffer;
    op->length = length;
    op->flags = O_RDONLY | O_CLOEXEC;
}

static const char *const names[TDL_FOP_CODES] = {
    [TDL_FOP_NOP] = "nop",
    [TDL_FOP_READ] = "read",
    [TDL_FOP_WRITE] = "write",
    [TDL_FOP_READV] = "readv",
    [TDL_FOP_WRITEV] = "writev",
    [TDL_FOP_FSYNC] = "fsync",
    [TDL_FOP_FDATASYNC] = "fdatasync",
    [TDL_FOP_OPEN] = "open",
    [TDL_FOP_CLOSE] = "close",
    [TDL_FOP_STATX] = "statx",
    [TDL_FOP_FALLOCATE] = "fallocate",
    [TDL_FOP_TRUNCATE] = "truncate",
    [TDL_FOP_RENAME] = "rename",
    [TDL_FOP_UNLINK] = "unlink",
    [TDL_FOP_MKDIR] = "mkdir",
    [TDL_FOP_SPLICE] = "splice",
    [TDL_FOP_COPY] = "copy",
    [TDL_FOP_READ_FILE] = "read_file",
};

const char *tdl_fop_name(unsigned code)
{
    return code < TDL_FOP_CODES ? names[code] : "unknown";
}

bool tdl__fop_is_vectored(const struct tdl_fop *op)
{
    return op->code == TDL_FOP_READV || op->code == TDL_FOP_WRITEV;
}

bool tdl__fop_is_write(const struct tdl_fop *op)
{
    return op->code == TDL_FOP_WRITE || op->code == TDL_FOP_WRITEV;
}

bool tdl__fop_is_transfer(const struct tdl_fop *op)
{
    return op->code >= TDL_FOP_READ && op->code <= TDL_FOP_WRITEV;
}
