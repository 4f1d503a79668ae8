/* Opening, closing and forking the loop's part of libuv: the loop itself, the wake, the signal pipe. */
#include "pyloop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "treadle/alloc.h"
#include "treadle/atomic.h"

/* Forks survived by this process; the one mutable word of the module, for it is the process's own. */
static tdl_atomic_u32 fork_count;

static void on_fork_child(void)
{
    (void)tdl_fetch_add_relaxed_u32(&fork_count, 1);
}

static void fork_register(void)
{
    (void)pthread_atfork(NULL, NULL, on_fork_child);
}

void tdl__raise_uv(int code)
{
    errno = -code;
    PyErr_SetFromErrno(PyExc_OSError);
}

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
static int model_make(uv_loop_t *uv, uv_poll_t *model)
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
void tdl__poll_park(uv_poll_t *poll)
{
    poll->io_watcher.fd = uv_backend_fd(poll->loop);
}

int tdl__poll_init(TdlLoop *loop, uv_poll_t *poll)
{
    const uv_poll_t *model = &loop->state->poll_model;
    int code = 0;
    if (model->type != UV_POLL) {
        code = poll_init_slow(&loop->uv->uv, poll);
    } else {
        _Static_assert(sizeof(uv_prepare_t) <= sizeof *poll, "a handle of another type has room");
        (void)uv_prepare_init(&loop->uv->uv,
                              (uv_prepare_t *)(void *)poll); /* for its place in the loop's list */
        poll->type = UV_POLL;
        poll->poll_cb = NULL;
        poll->io_watcher = model->io_watcher;
        link_init(&poll->io_watcher.watcher_queue);
        link_init(&poll->io_watcher.pending_queue);
    }
    if (code == 0) {
        tdl__poll_park(poll);
    }
    return code;
}

/* Enter the descriptor into epoll here, and take it out of the list of what libuv would enter: libuv aborts when the kernel
 * refuses, for want of memory or because the number was closed, and without the GIL any thread may close it at any time. */
int tdl__poll_enter(TdlLoop *loop, uv__io_t *io, uint32_t events)
{
    int epoll = uv_backend_fd(&loop->uv->uv);
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

/* What libuv sets up with a process's first loop needs descriptors, and aborts without them: there are some now. */
int tdl__uv_setup(struct tdl_module_state *st)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    enum { NEEDED = 4 };
    int fds[NEEDED];
    int count = 0;
    while (count < NEEDED && (fds[count] = eventfd(0, EFD_CLOEXEC)) >= 0) {
        count++;
    }
    int code = count == NEEDED ? 0 : -errno;
    while (count > 0) {
        close(fds[--count]);
    }
    uv_loop_t uv;
    if (code == 0 && (code = uv_loop_init(&uv)) == 0) {
        code = model_make(&uv, &st->poll_model);
        (void)uv_loop_close(&uv);
    }
    if (code < 0) {
        tdl__raise_uv(code);
        return -1;
    }
    pthread_once(&once, fork_register);
    return 0;
}

/* Nothing to do: the loop's thread is awake, and an edge needs nothing read back. */
static void on_wake(uv_poll_t *Py_UNUSED(poll), int Py_UNUSED(status), int Py_UNUSED(events))
{
}

static void on_signal(uv_poll_t *poll, int Py_UNUSED(status), int Py_UNUSED(events))
{
    ((TdlLoop *)poll->data)->signal_seen = true;
}

static void on_poll_closed(uv_handle_t *handle)
{
    tdl_free(handle);
}

/* A poll of one of the loop's own descriptors, in a block of its own. */
static int own_poll_open(TdlLoop *loop, int fd, uint32_t events, uv_poll_cb callback, uv_poll_t **out)
{
    uv_poll_t *poll = tdl_calloc(1, sizeof *poll);
    if (poll == NULL) {
        return UV_ENOMEM;
    }
    int code = tdl__poll_init(loop, poll);
    if (code < 0) {
        tdl_free(poll);
        return code;
    }
    poll->data = loop;
    poll->io_watcher.fd = fd;
    *out = poll;
    code = uv_poll_start(poll, UV_READABLE, callback);
    return code == 0 ? tdl__poll_enter(loop, &poll->io_watcher, events) : code;
}

