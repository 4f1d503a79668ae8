/* The io_uring engine: everything staged goes out in one enter, completions come out of shared memory. */
#include "uring.h"

#include "../workers.h"

#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Times that the kernel is asked again when it takes no entry before completions were read, or brings out
 * those that did not fit: each time it has more room, so more would only hide a fault. */
#define FULL_TRIES_MAX 3u
#define OVERFLOW_TRIES_MAX 4u

/* /dev/null and its like. */
#define MEMORY_MAJOR 1u

static struct tdl__uring *backend(const struct tdl_fio *f)
{
    return (struct tdl__uring *)f->backend;
}

static void fill_caps(struct tdl_fio *f, const struct tdl__uring *u)
{
    f->caps.ring_flags = u->main.setup_flags;
    f->caps.sq_entries = u->main.sq_entries;
    f->caps.cq_entries = u->main.cq_entries;
    f->caps.kernel_ops = tdl__uring_kernel_ops(&u->main);
    if (u->free_slots != 0 && (f->caps.kernel_ops & 1u << TDL_FOP_OPEN) != 0 &&
        (u->main.features & IORING_FEAT_LINKED_FILE) != 0) {
        f->caps.kernel_ops |= 1u << TDL_FOP_READ_FILE;
    }
    f->caps.sqpoll = tdl__has_poller(u);
    f->caps.single_syscall = true;
}

static int start(struct tdl_fio *f)
{
    struct tdl__uring *u = (struct tdl__uring *)tdl_calloc(1, sizeof *u);
    if (u == NULL) {
        return -ENOMEM;
    }
    TDL_ASSERT(f->inflight_max > 0);
    uint32_t room = tdl__power_of_two(f->inflight_max);
    room = room < TDL__SUBMIT_ROOM_MIN   ? TDL__SUBMIT_ROOM_MIN
           : room > TDL__SUBMIT_ROOM_MAX ? TDL__SUBMIT_ROOM_MAX
                                         : room;
    struct tdl_ring_options wish = {
        .sq_entries = room,
        .cq_entries = tdl__power_of_two(2 * f->inflight_max + 2 * TDL__SUBMIT_ROOM_MIN),
        .flags_mask = f->options.ring_flags_mask,
        .any_thread = f->options.any_thread,
    };
    u->poller.fd = -1;
    u->epoll_fd = -1;
    int rc = tdl_ring_open_proven(&u->main, &wish);
    if (rc != 0) {
        tdl_free(u);
        return rc;
    }
    (void)tdl__chain_register(u);
    if (f->options.sqpoll) {
        tdl__poller_open(f, u, wish);
    }
    fill_caps(f, u);
    f->backend = u;
    return 0;
}

static void stop(struct tdl_fio *f)
{
    struct tdl__uring *u = backend(f);
    if (u->epoll_fd >= 0) {
        (void)close(u->epoll_fd);
    }
    if (tdl__has_poller(u)) {
        tdl_ring_close(&u->poller);
    }
    tdl_ring_close(&u->main);
    tdl_free(u);
    f->backend = NULL;
}

static void forget(struct tdl_fio *f)
{
    struct tdl__uring *u = backend(f);
    if (u->epoll_fd >= 0) {
        (void)close(u->epoll_fd);
    }
    if (tdl__has_poller(u)) {
        tdl_ring_forget(&u->poller);
    }
    tdl_ring_forget(&u->main);
    tdl_free(u);
}

static int descriptor(struct tdl_fio *f)
{
    const struct tdl__uring *u = backend(f);
    return tdl__has_poller(u) ? u->epoll_fd : u->main.fd;
}

/* One poll entry on the workers' descriptor makes their results show on the ring's. */
static void watch_workers(struct tdl_fio *f, struct tdl__uring *u)
{
    TDL_ASSERT(u->main.fd >= 0);
    if (u->workers_watched || tdl__workers_running(f) == 0 || tdl_ring_space(&u->main) == 0) {
        f->deaf = f->deaf && tdl__workers_running(f) > 0;
        return;
    }
    struct io_uring_sqe *sqe = tdl_ring_sqe(&u->main);
    tdl_sqe_poll_add(sqe, tdl__workers_fd(f), POLLIN);
    sqe->user_data = TDL__DATA_WORKERS;
    u->workers_watched = true;
    f->deaf = false;
}

