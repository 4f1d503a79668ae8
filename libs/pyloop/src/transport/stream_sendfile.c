/* What asyncio waits for around a sendfile: the queue to drain before it, and the end of the connection in
 * it. */
#include "ground/audit.h"
#include "loop/readers.h"
#include "loop/snapshot.h"
#include "transport/stream.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "treadle/alloc.h"

/* End what a sendfile waits for, unless it was canceled or has ended already. */
void tdl__stream_wake_empty_waiter(TdlStream *t, PyObject *exc)
{
    struct tdl_module_state *st = t->loop->state;
    PyObject *waiter = Py_XNewRef(t->empty_waiter);
    PyObject *done = waiter != NULL ? PyObject_CallMethodNoArgs(waiter, st->str_done) : Py_NewRef(Py_True);
    PyObject *result = done;
    if (done == Py_False) {
        result = exc != NULL ? PyObject_CallMethodOneArg(waiter, st->str_set_exception, exc)
                             : PyObject_CallMethodOneArg(waiter, st->str_set_result, Py_None);
    }
    if (result == NULL) {
        PyErr_WriteUnraisable((PyObject *)t);
    }
    Py_XDECREF(result);
    Py_XDECREF(waiter);
}

/* The connection is lost: a sendfile hears of it whatever it waits for. What sock_sendfile left on the poller
 * is taken away first, since it would go by the number. Keeps what is raised. */
void tdl__stream_end_sendfile(TdlStream *t)
{
    if (!t->sendfile) {
        return;
    }
    PyObject *raised = PyErr_GetRaisedException();
    tdl__watch_retire(t->watch, UV_WRITABLE);
    PyObject *exc = PyObject_CallFunction(PyExc_ConnectionError, "s", "Connection is closed by peer");
    if (exc != NULL) {
        tdl__stream_wake_empty_waiter(t, exc);
        Py_DECREF(exc);
    } else {
        PyErr_WriteUnraisable((PyObject *)t);
    }
    if (raised != NULL) {
        PyErr_SetRaisedException(raised);
    }
}

PyObject *tdl__stream_make_empty_waiter(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlStream *t = TDL_STREAM(self);
    if (t->empty_waiter != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Empty waiter is already set");
        return NULL;
    }
    tdl__stream_flush(t);
    PyObject *waiter = PyObject_CallMethod((PyObject *)t->loop, "create_future", NULL);
    if (waiter == NULL) {
        return NULL;
    }
    t->empty_waiter = Py_NewRef(waiter);
    t->sendfile = true;
    if (t->watch != NULL) {
        t->watch->transport = NULL; /* sock_sendfile watches the descriptor itself */
    }
    if (t->queue_len == 0) {
        PyObject *result = PyObject_CallMethodOneArg(waiter, t->loop->state->str_set_result, Py_None);
        if (result == NULL) {
            Py_CLEAR(waiter);
        }
        Py_XDECREF(result);
    }
    return waiter;
}

/* _sendfile_waits_for(future): sock_sendfile waits for the kernel; the loss of the connection ends that wait
 * too. */
PyObject *tdl__stream_sendfile_waits_for(PyObject *self, PyObject *future)
{
    TdlStream *t = TDL_STREAM(self);
    Py_XSETREF(t->empty_waiter, Py_NewRef(future));
    if (t->state == TDL_STREAM_CLOSED) {
        tdl__stream_end_sendfile(t);
    }
    Py_RETURN_NONE;
}

PyObject *tdl__stream_reset_empty_waiter(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlStream *t = TDL_STREAM(self);
    Py_CLEAR(t->empty_waiter);
    t->sendfile = false;
    if (t->watch != NULL) {
        t->watch->transport = self;
    }
    Py_RETURN_NONE;
}