/* Edge-triggered: a read for each wake would come between the sleep and the GIL. */
static int wake_poll_open(TdlLoop *loop)
{
    return own_poll_open(loop, tdl_wake_fd(&loop->wake), EPOLLET, on_wake, &loop->uv->wake_poll);
}

/* What libuv itself polls, for its threads and its signals: as it has been set up, it waits to be entered. */
static int libuv_polls_open(TdlLoop *loop)
{
    const struct link *waiting = (void *)&loop->uv->uv.watcher_queue;
    int code = 0;
    while (code == 0 && !link_is_alone(waiting)) {
        code = tdl__poll_enter(loop, TDL_CONTAINER_OF((void *)waiting->next, uv__io_t, watcher_queue), 0);
    }
    return code;
}

static void own_poll_close(uv_poll_t **poll)
{
    if (*poll != NULL) {
        uv_close((uv_handle_t *)*poll, on_poll_closed);
        *poll = NULL;
    }
}

static void signal_fds_close(TdlLoop *loop)
{
    if (loop->signal_rfd >= 0) {
        close(loop->signal_rfd);
        close(loop->signal_wfd);
    }
    loop->signal_rfd = -1;
    loop->signal_wfd = -1;
}

/* With the loop and not with its first run, as asyncio's, so that a run needs no descriptor. */
static int signal_open(TdlLoop *loop)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) {
        return -errno;
    }
    loop->signal_rfd = fds[0];
    loop->signal_wfd = fds[1];
    return own_poll_open(loop, fds[0], 0, on_signal, &loop->uv->signal_poll);
}

static void on_guard(uv_poll_t *poll, int Py_UNUSED(status), int Py_UNUSED(events))
{
    TdlLoop *loop = poll->data;
    loop->guard_armed = false;
    loop->guard_due = true;
}

/* Told of once, so nothing is read back. The first sleep need not wait for it. */
static int guard_open(TdlLoop *loop)
{
    loop->guard_armed = false;
    loop->guard_due = true;
    if (TDL_WAKEUP_IS_CHEAP) {
        return 0;
    }
    loop->guard_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return loop->guard_fd < 0 ? -errno
                              : own_poll_open(loop, loop->guard_fd, EPOLLET, on_guard, &loop->uv->guard_poll);
}

static void guard_close(TdlLoop *loop)
{
    if (loop->guard_fd >= 0) {
        close(loop->guard_fd);
    }
    loop->guard_fd = -1;
}

/* libuv 1.44 leaves its epoll open when what it makes next fails. */
static void close_leaked_epoll(const uv_loop_t *uv, int probe_fd)
{
    int fd = uv_backend_fd(uv);
    if (fd > 2 && epoll_ctl(fd, EPOLL_CTL_DEL, probe_fd, NULL) < 0 && errno == ENOENT) {
        close(fd);
    }
}