/* What must not be left to the kernel's entry. A terminal that is ready for one byte is written to in the
 * enter itself, however many there are, and the owner waits for its reader; so are other devices that do
 * not know how not to wait, but not those that are only memory. And a ring takes no lock on the position
 * of a file: two reads get the same bytes, and a write that the disk has no room for leaves the position
 * at its beginning, so that the next one goes over it. */
static bool wants_call(const struct tdl_fop *op)
{
    bool writes = tdl__fop_is_write(op);
    bool at_position = op->offset == TDL_FOP_POSITION;
    struct stat st;
    if (!(at_position && tdl__fop_is_transfer(op)) && !(writes && op->offset == 0)) {
        return false;
    }
    if (fstat(op->fd, &st) != 0) {
        return false;
    }
    if (at_position && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode))) {
        return true;
    }
    return writes && S_ISCHR(st.st_mode) && major(st.st_rdev) != MEMORY_MAJOR;
}

/* Staged operations become entries until the ring is full; false when some had to stay. */
static bool fill(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring *r)
{
    struct tdl_fop *op;
    while ((op = tdl__fio_first(f)) != NULL) {
        if ((f->caps.kernel_ops & 1u << op->code) == 0 || op->routed == TDL__ROUTE_WORKERS ||
            wants_call(op)) {
            f->stats.handed_over++;
            tdl__workers_submit(f, op);
            continue;
        }
        bool chain = op->code == TDL_FOP_READ_FILE;
        /* Registered files belong to the plain ring. */
        struct tdl_ring *own = chain ? &u->main : r;
        if (tdl_ring_space(own) < tdl__uring_entries(op) || (chain && !tdl__chain_take_slot(u, op))) {
            return false;
        }
        tdl__uring_prepare(f, own, op);
        tdl__fio_sent(f, op, own == &u->main ? TDL__ROUTE_ENGINE : TDL__ROUTE_POLLER);
        f->stats.polled += own != &u->main;
    }
    watch_workers(f, u);
    return true;
}

static void harvest(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring *r);

/* The entries that the kernel did not take: their operations finish with its error, or go back to the
 * stage. */
static void refuse(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring *r, int error)
{
    TDL_ASSERT(error < 0);
    uint32_t end = r->tail;
    uint32_t count = tdl_ring_retract(r);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t data = r->sqes[(end - count + i) & (r->sq_entries - 1)].user_data;
        if (data == TDL__DATA_WORKERS) {
            u->workers_watched = false;
            f->deaf = true;
        }
        if (data <= TDL__DATA_WORKERS) {
            continue;
        }
        struct tdl_fop *op = tdl__uring_op(data);
        TDL_ASSERT(op->link.state == TDL_FOP_INFLIGHT && op->engine.uring.parts > 0);
        if (--op->engine.uring.parts > 0) {
            continue;
        }
        if (op->code == TDL_FOP_READ_FILE) {
            tdl__chain_give_slot(u, op);
        }
        /* A close always frees its number, so the one who asked need not ask again. */
        int64_t result = error;
        if (op->code == TDL_FOP_CLOSE) {
            result = close(op->fd) == 0 ? 0 : -errno;
        }
        tdl__fio_finish(f, op, result);
    }
}

/* Publishes and enters until the kernel took every entry. It says EAGAIN and EBUSY when completions must
 * be read first. */
static void kick(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring *r, uint32_t wait,
                 uint64_t timeout_ns, int *waited)
{
    unsigned tries = 0;
    uint32_t left = tdl_ring_publish(r);
    while (left > 0 || wait > 0) {
        int rc = tdl_ring_enter(r, left, wait, wait > 0 ? IORING_ENTER_GETEVENTS : 0u, timeout_ns);
        f->stats.submit_calls += left > 0;
        f->stats.other_calls += left == 0;
        uint32_t before = left;
        left = tdl_ring_publish(r);
        if (wait > 0) {
            *waited = rc;
            wait = 0;
        }
        if (left < before || before == 0 || rc == -EINTR) {
            continue;
        }
        if ((rc == 0 || rc == -EAGAIN || rc == -EBUSY) && tries++ < FULL_TRIES_MAX) {
            (void)tdl_ring_enter(r, 0, 0, IORING_ENTER_GETEVENTS, UINT64_MAX);
            f->stats.other_calls++;
            harvest(f, u, r);
            continue;
        }
        refuse(f, u, r, rc < 0 ? rc : -EAGAIN);
        return;
    }
}

