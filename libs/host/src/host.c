#include "treadle/host.h"

#include <errno.h>
#include <linux/time_types.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "treadle/assert.h"
#include "treadle/clock.h"
#include "treadle/failpoint.h"

/* Descriptors taken out of one poll; what is ready besides waits for the next turn, since epoll takes
 * turns itself. */
#define EVENTS_PER_POLL 64

static struct tdl_epoll_host *host_of(struct tdl_host *host)
{
    return TDL_CONTAINER_OF(host, struct tdl_epoll_host, host);
}

static uint64_t now_ns(struct tdl_host *host)
{
    (void)host;
    return tdl_clock_ns();
}

static struct tdl_link *take(struct tdl_host *host)
{
    return tdl_inbox_take(&host_of(host)->inbox);
}

static void before_poll(struct tdl_host *host)
{
    (void)host;
}

/* Waits in nanoseconds, or before Linux 5.11 and behind an old filter of system calls in milliseconds,
 * rounded up so that a timer is never early. */
static int wait_events(int epoll, struct epoll_event *events, uint64_t timeout_ns)
{
    struct __kernel_timespec limit = {.tv_sec = (int64_t)(timeout_ns / TDL_NS_PER_S),
                                      .tv_nsec = (long long)(timeout_ns % TDL_NS_PER_S)};
    int n = (int)syscall(SYS_epoll_pwait2, epoll, events, EVENTS_PER_POLL,
                         timeout_ns == UINT64_MAX ? NULL : &limit, NULL, 0);
    if (n >= 0 || (errno != ENOSYS && errno != EPERM)) {
        return n;
    }
    uint64_t ms = timeout_ns / TDL_NS_PER_MS + (timeout_ns % TDL_NS_PER_MS != 0);
    return epoll_wait(epoll, events, EVENTS_PER_POLL,
                      timeout_ns == UINT64_MAX ? -1 : (int)(ms < INT32_MAX ? ms : INT32_MAX));
}

static void collect(struct tdl_epoll_host *h, uint64_t timeout_ns, struct tdl_queue *io)
{
    struct epoll_event events[EVENTS_PER_POLL];
    int n = wait_events(h->epoll, events, timeout_ns);
    TDL_ASSERT(n >= 0 || errno == EINTR);
    for (int i = 0; i < n; i++) {
        struct tdl_epoll_watch *watch = events[i].data.ptr;
        if (watch == NULL) { /* the wake's own descriptor: it only ends the sleep */
            continue;
        }
        watch->ready = events[i].events;
        if (watch->item.link.state == TDL_ITEM_IDLE) {
            tdl_queue_push(io, &watch->item.link);
        }
    }
}

static void poll_host(struct tdl_host *host, uint64_t timeout_ns, struct tdl_queue *io)
{
    struct tdl_epoll_host *h = host_of(host);
    h->polls++;
    bool parks = timeout_ns != 0;
    if (parks) {
        tdl_wake_park_begin(&h->wake); /* MO-1: announced before the inbox is looked at */
        if (!tdl_inbox_is_empty(&h->inbox)) {
            timeout_ns = 0;
        }
    }
    if (h->epoll >= 0) {
        if (timeout_ns != 0 && tdl_wake_spin(&h->wake)) {
            timeout_ns = 0;
        }
        collect(h, timeout_ns, io);
    } else if (timeout_ns != 0) {
        (void)tdl_wake_wait(&h->wake, timeout_ns);
    }
    if (parks) {
        (void)tdl_wake_park_end(&h->wake);
    }
}

int tdl_epoll_host_open(struct tdl_epoll_host *h, const struct tdl_wake_options *options)
{
    *h = (struct tdl_epoll_host){.host = {now_ns, take, before_poll, poll_host}, .epoll = -1};
    int code = tdl_wake_open(&h->wake, options);
    if (code != 0) {
        return code;
    }
    tdl_sched_init(&h->sched);
    tdl_inbox_init(&h->inbox, &h->wake, tdl_sched_mark_source(&h->sched));
    return 0;
}

void tdl_epoll_host_close(struct tdl_epoll_host *h)
{
    (void)tdl_inbox_close(&h->inbox);
    if (h->epoll >= 0) {
        (void)close(h->epoll);
    }
    h->epoll = -1;
    tdl_wake_close(&h->wake);
}

void tdl_epoll_host_run(struct tdl_epoll_host *h)
{
    do {
        (void)tdl_turn(&h->sched, &h->host);
    } while (!tdl_sched_stopping(&h->sched));
    tdl_sched_clear_stop(&h->sched);
}

int tdl_epoll_host_post(struct tdl_epoll_host *h, struct tdl_item *item)
{
    return tdl_inbox_post(&h->inbox, &item->link);
}

static int control(int epoll, int operation, int fd, uint32_t events, struct tdl_epoll_watch *watch)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    return TDL_SYSCALL(ENOSPC, epoll_ctl(epoll, operation, fd, &event)) == 0 ? 0 : -errno;
}

static int open_epoll(struct tdl_epoll_host *h)
{
    int fd = TDL_SYSCALL(EMFILE, epoll_create1(EPOLL_CLOEXEC));
    if (fd < 0) {
        return -errno;
    }
    int code = control(fd, EPOLL_CTL_ADD, tdl_wake_fd(&h->wake), EPOLLIN, NULL);
    if (code != 0) {
        (void)close(fd);
        return code;
    }
    h->epoll = fd;
    return 0;
}

int tdl_epoll_host_watch(struct tdl_epoll_host *h, struct tdl_epoll_watch *watch, int fd, uint32_t events)
{
    int code = h->epoll >= 0 ? 0 : open_epoll(h);
    if (code == 0) {
        code = control(h->epoll, EPOLL_CTL_ADD, fd, events, watch);
    }
    if (code == 0) {
        watch->fd = fd;
    }
    return code;
}

int tdl_epoll_host_rewatch(struct tdl_epoll_host *h, struct tdl_epoll_watch *watch, uint32_t events)
{
    return control(h->epoll, EPOLL_CTL_MOD, watch->fd, events, watch);
}

void tdl_epoll_host_unwatch(struct tdl_epoll_host *h, struct tdl_epoll_watch *watch)
{
    (void)control(h->epoll, EPOLL_CTL_DEL, watch->fd, 0, watch);
    (void)tdl_sched_cancel(&h->sched, &watch->item);
}
