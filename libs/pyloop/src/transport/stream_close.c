/* Closing: close, abort, fatal errors, and the one place where connection_lost is called. */
#include "loop/snapshot.h"
#include "transport/stream.h"

#include <unistd.h>

/* Let go of the descriptor: libuv first, then the socket that owns it. */
void tdl__stream_shut(TdlStream *t)
{
    if (t->watch != NULL) {
        tdl__watch_release(t->watch);
    }
    int fd = t->fd;
    t->fd = -1;
    if (fd < 0) {
        return;
    }
    if (t->sock == NULL) {
        close(fd);
        return;
    }
    PyObject *sock = Py_NewRef(t->sock);
    struct tdl_module_state *st = tdl__state_of_type(Py_TYPE(t));
    PyObject *exc = PyErr_GetRaisedException();
    PyObject *result = PyObject_CallMethodNoArgs(sock, st->str_close);
    if (result == NULL) {
        PyErr_WriteUnraisable((PyObject *)t);
    }
    Py_XDECREF(result);
    Py_DECREF(sock);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

static void server_detach(TdlStream *t)
{
    PyObject *server = t->server;
    if (server == NULL) {
        return;
    }
    t->server = NULL;
    struct tdl_module_state *st = tdl__state_of_type(Py_TYPE(t));
    PyObject *exc = PyErr_GetRaisedException();
    PyObject *result = PY_VERSION_HEX >= 0x030D0000
                           ? PyObject_CallMethodOneArg(server, st->str__detach, (PyObject *)t)
                           : PyObject_CallMethodNoArgs(server, st->str__detach);
    if (result == NULL) {
        PyErr_WriteUnraisable(server);
    }
    Py_XDECREF(result);
    Py_DECREF(server);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

/* Call connection_lost, then close; what the protocol raises is reported as asyncio reports a callback. */
void tdl__stream_lost_now(TdlStream *t, PyObject *exc)
{
    if (t->state == TDL_STREAM_CLOSED) {
        return;
    }
    t->state = TDL_STREAM_CLOSED;
    t->dropped_writes = t->dropped_writes > 0 ? t->dropped_writes : 1;
    PyObject *protocol = Py_XNewRef(t->protocol);
    PyObject *result = protocol == NULL
                           ? Py_NewRef(Py_None)
                           : PyObject_CallMethodOneArg(protocol, t->loop->state->str_connection_lost, exc);
    if (result == NULL && !tdl__stream_exit_raised(t)) {
        PyObject *raised = PyErr_GetRaisedException();
        PyObject *text =
            PyUnicode_FromFormat("Exception in callback TCPTransport._call_connection_lost(%R)", exc);
        if (text != NULL) {
            tdl__stream_call_handler(t, PyUnicode_AsUTF8(text), raised);
        }
        Py_XDECREF(text);
        Py_DECREF(raised);
    }
    Py_XDECREF(result);
    Py_XDECREF(protocol);
    tdl__stream_queue_clear(t);
    tdl__stream_end_sendfile(t);
    tdl__stream_shut(t);
    Py_CLEAR(t->protocol);
    server_detach(t);
}

void tdl__stream_lost_run(struct tdl_item *item)
{
    TdlStream *t = TDL_CONTAINER_OF(item, TdlStream, lost_item);
    if (!t->loop->closed) {
        PyObject *exc = t->lost_exc != NULL ? t->lost_exc : Py_NewRef(Py_None);
        t->lost_exc = NULL;
        PyObject *context = Py_NewRef(t->context);
        if (PyContext_Enter(context) == 0) {
            tdl__stream_lost_now(t, exc);
            tdl__context_leave(t->loop, context);
        } else {
            PyErr_WriteUnraisable((PyObject *)t);
            tdl__stream_lost_now(t, exc); /* in another's context rather than never */
        }
        Py_DECREF(context);
        Py_DECREF(exc);
    }
    Py_DECREF(t);
}

/* On a closed loop nobody will run it: who closes is told so, once, and the end of the object closes the
 * descriptor. */
static void queue_lost(TdlStream *t, PyObject *exc)
{
    t->state = TDL_STREAM_LOST;
    t->dropped_writes++;
    if (tdl__check_closed(t->loop) < 0) {
        return;
    }
    Py_XSETREF(t->lost_exc, exc != NULL && exc != Py_None ? Py_NewRef(exc) : NULL);
    Py_INCREF(t); /* the queue's reference */
    tdl_sched_push(&t->loop->sched, &t->lost_item);
}

void tdl__stream_close(TdlStream *t)
{
    tdl__stream_flush(t);
    if (t->state != TDL_STREAM_OPEN) {
        return;
    }
    t->state = TDL_STREAM_CLOSING;
    tdl__stream_update_reading(t);
    if (t->queue_len == 0) {
        (void)tdl__watch_unset(t->watch, UV_WRITABLE);
        queue_lost(t, NULL);
    }
}

void tdl__stream_force_close(TdlStream *t, PyObject *exc)
{
    tdl__stream_flush(t);
    if (t->state >= TDL_STREAM_LOST) {
        return;
    }
    bool open = t->state == TDL_STREAM_OPEN;
    tdl__stream_queue_clear(t);
    (void)tdl__watch_unset(t->watch, UV_WRITABLE);
    queue_lost(t, exc);
    if (open) {
        tdl__stream_update_reading(t);
    }
}

/* Report the raised exception as asyncio's _fatal_error does, and close; exits stay raised. */
void tdl__stream_fatal(TdlStream *t, const char *message)
{
    if (tdl__stream_exit_raised(t)) {
        return;
    }
    PyObject *exc = PyErr_GetRaisedException();
    if (!PyErr_GivenExceptionMatches(exc, PyExc_OSError)) {
        tdl__stream_call_handler(t, message, exc);
    } else if (t->loop->debug) {
        PyObject *result =
            PyObject_CallMethod(t->loop->state->support, "_transport_debug_exc", "OsO", t, message, exc);
        if (result == NULL) {
            PyErr_Clear();
        }
        Py_XDECREF(result);
    }
    tdl__stream_force_close(t, exc);
    Py_DECREF(exc);
}

/* The kernel would not watch the descriptor, as the raised OSError says: nothing more would be heard of the
 * connection. */
void tdl__stream_unwatched(TdlStream *t)
{
    PyObject *exc = PyErr_GetRaisedException();
    tdl__stream_call_handler(t, "Fatal error: the socket cannot be polled", exc);
    tdl__stream_force_close(t, exc);
    Py_DECREF(exc);
}

static PyObject *none_or_error(void)
{
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *stream_close(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    tdl__stream_close(TDL_STREAM(self));
    return none_or_error();
}

static PyObject *stream_abort(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    tdl__stream_force_close(TDL_STREAM(self), NULL);
    return none_or_error();
}

static PyObject *stream_force_close(PyObject *self, PyObject *exc)
{
    tdl__stream_force_close(TDL_STREAM(self), exc);
    return none_or_error();
}

static PyObject *stream_is_closing(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(TDL_STREAM(self)->state != TDL_STREAM_OPEN);
}

PyMethodDef tdl__stream_close_methods[] = {
    {"close", stream_close, METH_NOARGS,
     PyDoc_STR("close($self, /)\n--\n\nSend what is queued, then close; connection_lost(None) follows.")},
    {"abort", stream_abort, METH_NOARGS,
     PyDoc_STR("abort($self, /)\n--\n\nClose now and drop what is queued; connection_lost(None) follows.")},
    {"is_closing", stream_is_closing, METH_NOARGS,
     PyDoc_STR("is_closing($self, /)\n--\n\nReturn True once the transport is closing or closed.")},
    {"_force_close", stream_force_close, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
