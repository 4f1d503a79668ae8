/* The io_uring engine: everything staged goes out in one enter, completions come out of shared memory. */
#include "uring.h"

#include "../workers.h"

#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* A batch that is worth the wake of the polling thread, and how many quick flushes in a row are. */
#define POLLER_BATCH 8u
#define POLLER_STREAK 16u
#define POLLER_QUICK_NS TDL_NS_PER_MS

/* How often the owner's share of a processor is measured, and from which share on it counts as busy. */
#define BUSY_WINDOW_NS TDL_NS_PER_MS
#define BUSY_PERCENT 95

/* /dev/null and its like. */
#define MEMORY_MAJOR 1u

#define SUBMIT_ROOM_MIN 8u
#define SUBMIT_ROOM_MAX 256u

static struct tdl__uring *backend(const struct tdl_fio *f)
{
    return (struct tdl__uring *)f->backend;
}

static bool has_poller(const struct tdl__uring *u)
{
    return u->poller.fd >= 0;
}

static uint32_t power_of_two(uint32_t n)
{
    uint32_t power = 1;
    while (power < n) {
        power *= 2;
    }
    return power;
}

static int register_files(struct tdl__uring *u)
{
    int none[TDL__CHAIN_SLOTS];
    memset(none, -1, sizeof none);
    int rc = tdl_ring_register(&u->main, IORING_REGISTER_FILES, none, TDL__CHAIN_SLOTS);
    u->free_slots = rc < 0 ? 0 : UINT64_MAX;
    return rc;
}

/* A second ring for the polling thread, so that its sleep costs nothing: the first submissions after a pause go through the
 * plain ring for the one system call that waking the thread would cost too. */
static void open_poller(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring_options wish)
{
    wish.sqpoll = true;
    /* The thread publishes its head late, so entries that completed may still look used: twice the limit never fills up. */
    wish.sq_entries =
        power_of_two(2 * f->inflight_max < SUBMIT_ROOM_MIN ? SUBMIT_ROOM_MIN : 2 * f->inflight_max);
    if (tdl_ring_open_proven(&u->poller, &wish) != 0) {
        u->poller.fd = -1;
        return;
    }
    struct epoll_event watch = {.events = EPOLLIN, .data = {.fd = 0}};
    u->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (u->epoll_fd < 0 || epoll_ctl(u->epoll_fd, EPOLL_CTL_ADD, u->main.fd, &watch) != 0 ||
        epoll_ctl(u->epoll_fd, EPOLL_CTL_ADD, u->poller.fd, &watch) != 0) {
        tdl_ring_close(&u->poller);
        if (u->epoll_fd >= 0) {
            (void)close(u->epoll_fd);
        }
        u->epoll_fd = -1;
    }
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
    f->caps.sqpoll = has_poller(u);
    f->caps.single_syscall = true;
}

