/* The kernel's io_uring interface: its header, what older headers lack, its three system calls, and the filling of entries.
 * Of liburing only such small things would be used, and a program that links this library would need it as well. */
#ifndef TREADLE_FILEIO_ABI_H
#define TREADLE_FILEIO_ABI_H

#include <errno.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The build needs headers of Linux 5.15; these came later and are asked of the running kernel. */
#ifndef IORING_SETUP_SUBMIT_ALL
#define IORING_SETUP_SUBMIT_ALL (1U << 7)
#endif
#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#endif
#ifndef IORING_SETUP_TASKRUN_FLAG
#define IORING_SETUP_TASKRUN_FLAG (1U << 9)
#endif
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SQ_CQ_OVERFLOW
#define IORING_SQ_CQ_OVERFLOW (1U << 1)
#endif
#ifndef IORING_SQ_TASKRUN
#define IORING_SQ_TASKRUN (1U << 2)
#endif
#ifndef IORING_FEAT_LINKED_FILE
#define IORING_FEAT_LINKED_FILE (1U << 12)
#endif
#ifndef IORING_ASYNC_CANCEL_ALL
#define IORING_ASYNC_CANCEL_ALL (1U << 0)
#endif
#ifndef IORING_ASYNC_CANCEL_ANY
#define IORING_ASYNC_CANCEL_ANY (1U << 2)
#endif
/* Linux 6.6. */
#define TDL__SETUP_NO_SQARRAY (1U << 16)
/* Linux 6.9. */
#define TDL__OP_FTRUNCATE 55

/* The descriptor or -errno. */
static inline int tdl__sys_io_uring_setup(uint32_t entries, struct io_uring_params *params)
{
    long rc = syscall(__NR_io_uring_setup, entries, params);
    return rc < 0 ? -errno : (int)rc;
}

/* The count of entries taken or -errno; `arg` is a struct io_uring_getevents_arg where flags say so, else NULL. */
static inline int tdl__sys_io_uring_enter(int fd, uint32_t submit, uint32_t wait, uint32_t flags,
                                          const void *arg, size_t bytes)
{
    long rc = syscall(__NR_io_uring_enter, fd, submit, wait, flags, arg, bytes);
    return rc < 0 ? -errno : (int)rc;
}

/* 0 or more, or -errno. */
static inline int tdl__sys_io_uring_register(int fd, uint32_t code, const void *arg, uint32_t count)
{
    long rc = syscall(__NR_io_uring_register, fd, code, arg, count);
    return rc < 0 ? -errno : (int)rc;
}

/* Fills a cleared entry with what most operations have. */
static inline void tdl__sqe_fill(struct io_uring_sqe *sqe, uint8_t code, int fd, const void *addr,
                                 uint32_t length, uint64_t offset)
{
    sqe->opcode = code;
    sqe->fd = fd;
    sqe->addr = (uint64_t)(uintptr_t)addr;
    sqe->len = length;
    sqe->off = offset;
}

/* As two halves in the order of a little-endian machine, whatever this one is. */
static inline void tdl__sqe_poll_add(struct io_uring_sqe *sqe, int fd, uint32_t events)
{
    tdl__sqe_fill(sqe, IORING_OP_POLL_ADD, fd, NULL, 0, 0);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    events = events << 16 | events >> 16;
#endif
    sqe->poll32_events = events;
}

static inline void tdl__sqe_cancel(struct io_uring_sqe *sqe, uint64_t user_data, uint32_t flags)
{
    tdl__sqe_fill(sqe, IORING_OP_ASYNC_CANCEL, -1, NULL, 0, 0);
    sqe->addr = user_data;
    sqe->cancel_flags = flags;
}

#endif
