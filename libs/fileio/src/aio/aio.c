/* The linux_aio engine: one io_submit per flush. It runs only positioned transfers and syncs of regular
 * files and block devices, since io_submit of anything else may block for ever; all others go to workers. */
#include "../internal.h"
#include "../workers.h"
#include "retire.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BATCH 128u

struct aio {
    aio_context_t context;
    struct iocb *blocks; /* one per operation in flight */
    struct iocb **free;
    uint32_t free_count;
    int event_fd;
    int epoll_fd; /* joins the kernel's completions and the workers' */
    bool workers_joined;
};

/* The calls themselves, which the C library does not have. */
static int code_of(long res)
{
    return res < 0 ? -errno : (int)res;
}

static int aio_setup(uint32_t count, aio_context_t *context)
{
    int rc;
    do {
        rc = code_of(syscall(SYS_io_setup, count, context));
    } while (rc == -EAGAIN && tdl__aio_wait_for_room());
    return rc;
}

/* No events are refused with EINVAL by a kernel that would take some. */
int tdl_fio_aio_is_refused(void)
{
    aio_context_t none = 0;
    int rc = code_of(syscall(SYS_io_setup, 0, &none));
    return rc == -EINVAL ? 0 : rc;
}

static int aio_submit(aio_context_t context, uint32_t count, struct iocb **blocks)
{
    return code_of(syscall(SYS_io_submit, context, (long)count, blocks));
}

static int aio_reap(aio_context_t context, struct io_event *events)
{
    struct timespec none = {.tv_sec = 0, .tv_nsec = 0};
    return code_of(syscall(SYS_io_getevents, context, 0L, (long)BATCH, events, &none));
}

static struct aio *backend(const struct tdl_fio *f)
{
    return (struct aio *)f->backend;
}

static struct tdl_fop *op_of(uint64_t data)
{
    return (struct tdl_fop *)(uintptr_t)data;
}

static void close_fds(struct aio *a)
{
    if (a->epoll_fd >= 0) {
        (void)close(a->epoll_fd);
    }
    if (a->event_fd >= 0) {
        (void)close(a->event_fd);
    }
}

static void free_aio(struct aio *a)
{
    close_fds(a);
    tdl_free(a->blocks);
    tdl_free(a->free);
    tdl_free(a);
}

static int open_fds(struct aio *a)
{
    a->event_fd = TDL_SYSCALL(EMFILE, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (a->event_fd < 0) {
        return -errno;
    }
    a->epoll_fd = TDL_SYSCALL(EMFILE, epoll_create1(EPOLL_CLOEXEC));
    if (a->epoll_fd < 0) {
        return -errno;
    }
    struct epoll_event watch = {.events = EPOLLIN, .data = {.fd = 0}};
    return TDL_SYSCALL(ENOMEM, epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, a->event_fd, &watch)) != 0 ? -errno : 0;
}

static int start(struct tdl_fio *f)
{
    struct aio *a = (struct aio *)tdl_calloc(1, sizeof *a);
    if (a == NULL) {
        return -ENOMEM;
    }
    a->event_fd = -1;
    a->epoll_fd = -1;
    a->blocks = (struct iocb *)tdl_calloc(f->inflight_max, sizeof *a->blocks);
    a->free = (struct iocb **)tdl_calloc(f->inflight_max, sizeof *a->free);
    int rc = a->blocks == NULL || a->free == NULL ? -ENOMEM : open_fds(a);
    if (rc == 0) {
        rc = TDL_FAIL(TDL_FAIL_SYSCALL) ? -EAGAIN : aio_setup(f->inflight_max, &a->context);
    }
    if (rc != 0) {
        free_aio(a);
        return rc;
    }
    while (a->free_count < f->inflight_max) {
        a->free[a->free_count] = &a->blocks[a->free_count];
        a->free_count++;
    }
    f->backend = a;
    f->caps.single_syscall = true;
    f->caps.kernel_ops = 1u << TDL_FOP_READ | 1u << TDL_FOP_WRITE | 1u << TDL_FOP_READV |
                         1u << TDL_FOP_WRITEV | 1u << TDL_FOP_FSYNC | 1u << TDL_FOP_FDATASYNC;
    return 0;
}

