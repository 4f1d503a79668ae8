/* The awaitable of a socket operation: a coroutine that waits on a future by itself. */
#include "ground/cpython.h"
#include "ground/fileno.h"
#include "loop/readers.h"
#include "sock/sockops.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

static PySendResult sockwait_send(PyObject *self, PyObject *arg, PyObject **result)
{
    TdlSockWait *s = (TdlSockWait *)self;
    *result = NULL;
    if (s->state == TDL_SOCKWAIT_DONE) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return PYGEN_ERROR;
    }
    if (s->state == TDL_SOCKWAIT_WAITING) {
        PySendResult code = PyIter_Send(s->await, arg, result);
        if (code == PYGEN_NEXT) {
            return code;
        }
        if (code == PYGEN_RETURN && tdl__sockwait_receives(s)) { /* the socket is readable, no more */
            Py_CLEAR(*result);
            Py_CLEAR(s->await);
            Py_CLEAR(s->future);
            s->state = TDL_SOCKWAIT_NEW;
            arg = Py_None;
        }
    }
    if (s->state == TDL_SOCKWAIT_NEW) {
        *result = tdl__sockwait_try_now(s);
        if (*result == NULL && !PyErr_Occurred() && tdl__sockwait_start_waiting(s) == 0) {
            return PyIter_Send(s->await, arg, result);
        }
    }
    tdl__sockwait_finish(s, *result != NULL);
    return *result != NULL ? PYGEN_RETURN : PYGEN_ERROR;
}

/* As a generator ends: the value travels in StopIteration. */
static PyObject *raise_return(PyObject *value)
{
    if (value != Py_None) {
        if (PyTuple_Check(value) || PyExceptionInstance_Check(value)) {
            PyObject *exc = PyObject_CallOneArg(PyExc_StopIteration, value);
            if (exc != NULL) {
                PyErr_SetObject(PyExc_StopIteration, exc);
                Py_DECREF(exc);
            }
        } else {
            PyErr_SetObject(PyExc_StopIteration, value);
        }
    } else {
        PyErr_SetNone(PyExc_StopIteration);
    }
    Py_DECREF(value);
    return NULL;
}

static PyObject *sockwait_iternext(PyObject *self)
{
    PyObject *result;
    PySendResult code = sockwait_send(self, Py_None, &result);
    return code == PYGEN_RETURN ? raise_return(result) : result;
}

static PyObject *sockwait_send_method(PyObject *self, PyObject *arg)
{
    PyObject *result;
    PySendResult code = sockwait_send(self, arg, &result);
    return code == PYGEN_RETURN ? raise_return(result) : result;
}

static PyObject *sockwait_throw(PyObject *self, PyObject *args)
{
    TdlSockWait *s = (TdlSockWait *)self;
    if (s->state == TDL_SOCKWAIT_WAITING && s->await != NULL) {
        PyObject *method = PyObject_GetAttrString(s->await, "throw");
        PyObject *await = Py_NewRef(s->await);
        PyObject *result = method != NULL ? PyObject_Call(method, args, NULL) : NULL;
        Py_XDECREF(method);
        Py_DECREF(await);
        if (result == NULL) {
            tdl__sockwait_finish(s, false);
        }
        return result;
    }
    tdl__sockwait_finish(s, false);
    PyObject *type, *value = Py_None, *traceback = Py_None;
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

static PyObject *sockwait_close(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    tdl__sockwait_finish((TdlSockWait *)self, false);
    Py_RETURN_NONE;
}

static int sockwait_traverse(PyObject *self, visitproc visit, void *arg)
{
    TdlSockWait *s = (TdlSockWait *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(s->loop);
    Py_VISIT(s->sock);
    Py_VISIT(s->future);
    Py_VISIT(s->await);
    Py_VISIT(s->view.obj);
    return 0;
}

static int sockwait_clear(PyObject *self)
{
    TdlSockWait *s = (TdlSockWait *)self;
    s->sock_number = NULL;
    Py_CLEAR(s->sock);
    Py_CLEAR(s->future);
    Py_CLEAR(s->await);
    s->state = TDL_SOCKWAIT_DONE;
    tdl__sockwait_release_view(s);
    return 0;
}

static void sockwait_dealloc(PyObject *self)
{
    TdlSockWait *s = (TdlSockWait *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, sockwait_dealloc);
    if (s->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    tdl__sockwait_finish(s, false);
    (void)sockwait_clear(self);
    Py_CLEAR(s->loop);
    PyObject_GC_Del(self);
    Py_DECREF(type);
    Py_TRASHCAN_END;
}

static PyMethodDef sockwait_methods[] = {
    {"send", sockwait_send_method, METH_O,
     PyDoc_STR("send($self, value, /)\n--\n\nGo on, as a coroutine does.")},
    {"throw", sockwait_throw, METH_VARARGS,
     PyDoc_STR("throw($self, type, value=None, traceback=None, /)\n--\n\nDrop the operation and raise.")},
    {"close", sockwait_close, METH_NOARGS, PyDoc_STR("close($self, /)\n--\n\nDrop the operation.")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef sockwait_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TdlSockWait, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot sockwait_slots[] = {
    {Py_tp_doc, TDL_DOC("A socket operation of a loop, as the coroutine that asyncio returns.")},
    {Py_tp_dealloc, sockwait_dealloc},
    {Py_tp_traverse, sockwait_traverse},
    {Py_tp_clear, sockwait_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, sockwait_iternext},
    {Py_am_await, PyObject_SelfIter},
    {Py_am_send, sockwait_send},
    {Py_tp_methods, sockwait_methods},
    {Py_tp_members, sockwait_members},
    {0, NULL},
};

static PyType_Spec sockwait_spec = {
    .name = "treadle._treadle.SocketOperation",
    .basicsize = sizeof(TdlSockWait),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = sockwait_slots,
};

int tdl__sockwait_type(PyObject *module)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    st->sockwait_type = tdl__add_type(module, &sockwait_spec, NULL);
    return st->sockwait_type != NULL ? 0 : -1;
}
