/* Opening, closing and forking the loop's part of libuv: the loop itself, the wake, the signal pipe. */
#include "ground/cpython.h"
#include "poll/poller.h"
#include "poll/uvpriv.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "treadle/alloc.h"
#include "treadle/assert.h"
#include "treadle/fork.h"

void tdl__raise_uv(int code)
{
    errno = -code;
    PyErr_SetFromErrno(PyExc_OSError);
}

/* What libuv sets up with a process's first loop needs descriptors, and aborts without them: there are some
 * now. */
int tdl__uv_setup(uv_poll_t *model)
{
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
        code = tdl__uvpriv_model(&uv, model, tdl__distrusts("uv_handles"));
        (void)uv_loop_close(&uv);
    }
    if (code < 0) {
        tdl__raise_uv(code);
        return -1;
    }
    tdl_fork_watch();
    return 0;
}

/* What is told of by edge needs nothing read back. */
static void read_back(const uv_poll_t *poll)
{
    uint64_t count;
    int fd;
    if (!tdl__uvpriv_known(poll->loop) && uv_fileno((const uv_handle_t *)poll, &fd) == 0) {
        (void)!read(fd, &count, sizeof count);
    }
}

/* The loop's thread is awake. */
static void on_wake(uv_poll_t *poll, int Py_UNUSED(status), int Py_UNUSED(events))
{
    read_back(poll);
}

static void on_signal(uv_poll_t *poll, int Py_UNUSED(status), int Py_UNUSED(events))
{
    ((struct tdl_poller *)poll->data)->signal_seen = true;
}

static void on_poll_closed(uv_handle_t *handle)
{
    tdl_free(handle);
}

/* A poll of one of the loop's own descriptors, in a block of its own. */
static int own_poll_open(struct tdl_poller *p, int fd, uint32_t events, uv_poll_cb callback, uv_poll_t **out)
{
    uv_poll_t *poll = tdl_calloc(1, sizeof *poll);
    if (poll == NULL) {
        return UV_ENOMEM;
    }
    tdl__uvpriv_poll_init(&p->uv->uv, poll);
    poll->data = p;
    *out = poll;
    return tdl__uvpriv_start(poll, fd, UV_READABLE, events, callback);
}

/* Edge-triggered: a read for each wake would come between the sleep and the GIL. */
static int wake_poll_open(struct tdl_poller *p)
{
    return own_poll_open(p, tdl_wake_fd(&p->wake), EPOLLET, on_wake, &p->uv->wake_poll);
}

static void own_poll_close(uv_poll_t **poll)
{
    if (*poll != NULL) {
        tdl__uvpriv_close(*poll, on_poll_closed);
        *poll = NULL;
    }
}

static void signal_fds_close(struct tdl_poller *p)
{
    if (p->signal_rfd >= 0) {
        close(p->signal_rfd);
        close(p->signal_wfd);
    }
    p->signal_rfd = -1;
    p->signal_wfd = -1;
}

/* With the loop and not with its first run, as asyncio's, so that a run needs no descriptor. */
static int signal_open(struct tdl_poller *p)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) {
        return -errno;
    }
    p->signal_rfd = fds[0];
    p->signal_wfd = fds[1];
    return own_poll_open(p, fds[0], 0, on_signal, &p->uv->signal_poll);
}

static void on_guard(uv_poll_t *poll, int Py_UNUSED(status), int Py_UNUSED(events))
{
    struct tdl_poller *p = poll->data;
    read_back(poll);
    p->guard_armed = false;
    p->guard_due = true;
}

/* Told of once, so nothing is read back. The first sleep need not wait for it. */
static int guard_open(struct tdl_poller *p)
{
    p->guard_armed = false;
    p->guard_due = true;
    if (TDL_WAKEUP_IS_CHEAP) {
        return 0;
    }
    p->guard_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return p->guard_fd < 0 ? -errno : own_poll_open(p, p->guard_fd, EPOLLET, on_guard, &p->uv->guard_poll);
}

static void guard_close(struct tdl_poller *p)
{
    if (p->guard_fd >= 0) {
        close(p->guard_fd);
    }
    p->guard_fd = -1;
}

/* libuv 1.44 leaves its epoll open when what it makes next fails. */
static void close_leaked_epoll(const uv_loop_t *uv, int probe_fd)
{
    int fd = uv_backend_fd(uv);
    if (fd > 2 && epoll_ctl(fd, EPOLL_CTL_DEL, probe_fd, NULL) < 0 && errno == ENOENT) {
        close(fd);
    }
}

void tdl__poller_init(struct tdl_poller *p, const uv_poll_t *model, const struct tdl_fork_hooks *hooks)
{
    p->model = model;
    p->fork_hooks = hooks;
    p->signal_rfd = -1;
    p->signal_wfd = -1;
    p->guard_fd = -1;
    p->wake.fd = -1;
    p->fired_tail = &p->fired;
    tdl_node_init(&p->again);
    tdl_filter_init(&p->filter, false);
}