void tdl__uring_kick(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring *r)
{
    kick(f, u, r, 0, UINT64_MAX, NULL);
}

static void submit(struct tdl_fio *f)
{
    struct tdl__uring *u = backend(f);
    struct tdl_ring *r = tdl__poller_choose(f, u);
    for (;;) {
        uint32_t before = f->staged_count;
        bool all = fill(f, u, r);
        if (r != &u->main) {
            tdl__poller_kick(f, r, !all);
        }
        tdl__uring_kick(f, u, &u->main);
        /* What stays without a step forward waits for a slot or for room, which completions give back. */
        if (all || f->staged_count >= before) {
            return;
        }
    }
}

static void harvest(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring *r)
{
    uint32_t count = tdl_ring_ready(r);
    for (uint32_t i = 0; i < count; i++) {
        const struct io_uring_cqe *cqe = tdl_ring_cqe(r, i);
        uint64_t data = cqe->user_data;
        if (data == TDL__DATA_NOBODY) {
            continue;
        }
        if (data == TDL__DATA_WORKERS) {
            u->workers_watched = false;
            continue;
        }
        struct tdl_fop *op = tdl__uring_op(data);
        enum tdl__part part = (enum tdl__part)(data & TDL__PART_MASK);
        TDL_ASSERT(op->link.state == TDL_FOP_INFLIGHT && op->routed != TDL__ROUTE_WORKERS);
        if (part == TDL__PART_WHOLE) {
            tdl__fio_complete(f, op, cqe->res);
        } else {
            tdl__chain_part(f, u, op, part, cqe->res);
        }
    }
    if (count > 0) {
        tdl_ring_seen(r, count);
    }
}

static void harvest_all(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring *r)
{
    harvest(f, u, r);
    for (unsigned tries = 0; tdl_ring_holds_back(r) && tries < OVERFLOW_TRIES_MAX; tries++) {
        if (tdl_ring_enter(r, 0, 0, IORING_ENTER_GETEVENTS, UINT64_MAX) == -EEXIST) {
            break;
        }
        f->stats.other_calls++;
        harvest(f, u, r);
    }
}

static void reap(struct tdl_fio *f)
{
    struct tdl__uring *u = backend(f);
    harvest_all(f, u, &u->main);
    if (u->probe_runs_on) {
        tdl__chain_cancel_probes(f, u);
    }
    if (tdl__has_poller(u)) {
        harvest_all(f, u, &u->poller);
    }
    if (tdl__workers_running(f) > 0 && !u->workers_watched) {
        tdl__workers_reap(f);
        watch_workers(f, u);
        tdl__uring_kick(f, u, &u->main);
    }
}

static int uring_wait(struct tdl_fio *f, uint64_t timeout_ns)
{
    struct tdl__uring *u = backend(f);
    if (tdl__has_poller(u)) {
        submit(f);
        return tdl_queue_is_empty(&f->finished) ? tdl__fio_wait_readable(u->epoll_fd, timeout_ns) : 0;
    }
    (void)fill(f, u, &u->main);
    if (tdl_ring_ready(&u->main) > 0 || !tdl_queue_is_empty(&f->finished)) {
        tdl__uring_kick(f, u, &u->main);
        return 0;
    }
    int rc = 0;
    kick(f, u, &u->main, 1, timeout_ns, &rc);
    if (rc == -ETIME) {
        return -ETIMEDOUT;
    }
    /* Another thread than the ring's may not enter it, but it may wait for its descriptor. */
    if (rc == -EEXIST && f->inflight_count > 0) {
        return tdl__fio_wait_readable(u->main.fd, timeout_ns);
    }
    return rc == -EBADF || rc == -EOPNOTSUPP
               ? -EBADF
               : 0; /* somebody closed the ring, and perhaps opened something else */
}

