/* The kernel's io_uring interface: its header, the names that older headers lack, and the filling of
 * submission entries. Of liburing only such small things would be used, and a program that links this
 * library would need it as well.
 *
 * Example:
 *     struct io_uring_sqe entry = {0};
 *     tdl_sqe_poll_add(&entry, 0, 1);
 *     printf("%d\n", entry.opcode == IORING_OP_POLL_ADD);
 */
#ifndef TREADLE_RING_ABI_H
#define TREADLE_RING_ABI_H

#include <linux/io_uring.h>
#include <stddef.h>
#include <stdint.h>

#include "treadle/list.h"

#ifdef __cplusplus
extern "C" {
#endif

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
#ifndef IORING_POLL_ADD_MULTI
#define IORING_POLL_ADD_MULTI (1U << 0)
#endif
#ifndef IORING_ASYNC_CANCEL_ALL
#define IORING_ASYNC_CANCEL_ALL (1U << 0)
#endif
#ifndef IORING_ASYNC_CANCEL_ANY
#define IORING_ASYNC_CANCEL_ANY (1U << 2)
#endif
/* Linux 6.6. */
#define TDL_RING_SETUP_NO_SQARRAY (1U << 16)
/* Linux 6.9. */
#define TDL_RING_OP_FTRUNCATE 55

/* Fills a cleared entry with what most operations have.
 * Thread:  the ring's owner
 * Owns:    the memory at `addr` stays as the operation asks
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE void tdl_sqe_fill(struct io_uring_sqe *sqe, uint8_t code, int fd, const void *addr,
                             uint32_t length, uint64_t offset)
{
    sqe->opcode = code;
    sqe->fd = fd;
    sqe->addr = (uint64_t)(uintptr_t)addr;
    sqe->len = length;
    sqe->off = offset;
}

/* Fills a cleared entry with a poll of a descriptor for poll(2)'s events, which as two halves stand in the
 * order of a little-endian machine, whatever this one is.
 * Thread:  the ring's owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE void tdl_sqe_poll_add(struct io_uring_sqe *sqe, int fd, uint32_t events)
{
    tdl_sqe_fill(sqe, IORING_OP_POLL_ADD, fd, NULL, 0, 0);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    events = events << 16 | events >> 16;
#endif
    sqe->poll32_events = events;
}

/* Fills a cleared entry with the cancelation of what was submitted as `user_data`.
 * Thread:  the ring's owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE void tdl_sqe_cancel(struct io_uring_sqe *sqe, uint64_t user_data, uint32_t flags)
{
    tdl_sqe_fill(sqe, IORING_OP_ASYNC_CANCEL, -1, NULL, 0, 0);
    sqe->addr = user_data;
    sqe->cancel_flags = flags;
}

#ifdef __cplusplus
}
#endif

#endif
