/* What a stream's coroutine methods give: to whoever looks a coroutine of asyncio's method, which it becomes
 * by handing over to one wherever the plain case ends. */
#include "streams/op.h"

#include <structmember.h>

enum { TDL_STREAMS_FREE_MAX = 256 };

PyObject *tdl__streams_op_new(struct tdl_streams_method *m, PyObject *self, PyObject *separator,
                              Py_ssize_t size)
{
    struct tdl_streams *s = m->state->streams;
    TdlStreamsOp *op = s->free;
    if (op != NULL) {
        s->free = TDL_OP(op->self);
        s->free_count--;
        tdl__object_anew((PyObject *)op);
    } else {
        op = PyObject_GC_New(TdlStreamsOp, s->op_type);
        if (op == NULL) {
            return NULL;
        }
    }
    op->method = (struct tdl_streams_method *)Py_NewRef((PyObject *)m);
    op->self = Py_NewRef(self);
    op->separator = Py_XNewRef(separator);
    op->await = NULL;
    op->weakrefs = NULL;
    op->size = size;
    op->phase = TDL_STREAMS_NEW;
    op->running = false;
    PyObject_GC_Track(op);
    return (PyObject *)op;
}

void tdl__streams_op_clear_free(struct tdl_streams *s)
{
    while (s->free != NULL) {
        TdlStreamsOp *op = s->free;
        s->free = TDL_OP(op->self);
        PyTypeObject *type = Py_TYPE(op);
        PyObject_GC_Del(op);
        Py_DECREF(type);
    }
    s->free_count = 0;
}

/* The wait is over, however: nobody waits any more. Keeps what is raised. */
static int end_wait(TdlStreamsOp *op)
{
    struct tdl_streams *s = tdl__streams_of(op);
    PyObject *exc = PyErr_GetRaisedException();
    Py_CLEAR(op->await);
    op->phase = TDL_STREAMS_DONE;
    int code = tdl__reader_set(s, op->self, s->str__waiter, Py_None);
    if (exc != NULL) {
        if (code < 0) {
            PyErr_WriteUnraisable(op->self);
        }
        PyErr_SetRaisedException(exc);
    }
    return code;
}

/* asyncio's own coroutine, from its beginning: what was done so far changed nothing. It is that of the
 * function which stood there when the method was called. */
static int hand_over(TdlStreamsOp *op)
{
    PyObject *method = PyMethod_New(op->method->shipped, op->self);
    if (method == NULL) {
        return -1;
    }
    int call = op->method->call;
    PyObject *argument = call == TDL_STREAMS_READ || call == TDL_STREAMS_READEXACTLY
                             ? PyLong_FromSsize_t(op->size)
                             : Py_XNewRef(op->separator);
    PyObject *awaitable = argument != NULL   ? PyObject_CallOneArg(method, argument)
                          : PyErr_Occurred() ? NULL
                                             : PyObject_CallNoArgs(method);
    Py_XDECREF(argument);
    Py_DECREF(method);
    if (awaitable == NULL) {
        return -1;
    }
    op->await = awaitable;
    op->phase = TDL_STREAMS_HANDED;
    return 0;
}

static PySendResult fail(TdlStreamsOp *op)
{
    op->phase = TDL_STREAMS_DONE;
    return PYGEN_ERROR;
}

static PySendResult send_handed(TdlStreamsOp *op, PyObject *arg, PyObject **result)
{
    PyObject *await = Py_NewRef(op->await);
    PySendResult code = PyIter_Send(await, arg, result);
    Py_DECREF(await);
    if (code != PYGEN_NEXT) {
        op->phase = TDL_STREAMS_DONE;
        Py_CLEAR(op->await);
    }
    return code;
}

