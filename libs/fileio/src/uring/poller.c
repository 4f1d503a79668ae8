/* The second ring, whose submission queue a kernel thread polls: when it is there, when it is used, and
 * its wake. */
#include "../internal.h"
#include "uring.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

/* A batch that is worth the wake of the polling thread, and how many quick flushes in a row are. */
#define POLLER_BATCH 8u
#define POLLER_STREAK 16u
#define POLLER_QUICK_NS TDL_NS_PER_MS

/* How often the owner's share of a processor is measured, and from which share on it counts as busy. */
#define BUSY_WINDOW_NS TDL_NS_PER_MS
#define BUSY_PERCENT 95

/* Times that the thread is waited for while its queue is full. */
#define FULL_WAITS_MAX 8u

static pthread_once_t sqpoll_once = PTHREAD_ONCE_INIT;
static bool sqpoll_granted;

static void try_sqpoll(void)
{
    struct tdl_ring ring;
    struct tdl_ring_options wish = {
        .sq_entries = 4, .cq_entries = 8, .flags_mask = UINT32_MAX, .sqpoll = true, .any_thread = true};
    sqpoll_granted = tdl_ring_open_proven(&ring, &wish) == 0;
    if (sqpoll_granted) {
        tdl_ring_close(&ring);
    }
}

bool tdl_fio_sqpoll_is_allowed(void)
{
    (void)pthread_once(&sqpoll_once, try_sqpoll);
    return sqpoll_granted;
}

uint32_t tdl__power_of_two(uint32_t n)
{
    uint32_t power = 1;
    while (power < n) {
        power *= 2;
    }
    return power;
}

/* A second ring for the polling thread, so that its sleep costs nothing: the first submissions after a
 * pause go through the plain ring for the one system call that waking the thread would cost too. */
void tdl__poller_open(struct tdl_fio *f, struct tdl__uring *u, struct tdl_ring_options wish)
{
    TDL_ASSERT(u->poller.fd < 0 && u->epoll_fd < 0);
    wish.sqpoll = true;
    /* The thread publishes its head late, so entries that completed may still look used: twice the limit
     * never fills up. */
    wish.sq_entries = tdl__power_of_two(2 * f->inflight_max < TDL__SUBMIT_ROOM_MIN ? TDL__SUBMIT_ROOM_MIN
                                                                                   : 2 * f->inflight_max);
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

/* The polling thread takes published entries by itself; it is only woken, and waited for when the ring is
 * full. */
void tdl__poller_kick(struct tdl_fio *f, struct tdl_ring *r, bool full)
{
    TDL_ASSERT((r->setup_flags & IORING_SETUP_SQPOLL) != 0);
    uint32_t left = tdl_ring_publish(r);
    if (left == 0) {
        return;
    }
    uint32_t flags = (tdl_ring_sleeps(r) ? IORING_ENTER_SQ_WAKEUP : 0u) | (full ? IORING_ENTER_SQ_WAIT : 0u);
    int rc = flags == 0 ? 0 : -EINTR;
    for (unsigned tries = 0; rc < 0 && tries < FULL_WAITS_MAX; tries += rc != -EINTR) {
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
struct tdl_ring *tdl__poller_choose(struct tdl_fio *f, struct tdl__uring *u)
{
    if (!tdl__has_poller(u)) {
        return &u->main;
    }
    uint64_t now = tdl_clock_ns();
    u->streak = now - u->last_flush_ns < POLLER_QUICK_NS ? u->streak + 1 : 0;
    u->last_flush_ns = now;
    if (f->options.sqpoll_when_busy && !owner_is_busy(u, now)) {
        return &u->main;
    }
    /* What the page cache holds is answered in the enter itself, and all but reads go on to kernel workers
     * anyway: the thread would only spin while they work. */
    const struct tdl_fop *first = tdl__fio_first(f);
    if (f->budget.hot || first == NULL || (first->code != TDL_FOP_READ && first->code != TDL_FOP_READV)) {
        return &u->main;
    }
    if (f->staged_count >= POLLER_BATCH || u->streak >= POLLER_STREAK || !tdl_ring_sleeps(&u->poller)) {
        return &u->poller;
    }
    return &u->main;
}