static int start(struct tdl_fio *f)
{
    struct tdl__uring *u = (struct tdl__uring *)tdl_calloc(1, sizeof *u);
    if (u == NULL) {
        return -ENOMEM;
    }
    uint32_t room = power_of_two(f->inflight_max);
    room = room < SUBMIT_ROOM_MIN ? SUBMIT_ROOM_MIN : room > SUBMIT_ROOM_MAX ? SUBMIT_ROOM_MAX : room;
    struct tdl_ring_options wish = {
        .sq_entries = room,
        .cq_entries = power_of_two(2 * f->inflight_max + 2 * SUBMIT_ROOM_MIN),
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
    (void)register_files(u);
    if (f->options.sqpoll) {
        open_poller(f, u, wish);
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
    if (has_poller(u)) {
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
    if (has_poller(u)) {
        tdl_ring_forget(&u->poller);
    }
    tdl_ring_forget(&u->main);
    tdl_free(u);
}

static int descriptor(struct tdl_fio *f)
{
    const struct tdl__uring *u = backend(f);
    return has_poller(u) ? u->epoll_fd : u->main.fd;
}

/* One poll entry on the workers' descriptor makes their results show on the ring's. */
static void watch_workers(struct tdl_fio *f, struct tdl__uring *u)
{
    if (u->workers_watched || tdl__workers_running(f) == 0 || tdl_ring_space(&u->main) == 0) {
        return;
    }
    struct io_uring_sqe *sqe = tdl_ring_sqe(&u->main);
    tdl_sqe_poll_add(sqe, tdl__workers_fd(f), POLLIN);
    sqe->user_data = TDL__DATA_WORKERS;
    u->workers_watched = true;
}

static bool take_slot(struct tdl__uring *u, struct tdl_fop *op)
{
    if (u->free_slots == 0) {
        return false;
    }
    unsigned slot = (unsigned)__builtin_ctzll(u->free_slots);
    u->free_slots &= u->free_slots - 1;
    op->engine.uring.slot = (uint16_t)slot;
    return true;
}

/* What must not be left to the kernel's entry. A terminal that is ready for one byte is written to in the enter itself, however
 * many there are, and the owner waits for its reader; so are other devices that do not know how not to wait, but not those that
 * are only memory. And a ring takes no lock on the position of a file: two reads get the same bytes, and a write that the
 * disk has no room for leaves the position at its beginning, so that the next one goes over it. */
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
        if (tdl_ring_space(own) < tdl__uring_entries(op) || (chain && !take_slot(u, op))) {
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

/* The entries that the kernel did not take: their operations finish with its error, or go back to the stage. */
static void refuse(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring *r, int error)
{
    uint32_t end = r->tail;
    uint32_t count = tdl_ring_retract(r);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t data = r->sqes[(end - count + i) & (r->sq_entries - 1)].user_data;
        if (data == TDL__DATA_WORKERS) {
            u->workers_watched = false;
        }
        if (data <= TDL__DATA_WORKERS) {
            continue;
        }
        struct tdl_fop *op = tdl__uring_op(data);
        if (--op->engine.uring.parts > 0) {
            continue;
        }
        if (op->code == TDL_FOP_READ_FILE) {
            u->free_slots |= UINT64_C(1) << op->engine.uring.slot;
        }
        tdl__fio_finish(f, op, error);
    }
}

/* Publishes and enters until the kernel took every entry. It says EAGAIN and EBUSY when completions must be read first. */
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
        if ((rc == 0 || rc == -EAGAIN || rc == -EBUSY) && tries++ < 3) {
            (void)tdl_ring_enter(r, 0, 0, IORING_ENTER_GETEVENTS, UINT64_MAX);
            f->stats.other_calls++;
            harvest(f, u, r);
            continue;
        }
        refuse(f, u, r, rc < 0 ? rc : -EAGAIN);
        return;
    }
}

/* The polling thread takes published entries by itself; it is only woken, and waited for when the ring is full. */
static void kick_poller(struct tdl_fio *f, struct tdl_ring *r, bool full)
{
    uint32_t left = tdl_ring_publish(r);
    if (left == 0) {
        return;
    }
    uint32_t flags = (tdl_ring_sleeps(r) ? IORING_ENTER_SQ_WAKEUP : 0u) | (full ? IORING_ENTER_SQ_WAIT : 0u);
    int rc = flags == 0 ? 0 : -EINTR;
    for (unsigned tries = 0; rc < 0 && tries < 8; tries += rc != -EINTR) {
        rc = tdl_ring_enter(r, left, 0, flags, UINT64_MAX);
        f->stats.submit_calls++;
    }
}

/* Submitting for an owner who waits for the disk anyway only costs a second processor. */
static bool owner_is_busy(struct tdl__uring *u, uint64_t now)
{
    uint64_t passed = now - u->window_ns;
    if (passed < BUSY_WINDOW_NS) {
        return u->owner_busy;
    }
    uint64_t thread = tdl_clock_thread_ns();
    u->owner_busy = u->window_ns != 0 && (thread - u->window_thread_ns) * 100 > passed * BUSY_PERCENT;
    u->window_ns = now;
    u->window_thread_ns = thread;
    return u->owner_busy;
}

/* The polling thread is used while it is awake, and woken when the load promises to keep it busy. */
static struct tdl_ring *choose(struct tdl_fio *f, struct tdl__uring *u)
{
    if (!has_poller(u)) {
        return &u->main;
    }
    uint64_t now = tdl_clock_ns();
    u->streak = now - u->last_flush_ns < POLLER_QUICK_NS ? u->streak + 1 : 0;
    u->last_flush_ns = now;
    if (f->options.sqpoll_when_busy && !owner_is_busy(u, now)) {
        return &u->main;
    }
    /* What the page cache holds is answered in the enter itself, and all but reads go on to kernel workers anyway: the thread
     * would only spin while they work. */
    const struct tdl_fop *first = tdl__fio_first(f);
    if (f->budget.hot || first == NULL || (first->code != TDL_FOP_READ && first->code != TDL_FOP_READV)) {
        return &u->main;
    }
    if (f->staged_count >= POLLER_BATCH || u->streak >= POLLER_STREAK || !tdl_ring_sleeps(&u->poller)) {
        return &u->poller;
    }
    return &u->main;
}

static void submit(struct tdl_fio *f)
{
    struct tdl__uring *u = backend(f);
    struct tdl_ring *r = choose(f, u);
    for (;;) {
        uint32_t before = f->staged_count;
        bool all = fill(f, u, r);
        if (r != &u->main) {
            kick_poller(f, r, !all);
        }
        kick(f, u, &u->main, 0, UINT64_MAX, NULL);
        /* What stays without a step forward waits for a slot or for room, which completions give back. */
        if (all || f->staged_count >= before) {
            return;
        }
    }
}

static void chain_part(struct tdl_fio *f, struct tdl__uring *u, struct tdl_fop *op, enum tdl__part part,
                       int32_t res)
{
    if (part != TDL__PART_CLOSE && res < 0 && op->result >= 0 &&
        (part != TDL__PART_PROBE || op->result < (int64_t)op->length)) {
        op->result = res;
    }
    if (part == TDL__PART_READ && res >= 0) {
        op->result = res;
    }
    if (part == TDL__PART_PROBE && res > 0) {
        op->engine.uring.longer = 1; /* there is more behind a short read */
    }
    if (--op->engine.uring.parts > 0) {
        /* A hard link survives the read's cancelation, and a FIFO's probe would wait for a writer. */
        u->probe_runs_on = u->probe_runs_on || (op->asked && part == TDL__PART_READ);
        return;
    }
    u->free_slots |= UINT64_C(1) << op->engine.uring.slot;
    if (op->engine.uring.longer && op->result >= 0 && op->result < (int64_t)op->length && !op->asked) {
        tdl__fio_unsent(f, op);
        op->routed = TDL__ROUTE_WORKERS;
        f->resubmit++;
        return;
    }
    tdl__fio_complete(f, op, op->result);
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
        if (part == TDL__PART_WHOLE) {
            tdl__fio_complete(f, op, cqe->res);
        } else {
            chain_part(f, u, op, part, cqe->res);
        }
    }
    if (count > 0) {
        tdl_ring_seen(r, count);
    }
}

