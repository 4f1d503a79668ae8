/* libuv's handles and queues, from inside. */
#include "poll/uvpriv.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "treadle/list.h"

/* A link of libuv's queues is two pointers, whatever its version calls them. */
struct link {
    void **next, **prev;
};
_Static_assert(sizeof((uv__io_t *)0)->watcher_queue == sizeof(struct link), "a link is two pointers");

static void link_init(void *at)
{
    struct link *link = at;
    link->next = link->prev = at;
}

static bool link_is_alone(const void *at)
{
    const struct link *link = at;
    return link->next == at && link->prev == at;
}

/* Enter the descriptor into epoll here, and take it out of the list of what libuv would enter: libuv aborts
 * when the kernel refuses, for want of memory or because the number was closed, and without the GIL any
 * thread may close it at any time. */
static int enter(const uv_loop_t *uv, uv__io_t *io, uint32_t events)
{
    int epoll = uv_backend_fd(uv);
    struct epoll_event event = {.events = io->pevents | events, .data.fd = io->fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, io->fd, &event) < 0 &&
        (errno != EEXIST || epoll_ctl(epoll, EPOLL_CTL_MOD, io->fd, &event) < 0)) {
        return -errno;
    }
    struct link *link = (void *)&io->watcher_queue;
    link->prev[0] = link->next;
    link->next[1] = link->prev;
    link_init(link);
    io->events = io->pevents;
    return 0;
}

static void on_probe(uv_poll_t *poll, int status, int events)
{
    (void)status;
    *(int *)poll->data |= events;
}

/* Whether a handle that was made just now, for fd, polls nothing. */
static bool is_blank(const uv_poll_t *poll, int fd)
{
    const uv__io_t *io = &poll->io_watcher;
    return poll->type == UV_POLL && io->fd == fd && io->events == 0 && io->pevents == 0 &&
           link_is_alone(&io->watcher_queue) && link_is_alone(&io->pending_queue);
}

/* Whether a started handle stands in the loop's queue until it is entered, and is told of what it then polls.
 * fd is readable. */
static bool is_followed(uv_loop_t *uv, uv_poll_t *poll)
{
    int events = 0;
    poll->data = &events;
    if (uv_poll_start(poll, UV_READABLE, on_probe) < 0) {
        return false;
    }
    uv__io_t *io = &poll->io_watcher;
    const struct link *last = (const void *)&uv->watcher_queue;
    bool queued =
        (const void *)last->prev == (const void *)&io->watcher_queue && (io->pevents & EPOLLIN) != 0;
    bool entered = queued && enter(uv, io, 0) == 0 && link_is_alone(&io->watcher_queue);
    bool told = entered && uv_run(uv, UV_RUN_NOWAIT) != 0 && events == UV_READABLE;
    (void)uv_poll_stop(poll);
    return told && io->pevents == 0 && io->events == 0 && link_is_alone(&io->watcher_queue);
}

/* See how uv_poll_init() leaves a handle. It tries each descriptor in epoll, at three system calls, and
 * aborts if it cannot take it out again: a loop's handles are copies of this one. */
int tdl__uvpriv_model(uv_loop_t *uv, uv_poll_t *model, bool distrusted)
{
    uv_poll_t poll;
    int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    int code = fd >= 0 ? uv_poll_init(uv, &poll, fd) : -errno;
    if (code == 0) {
        *model = poll;
        bool blank = is_blank(&poll, fd);
        bool known = blank && !distrusted && is_followed(uv, &poll) && uv->async_io_watcher.fd >= 0;
        model->type = known ? UV_POLL : UV_UNKNOWN_HANDLE;
        uv_close((uv_handle_t *)&poll, NULL);
        (void)uv_run(uv, UV_RUN_NOWAIT);
    }
    if (fd >= 0) {
        close(fd);
    }
    return code;
}

/* A number that nobody can poll, and libuv's epoll cannot hold: what libuv takes out of epoll as it closes a
 * handle may be another's number by now. A loop that lost its epoll in a fork takes nothing out. */
