/* sock_recv, sock_recv_into, sock_sendall: an awaitable that tries the call at
 * once and waits on the poller if it must. The descriptor stays armed between two waits, so that a request
 * and its answer cost no epoll_ctl. A readable socket only wakes whoever awaits, who then
 * tdl__sockwait_receives: nothing lies between the call and its result, so a cancel finds what it did not
 * deliver still in the socket. */
#include "sock/sockops.h"

#include "ground/cpython.h"
#include "ground/fileno.h"
#include "loop/readers.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

/* The descriptor, or -1 if the socket was closed meanwhile: the number may be another's by now. */
static int number(const TdlSockWait *s)
{
    return s->sock_number == NULL || *s->sock_number == s->fd ? s->fd : -1;
}

/* What was received answers the kernel's news. */
static void heard(const TdlSockWait *s)
{
    struct tdl_watch *w = tdl__watch_get(&s->loop->poller, s->fd);
    if (w != NULL) {
        w->news = false;
    }
}

static PyObject *try_recv(TdlSockWait *s)
{
    TdlLoop *loop = s->loop;
    if (s->size == 0) { /* which Python's socket does not ask the kernel for either */
        return PyBytes_FromStringAndSize(NULL, 0);
    }
    char *shared = s->size <= TDL_READ_BUFFER_SIZE ? tdl__read_buffer(loop) : NULL;
    PyObject *data = shared != NULL ? NULL : PyBytes_FromStringAndSize(NULL, s->size);
    if (shared == NULL && data == NULL) {
        return NULL;
    }
    ssize_t n;
    do {
        n = recv(number(s), shared != NULL ? shared : PyBytes_AS_STRING(data), (size_t)s->size, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        Py_XDECREF(data);
        return errno == EAGAIN ? NULL : PyErr_SetFromErrno(PyExc_OSError);
    }
    heard(s);
    if (shared != NULL) {
        return PyBytes_FromStringAndSize(shared, n);
    }
    if (n < s->size) {
        (void)tdl__bytes_resize(&data, n);
    }
    return data;
}

static PyObject *try_recv_into(TdlSockWait *s)
{
    ssize_t n = 0;
    if (s->view.len == 0) {
        return PyLong_FromSsize_t(n);
    }
    do {
        n = recv(number(s), s->view.buf, (size_t)s->view.len, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return errno == EAGAIN ? NULL : PyErr_SetFromErrno(PyExc_OSError);
    }
    heard(s);
    return PyLong_FromSsize_t(n);
}

static PyObject *try_sendall(TdlSockWait *s)
{
    size_t len = (size_t)s->view.len;
    while (s->done < len) {
        ssize_t n =
            send(number(s), (const char *)s->view.buf + s->done, len - s->done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return errno == EAGAIN ? NULL : PyErr_SetFromErrno(PyExc_OSError);
        }
        s->done += (size_t)n;
    }
    return Py_NewRef(Py_None);
}

/* The result, or NULL with an exception, or NULL without one if the descriptor is not ready. */
PyObject *tdl__sockwait_try_now(TdlSockWait *s)
{
    switch ((enum tdl_sockop)s->op) {
    case TDL_SOCKOP_RECV:
        return try_recv(s);
    case TDL_SOCKOP_RECV_INTO:
        return try_recv_into(s);
    case TDL_SOCKOP_SENDALL:
        return try_sendall(s);
    case TDL_SOCKOP_CONNECT:
        return tdl__sockwait_try_connect(s);
    }
    TDL_ASSERT(!"sockop");
    return NULL;
}

bool tdl__sockwait_receives(const TdlSockWait *s)
{
    return s->op == TDL_SOCKOP_RECV || s->op == TDL_SOCKOP_RECV_INTO;
}

static int event_of(const TdlSockWait *s)
{
    return s->op >= TDL_SOCKOP_SENDALL ? UV_WRITABLE : UV_READABLE;
}

/* Leave the poller, if this wait still is what the descriptor's side calls. */
static void unwatch(TdlSockWait *s)
{
    struct tdl_watch *w =
        s->fd >= 0 && s->loop->poller.uv != NULL ? tdl__watch_get(&s->loop->poller, s->fd) : NULL;
    if (w == NULL) {
        return;
    }
    int event = event_of(s);
    struct tdl_item *item = event == UV_READABLE ? w->reader.item : w->writer.item;
    if (item != &s->item) {
        return;
    }
    if (s->op == TDL_SOCKOP_CONNECT) {
        tdl__watch_release(w); /* a transport or nobody has the descriptor next */
    } else {
        tdl__watch_rest(w, event);
    }
}

/* Give the future its outcome; whoever awaits runs in the next turn. */
static void settle(TdlSockWait *s, PyObject *value)
{
    struct tdl_module_state *st = s->loop->state;
    PyObject *result;
    if (value != NULL) {
        result = PyObject_CallMethodOneArg(s->future, st->str_set_result, value);
    } else {
        PyObject *exc = PyErr_GetRaisedException();
        result = PyObject_CallMethodOneArg(s->future, st->str_set_exception, exc);
        Py_DECREF(exc);
    }
    if (result == NULL) {
        PyErr_WriteUnraisable((PyObject *)s);
    }
    Py_XDECREF(result);
}

static void sockwait_run(struct tdl_item *item)
{
    TdlSockWait *s = TDL_CONTAINER_OF(item, TdlSockWait, item);
    if (!s->loop->closed && s->state == TDL_SOCKWAIT_WAITING && s->future != NULL) {
        PyObject *done = PyObject_CallMethodNoArgs(s->future, s->loop->state->str_done);
        if (done == Py_False) {
            PyObject *value = NULL;
            if (!tdl__watch_failed(tdl__watch_get(&s->loop->poller, s->fd))) {
                value = tdl__sockwait_receives(s) ? Py_NewRef(Py_None) : tdl__sockwait_try_now(s);
            }
            if (value != NULL || PyErr_Occurred()) {
                unwatch(s);
                settle(s, value);
                Py_XDECREF(value);
            }
        } else {
            unwatch(s); /* canceled */
        }
        PyErr_Clear();
        Py_XDECREF(done);
    }
    Py_DECREF(s);
}

static PyObject *ensure_no_transport(TdlSockWait *s)
{
    struct tdl_watch *w = tdl__watch_get(&s->loop->poller, s->fd);
    int others = tdl__has_transports(s->loop);
    if (others < 0) {
        return NULL;
    }
    if ((w == NULL || w->transport == NULL) && others == 0) {
        return Py_NewRef(Py_None);
    }
    return PyObject_CallMethod((PyObject *)s->loop, "_ensure_fd_no_transport", "i", s->fd);
}

/* The descriptor is not ready: make the future and let the poller call. The future comes first, as on
 * asyncio: whoever makes it may run any code, that takes a watch away too. */
int tdl__sockwait_start_waiting(TdlSockWait *s)
{
    TdlLoop *loop = s->loop;
    s->future = tdl__future_new(loop);
    s->await = s->future != NULL ? Py_TYPE(s->future)->tp_as_async->am_await(s->future) : NULL;
    if (s->await == NULL) {
        return -1;
    }
    PyObject *ok = tdl__check_closed(loop) < 0 ? NULL : ensure_no_transport(s);
    if (ok == NULL) {
        return -1;
    }
    Py_DECREF(ok);
    bool at_once = tdl__sockwait_connected_at_once(s);
    struct tdl_watch *w = at_once                       ? NULL
                          : s->op == TDL_SOCKOP_CONNECT ? tdl__watch_fresh(&loop->poller, s->fd, true)
                                                        : tdl__watch_of_socket(&loop->poller, s->fd, s->sock);
    if (w == NULL && !at_once) {
        return -1;
    }
    s->state = TDL_SOCKWAIT_WAITING;
    if (at_once) {
        Py_INCREF(s); /* the queue's reference */
        tdl_queue_push(&loop->answered, &s->item.link);
        loop->hurried = true;
        return 0;
    }
    w->edge |= event_of(s) == UV_READABLE; /* each operation tries before it waits */
    int code = tdl__watch_set(w, event_of(s), &s->item, (PyObject *)s);
    if (code < 0) {
        tdl__raise_uv(code);
    } else if (w->news && tdl__sockwait_receives(
                              s)) { /* an edge that was answered by "nothing there": it is asked once more */
        w->news = false;
        tdl__watch_again(w);
    }
    return code;
}

/* Forget the buffer before it is told: its end may run any code, that ends the wait again. */
void tdl__sockwait_release_view(TdlSockWait *s)
{
    if (s->view.obj != NULL) {
        Py_buffer view = s->view;
        s->view.obj = NULL;
        PyBuffer_Release(&view);
    }
}

/* End the wait; a descriptor that was not given out is closed. */
void tdl__sockwait_finish(TdlSockWait *s, bool given)
{
    if (s->state == TDL_SOCKWAIT_WAITING) {
        unwatch(s);
    }
    s->state = TDL_SOCKWAIT_DONE;
    if (s->op == TDL_SOCKOP_CONNECT && s->fd >= 0) {
        if (!given) {
            close(s->fd);
        }
        s->fd = -1;
    }
    Py_CLEAR(s->await);
    Py_CLEAR(s->future);
    tdl__sockwait_release_view(s);
}

TdlSockWait *tdl__sockwait_make(TdlLoop *loop, PyObject *sock, int fd, enum tdl_sockop op)
{
    TdlSockWait *s = PyObject_GC_New(TdlSockWait, loop->state->sockwait_type);
    if (s == NULL) {
        return NULL;
    }
    s->loop = (TdlLoop *)Py_NewRef((PyObject *)loop);
    s->sock = Py_NewRef(sock);
    s->sock_number = fd >= 0 ? tdl__socket_number(loop->state, sock, fd) : NULL;
    s->weakrefs = NULL;
    s->future = NULL;
    s->await = NULL;
    s->view.obj = NULL;
    s->done = 0;
    s->size = 0;
    s->fd = fd;
    s->op = (uint8_t)op;
    s->state = TDL_SOCKWAIT_NEW;
    tdl__item_init(&s->item, sockwait_run, offsetof(TdlSockWait, item));
    PyObject_GC_Track(s);
    return s;
}

/* A new wait, or NULL without an exception where asyncio's own coroutine must answer: another socket type,
 * debug. */
static TdlSockWait *sockwait_new(TdlLoop *loop, PyObject *sock, enum tdl_sockop op)
{
    struct tdl_module_state *st = loop->state;
    if (Py_TYPE(sock) != st->standard.socket.type || !tdl__class_in_place(&st->standard.socket) ||
        loop->debug || loop->closed) {
        return NULL;
    }
    PyObject *fileno = PyObject_CallMethodNoArgs(sock, st->str_fileno);
    long fd = fileno != NULL ? PyLong_AsLong(fileno) : -1;
    Py_XDECREF(fileno);
    if (fd < 0) {
        PyErr_Clear();
        return NULL;
    }
    return tdl__sockwait_make(loop, sock, (int)fd, op);
}

static PyObject *slow(PyObject *self, const char *method, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames)
{
    if (PyErr_Occurred()) {
        return NULL;
    }
    PyObject *function = PyObject_GetAttrString(self, method);
    PyObject *result = function != NULL ? PyObject_Vectorcall(function, args, (size_t)nargs, kwnames) : NULL;
    Py_XDECREF(function);
    return result;
}

static PyObject *loop_sock_recv(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    TdlLoop *loop = TDL_LOOP(self);
    PyObject *result;
    if (!tdl__loop_is_unpatched(loop) &&
        tdl__loop_step_aside(loop, loop->state->str_sock_recv, args, nargs, kwnames, &result)) {
        return result;
    }
    Py_ssize_t size =
        nargs == 2 && kwnames == NULL && PyLong_CheckExact(args[1]) ? PyLong_AsSsize_t(args[1]) : -1;
    PyErr_Clear();
    TdlSockWait *s = size >= 0 ? sockwait_new(TDL_LOOP(self), args[0], TDL_SOCKOP_RECV) : NULL;
    if (s == NULL) {
        return slow(self, "_sock_recv_slow", args, nargs, kwnames);
    }
    s->size = size;
    return (PyObject *)s;
}

static PyObject *with_buffer(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                             enum tdl_sockop op, int flags, const char *slow_method)
{
    TdlLoop *loop = TDL_LOOP(self);
    PyObject *name =
        op == TDL_SOCKOP_SENDALL ? loop->state->str_sock_sendall : loop->state->str_sock_recv_into;
    PyObject *result;
    if (!tdl__loop_is_unpatched(loop) && tdl__loop_step_aside(loop, name, args, nargs, kwnames, &result)) {
        return result;
    }
    TdlSockWait *s = nargs == 2 && kwnames == NULL ? sockwait_new(TDL_LOOP(self), args[0], op) : NULL;
    if (s != NULL && PyObject_GetBuffer(args[1], &s->view, flags) < 0) {
        PyErr_Clear();
        s->view.obj = NULL;
        Py_CLEAR(s);
    }
    return s != NULL ? (PyObject *)s : slow(self, slow_method, args, nargs, kwnames);
}

static PyObject *loop_sock_recv_into(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                     PyObject *kwnames)
{
    return with_buffer(self, args, nargs, kwnames, TDL_SOCKOP_RECV_INTO, PyBUF_WRITABLE,
                       "_sock_recv_into_slow");
}

static PyObject *loop_sock_sendall(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return with_buffer(self, args, nargs, kwnames, TDL_SOCKOP_SENDALL, PyBUF_SIMPLE, "_sock_sendall_slow");
}

#define TDL_KEYWORD_METHOD(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS

PyMethodDef tdl__sockops_loop_methods[] = {
    {"sock_recv", TDL_KEYWORD_METHOD(loop_sock_recv),
     PyDoc_STR("sock_recv($self, /, sock, n)\n--\n\nReceive at most n bytes from a non-blocking socket; "
               "awaitable.\n\nNo bytes mean that the peer sent its end. Raises what the system refuses as "
               "OSError.")},
    {"sock_recv_into", TDL_KEYWORD_METHOD(loop_sock_recv_into),
     PyDoc_STR(
         "sock_recv_into($self, /, sock, buf)\n--\n\n"
         "Receive into a writable buffer; awaitable, gives the number of bytes, 0 at the peer's end.\n\n"
         "Raises what the system refuses as OSError.")},
    {"sock_sendall", TDL_KEYWORD_METHOD(loop_sock_sendall),
     PyDoc_STR("sock_sendall($self, /, sock, data)\n--\n\nSend all of a bytes-like object; awaitable.\n\n"
               "Raises what the system refuses as OSError; how much was sent by then is not known.")},
    {"_connect_numeric", tdl__loop_connect_numeric, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