static void ask_to_cancel(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring *r, uint64_t data,
                          uint32_t flags)
{
    if (tdl_ring_space(r) == 0 && r != &u->main) {
        tdl__poller_kick(f, r, true);
    }
    if (tdl_ring_space(r) == 0) {
        return;
    }
    struct io_uring_sqe *sqe = tdl_ring_sqe(r);
    tdl_sqe_cancel(sqe, data, flags);
    sqe->user_data = TDL__DATA_NOBODY;
    if (r == &u->main) {
        tdl__uring_kick(f, u, r);
    } else {
        tdl__poller_kick(f, r, false);
    }
}

static void cancel(struct tdl_fio *f, struct tdl_fop *op)
{
    struct tdl__uring *u = backend(f);
    if (op->routed == TDL__ROUTE_WORKERS) {
        tdl__workers_cancel(f, op);
        return;
    }
    TDL_ASSERT(op->link.state == TDL_FOP_INFLIGHT);
    op->asked = 1;
    struct tdl_ring *r = op->routed == TDL__ROUTE_POLLER ? &u->poller : &u->main;
    if (op->code != TDL_FOP_READ_FILE) {
        ask_to_cancel(f, u, r, tdl__uring_data(op, TDL__PART_WHOLE), 0);
        return;
    }
    static const enum tdl__part parts[] = {TDL__PART_OPEN, TDL__PART_READ, TDL__PART_PROBE};
    for (unsigned i = 0; i < 3 && op->link.state == TDL_FOP_INFLIGHT; i++) {
        ask_to_cancel(f, u, r, tdl__uring_data(op, parts[i]), 0);
    }
}

/* Asking may bring completions in, so the walk starts anew each time. */
static struct tdl_fop *first_unasked(struct tdl_fio *f)
{
    for (struct tdl_node *node = f->inflight.next; node != &f->inflight; node = node->next) {
        struct tdl_fop *op = TDL_CONTAINER_OF(node, struct tdl_fop, node);
        if (op->cancel_sent == 0) {
            return op;
        }
    }
    return NULL;
}

static void cancel_all(struct tdl_fio *f)
{
    struct tdl__uring *u = backend(f);
    /* "Any request" came with the kernel that also brought these setup flags. */
    bool any = (u->main.setup_flags & (IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SINGLE_ISSUER)) != 0;
    struct tdl_fop *op;
    while ((op = first_unasked(f)) != NULL) {
        op->cancel_sent = 1;
        if (op->routed == TDL__ROUTE_WORKERS || !any) {
            cancel(f, op);
        } else {
            op->asked = 1;
        }
    }
    if (!any) {
        return;
    }
    ask_to_cancel(f, u, &u->main, 0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
    if (tdl__has_poller(u)) {
        ask_to_cancel(f, u, &u->poller, 0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
    }
}

static int pin(struct tdl_fio *f, void *memory, size_t length)
{
    struct iovec one = {.iov_base = memory, .iov_len = length};
    int rc = tdl_ring_register(&backend(f)->main, IORING_REGISTER_BUFFERS, &one, 1);
    return rc < 0 ? rc : 0;
}

/* An entry's file is looked up when the kernel issues it: for the polling thread that is when it reads the
 * entry. These three are issued on a thread of the kernel's own, some time after the enter, and so are
 * syncs, which change nothing of another file. */
static bool uring_borrows(const struct tdl_fio *f, const struct tdl_fop *op)
{
    const struct tdl__uring *u = backend(f);
    if (op->routed == TDL__ROUTE_POLLER && tdl_ring_space(&u->poller) != u->poller.sq_entries) {
        return true;
    }
    return op->code == TDL_FOP_TRUNCATE || op->code == TDL_FOP_FALLOCATE || op->code == TDL_FOP_SPLICE;
}

const struct tdl__fio_engine tdl__fio_uring = {
    .id = TDL_FIO_LINUX_URING,
    .start = start,
    .stop = stop,
    .forget = forget,
    .fd = descriptor,
    .submit = submit,
    .reap = reap,
    .cancel = cancel,
    .cancel_all = cancel_all,
    .wait = uring_wait,
    .borrows = uring_borrows,
    .pin = pin,
};