static void stop(struct tdl_fio *f)
{
    tdl__aio_retire(backend(f)->context);
    free_aio(backend(f));
    f->backend = NULL;
}

/* The kernel's context belongs to the parent's memory map and does not exist in the child. */
static void forget(struct tdl_fio *f)
{
    free_aio(backend(f));
}

static int descriptor(struct tdl_fio *f)
{
    return backend(f)->epoll_fd;
}

/* 1 for the kernel, 0 for the workers, or the error of a bad descriptor. */
static int fit_for_kernel(const struct tdl_fio *f, const struct tdl_fop *op)
{
    if ((f->caps.kernel_ops & 1u << op->code) == 0 || op->routed == TDL__ROUTE_WORKERS) {
        return 0;
    }
    if (tdl__fop_is_transfer(op) && op->offset > INT64_MAX) {
        return 0;
    }
    struct stat st;
    if (fstat(op->fd, &st) != 0) {
        return -errno;
    }
    return S_ISREG(st.st_mode) || S_ISBLK(st.st_mode);
}

static void fill(struct iocb *block, uint16_t code, int fd, const void *data, uint64_t length,
                 uint64_t offset)
{
    memset(block, 0, sizeof *block);
    block->aio_lio_opcode = code;
    block->aio_fildes = (uint32_t)fd;
    block->aio_buf = (uint64_t)(uintptr_t)data;
    block->aio_nbytes = length;
    block->aio_offset = (int64_t)offset;
}

static void prepare(const struct tdl_fio *f, struct iocb *block, const struct tdl_fop *op)
{
    struct tdl__span span;
    tdl__transfer_span(op, f->options.chunk_max, &span);
    switch ((enum tdl_fop_code)op->code) {
    case TDL_FOP_READ:
        fill(block, IOCB_CMD_PREAD, op->fd, span.buffer, span.length, span.offset);
        break;
    case TDL_FOP_WRITE:
        fill(block, IOCB_CMD_PWRITE, op->fd, span.buffer, span.length, span.offset);
        break;
    case TDL_FOP_READV:
        fill(block, IOCB_CMD_PREADV, op->fd, span.vector, span.count, span.offset);
        break;
    case TDL_FOP_WRITEV:
        fill(block, IOCB_CMD_PWRITEV, op->fd, span.vector, span.count, span.offset);
        break;
    case TDL_FOP_FSYNC:
        fill(block, IOCB_CMD_FSYNC, op->fd, NULL, 0, 0);
        break;
    default:
        fill(block, IOCB_CMD_FDSYNC, op->fd, NULL, 0, 0);
        break;
    }
}

/* The workers' descriptor stands beside the kernel's before they have anything to tell. */
static int join_workers(struct tdl_fio *f)
{
    struct aio *a = backend(f);
    int rc = tdl__workers_start(f);
    if (rc != 0 || a->workers_joined) {
        return rc;
    }
    struct epoll_event watch = {.events = EPOLLIN, .data = {.fd = 0}};
    if (epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, tdl__workers_fd(f), &watch) != 0) {
        return -errno;
    }
    a->workers_joined = true;
    return 0;
}

static void hand_over(struct tdl_fio *f, struct tdl_fop *op)
{
    int rc = join_workers(f);
    f->stats.handed_over++;
    if (rc != 0) {
        tdl__fio_finish(f, op, rc);
    } else {
        tdl__workers_submit(f, op);
    }
}

/* Staged operations become blocks, in order; what the kernel cannot do leaves on the way. */
static uint32_t collect(struct tdl_fio *f, struct iocb **batch)
{
    struct aio *a = backend(f);
    struct tdl_fop *op;
    uint32_t count = 0;
    while (count < BATCH && (op = tdl__fio_first(f)) != NULL) {
        int fit = fit_for_kernel(f, op);
        if (fit < 0) {
            tdl__fio_finish(f, op, fit);
            continue;
        }
        if (fit == 0) {
            hand_over(f, op);
            continue;
        }
        TDL_ASSERT(a->free_count > 0);
        struct iocb *block = a->free[--a->free_count];
        prepare(f, block, op);
        block->aio_flags = IOCB_FLAG_RESFD;
        block->aio_resfd = (uint32_t)a->event_fd;
        block->aio_data = (uint64_t)(uintptr_t)op;
        op->with.block = block;
        tdl__fio_sent(f, op, TDL__ROUTE_ENGINE);
        batch[count++] = block;
    }
    return count;
}

