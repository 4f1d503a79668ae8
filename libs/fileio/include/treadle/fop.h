/* One file operation: what to do, the memory it uses, and its result. The caller embeds it in an object of
 * its own, prepares it with one call, and gives it to a context (fileio.h).
 *
 *     struct tdl_fop op;
 *     tdl_fop_read(&op, fd, buffer, sizeof buffer, 0);
 *     tdl_fio_stage(&fio, &op);
 *
 * States (in link.state):
 *     IDLE      prepared or finished and taken; the caller may prepare it again
 *     WAITING   behind the in-flight limit, first in first out
 *     STAGED    goes to the kernel with the next flush
 *     INFLIGHT  the kernel or a worker holds it and its buffers
 *     DONE      has its result, lies in the context until reap returns it
 * IDLE -> WAITING -> STAGED -> INFLIGHT -> DONE -> IDLE; a cancel leads from WAITING or STAGED to DONE at
 * once. */
#ifndef TREADLE_FOP_H
#define TREADLE_FOP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "treadle/list.h"

#ifdef __cplusplus
extern "C" {
#endif

struct statx;
struct iocb;
struct tdl__worker_job;

enum tdl_fop_state {
    TDL_FOP_IDLE,     /* nobody but the caller holds it */
    TDL_FOP_WAITING,  /* in the context, over the in-flight limit */
    TDL_FOP_STAGED,   /* in the context, for the next flush */
    TDL_FOP_INFLIGHT, /* the kernel or a worker may touch its buffers */
    TDL_FOP_DONE,     /* result set, in the context's list of finished ones */
};

enum tdl_fop_code {
    TDL_FOP_NOP,
    TDL_FOP_READ,
    TDL_FOP_WRITE,
    TDL_FOP_READV,
    TDL_FOP_WRITEV,
    TDL_FOP_FSYNC,
    TDL_FOP_FDATASYNC,
    TDL_FOP_OPEN,
    TDL_FOP_CLOSE,
    TDL_FOP_STATX,
    TDL_FOP_FALLOCATE,
    TDL_FOP_TRUNCATE,
    TDL_FOP_RENAME,
    TDL_FOP_UNLINK,
    TDL_FOP_MKDIR,
    TDL_FOP_SPLICE,
    TDL_FOP_COPY,
    TDL_FOP_READ_FILE,
    TDL_FOP_CODES, /* how many there are */
};

/* The offset that means the descriptor's own position, which the operation then moves. */
#define TDL_FOP_POSITION UINT64_MAX

struct tdl_fop {
    struct tdl_link
        link; /* first, so that a list element is the operation; its state is enum tdl_fop_state */
    struct tdl_node node; /* ring of waiting, staged or in-flight operations */
    int64_t result;       /* public: bytes, descriptor or 0, or a negative code; valid from DONE on */
    void *user;           /* public: never read by the library */
    uint64_t offset;
    uint64_t offset2;
    uint64_t length; /* bytes, or the number of vectors */
    uint64_t done;   /* bytes moved by earlier rounds of this operation */
    union {
        void *buffer;
        const void *source;
        const struct iovec *vector;
        const char *path;
    } at;
    union {
        const char *path;
        struct statx *statx;
        void *buffer;
    } to;
    union {                 /* memory that this transfer has made, NULL for none */
        struct iovec *rest; /* of a vectored one: what a short round has left of the caller's vector */
        char *bounce;       /* of a plain direct one: aligned memory that stands in for the caller's */
    } own;
    union {                          /* whom it waits for */
        struct tdl__worker_job *job; /* in flight on a worker */
        struct iocb *block;          /* in flight in linux_aio */
        struct tdl_fop *leader;      /* a sync that has joined another one: that one */
    } with;
    int fd;
    int fd2;
    uint32_t flags;
    uint32_t mode;
    union { /* the engine's while in flight */
        struct {
            uint16_t slot;  /* registered file of a whole-file chain */
            uint8_t parts;  /* completions of the kernel still to come */
            uint8_t longer; /* the chain's probe found more behind what it read */
        } uring;
        struct {
            uint16_t delay; /* reaps that the result is still held back */
        } simulated;
    } engine;
    uint16_t rounds;     /* submissions so far */
    uint8_t code;        /* enum tdl_fop_code */
    uint8_t asked;       /* cancel was asked for */
    uint8_t cancel_sent; /* a close or a walk over all has asked the engine to cancel it */
    uint8_t routed;      /* where it is in flight: the engine, its polling thread, or a worker */
    uint8_t leads;       /* others of the same kind and file take this one's result */
};

/* Prepare an operation that does nothing.
 * Thread:  any; the operation must be IDLE
 * Owns:    nothing
 * Errors:  none; the result is 0
 * Cost:    O(1), no syscall */
void tdl_fop_nop(struct tdl_fop *op);

/* Prepare a read of up to `length` bytes at `offset`; the result is the bytes read, 0 at the end of the
 * file. Regular files are read on until the length or the end is reached; pipes and devices return what
 * one read gives.
 * Thread:  any; the operation must be IDLE
 * Owns:    the buffer stays valid and untouched until the operation is returned by reap or close; NULL
 *          where the context's options.provide makes it
 * Errors:  none here; the result carries -errno, -ECANCELED after a cancel
 * Cost:    O(1), no syscall, no allocation */
void tdl_fop_read(struct tdl_fop *op, int fd, void *buffer, size_t length, uint64_t offset);

/* Prepare a write of `length` bytes at `offset`; the result is the bytes written, all unless an error
 * stopped it midway.
 * Thread:  any; the operation must be IDLE
 * Owns:    the buffer stays valid and unchanged until the operation is returned
 * Errors:  none here; the result carries -errno when nothing was written
 * Cost:    O(1), no syscall, no allocation */
void tdl_fop_write(struct tdl_fop *op, int fd, const void *buffer, size_t length, uint64_t offset);

/* Prepare a scattering read; otherwise as tdl_fop_read.
 * Thread:  any; the operation must be IDLE
 * Owns:    vector and buffers stay valid until the operation is returned; the vector is not changed
 * Errors:  none here; -EINVAL as result when count is 0 or over IOV_MAX
 * Cost:    O(1); a short transfer allocates a copy of the vector */
void tdl_fop_readv(struct tdl_fop *op, int fd, const struct iovec *vector, unsigned count, uint64_t offset);

/* Prepare a gathering write; otherwise as tdl_fop_write.
 * Thread:  any; the operation must be IDLE
 * Owns:    vector and buffers stay valid until the operation is returned; the vector is not changed
 * Errors:  none here; -EINVAL as result when count is 0 or over IOV_MAX
 * Cost:    O(1); a short transfer allocates a copy of the vector */
void tdl_fop_writev(struct tdl_fop *op, int fd, const struct iovec *vector, unsigned count, uint64_t offset);

/* Prepare an fsync: data and metadata of the file are on the disk when it is done. It does not wait for
 * writes still in flight.
 * Thread:  any; the operation must be IDLE
 * Owns:    the descriptor stays open until the operation is returned
 * Errors:  none here; the result carries -errno
 * Cost:    O(1), no syscall */
void tdl_fop_fsync(struct tdl_fop *op, int fd);

/* Prepare an fdatasync; as tdl_fop_fsync without the metadata that reading does not need.
 * Thread:  any; the operation must be IDLE
 * Owns:    the descriptor stays open until the operation is returned
 * Errors:  none here; the result carries -errno
 * Cost:    O(1), no syscall */
void tdl_fop_fdatasync(struct tdl_fop *op, int fd);

/* Prepare an openat; the result is the new descriptor, always close-on-exec.
 * Thread:  any; the operation must be IDLE
 * Owns:    the path until the operation is returned; the descriptor is the caller's, also when it asked
 *          for a cancel too late
 * Errors:  none here; the result carries -errno
 * Cost:    O(1), no syscall */
void tdl_fop_open(struct tdl_fop *op, int directory_fd, const char *path, int flags, mode_t mode);

/* Prepare a close of a descriptor. It goes behind what the context holds of that descriptor; what waits
 * there for another program is canceled by it.
 * Thread:  any; the operation must be IDLE
 * Owns:    the descriptor belongs to the operation from stage on; after -ECANCELED it is the caller's
 *          again
 * Errors:  none here; the result carries -errno
 * Cost:    O(1), no syscall */
void tdl_fop_close(struct tdl_fop *op, int fd);

/* Prepare a statx; `path` may be "" with AT_EMPTY_PATH in `flags` for the descriptor itself.
 * Thread:  any; the operation must be IDLE
 * Owns:    path and `out` until the operation is returned
 * Errors:  none here; the result carries -errno
 * Cost:    O(1), no syscall */
void tdl_fop_statx(struct tdl_fop *op, int directory_fd, const char *path, int flags, unsigned mask,
                   struct statx *out);

/* Prepare a fallocate of `length` bytes at `offset`.
 * Thread:  any; the operation must be IDLE
 * Owns:    the descriptor stays open until the operation is returned
 * Errors:  none here; the result carries -errno
 * Cost:    O(1), no syscall */
void tdl_fop_fallocate(struct tdl_fop *op, int fd, int mode, uint64_t offset, uint64_t length);

/* Prepare an ftruncate to `length` bytes.
 * Thread:  any; the operation must be IDLE
 * Owns:    the descriptor stays open until the operation is returned
 * Errors:  none here; the result carries -errno
 * Cost:    O(1), no syscall */
void tdl_fop_truncate(struct tdl_fop *op, int fd, uint64_t length);

/* Prepare a renameat2.
 * Thread:  any; the operation must be IDLE
 * Owns:    both paths until the operation is returned
 * Errors:  none here; the result carries -errno
 * Cost:    O(1), no syscall */
void tdl_fop_rename(struct tdl_fop *op, int from_fd, const char *from, int to_fd, const char *to,
                    unsigned flags);

/* Prepare an unlinkat; AT_REMOVEDIR in `flags` removes a directory.
 * Thread:  any; the operation must be IDLE
 * Owns:    the path until the operation is returned
 * Errors:  none here; the result carries -errno
 * Cost:    O(1), no syscall */
void tdl_fop_unlink(struct tdl_fop *op, int directory_fd, const char *path, int flags);

/* Prepare a mkdirat.
 * Thread:  any; the operation must be IDLE
 * Owns:    the path until the operation is returned
 * Errors:  none here; the result carries -errno
 * Cost:    O(1), no syscall */
void tdl_fop_mkdir(struct tdl_fop *op, int directory_fd, const char *path, mode_t mode);

/* Prepare a splice of up to `length` bytes, one of the two descriptors a pipe; TDL_FOP_POSITION stands for
 * "no offset".
 * Thread:  any; the operation must be IDLE
 * Owns:    both descriptors stay open until the operation is returned
 * Errors:  none here; the result carries -errno, else the bytes moved by one call
 * Cost:    O(1), no syscall */
void tdl_fop_splice(struct tdl_fop *op, int in_fd, uint64_t in_offset, int out_fd, uint64_t out_offset,
                    size_t length, unsigned flags);

/* Prepare a copy of up to `length` bytes between two files, in the kernel where both can, else through a
 * buffer.
 * Thread:  any; the operation must be IDLE
 * Owns:    both descriptors stay open until the operation is returned
 * Errors:  none here; the result carries -errno when nothing was copied, else the bytes, fewer at the end
 *          of the source
 * Cost:    O(1), no syscall; runs on a worker in every engine */
void tdl_fop_copy(struct tdl_fop *op, int in_fd, uint64_t in_offset, int out_fd, uint64_t out_offset,
                  uint64_t length);

/* Prepare open, read and close of a whole file as one operation; the result is the bytes read.
 * A result equal to `length` says that the file may be longer.
 * Thread:  any; the operation must be IDLE
 * Owns:    path and buffer until the operation is returned, the buffer as for tdl_fop_read; no descriptor
 *          is ever the caller's
 * Errors:  none here; the result carries the first -errno of the three
 * Cost:    O(1), no syscall; one submission of four linked entries on a ring */
void tdl_fop_read_file(struct tdl_fop *op, int directory_fd, const char *path, void *buffer, size_t length);

/* The operation whose link this is.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE struct tdl_fop *tdl_fop_of(struct tdl_link *link)
{
    return (struct tdl_fop *)(void *)link;
}

/* Where the operation is.
 * Thread:  the context's owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE enum tdl_fop_state tdl_fop_state(const struct tdl_fop *op)
{
    return (enum tdl_fop_state)op->link.state;
}

/* The name of an operation code, for messages and tables.
 * Thread:  any
 * Owns:    a static string
 * Errors:  "unknown" for a number that is no code
 * Cost:    O(1) */
const char *tdl_fop_name(unsigned code);

#ifdef __cplusplus
}
#endif
#endif
