/* Writing: send at once, or hold for the step's end (stream_hold.c), queue what the kernel does not take, and
 * tell the protocol when to stop and go on. */
#include "ground/audit.h"
#include "loop/readers.h"
#include "loop/snapshot.h"
#include "streams/streams.h"
#include "transport/stream.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "treadle/alloc.h"

enum {
    TDL_WRITE_IOV_MAX = 64,     /* buffers in one sendmsg */
    TDL_WRITE_LOST_LOG_MIN = 5, /* asyncio's LOG_THRESHOLD_FOR_CONNLOST_WRITES */
};

/* Call pause_writing or resume_writing; a failure is reported and does not touch the connection. */
static void tell_protocol(TdlStream *t, PyObject *method, const char *message)
{
    PyObject *protocol = Py_NewRef(t->protocol);
    PyObject *result = PyObject_CallMethodNoArgs(protocol, method);
    Py_DECREF(protocol);
    if (result == NULL && !tdl__stream_exit_raised(t)) {
        PyObject *exc = PyErr_GetRaisedException();
        tdl__stream_call_handler(t, message, exc);
        Py_DECREF(exc);
    }
    Py_XDECREF(result);
}

void tdl__stream_maybe_pause(TdlStream *t)
{
    if (t->write_size > t->high_water && !t->protocol_paused) {
        t->protocol_paused = true;
        tell_protocol(t, t->loop->state->str_pause_writing, "protocol.pause_writing() failed");
    }
}

static void maybe_resume(TdlStream *t)
{
    if (t->protocol_paused && t->write_size <= t->low_water) {
        t->protocol_paused = false;
        tell_protocol(t, t->loop->state->str_resume_writing, "protocol.resume_writing() failed");
    }
}

static bool would_block(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK;
}

