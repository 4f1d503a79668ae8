/* Opening, closing and forking the loop's part of libuv: the loop itself, the wake, the signal pipe. */
#include "pyloop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
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

/* What libuv sets up with a process's first loop needs descriptors, and aborts without them: there are some now. */
int tdl__uv_setup(void)
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
        code = uv_loop_close(&uv);
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
static int own_poll_open(TdlLoop *loop, int fd, uv_poll_cb callback, uv_poll_t **out)
{
    uv_poll_t *poll = tdl_calloc(1, sizeof *poll);
    if (poll == NULL) {
        return UV_ENOMEM;
    }
    int code = uv_poll_init(&loop->uv->uv, poll, fd);
    if (code < 0) {
        tdl_free(poll);
        return code;
    }
    poll->data = loop;
    *out = poll;
    return uv_poll_start(poll, UV_READABLE, callback);
}

/* Edge-triggered: a read for each wake would come between the sleep and the GIL. */
static int wake_poll_open(TdlLoop *loop)
{
    int fd = tdl_wake_fd(&loop->wake);
    int code = own_poll_open(loop, fd, on_wake, &loop->uv->wake_poll);
    if (code == 0 && !tdl__poll_enter(loop->uv->wake_poll, fd, EPOLLET)) {
        code = -errno;
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
    code = wake_poll_open(loop);
    if (code < 0) {
        tdl__uv_close(loop);
        tdl__raise_uv(code);
        return -1;
    }
    loop->uv_dirty = true;
    return 0;
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

int tdl__uv_signal_open(TdlLoop *loop)
{
    if (loop->signal_rfd >= 0) {
        return 0;
    }
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    loop->signal_rfd = fds[0];
    loop->signal_wfd = fds[1];
    int code = own_poll_open(loop, fds[0], on_signal, &loop->uv->signal_poll);
    if (code < 0) {
        own_poll_close(&loop->uv->signal_poll);
        signal_fds_close(loop);
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
    loop->uv_dirty = true;
    loop->parked = false;
    loop->in_uv = false;
    tdl_wake_close(&loop->wake); /* before a number that the child has closed can come back as libuv's */
    int code = uv_loop_fork(&uv->uv);
    if (code == 0) {
        code = tdl_wake_after_fork(&loop->wake);
    }
    if (code == 0) {
        own_poll_close(&uv->wake_poll);
        code = wake_poll_open(loop);
    }
    signal_fork(loop);
    if (code == 0 && uv->signal_poll != NULL) {
        own_poll_close(&uv->signal_poll); /* libuv would abort if the child has closed the number */
        (void)own_poll_open(loop, loop->signal_rfd, on_signal, &uv->signal_poll);
    }
    return code;
}

int tdl__uv_check_fork(TdlLoop *loop)
{
    if (!tdl__uv_forked(loop) || loop->uv == NULL) {
        return 0;
    }
    tdl__streams_flush(loop); /* the parent sends what the turn held */
    int code = loop->fork_error != 0 ? loop->fork_error : fork_uv(loop);
    if (code < 0) { /* libuv has no epoll, or the parent's: it is not called again */
        loop->fork_error = code;
        tdl__raise_uv(code);
        return -1;
    }
    loop->fork_seen = tdl_load_relaxed_u32(&fork_count);
    tdl__poller_after_fork(loop);
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
    tdl__gate_close(&loop->gate);
}