int tdl__uv_open(TdlLoop *loop)
{
    struct tdl_uv *uv = tdl_calloc(1, sizeof *uv);
    if (uv == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int code = uv_loop_init(&uv->uv);
    if (code < 0) {
        close_leaked_epoll(&uv->uv, tdl_wake_fd(&loop->wake));
        tdl_free(uv);
        tdl__raise_uv(code);
        return -1;
    }
    loop->uv = uv;
    loop->fork_seen = tdl_load_relaxed_u32(&fork_count);
    uv_timer_init(&uv->uv, &uv->timer);
    code = libuv_polls_open(loop);
    if (code == 0) {
        code = wake_poll_open(loop);
    }
    if (code == 0) {
        code = signal_open(loop);
    }
    if (code == 0) {
        code = guard_open(loop);
    }
    if (code < 0) {
        tdl__uv_close(loop);
        tdl__raise_uv(code);
        return -1;
    }
    loop->uv_dirty = true;
    return 0;
}

/* A forked child gets a signal pair of its own under the parent's numbers, which signal.set_wakeup_fd knows.
 */
static void signal_fork(TdlLoop *loop)
{
    int fds[2];
    if (loop->signal_rfd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) {
        return;
    }
    if (fcntl(loop->signal_rfd, F_GETFD) < 0 || fcntl(loop->signal_wfd, F_GETFD) < 0 ||
        fds[0] == loop->signal_rfd || fds[0] == loop->signal_wfd || fds[1] == loop->signal_rfd ||
        fds[1] == loop->signal_wfd) { /* the child has closed them */
        loop->signal_rfd = fds[0];
        loop->signal_wfd = fds[1];
        return;
    }
    (void)dup3(fds[0], loop->signal_rfd, O_CLOEXEC);
    (void)dup3(fds[1], loop->signal_wfd, O_CLOEXEC);
    close(fds[0]);
    close(fds[1]);
}

bool tdl__uv_forked(const TdlLoop *loop)
{
    return loop->fork_seen != tdl_load_relaxed_u32(&fork_count);
}

/* Give the child's copy an epoll, a wake and a signal pair of its own. */
static int fork_uv(TdlLoop *loop)
{
    struct tdl_uv *uv = loop->uv;
    tdl_inbox_after_fork(&loop->inbox);
    tdl__gate_close(&loop->gate);
    tdl__pace_open(&loop->pace); /* a lock of the parent's may be held */
    loop->uv_dirty = true;
    loop->parked = false;
    loop->in_uv = false;
    tdl_wake_close(&loop->wake); /* before a number that the child has closed can come back as libuv's */
    int code = uv_loop_fork(&uv->uv);
    if (code == 0) {
        code = tdl_wake_after_fork(&loop->wake);
    }
    signal_fork(loop);
    if (code == 0) { /* libuv would enter anew what the child may have closed */
        own_poll_close(&uv->wake_poll);
        own_poll_close(&uv->signal_poll);
        own_poll_close(&uv->guard_poll);
        tdl__poller_after_fork(loop);
        code = libuv_polls_open(loop);
    }
    if (code == 0) {
        code = wake_poll_open(loop);
    }
    if (code == 0) {
        code = own_poll_open(loop, loop->signal_rfd, 0, on_signal, &uv->signal_poll);
    }
    if (code == 0) { /* the parent's timer is shared */
        if (TDL_WAKEUP_IS_CHEAP || timerfd_gettime(loop->guard_fd, &(struct itimerspec){0}) == 0) {
            guard_close(loop); /* unless the child has closed it: the number may be another's */
        }
        code = guard_open(loop);
    }
    return code;
}

int tdl__uv_check_fork(TdlLoop *loop)
{
    if (!tdl__uv_forked(loop) || loop->uv == NULL) {
        return 0;
    }
    int code = loop->fork_error != 0 ? loop->fork_error : fork_uv(loop);
    if (code < 0) { /* libuv has no epoll, or the parent's: it is not called again */
        loop->fork_error = code;
        tdl__raise_uv(code);
        return -1;
    }
    loop->fork_seen = tdl_load_relaxed_u32(&fork_count);
    tdl__dns_after_fork(loop);
    return 0;
}

/* Whether libuv still has its own descriptors: a process may close every number it finds. */
static bool is_alive(const uv_loop_t *uv)
{
    struct epoll_event event;
    return epoll_wait(uv_backend_fd(uv), &event, 1, 0) >= 0 && fcntl(uv->async_io_watcher.fd, F_GETFD) >= 0;
}

void tdl__uv_close(TdlLoop *loop)
{
    struct tdl_uv *uv = loop->uv;
    if (uv == NULL) {
        return;
    }
    if (tdl__uv_check_fork(loop) < 0) {
        PyErr_WriteUnraisable((PyObject *)loop);
    }
    tdl__poller_close(loop);
    own_poll_close(&uv->wake_poll);
    own_poll_close(&uv->signal_poll);
    own_poll_close(&uv->guard_poll);
    uv_close((uv_handle_t *)&uv->timer, NULL);
    if (loop->fork_error == 0 && is_alive(&uv->uv)) { /* else its memory is the price of not aborting */
        while (uv_run(&uv->uv, UV_RUN_NOWAIT) != 0) {
        }
        int code = uv_loop_close(&uv->uv);
        TDL_ASSERT(code == 0);
        tdl_free(uv);
    }
    loop->uv = NULL;
    signal_fds_close(loop);
    guard_close(loop);
    tdl__gate_close(&loop->gate);
}