/* Work until there is a result, or something to wait for. */
static PySendResult go_on(TdlStreamsOp *op, bool waited, PyObject **result)
{
    for (;;) {
        switch (tdl__streams_work(op, waited, result)) {
        case TDL_STREAMS_RESULT:
            op->phase = TDL_STREAMS_DONE;
            return PYGEN_RETURN;
        case TDL_STREAMS_FAILED:
            return fail(op);
        case TDL_STREAMS_ASYNCIO:
            return hand_over(op) < 0 ? fail(op) : send_handed(op, Py_None, result);
        case TDL_STREAMS_WAIT:
            break;
        }
        op->phase = TDL_STREAMS_WAITING;
        PySendResult code = PyIter_Send(op->await, Py_None, result);
        if (code == PYGEN_NEXT) {
            return code;
        }
        if (code == PYGEN_ERROR) {
            (void)end_wait(op);
            return PYGEN_ERROR;
        }
        Py_CLEAR(*result);
        Py_CLEAR(op->await);
        waited = true;
    }
}

static PySendResult send_waiting(TdlStreamsOp *op, PyObject *arg, PyObject **result)
{
    PyObject *await = Py_NewRef(op->await);
    PySendResult code = PyIter_Send(await, arg, result);
    Py_DECREF(await);
    if (code == PYGEN_NEXT) {
        return code;
    }
    if (code == PYGEN_ERROR) {
        (void)end_wait(op);
        return PYGEN_ERROR;
    }
    Py_CLEAR(*result);
    Py_CLEAR(op->await);
    return go_on(op, true, result);
}

/* Whether it can be resumed; else with the words of a coroutine. */
static bool enter(TdlStreamsOp *op)
{
    if (op->running) {
        PyErr_SetString(PyExc_ValueError, "coroutine already executing");
        return false;
    }
    if (op->phase == TDL_STREAMS_DONE) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return false;
    }
    op->running = true;
    return true;
}

PySendResult tdl__streams_op_send(PyObject *self, PyObject *arg, PyObject **result)
{
    TdlStreamsOp *op = TDL_OP(self);
    *result = NULL;
    if (op->phase == TDL_STREAMS_NEW && arg != Py_None && !op->running) {
        PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started coroutine");
        return PYGEN_ERROR;
    }
    if (!enter(op)) {
        return PYGEN_ERROR;
    }
    PySendResult code;
    if (op->phase == TDL_STREAMS_NEW) {
        code = go_on(op, false, result);
    } else if (op->phase == TDL_STREAMS_HANDED) {
        code = send_handed(op, arg, result);
    } else {
        code = send_waiting(op, arg, result);
    }
    op->running = false;
    return code;
}

/* As a coroutine ends: the value travels in StopIteration. */
static PyObject *give(PySendResult code, PyObject *result)
{
    if (code != PYGEN_RETURN) {
        return result;
    }
    PyObject *exc = PyObject_CallOneArg(PyExc_StopIteration, result);
    Py_DECREF(result);
    if (exc != NULL) {
        PyErr_SetObject(PyExc_StopIteration, exc);
        Py_DECREF(exc);
    }
    return NULL;
}

PyObject *tdl__streams_op_iternext(PyObject *self)
{
    PyObject *result;
    PySendResult code = tdl__streams_op_send(self, Py_None, &result);
    return give(code, result);
}

PyObject *tdl__streams_op_send_method(PyObject *self, PyObject *arg)
{
    PyObject *result;
    PySendResult code = tdl__streams_op_send(self, arg, &result);
    return give(code, result);
}

/* throw() into what is waited for; what it gives back, or NULL with an exception. */
static PyObject *throw_into(TdlStreamsOp *op, PyObject *args)
{
    PyObject *await = Py_NewRef(op->await);
    PyObject *method = PyObject_GetAttrString(await, "throw");
    PyObject *result = method != NULL ? PyObject_Call(method, args, NULL) : NULL;
    Py_XDECREF(method);
    Py_DECREF(await);
    return result;
}

static PyObject *raise_in(TdlStreamsOp *op, PyObject *args)
{
    PyObject *type, *value = Py_None, *traceback = Py_None;
    op->phase = TDL_STREAMS_DONE;
    if (!PyArg_ParseTuple(args, "O|OO:throw", &type, &value, &traceback)) {
        return NULL;
    }
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    } else if (PyExceptionClass_Check(type)) {
        PyErr_SetObject(type, value);
    } else {
        PyErr_Format(PyExc_TypeError,
                     "exceptions must be classes or instances deriving from BaseException, not %s",
                     Py_TYPE(type)->tp_name);
    }
    return NULL;
}