static void give_back(struct aio *a, struct tdl_fop *op)
{
    TDL_ASSERT(op->with.block != NULL);
    a->free[a->free_count++] = op->with.block;
    op->with.block = NULL;
}

/* The kernel refused the first of `count` blocks; true when the others may be tried. */
static bool refuse_first(struct tdl_fio *f, struct iocb **batch, uint32_t count, int error)
{
    struct aio *a = backend(f);
    if (error == -EAGAIN && f->inflight_count - tdl__workers_running(f) > count) {
        /* Out of kernel requests: completions will make room. */
        for (uint32_t i = count; i > 0; i--) {
            struct tdl_fop *op = op_of(batch[i - 1]->aio_data);
            give_back(a, op);
            tdl__fio_unsent(f, op);
        }
        return false;
    }
    struct tdl_fop *op = op_of(batch[0]->aio_data);
    give_back(a, op);
    if (error != -EINVAL && error != -EOPNOTSUPP) {
        tdl__fio_finish(f, op, error);
        return true;
    }
    /* A file without asynchronous calls, such as those of /proc: the plain call knows better. */
    tdl__fio_unsent(f, op);
    hand_over(f, op);
    return true;
}

static void submit(struct tdl_fio *f)
{
    struct aio *a = backend(f);
    struct iocb *batch[BATCH];
    uint32_t count;
    while ((count = collect(f, batch)) > 0) {
        uint32_t sent = 0;
        while (sent < count) {
            int rc =
                TDL_FAIL(TDL_FAIL_SYSCALL) ? -ENOMEM : aio_submit(a->context, count - sent, batch + sent);
            f->stats.submit_calls++;
            if (rc > 0) {
                sent += (uint32_t)rc;
            } else if (rc == -EINTR) {
                continue;
            } else if (refuse_first(f, batch + sent, count - sent, rc < 0 ? rc : -EAGAIN)) {
                sent++;
            } else {
                return;
            }
        }
    }
}

static void reap(struct tdl_fio *f)
{
    struct aio *a = backend(f);
    struct io_event events[BATCH];
    eventfd_t count;
    (void)eventfd_read(a->event_fd, &count);
    int got;
    do {
        got = aio_reap(a->context, events);
        f->stats.other_calls++;
        for (int i = 0; i < got; i++) {
            struct tdl_fop *op = op_of(events[i].data);
            give_back(a, op);
            tdl__fio_complete(f, op, events[i].res);
        }
    } while (got == (int)BATCH || got == -EINTR);
    if (tdl__workers_running(f) > 0) {
        tdl__workers_reap(f);
    }
    /* Room was made for what the kernel had no requests for. */
    if (f->staged_count > 0) {
        f->resubmit++;
    }
}

static int wait(struct tdl_fio *f, uint64_t timeout_ns)
{
    submit(f);
    if (!tdl_queue_is_empty(&f->finished)) {
        return 0;
    }
    f->stats.other_calls++;
    return tdl__fio_wait_readable(backend(f)->epoll_fd, timeout_ns);
}

static void cancel(struct tdl_fio *f, struct tdl_fop *op)
{
    if (op->routed == TDL__ROUTE_WORKERS) {
        tdl__workers_cancel(f, op);
        return;
    }
    /* io_cancel knows no file operation; the result decides. */
    op->asked = 1;
}

static void cancel_all(struct tdl_fio *f)
{
    struct tdl_node *node = f->inflight.next;
    while (node != &f->inflight) {
        struct tdl_fop *op = TDL_CONTAINER_OF(node, struct tdl_fop, node);
        node = node->next;
        cancel(f, op);
    }
}

/* io_submit looks up the files of its blocks before it returns. */
static bool borrows(const struct tdl_fio *f, const struct tdl_fop *op)
{
    (void)f;
    (void)op;
    return false;
}

const struct tdl__fio_engine tdl__fio_aio = {
    .id = TDL_FIO_LINUX_AIO,
    .start = start,
    .stop = stop,
    .forget = forget,
    .fd = descriptor,
    .submit = submit,
    .reap = reap,
    .cancel = cancel,
    .cancel_all = cancel_all,
    .wait = wait,
    .borrows = borrows,
};