static void park(uv_poll_t *poll)
{
    int epoll = uv_backend_fd(poll->loop);
    if (epoll >= 0) {
        poll->io_watcher.fd = epoll;
    }
}

void tdl__uvpriv_poll_init(uv_loop_t *uv, uv_poll_t *poll)
{
    if (!tdl__uvpriv_known(uv)) {
        poll->loop = uv;
        poll->type = UV_UNKNOWN_HANDLE;
        return;
    }
    const uv_poll_t *model = uv->data;
    _Static_assert(sizeof(uv_prepare_t) <= sizeof *poll, "a handle of another type has room");
    (void)uv_prepare_init(uv, (uv_prepare_t *)(void *)poll); /* for its place in the loop's list */
    poll->type = UV_POLL;
    poll->poll_cb = NULL;
    poll->io_watcher = model->io_watcher;
    link_init(&poll->io_watcher.watcher_queue);
    link_init(&poll->io_watcher.pending_queue);
    park(poll);
}

void tdl__uvpriv_close(uv_poll_t *poll, uv_close_cb closed)
{
    if (poll->type == UV_UNKNOWN_HANDLE) {
        closed((uv_handle_t *)poll);
        return;
    }
    if (tdl__uvpriv_known(poll->loop)) {
        if (uv_is_active((uv_handle_t *)poll)) { /* its number stands in libuv's table of watchers */
            (void)uv_poll_stop(poll);
        }
        park(poll);
    }
    uv_close((uv_handle_t *)poll, closed);
}

/* By what libuv documents. uv_poll_init() makes non-blocking what others share, so that is undone. */
static int start_plainly(uv_poll_t *poll, int fd, int events, uv_poll_cb callback)
{
    uv_loop_t *uv = poll->loop;
    void *data = poll->data;
    int code = 0;
    if (poll->type == UV_UNKNOWN_HANDLE) {
        int flags = fcntl(fd, F_GETFL);
        code = uv_poll_init(uv, poll, fd);
        poll->data = data;
        if (code < 0) {
            poll->type = UV_UNKNOWN_HANDLE;
        } else if (flags >= 0 && (flags & O_NONBLOCK) == 0) {
            (void)fcntl(fd, F_SETFL, flags);
        }
    }
    return code == 0 ? uv_poll_start(poll, events, callback) : code;
}

int tdl__uvpriv_start(uv_poll_t *poll, int fd, int events, uint32_t flags, uv_poll_cb callback)
{
    if (!tdl__uvpriv_known(poll->loop)) {
        return start_plainly(poll, fd, events, callback);
    }
    poll->io_watcher.fd = fd;
    int code = uv_poll_start(poll, events, callback);
    return code == 0 ? enter(poll->loop, &poll->io_watcher, flags) : code;
}

void tdl__uvpriv_stop(uv_poll_t *poll)
{
    if (poll->type == UV_POLL) {
        (void)uv_poll_stop(poll);
    }
}

/* What libuv itself polls, for its threads and its signals: as it has been set up, it waits to be entered. */
int tdl__uvpriv_enter_own(uv_loop_t *uv)
{
    const struct link *waiting = (void *)&uv->watcher_queue;
    int code = 0;
    while (code == 0 && tdl__uvpriv_known(uv) && !link_is_alone(waiting)) {
        code = enter(uv, TDL_CONTAINER_OF((void *)waiting->next, uv__io_t, watcher_queue), 0);
    }
    return code;
}

/* Whether libuv still has its own descriptors: a process may close every number it finds. */
bool tdl__uvpriv_alive(const uv_loop_t *uv)
{
    if (!tdl__uvpriv_known(uv)) {
        return true;
    }
    struct epoll_event event;
    return epoll_wait(uv_backend_fd(uv), &event, 1, 0) >= 0 && fcntl(uv->async_io_watcher.fd, F_GETFD) >= 0;
}