PyObject *tdl__streams_op_throw(PyObject *self, PyObject *args)
{
    TdlStreamsOp *op = TDL_OP(self);
    if (!enter(op)) {
        return NULL;
    }
    PyObject *result = NULL;
    if (op->phase == TDL_STREAMS_NEW) {
        (void)raise_in(op, args);
    } else {
        bool waiting = op->phase == TDL_STREAMS_WAITING;
        result = throw_into(op, args);
        if (result == NULL && !waiting) {
            Py_CLEAR(op->await);
            op->phase = TDL_STREAMS_DONE;
        } else if (result == NULL && PyErr_ExceptionMatches(PyExc_StopIteration)) {
            PyErr_Clear(); /* the future's answer to it is that there is data */
            Py_CLEAR(op->await);
            PySendResult code = go_on(op, true, &result);
            result = give(code, result);
        } else if (result == NULL) {
            (void)end_wait(op);
        }
    }
    op->running = false;
    return result;
}

/* End what is waited for, as the end of a coroutine does. */
static int close_wait(TdlStreamsOp *op)
{
    PyObject *await = Py_XNewRef(op->await);
    PyObject *method = await != NULL ? PyObject_GetAttrString(await, "close") : NULL;
    PyObject *result = method != NULL ? PyObject_CallNoArgs(method) : NULL;
    Py_XDECREF(result);
    Py_XDECREF(method);
    Py_XDECREF(await);
    if (op->phase == TDL_STREAMS_WAITING) {
        if (end_wait(op) < 0) {
            return -1;
        }
    }
    Py_CLEAR(op->await);
    op->phase = TDL_STREAMS_DONE;
    return result != NULL ? 0 : -1;
}

PyObject *tdl__streams_op_close(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlStreamsOp *op = TDL_OP(self);
    if (op->running) {
        PyErr_SetString(PyExc_ValueError, "coroutine already executing");
        return NULL;
    }
    if (op->phase == TDL_STREAMS_WAITING || op->phase == TDL_STREAMS_HANDED) {
        op->running = true;
        int code = close_wait(op);
        op->running = false;
        if (code < 0) {
            return NULL;
        }
    }
    op->phase = TDL_STREAMS_DONE;
    Py_RETURN_NONE;
}

void tdl__streams_op_finalize(PyObject *self)
{
    TdlStreamsOp *op = TDL_OP(self);
    PyObject *exc = PyErr_GetRaisedException();
    if (op->phase == TDL_STREAMS_NEW) {
        PyObject *name = PyObject_GetAttrString(op->method->shipped, "__qualname__");
        if (name == NULL ||
            PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "coroutine '%S' was never awaited", name) < 0) {
            PyErr_WriteUnraisable(self);
        }
        Py_XDECREF(name);
    } else if (op->phase != TDL_STREAMS_DONE && !op->running && close_wait(op) < 0) {
        PyErr_WriteUnraisable(self);
    }
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

void tdl__streams_op_dealloc(PyObject *self)
{
    TdlStreamsOp *op = TDL_OP(self);
    struct tdl_streams *s = tdl__streams_of(op);
    bool keep = op->phase == TDL_STREAMS_DONE && !PyObject_GC_IsFinalized(self);
    if (op->phase != TDL_STREAMS_DONE && PyObject_CallFinalizerFromDealloc(self) < 0) {
        return;
    }
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, tdl__streams_op_dealloc);
    if (op->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    (void)tdl__streams_op_clear(self);
    struct tdl_streams_method *method = op->method;
    if (keep && s->free_count < TDL_STREAMS_FREE_MAX && !s->refused) {
        op->self = (PyObject *)s->free;
        s->free = op;
        s->free_count++;
        Py_DECREF(method);
    } else {
        PyTypeObject *type = Py_TYPE(self);
        PyObject_GC_Del(self);
        Py_DECREF(method);
        Py_DECREF(type);
    }
    Py_TRASHCAN_END;
}