static void harvest_all(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring *r)
{
    harvest(f, u, r);
    for (unsigned tries = 0; tdl_ring_holds_back(r) && tries < 4; tries++) {
        if (tdl_ring_enter(r, 0, 0, IORING_ENTER_GETEVENTS, UINT64_MAX) == -EEXIST) {
            break;
        }
        f->stats.other_calls++;
        harvest(f, u, r);
    }
}

static void cancel_probes(struct tdl_fio *f, struct tdl__uring *u)
{
    u->probe_runs_on = false;
    for (struct tdl_node *node = f->inflight.next; node != &f->inflight; node = node->next) {
        const struct tdl_fop *op = TDL_CONTAINER_OF(node, struct tdl_fop, node);
        if (op->code != TDL_FOP_READ_FILE || !op->asked || op->routed == TDL__ROUTE_WORKERS) {
            continue;
        }
        if (tdl_ring_space(&u->main) == 0) {
            u->probe_runs_on = true;
            break;
        }
        struct io_uring_sqe *sqe = tdl_ring_sqe(&u->main);
        tdl_sqe_cancel(sqe, tdl__uring_data(op, TDL__PART_PROBE), 0);
        sqe->user_data = TDL__DATA_NOBODY;
    }
    kick(f, u, &u->main, 0, UINT64_MAX, NULL);
}

static void reap(struct tdl_fio *f)
{
    struct tdl__uring *u = backend(f);
    harvest_all(f, u, &u->main);
    if (u->probe_runs_on) {
        cancel_probes(f, u);
    }
    if (has_poller(u)) {
        harvest_all(f, u, &u->poller);
    }
    if (tdl__workers_running(f) > 0 && !u->workers_watched) {
        tdl__workers_reap(f);
        watch_workers(f, u);
        kick(f, u, &u->main, 0, UINT64_MAX, NULL);
    }
}

static int uring_wait(struct tdl_fio *f, uint64_t timeout_ns)
{
    struct tdl__uring *u = backend(f);
    if (has_poller(u)) {
        submit(f);
        return tdl_queue_is_empty(&f->finished) ? tdl__fio_wait_readable(u->epoll_fd, timeout_ns) : 0;
    }
    (void)fill(f, u, &u->main);
    if (tdl_ring_ready(&u->main) > 0 || !tdl_queue_is_empty(&f->finished)) {
        kick(f, u, &u->main, 0, UINT64_MAX, NULL);
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
        kick_poller(f, r, true);
    }
    if (tdl_ring_space(r) == 0) {
        return;
    }
    struct io_uring_sqe *sqe = tdl_ring_sqe(r);
    tdl_sqe_cancel(sqe, data, flags);
    sqe->user_data = TDL__DATA_NOBODY;
    if (r == &u->main) {
        kick(f, u, r, 0, UINT64_MAX, NULL);
    } else {
        kick_poller(f, r, false);
    }
}

static void cancel(struct tdl_fio *f, struct tdl_fop *op)
{
    struct tdl__uring *u = backend(f);
    if (op->routed == TDL__ROUTE_WORKERS) {
        tdl__workers_cancel(f, op);
        return;
    }
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
    if (has_poller(u)) {
        ask_to_cancel(f, u, &u->poller, 0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
    }
}

static int pin(struct tdl_fio *f, void *memory, size_t length)
{
    struct iovec one = {.iov_base = memory, .iov_len = length};
    int rc = tdl_ring_register(&backend(f)->main, IORING_REGISTER_BUFFERS, &one, 1);
    return rc < 0 ? rc : 0;
}

/* An entry's file is looked up when the kernel issues it: for the polling thread that is when it reads the entry. These three are
 * issued on a thread of the kernel's own, some time after the enter, and so are syncs, which change nothing of another file. */
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