int tdl__uv_open(struct tdl_poller *p)
{
    struct tdl_uv *uv = tdl_calloc(1, sizeof *uv);
    if (uv == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int code = uv_loop_init(&uv->uv);
    if (code < 0) {
        close_leaked_epoll(&uv->uv, tdl_wake_fd(&p->wake));
        tdl_free(uv);
        tdl__raise_uv(code);
        return -1;
    }
    p->uv = uv;
    uv->uv.data = (void *)(uintptr_t)p->model;
    p->fork_seen = tdl_fork_count();
    uv_timer_init(&uv->uv, &uv->timer);
    code = tdl__uvpriv_enter_own(&uv->uv);
    if (code == 0) {
        code = wake_poll_open(p);
    }
    if (code == 0) {
        code = signal_open(p);
    }
    if (code == 0) {
        code = guard_open(p);
    }
    if (code < 0) {
        tdl__uv_close(p);
        tdl__raise_uv(code);
        return -1;
    }
    p->uv_dirty = true;
    return 0;
}

/* A forked child gets a signal pair of its own under the parent's numbers, which signal.set_wakeup_fd
 * knows. */
static void signal_fork(struct tdl_poller *p)
{
    int fds[2];
    if (p->signal_rfd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) {
        return;
    }
    if (fcntl(p->signal_rfd, F_GETFD) < 0 || fcntl(p->signal_wfd, F_GETFD) < 0 || fds[0] == p->signal_rfd ||
        fds[0] == p->signal_wfd || fds[1] == p->signal_rfd ||
        fds[1] == p->signal_wfd) { /* the child has closed them */
        p->signal_rfd = fds[0];
        p->signal_wfd = fds[1];
        return;
    }
    (void)dup3(fds[0], p->signal_rfd, O_CLOEXEC);
    (void)dup3(fds[1], p->signal_wfd, O_CLOEXEC);
    close(fds[0]);
    close(fds[1]);
}

bool tdl__uv_forked(const struct tdl_poller *p)
{
    return p->fork_seen != tdl_fork_count();
}

/* Give the child's copy an epoll, a wake and a signal pair of its own. */
static int fork_uv(struct tdl_poller *p)
{
    struct tdl_uv *uv = p->uv;
    p->fork_hooks->before(p);
    tdl_filter_close(&p->filter);
    p->uv_dirty = true;
    p->parked = false;
    p->in_uv = false;
    tdl_wake_close(&p->wake); /* before a number that the child has closed can come back as libuv's */
    int code = uv_loop_fork(&uv->uv);
    if (code == 0) {
        code = tdl_wake_after_fork(&p->wake);
    }
    signal_fork(p);
    if (code == 0) { /* libuv would enter anew what the child may have closed */
        own_poll_close(&uv->wake_poll);
        own_poll_close(&uv->signal_poll);
        own_poll_close(&uv->guard_poll);
        tdl__poller_after_fork(p);
        code = tdl__uvpriv_enter_own(&uv->uv);
    }
    if (code == 0) {
        code = wake_poll_open(p);
    }
    if (code == 0) {
        code = own_poll_open(p, p->signal_rfd, 0, on_signal, &uv->signal_poll);
    }
    if (code == 0) { /* the parent's timer is shared */
        if (TDL_WAKEUP_IS_CHEAP || timerfd_gettime(p->guard_fd, &(struct itimerspec){0}) == 0) {
            guard_close(p); /* unless the child has closed it: the number may be another's */
        }
        code = guard_open(p);
    }
    return code;
}

int tdl__uv_check_fork(struct tdl_poller *p)
{
    if (!tdl__uv_forked(p) || p->uv == NULL) {
        return 0;
    }
    int code = p->fork_error != 0 ? p->fork_error : fork_uv(p);
    if (code < 0) { /* libuv has no epoll, or the parent's: it is not called again */
        p->fork_error = code;
        tdl__raise_uv(code);
        return -1;
    }
    p->fork_seen = tdl_fork_count();
    p->fork_hooks->after(p);
    return 0;
}

void tdl__uv_close(struct tdl_poller *p)
{
    struct tdl_uv *uv = p->uv;
    if (uv == NULL) {
        return;
    }
    tdl__poller_close(p);
    own_poll_close(&uv->wake_poll);
    own_poll_close(&uv->signal_poll);
    own_poll_close(&uv->guard_poll);
    uv_close((uv_handle_t *)&uv->timer, NULL);
    if (p->fork_error == 0 && tdl__uvpriv_alive(&uv->uv)) { /* else its memory is the price of not aborting */
        while (uv_run(&uv->uv, UV_RUN_NOWAIT) != 0) {
        }
        int code = uv_loop_close(&uv->uv);
        TDL_ASSERT(code == 0);
        tdl_free(uv);
    }
    p->uv = NULL;
    signal_fds_close(p);
    guard_close(p);
    tdl_filter_close(&p->filter);
}