static ssize_t send_bytes(int fd, const void *data, size_t len)
{
    ssize_t n;
    do {
        n = send(fd, data, len, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n;
}

/* For what the caller keeps alive. Queued bytes are sent with the GIL, since another thread's abort() frees
 * them. */
static ssize_t send_now(TdlStream *t, const void *data, size_t len)
{
    int fd = tdl__stream_fd(t);
    PyThreadState *given = tdl__gil_give(t->loop);
    ssize_t n = send_bytes(fd, data, len);
    tdl__gil_take(given);
    return n;
}

/* Send what is queued in one system call; -1 with errno, else the bytes taken. */
static ssize_t send_queue(TdlStream *t)
{
    struct iovec iov[TDL_WRITE_IOV_MAX];
    size_t count = t->queue_len < TDL_WRITE_IOV_MAX ? t->queue_len : TDL_WRITE_IOV_MAX;
    size_t skip = t->head_sent;
    for (size_t i = 0; i < count; i++) {
        PyObject *data = t->queue[t->queue_head + i];
        iov[i].iov_base = PyBytes_AS_STRING(data) + skip;
        iov[i].iov_len = (size_t)PyBytes_GET_SIZE(data) - skip;
        skip = 0;
    }
    if (count == 1) {
        return send_bytes(tdl__stream_fd(t), iov[0].iov_base, iov[0].iov_len);
    }
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count};
    ssize_t n;
    do {
        n = sendmsg(tdl__stream_fd(t), &msg, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n;
}

/* A send raised: the connection is lost. */
static void send_raised(TdlStream *t)
{
    PyObject *exc = PyErr_GetRaisedException();
    tdl__stream_queue_clear(t);
    (void)tdl__watch_unset(t->watch, UV_WRITABLE);
    tdl__stream_wake_empty_waiter(t, exc);
    PyErr_SetRaisedException(exc);
    tdl__stream_fatal(t, "Fatal write error on socket transport");
}

void tdl__stream_send_failed(TdlStream *t, int error)
{
    errno = error;
    PyErr_SetFromErrno(PyExc_OSError);
    send_raised(t);
}

/* From Python 3.12 on asyncio sends what is queued by sock.sendmsg(), of which audit hooks are told. False if
 * there is nothing to send any more: a hook raised, which has been told, or ended the connection. */
static bool hooks_allow(TdlStream *t)
{
    if (PY_VERSION_HEX < 0x030C0000 || !tdl__audited()) {
        return true;
    }
    PyObject *sock = tdl__stream_socket(t);
    bool allowed = sock != NULL && PySys_Audit("socket.sendmsg", "OO", sock, Py_None) == 0;
    Py_XDECREF(sock);
    if (!allowed && PyErr_Occurred()) {
        send_raised(t);
    }
    return allowed && t->queue_len > 0 && t->state < TDL_STREAM_LOST;
}

/* The queue became empty: close or half-close if that was waiting for it. */
static void drained(TdlStream *t)
{
    (void)tdl__watch_unset(t->watch, UV_WRITABLE);
    if (t->state == TDL_STREAM_CLOSING) {
        tdl__stream_lost_now(t, Py_None); /* a sendfile has nobody to send to */
        return;
    }
    tdl__stream_wake_empty_waiter(t, NULL);
    if (t->eof) {
        (void)shutdown(tdl__stream_fd(t), SHUT_WR);
    }
}

static void write_ready(TdlStream *t)
{
    if (!hooks_allow(t)) {
        return;
    }
    ssize_t n = send_queue(t);
    if (n < 0) {
        if (!would_block(errno)) {
            tdl__stream_send_failed(t, errno);
        }
        return;
    }
    tdl__stream_queue_sent(t, (size_t)n);
    maybe_resume(t); /* may write more, close or abort */
    if (t->queue_len == 0 && t->state <= TDL_STREAM_CLOSING && !PyErr_Occurred()) {
        drained(t);
    }
}

void tdl__stream_write_run(struct tdl_item *item)
{
    TdlStream *t = TDL_CONTAINER_OF(item, TdlStream, write_item);
    if (tdl__watch_failed(t->watch)) {
        tdl__stream_unwatched(t);
    }
    if (!t->loop->closed && t->state <= TDL_STREAM_CLOSING && t->queue_len > 0) {
        PyObject *context = Py_NewRef(t->context);
        if (PyContext_Enter(context) == 0) {
            write_ready(t);
            tdl__context_leave(t->loop, context);
        } else {
            tdl__stream_fatal(t, "Fatal write error on socket transport");
        }
        Py_DECREF(context);
    }
    Py_DECREF(t);
}

static int want_writable(TdlStream *t)
{
    if (t->watch == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Event loop is closed");
        return -1;
    }
    int code = 0;
    if (t->watch->writer.owner == NULL) {
        code = tdl__watch_set(t->watch, UV_WRITABLE, &t->write_item, (PyObject *)t);
    }
    if (code < 0) {
        tdl__raise_uv(code);
    }
    return code;
}

/* asyncio's answers to a write that cannot be taken: 1 dropped, -1 raised, 0 go on. */
int tdl__stream_write_refused(TdlStream *t, const char *method)
{
    if (t->eof) {
        PyErr_Format(PyExc_RuntimeError, "Cannot call %s() after write_eof()", method);
        return -1;
    }
    if (t->empty_waiter != NULL) {
        PyErr_Format(PyExc_RuntimeError, "unable to %s; sendfile is in progress", method);
        return -1;
    }
    return 0;
}

int tdl__stream_write_lost(TdlStream *t)
{
    struct tdl_module_state *st = tdl__state_of_type(Py_TYPE(t));
    if (t->dropped_writes >= TDL_WRITE_LOST_LOG_MIN) {
        PyObject *result = PyObject_CallMethodNoArgs(st->support, st->str__log_conn_lost);
        if (result == NULL) {
            return -1;
        }
        Py_DECREF(result);
    }
    t->dropped_writes++;
    return 0;
}

/* Queue what is not sent yet. Only bytes can be kept as they are: anything else may change later. Only the
 * first of the queue can be partly sent, and another thread may have queued some meanwhile. */
static int keep(TdlStream *t, PyObject *data, const Py_buffer *view, size_t sent)
{
    PyObject *rest;
    if (PyBytes_CheckExact(data) && (sent == 0 || t->queue_len == 0)) {
        rest = Py_NewRef(data);
    } else {
        rest = PyBytes_FromStringAndSize((const char *)view->buf + sent, view->len - (Py_ssize_t)sent);
        sent = 0;
    }
    int code = rest != NULL ? tdl__stream_queue_push(t, rest, sent) : -1;
    Py_XDECREF(rest);
    return code;
}

/* Wait for the kernel to take the queue. */
int tdl__stream_wait_rest(TdlStream *t)
{
    if (t->queue_len > 0 && t->state < TDL_STREAM_LOST && want_writable(t) == 0) {
        tdl__stream_maybe_pause(t);
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Send a queue that the kernel has not refused yet. */
void tdl__stream_send_queued(TdlStream *t)
{
    if (!hooks_allow(t)) {
        return;
    }
    ssize_t n = send_queue(t);
    if (n < 0 && !would_block(errno)) {
        tdl__stream_send_failed(t, errno);
    } else if (n > 0) {
        tdl__stream_queue_sent(t, (size_t)n);
    }
}

/* What asyncio of this version says that write() takes. */
#if PY_VERSION_HEX >= 0x030E0000
#define TDL_BYTES_LIKE "bytes, bytearray, or memoryview object"
#else
#define TDL_BYTES_LIKE "bytes-like object"
#endif

int tdl__stream_check_bytes_like(PyObject *data)
{
    if (PyBytes_Check(data) || PyByteArray_Check(data) || PyMemoryView_Check(data)) {
        return 0;
    }
    PyObject *name = PyType_GetName(Py_TYPE(data));
    if (name != NULL) {
        PyErr_Format(PyExc_TypeError, "data argument must be a " TDL_BYTES_LIKE ", not %R", name);
        Py_DECREF(name);
    }
    return -1;
}

/* Keep what the kernel did not take of a write, of which it took the first `sent` bytes. */
static int keep_rest(TdlStream *t, PyObject *data, const Py_buffer *view, size_t sent)
{
    if (t->queue_len == 0 && t->watch == NULL) {
        return want_writable(t); /* nobody will send the rest */
    }
    return keep(t, data, view, sent) < 0 ? -1 : tdl__stream_wait_rest(t);
}

static int write_behind_held(TdlStream *t, PyObject *data, const Py_buffer *view)
{
    ssize_t n = tdl__stream_send_behind_held(t, view->buf, (size_t)view->len);
    if (n < 0 || n == view->len) {
        return PyErr_Occurred() ? -1 : 0;
    }
    return keep_rest(t, data, view, (size_t)n);
}

static int write_direct(TdlStream *t, PyObject *data, const Py_buffer *view)
{
    ssize_t n = send_now(t, view->buf, (size_t)view->len);
    if (n == view->len) {
        return 0;
    }
    if (n < 0 && !would_block(errno)) {
        PyErr_SetFromErrno(PyExc_OSError);
        tdl__stream_fatal(t, "Fatal write error on socket transport");
        return PyErr_Occurred() ? -1 : 0;
    }
    if (t->state >= TDL_STREAM_LOST) {
        return 0; /* another thread aborted meanwhile */
    }
    return keep_rest(t, data, view, n > 0 ? (size_t)n : 0);
}

static int write_view(TdlStream *t, PyObject *data, const Py_buffer *view)
{
    if (view->len == 0) {
        return 0;
    }
    if (t->state >= TDL_STREAM_LOST) {
        return tdl__stream_write_lost(t);
    }
    if (t->queue_len > 0) {
        if (keep(t, data, view, 0) == 0) {
            tdl__stream_maybe_pause(t);
        }
        return PyErr_Occurred() ? -1 : 0;
    }
    if (tdl__stream_hold(t, view->buf, (size_t)view->len)) {
        return 0;
    }
    tdl__stream_send_older(t);
    return t->held != NULL ? write_behind_held(t, data, view) : write_direct(t, data, view);
}

static PyObject *stream_write(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    TdlStream *t = TDL_STREAM(self);
    PyObject *data =
        nargs == 1 && kwnames == NULL ? args[0] : tdl__only_argument("write", "data", args, nargs, kwnames);
    if (data == NULL || tdl__stream_check_bytes_like(data) < 0 || tdl__stream_write_refused(t, "write") < 0) {
        return NULL;
    }
    int code;
    if (PyBytes_CheckExact(data)) {
        Py_buffer view = {.buf = PyBytes_AS_STRING(data), .len = PyBytes_GET_SIZE(data)};
        code = write_view(t, data, &view);
    } else {
        Py_buffer view;
        if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
            return NULL;
        }
        code = write_view(t, data, &view);
        PyBuffer_Release(&view);
    }
    if (code < 0) {
        return NULL;
    }
    if (t->unserved) {
        tdl__stream_used(t, TDL_STREAMS_WROTE);
    }
    Py_RETURN_NONE;
}

static PyObject *stream_write_eof(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlStream *t = TDL_STREAM(self);
    tdl__stream_flush(t);
    if (t->state != TDL_STREAM_OPEN || t->eof) {
        Py_RETURN_NONE;
    }
    t->eof = true;
    if (t->queue_len == 0 && shutdown(tdl__stream_fd(t), SHUT_WR) < 0) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

static PyObject *stream_can_write_eof(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored))
{
    Py_RETURN_TRUE;
}

PyMethodDef tdl__stream_write_methods[] = {
    {"write", (PyCFunction)(void (*)(void))stream_write, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR(
         "write($self, /, data)\n--\n\nSend data, or queue what the kernel does not take; never blocks.")},
    {"writelines", (PyCFunction)(void (*)(void))tdl__stream_writelines, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("writelines($self, /, list_of_data)\n--\n\nSend every bytes-like object of an iterable, in "
               "one call.")},
    {"write_eof", stream_write_eof, METH_NOARGS,
     PyDoc_STR("write_eof($self, /)\n--\n\nClose the sending side once what is queued has been sent.")},
    {"can_write_eof", stream_can_write_eof, METH_NOARGS,
     PyDoc_STR("can_write_eof($self, /)\n--\n\nReturn True: a stream socket can be half-closed.")},
    {"_make_empty_waiter", tdl__stream_make_empty_waiter, METH_NOARGS, NULL},
    {"_sendfile_waits_for", tdl__stream_sendfile_waits_for, METH_O, NULL},
    {"_reset_empty_waiter", tdl__stream_reset_empty_waiter, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
