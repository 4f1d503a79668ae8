/* Reading: one recv for each time the descriptor is readable, handed to the protocol at once. */
#include "ground/cpython.h"
#include "loop/snapshot.h"
#include "streams/streams.h"
#include "transport/stream.h"
#include "transport/tls.h"

#include <errno.h>

enum {
    TDL_READ_MAX = 256 * 1024,  /* asyncio's max_size */
    TDL_READ_DIRECT_MIN = 8192, /* from here on the kernel writes into the bytes object itself */
    TDL_READ_HINT_MAX =
        96 * 1024, /* below malloc's mmap threshold: mapping a block costs more than it saves */
};

void tdl__stream_update_reading(TdlStream *t)
{
    bool want = t->started && !t->paused && !t->read_eof && t->state == TDL_STREAM_OPEN;
    if (t->watch == NULL) {
        return;
    }
    if (want) {
        int code = 0;
        if (t->watch->reader.owner == NULL) {
            code = tdl__watch_set(t->watch, UV_READABLE, &t->read_item, (PyObject *)t);
        }
        if (code < 0) {
            tdl__raise_uv(code);
            tdl__stream_unwatched(t);
        }
    } else {
        (void)tdl__watch_unset(t->watch, UV_READABLE);
    }
}

void tdl__stream_start_run(struct tdl_item *item)
{
    TdlStream *t = TDL_CONTAINER_OF(item, TdlStream, start_item);
    t->started = true;
    if (!t->loop->closed) {
        tdl__stream_update_reading(t);
    }
    Py_DECREF(t);
}

static void on_eof(TdlStream *t)
{
    struct tdl_module_state *st = t->loop->state;
    if (t->loop->debug) {
        Py_XDECREF(PyObject_CallMethod(st->support, "_transport_debug", "sO", "%r received EOF", t));
        PyErr_Clear();
    }
    PyObject *protocol = Py_NewRef(t->protocol);
    PyObject *keep = PyObject_CallMethodNoArgs(protocol, st->str_eof_received);
    Py_DECREF(protocol);
    int keep_open = keep != NULL ? PyObject_IsTrue(keep) : -1;
    Py_XDECREF(keep);
    if (keep_open < 0) {
        tdl__stream_fatal(t, "Fatal error: protocol.eof_received() call failed.");
    } else if (keep_open) {
        t->read_eof = true; /* behind what eof_received() did, as asyncio takes its reader away */
        tdl__stream_update_reading(t);
    } else {
        tdl__stream_close(t);
    }
}

/* Tell a failed recv; nothing to read is no failure. */
static void on_recv_error(TdlStream *t, int error)
{
    if (error != EAGAIN && error != EWOULDBLOCK && error != EINTR) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
        tdl__stream_fatal(t, "Fatal read error on socket transport");
    }
}

static ssize_t recv_into(TdlStream *t, void *buffer, size_t len)
{
    int fd = tdl__stream_fd(t);
    PyThreadState *given = tdl__gil_give(t->loop);
    ssize_t n;
    do {
        n = recv(fd, buffer, len, 0);
    } while (n < 0 && errno == EINTR);
    tdl__gil_take(given);
    if (t->watch == NULL) {
        return n;
    }
    /* "Nothing there" right behind the kernel's news is asked once more: it will not tell a second time. */
    bool all = n < 0 ? (errno == EAGAIN || errno == EWOULDBLOCK) && !t->watch->news : (size_t)n < len;
    if (all && !t->watch->ended) {
        tdl__watch_drained(t->watch);
    }
    t->watch->news = false;
    return n;
}

/* Small reads go through the loop's buffer, so that their bytes objects have the right size from the
 * start. */
static PyObject *read_shared(TdlStream *t, ssize_t *n)
{
    char *buffer = tdl__read_buffer(t->loop);
    if (buffer == NULL) {
        return PyErr_NoMemory();
    }
    *n = recv_into(t, buffer, TDL_READ_BUFFER_SIZE);
    return *n > 0 ? PyBytes_FromStringAndSize(buffer, *n) : NULL;
}

static PyObject *read_direct(TdlStream *t, ssize_t *n)
{
    PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)t->read_hint);
    if (data == NULL) {
        return NULL;
    }
    *n = recv_into(t, PyBytes_AS_STRING(data), t->read_hint);
    if (*n <= 0) {
        Py_DECREF(data);
        return NULL;
    }
    if ((uint32_t)*n < t->read_hint && tdl__bytes_resize(&data, *n) < 0) {
        return NULL;
    }
    return data;
}

/* The next read expects as much as this one brought, and a little more. */
static void adapt_hint(TdlStream *t, size_t n)
{
    if (n < TDL_READ_DIRECT_MIN) {
        t->read_hint = 0;
    } else if (n >= t->read_hint) {
        size_t hint = n * 2;
        t->read_hint = (uint32_t)(hint < TDL_READ_HINT_MAX ? hint : TDL_READ_HINT_MAX);
    }
}

/* There was no data: an exception, the peer's end, or the errno of the call. */
static void no_data(TdlStream *t, ssize_t n)
{
    if (PyErr_Occurred()) {
        tdl__stream_fatal(t, "Fatal read error on socket transport");
    } else if (n == 0) {
        on_eof(t);
    } else {
        on_recv_error(t, errno);
    }
}

