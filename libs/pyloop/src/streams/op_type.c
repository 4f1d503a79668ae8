/* The type of the coroutines that a reader's and a writer's methods give: what inspect and the collector ask
 * of one. */
#include "streams/op.h"

#include <structmember.h>

static PyObject *op_repr(PyObject *self)
{
    PyObject *name = PyObject_GetAttrString(TDL_OP(self)->method->shipped, "__qualname__");
    PyObject *text = name != NULL ? PyUnicode_FromFormat("<coroutine object %S at %p>", name, self) : NULL;
    Py_XDECREF(name);
    return text;
}

static int op_traverse(PyObject *self, visitproc visit, void *arg)
{
    TdlStreamsOp *op = TDL_OP(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(op->method);
    Py_VISIT(op->self);
    Py_VISIT(op->separator);
    Py_VISIT(op->await);
    return 0;
}

/* What the collector takes apart: its finalizer has run, so it will not go on. The method stays, as its class
 * does. */
int tdl__streams_op_clear(PyObject *self)
{
    TdlStreamsOp *op = TDL_OP(self);
    op->phase = TDL_STREAMS_DONE;
    Py_CLEAR(op->await);
    Py_CLEAR(op->self);
    Py_CLEAR(op->separator);
    return 0;
}

static PyObject *get_class(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(tdl__streams_of(TDL_OP(self))->coroutine_type);
}

/* An attribute of asyncio's function, named by the closure. */
static PyObject *of_function(PyObject *self, void *closure)
{
    return PyObject_GetAttrString(TDL_OP(self)->method->shipped, closure);
}

static PyObject *get_none(PyObject *Py_UNUSED(self), void *Py_UNUSED(closure))
{
    Py_RETURN_NONE;
}

static PyObject *get_awaited(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *await = TDL_OP(self)->await;
    return Py_NewRef(await != NULL ? await : Py_None);
}

static PyObject *get_suspended(PyObject *self, void *Py_UNUSED(closure))
{
    uint8_t phase = TDL_OP(self)->phase;
    return PyBool_FromLong(!TDL_OP(self)->running &&
                           (phase == TDL_STREAMS_WAITING || phase == TDL_STREAMS_HANDED));
}

#if PY_VERSION_HEX >= 0x030F0000
static PyObject *get_state(PyObject *self, void *Py_UNUSED(closure))
{
    static const char *const states[] = {"CORO_CREATED", "CORO_SUSPENDED", "CORO_SUSPENDED", "CORO_CLOSED"};
    return PyUnicode_FromString(TDL_OP(self)->running ? "CORO_RUNNING" : states[TDL_OP(self)->phase]);
}
#endif

static PyGetSetDef op_getset[] = {
    {"__class__", get_class, NULL, NULL, NULL},
    {"__name__", of_function, NULL, NULL, TDL_DOC("__name__")},
    {"__qualname__", of_function, NULL, NULL, TDL_DOC("__qualname__")},
    {"cr_frame", get_none, NULL, NULL, NULL},
    {"cr_origin", get_none, NULL, NULL, NULL},
    {"cr_await", get_awaited, NULL, NULL, NULL},
    {"cr_suspended", get_suspended, NULL, NULL, NULL},
#if PY_VERSION_HEX >= 0x030F0000
    {"cr_state", get_state, NULL, NULL, NULL},
#endif
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef op_methods[] = {
    {"send", tdl__streams_op_send_method, METH_O,
     PyDoc_STR("send($self, value, /)\n--\n\nGo on, as a coroutine does.")},
    {"throw", tdl__streams_op_throw, METH_VARARGS,
     PyDoc_STR("throw($self, type, value=None, traceback=None, /)\n--\n\nRaise where it waits.")},
    {"close", tdl__streams_op_close, METH_NOARGS, PyDoc_STR("close($self, /)\n--\n\nEnd it where it waits.")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef op_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TdlStreamsOp, weakrefs), READONLY, NULL},
    {"cr_running", T_BOOL, offsetof(TdlStreamsOp, running), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot op_slots[] = {
    {Py_tp_doc, TDL_DOC("A coroutine of asyncio's streams, in C.")},
    {Py_tp_dealloc, tdl__streams_op_dealloc},
    {Py_tp_finalize, tdl__streams_op_finalize},
    {Py_tp_traverse, op_traverse},
    {Py_tp_clear, tdl__streams_op_clear},
    {Py_tp_repr, op_repr},
    {Py_tp_iternext, tdl__streams_op_iternext},
    {Py_am_await, PyObject_SelfIter},
    {Py_am_send, tdl__streams_op_send},
    {Py_tp_methods, op_methods},
    {Py_tp_getset, op_getset},
    {Py_tp_members, op_members},
    {0, NULL},
};

static PyType_Spec op_spec = {
    .name = "treadle._treadle.StreamOperation",
    .basicsize = sizeof(TdlStreamsOp),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = op_slots,
};

int tdl__streams_op_type(PyObject *module)
{
    struct tdl_streams *s = tdl__state_of_module(module)->streams;
    s->op_type = tdl__add_type(module, &op_spec, NULL);
    return s->op_type != NULL ? 0 : -1;
}
