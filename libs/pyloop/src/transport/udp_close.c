/* Closing an endpoint: close, abort, fatal errors, and the one place where connection_lost is called. */
#include "loop/snapshot.h"
#include "transport/udp.h"

/* Let go of the descriptor: libuv first, then the socket that owns it. */
void tdl__udp_shut(TdlUdp *t)
{
    if (t->watch != NULL) {
        tdl__watch_release(t->watch);
    }
    PyObject *sock = t->sock;
    t->sock_number = NULL;
    t->sock = NULL;
    t->fd = -1;
    if (sock == NULL) {
        return;
    }
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

/* Call connection_lost, then close; what the protocol raises is reported as asyncio reports a callback. */
void tdl__udp_lost_now(TdlUdp *t, PyObject *exc)
{
    if (t->state == TDL_UDP_CLOSED) {
        return;
    }
    t->state = TDL_UDP_CLOSED;
    t->conn_lost = t->conn_lost > 0 ? t->conn_lost : 1;
    PyObject *protocol = Py_XNewRef(t->protocol);
    PyObject *result = protocol == NULL
                           ? Py_NewRef(Py_None)
                           : PyObject_CallMethodOneArg(protocol, t->loop->state->str_connection_lost, exc);
    Py_XDECREF(protocol);
    if (result == NULL && !tdl__udp_exit_raised(t)) {
        PyObject *raised = PyErr_GetRaisedException();
        PyObject *text =
            PyUnicode_FromFormat("Exception in callback UDPTransport._call_connection_lost(%R)", exc);
        if (text != NULL) {
            tdl__udp_call_handler(t, PyUnicode_AsUTF8(text), raised);
        }
        Py_XDECREF(text);
        Py_DECREF(raised);
    }
    Py_XDECREF(result);
    tdl__udp_queue_clear(t);
    tdl__udp_pending_clear(t);
    tdl__udp_shut(t);
    Py_CLEAR(t->protocol);
}

void tdl__udp_lost_run(struct tdl_item *item)
{
    TdlUdp *t = TDL_CONTAINER_OF(item, TdlUdp, lost_item);
    if (!t->loop->closed) {
        PyObject *exc = t->lost_exc != NULL ? t->lost_exc : Py_NewRef(Py_None);
        t->lost_exc = NULL;
        PyObject *context = Py_NewRef(t->context);
        if (PyContext_Enter(context) == 0) {
            tdl__udp_lost_now(t, exc);
            tdl__context_leave(t->loop, context);
        } else {
            PyErr_WriteUnraisable((PyObject *)t);
            tdl__udp_lost_now(t, exc); /* in another's context rather than never */
        }
        Py_DECREF(context);
        Py_DECREF(exc);
    }
    Py_DECREF(t);
}

/* On a closed loop nobody will run it: who closes is told so, once, and the end of the object closes the
 * descriptor. */
static void queue_lost(TdlUdp *t, PyObject *exc)
{
    t->state = TDL_UDP_LOST;
    t->conn_lost++;
    if (tdl__check_closed(t->loop) < 0) {
        return;
    }
    Py_XSETREF(t->lost_exc, exc != NULL && exc != Py_None ? Py_NewRef(exc) : NULL);
    Py_INCREF(t); /* the queue's reference */
    tdl_sched_push(&t->loop->sched, &t->lost_item);
}

void tdl__udp_force_close(TdlUdp *t, PyObject *exc)
{
    if (t->state >= TDL_UDP_LOST) {
        return;
    }
    tdl__udp_queue_clear(t);
    (void)tdl__watch_unset(t->watch, UV_WRITABLE);
    queue_lost(t, exc);
    tdl__udp_update_reading(t);
}

/* Report the raised exception as asyncio's _fatal_error does, and close; exits stay raised. */
void tdl__udp_fatal(TdlUdp *t, const char *message)
{
    if (tdl__udp_exit_raised(t)) {
        return;
    }
    PyObject *exc = PyErr_GetRaisedException();
    if (!PyErr_GivenExceptionMatches(exc, PyExc_OSError)) {
        tdl__udp_call_handler(t, message, exc);
    } else if (t->loop->debug) {
        Py_XDECREF(
            PyObject_CallMethod(t->loop->state->support, "_transport_debug_exc", "OsO", t, message, exc));
        PyErr_Clear();
    }
    tdl__udp_force_close(t, exc);
    Py_DECREF(exc);
}

/* The kernel would not watch the descriptor, as the raised OSError says: nothing more would be heard of
 * it. */
void tdl__udp_unwatched(TdlUdp *t)
{
    PyObject *exc = PyErr_GetRaisedException();
    tdl__udp_call_handler(t, "Fatal error: the socket cannot be polled", exc);
    tdl__udp_force_close(t, exc);
    Py_DECREF(exc);
}

static PyObject *none_or_error(void)
{
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *udp_close(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlUdp *t = TDL_UDP(self);
    if (t->state == TDL_UDP_OPEN) {
        t->state = TDL_UDP_CLOSING;
        tdl__udp_update_reading(t);
        if (t->queue_len == 0) {
            (void)tdl__watch_unset(t->watch, UV_WRITABLE);
            queue_lost(t, NULL);
        }
    }
    return none_or_error();
}

static PyObject *udp_force_close(PyObject *self, PyObject *exc)
{
    tdl__udp_force_close(TDL_UDP(self), exc);
    return none_or_error();
}

static PyObject *udp_abort(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return udp_force_close(self, Py_None);
}

static PyObject *udp_is_closing(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(TDL_UDP(self)->state != TDL_UDP_OPEN);
}

PyMethodDef tdl__udp_close_methods[] = {
    {"close", udp_close, METH_NOARGS,
     PyDoc_STR("close($self, /)\n--\n\nSend what is queued, then close; connection_lost(None) follows.")},
    {"abort", udp_abort, METH_NOARGS,
     PyDoc_STR("abort($self, /)\n--\n\nClose now and drop what is queued; connection_lost(None) follows.")},
    {"is_closing", udp_is_closing, METH_NOARGS,
     PyDoc_STR("is_closing($self, /)\n--\n\nReturn True once the endpoint is closing or closed.")},
    {"_force_close", udp_force_close, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