static void deliver(TdlStream *t, PyObject *data)
{
    PyObject *stack[2] = {t->protocol, data};
    PyObject *protocol = Py_NewRef(t->protocol);
    PyObject *result = PyObject_VectorcallMethod(t->loop->state->str_data_received, stack,
                                                 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_DECREF(data);
    Py_DECREF(protocol);
    if (result == NULL) {
        tdl__stream_fatal(t, "Fatal error: protocol.data_received() call failed.");
    }
    Py_XDECREF(result);
}

static void read_data(TdlStream *t)
{
    ssize_t n = -1;
    errno = 0;
    PyObject *data = t->read_hint != 0 ? read_direct(t, &n) : read_shared(t, &n);
    if (data == NULL) {
        no_data(t, n);
        return;
    }
    adapt_hint(t, (size_t)n);
    if (t->unserved) {
        tdl__stream_used(t, TDL_STREAMS_RECEIVED);
    }
    deliver(t, data);
}

/* The protocol is asyncio's of streams: what came goes to its reader without one. */
static void read_streams(TdlStream *t)
{
    char *buffer = tdl__read_buffer(t->loop);
    ssize_t n = buffer != NULL ? recv_into(t, buffer, TDL_READ_BUFFER_SIZE) : -1;
    if (buffer == NULL || n <= 0) {
        if (buffer == NULL) {
            PyErr_NoMemory();
        }
        no_data(t, n);
        return;
    }
    PyObject *protocol = Py_NewRef(t->protocol);
    int taken = tdl__streams_feed(t->loop->state, protocol, buffer, n);
    Py_DECREF(protocol);
    PyObject *data = taken == 0 ? PyBytes_FromStringAndSize(buffer, n) : NULL;
    if (data != NULL) {
        deliver(t, data);
    } else if (taken <= 0) {
        tdl__stream_fatal(t, taken < 0 ? "Fatal error: protocol.data_received() call failed."
                                       : "Fatal read error on socket transport");
    }
}

/* The protocol's buffer, checked as asyncio checks it: its length first. */
static PyObject *get_buffer(TdlStream *t)
{
    struct tdl_module_state *st = t->loop->state;
    PyObject *hint = PyLong_FromLong(-1);
    PyObject *protocol = Py_NewRef(t->protocol);
    PyObject *buffer = hint != NULL ? PyObject_CallMethodOneArg(protocol, st->str_get_buffer, hint) : NULL;
    Py_DECREF(protocol);
    Py_XDECREF(hint);
    Py_ssize_t len = buffer != NULL ? PyObject_Size(buffer) : -1;
    if (len == 0) {
        PyErr_SetString(PyExc_RuntimeError, "get_buffer() returned an empty buffer");
    }
    if (len <= 0) {
        Py_CLEAR(buffer);
    }
    return buffer;
}

/* A buffer that cannot be filled is told in the words of sock.recv_into, which asyncio gives it to. What
 * get_buffer() closed is read once more, as asyncio does. */
static void read_buffered(TdlStream *t)
{
    Py_buffer view;
    PyObject *buffer = get_buffer(t);
    if (buffer == NULL) {
        tdl__stream_fatal(t, "Fatal error: protocol.get_buffer() call failed.");
        return;
    }
    int code = PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE);
    if (code < 0) {
        PyErr_Format(PyExc_TypeError, "recv_into() argument 1 must be read-write bytes-like object, not %s",
                     Py_TYPE(buffer)->tp_name);
    }
    Py_DECREF(buffer);
    if (code < 0) {
        tdl__stream_fatal(t, "Fatal read error on socket transport");
        return;
    }
    ssize_t n = recv_into(t, view.buf, (size_t)view.len);
    int error = errno;
    PyBuffer_Release(&view);
    if (n < 0) {
        on_recv_error(t, error);
        return;
    }
    if (n == 0) {
        on_eof(t);
        return;
    }
    PyObject *count = PyLong_FromSsize_t(n);
    PyObject *protocol = Py_NewRef(t->protocol);
    PyObject *result =
        count != NULL ? PyObject_CallMethodOneArg(protocol, t->loop->state->str_buffer_updated, count) : NULL;
    Py_DECREF(protocol);
    Py_XDECREF(count);
    if (result == NULL) {
        tdl__stream_fatal(t, "Fatal error: protocol.buffer_updated() call failed.");
    }
    Py_XDECREF(result);
}

/* The protocol is treadle's own: no Python call stands between the kernel and the BIO. */
static void read_tls(TdlStream *t)
{
    char *buffer = tdl__tls_input(t->loop);
    ssize_t n = buffer != NULL ? recv_into(t, buffer, TDL_READ_BUFFER_SIZE) : -1;
    if (buffer == NULL) {
        tdl__stream_fatal(t, "Fatal read error on socket transport");
    } else if (n < 0) {
        on_recv_error(t, errno);
    } else if (n == 0) {
        on_eof(t);
    } else if (tdl__tls_received(t->loop, t->protocol, n) < 0) {
        tdl__stream_fatal(t, "Fatal error: protocol.buffer_updated() call failed.");
    }
}

void tdl__stream_read_run(struct tdl_item *item)
{
    TdlStream *t = TDL_CONTAINER_OF(item, TdlStream, read_item);
    if (t->watch != NULL) {
        tdl__watch_again(t->watch); /* until a recv drains it, if it comes to one */
        if (t->watch->error != 0 && tdl__watch_failed(t->watch)) {
            tdl__stream_unwatched(t);
        }
    }
    if (!t->loop->closed && t->state == TDL_STREAM_OPEN && !t->paused && !t->read_eof) {
        PyObject *context = Py_NewRef(t->context);
        if (PyContext_Enter(context) < 0) {
            tdl__stream_fatal(t, "Fatal read error on socket transport");
        } else {
            if (t->tls) {
                read_tls(t);
            } else if (t->streams) {
                read_streams(t);
            } else if (t->buffered) {
                read_buffered(t);
            } else {
                read_data(t);
            }
            tdl__context_leave(t->loop, context);
        }
        Py_DECREF(context);
    }
    Py_DECREF(t);
}
