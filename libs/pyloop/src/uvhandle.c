/* Opening, closing and forking the loop's part of libuv: the loop itself, the wake, the signal pipe. */
#include "pyloop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

void tdl__fork_setup(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fork_register);
}

void tdl__raise_uv(int code)
{
    errno = -code;
    PyErr_SetFromErrno(PyExc_OSError);
}

/* Nothing to do: the loop's thread is awake, and park_end takes the count back. */
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

static void own_poll_close(uv_poll_t **poll)
{
    if (*poll != NULL) {
        uv_close((uv_handle_t *)*poll, on_poll_closed);
        *poll = NULL;
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
        tdl_free(uv);
        tdl__raise_uv(code);
        return -1;
    }
    loop->uv = uv;
    loop->fork_seen = tdl_load_relaxed_u32(&fork_count);
    uv_timer_init(&uv->uv, &uv->timer);
    code = own_poll_open(loop, tdl_wake_fd(&loop->wake), on_wake, &uv->wake_poll);
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
    (void)dup3(fds[0], loop->signal_rfd, O_CLOEXEC);
    (void)dup3(fds[1], loop->signal_wfd, O_CLOEXEC);
    close(fds[0]);
    close(fds[1]);
}

bool tdl__uv_forked(const TdlLoop *loop)
{
    return loop->fork_seen != tdl_load_relaxed_u32(&fork_count);
}

int tdl__uv_check_fork(TdlLoop *loop)
{
    if (!tdl__uv_forked(loop) || loop->uv == NULL) {
        return 0;
    }
    loop->fork_seen = tdl_load_relaxed_u32(&fork_count);
    tdl_inbox_after_fork(&loop->inbox);
    tdl__gate_close(&loop->gate);
    signal_fork(loop);
    int code = tdl_wake_after_fork(&loop->wake);
    if (code == 0) {
        code = uv_loop_fork(&loop->uv->uv);
    }
    if (code == 0) {
        own_poll_close(&loop->uv->wake_poll);
        code = own_poll_open(loop, tdl_wake_fd(&loop->wake), on_wake, &loop->uv->wake_poll);
    }
    loop->uv_dirty = true;
    loop->parked = false;
    if (code < 0) {
        tdl__raise_uv(code);
        return -1;
    }
    tdl__dns_after_fork(loop);
    return 0;
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
    while (uv_run(&uv->uv, UV_RUN_NOWAIT) != 0) {
    }
    int code = uv_loop_close(&uv->uv);
    TDL_ASSERT(code == 0);
    tdl_free(uv);
    loop->uv = NULL;
    signal_fds_close(loop);
    tdl__gate_close(&loop->gate);
}
