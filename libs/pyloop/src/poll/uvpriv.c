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

/* See how uv_poll_init() leaves a handle. It tries each descriptor in epoll, at three system calls, and aborts if it cannot take
 * it out again: a loop's handles are copies of this one. */
int tdl__uvpriv_model(uv_loop_t *uv, uv_poll_t *model)
{
    uv_poll_t poll;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int code = fd >= 0 ? uv_poll_init(uv, &poll, fd) : -errno;
    if (code == 0) {
        *model = poll;
        model->type = poll.type == UV_POLL && poll.io_watcher.fd == fd && poll.io_watcher.events == 0 &&
                              poll.io_watcher.pevents == 0 && link_is_alone(&poll.io_watcher.watcher_queue) &&
                              link_is_alone(&poll.io_watcher.pending_queue)
                          ? UV_POLL
                          : UV_UNKNOWN_HANDLE;
        uv_close((uv_handle_t *)&poll, NULL);
        (void)uv_run(uv, UV_RUN_NOWAIT);
    }
    if (fd >= 0) {
        close(fd);
    }
    return code;
}

/* By a descriptor of ours, since uv_poll_init() would make what others share non-blocking. */
static int poll_init_slow(uv_loop_t *uv, uv_poll_t *poll)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int code = fd >= 0 ? uv_poll_init(uv, poll, fd) : -errno;
    if (fd >= 0) {
        close(fd);
    }
    return code;
}

/* Give a handle that polls nothing a number that nobody can poll, and libuv's epoll cannot hold: what libuv takes out of epoll as
 * it closes the handle may be another's number by now. */
void tdl__uvpriv_park(uv_poll_t *poll)
{
    poll->io_watcher.fd = uv_backend_fd(poll->loop);
}

int tdl__uvpriv_poll_init(uv_loop_t *uv, const uv_poll_t *model, uv_poll_t *poll)
{
    int code = 0;
    if (model->type != UV_POLL) {
        code = poll_init_slow(uv, poll);
    } else {
        _Static_assert(sizeof(uv_prepare_t) <= sizeof *poll, "a handle of another type has room");
        (void)uv_prepare_init(uv, (uv_prepare_t *)(void *)poll); /* for its place in the loop's list */
        poll->type = UV_POLL;
        poll->poll_cb = NULL;
        poll->io_watcher = model->io_watcher;
        link_init(&poll->io_watcher.watcher_queue);
        link_init(&poll->io_watcher.pending_queue);
    }
    if (code == 0) {
        tdl__uvpriv_park(poll);
    }
    return code;
}

/* Enter the descriptor into epoll here, and take it out of the list of what libuv would enter: libuv aborts when the kernel
 * refuses, for want of memory or because the number was closed, and without the GIL any thread may close it at any time. */
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

int tdl__uvpriv_start(uv_poll_t *poll, int fd, int events, uint32_t flags, uv_poll_cb callback)
{
    poll->io_watcher.fd = fd;
    int code = uv_poll_start(poll, events, callback);
    return code == 0 ? enter(poll->loop, &poll->io_watcher, flags) : code;
}

/* What libuv itself polls, for its threads and its signals: as it has been set up, it waits to be entered. */
int tdl__uvpriv_enter_own(uv_loop_t *uv)
{
    const struct link *waiting = (void *)&uv->watcher_queue;
    int code = 0;
    while (code == 0 && !link_is_alone(waiting)) {
        code = enter(uv, TDL_CONTAINER_OF((void *)waiting->next, uv__io_t, watcher_queue), 0);
    }
    return code;
}

/* Whether libuv still has its own descriptors: a process may close every number it finds. */
bool tdl__uvpriv_alive(const uv_loop_t *uv)
{
    struct epoll_event event;
    return epoll_wait(uv_backend_fd(uv), &event, 1, 0) >= 0 && fcntl(uv->async_io_watcher.fd, F_GETFD) >= 0;
}
