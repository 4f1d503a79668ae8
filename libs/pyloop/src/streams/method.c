/* The methods of the classes in C. The interpreter calls a method of an object without taking it first, and
 * comes here; whoever takes one gets asyncio's function, bound. */
#include "streams/op.h"

#include <structmember.h>

static PyObject *call_asyncios(const struct tdl_streams_method *m, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    PyObject *method = tdl__streams_asyncios(m, args[0]);
    PyObject *result =
        method != NULL ? PyObject_Vectorcall(method, args + 1, (size_t)(nargs - 1), kwnames) : NULL;
    Py_XDECREF(method);
    return result;
}

/* A reader's method that does not wait; NULL without an exception if asyncio's is to be called. */
static PyObject *ask_reader(const struct tdl_streams_method *m, PyObject *self)
{
    struct tdl_reader r;
    if (!tdl__reader_look(m->state->streams, self, &r)) {
        return NULL;
    }
    PyObject *result = m->call == TDL_STREAMS_EXCEPTION
                           ? Py_NewRef(r.exception)
                           : PyBool_FromLong(r.eof && PyByteArray_GET_SIZE(r.buffer) == 0);
    Py_DECREF(r.dict);
    return result;
}

/* writer.write(data): what asyncio's does, without its frame. */
static PyObject *write_through(const struct tdl_streams_method *m, PyObject *self, PyObject *data,
                               bool *known)
{
    struct tdl_streams *s = m->state->streams;
    PyObject *transport = NULL;
    *known = tdl__streams_attributes(self, &s->str__transport, &transport, 1);
    if (!*known) {
        return NULL;
    }
    PyObject *stack[2] = {transport, data};
    PyObject *result =
        PyObject_VectorcallMethod(m->call == TDL_STREAMS_WRITE ? s->str_write : s->str_writelines, stack,
                                  2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_DECREF(transport);
    if (result != NULL && result != Py_None) {
        Py_SETREF(result, Py_NewRef(Py_None));
    }
    return result;
}

/* An awaitable, or NULL without an exception for arguments that asyncio's is to see. */
static PyObject *start(struct tdl_streams_method *m, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *argument = nargs == 2 ? args[1] : NULL;
    Py_ssize_t size = -1;
    switch (m->call) {
    case TDL_STREAMS_READ:
    case TDL_STREAMS_READEXACTLY:
        size = argument != NULL && PyLong_CheckExact(argument) ? PyLong_AsSsize_t(argument) : -1;
        if (size < 0) {
            PyErr_Clear();
            return NULL;
        }
        return tdl__streams_op_new(m, args[0], NULL, size);
    case TDL_STREAMS_READUNTIL:
        if (nargs > 2 ||
            (argument != NULL && !(PyBytes_CheckExact(argument) && PyBytes_GET_SIZE(argument) > 0))) {
            return NULL;
        }
        return tdl__streams_op_new(m, args[0], argument, 0);
    default:
        return nargs == 1 ? tdl__streams_op_new(m, args[0], NULL, 0) : NULL;
    }
}

/* Coroutines that remember where they were made are the interpreter's own. */
static bool origins_tracked(void)
{
    return tdl__origin_depth() > 0;
}

static PyObject *method_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    struct tdl_streams_method *m = (struct tdl_streams_method *)self;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (nargs < 1 || kwnames != NULL || !tdl__streams_is(m->kind, args[0])) {
        if (nargs < 1 || !PyObject_TypeCheck(args[0], m->kind->asyncio)) {
            return PyObject_Vectorcall(m->shipped, args, nargsf, kwnames);
        }
        return call_asyncios(m, args, nargsf, kwnames);
    }
    PyObject *result = NULL;
    bool known = false;
    if (m->call == TDL_STREAMS_EXCEPTION || m->call == TDL_STREAMS_AT_EOF) {
        result = nargs == 1 ? ask_reader(m, args[0]) : NULL;
    } else if (m->call == TDL_STREAMS_WRITE || m->call == TDL_STREAMS_WRITELINES) {
        result = nargs == 2 ? write_through(m, args[0], args[1], &known) : NULL;
    } else if (!origins_tracked()) {
        result = start(m, args, nargs);
    }
    return result != NULL || known || PyErr_Occurred() ? result : call_asyncios(m, args, nargsf, kwnames);
}

static PyObject *method_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type))
{
    return tdl__streams_asyncios((struct tdl_streams_method *)self, object != Py_None ? object : NULL);
}

static PyObject *method_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<%R in C>", ((struct tdl_streams_method *)self)->shipped);
}

/* The collector does not know it: like a method of a class in C it holds but a function of asyncio's, for
 * good. */
static void method_dealloc(PyObject *self)
{
    struct tdl_streams_method *m = (struct tdl_streams_method *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(m->name);
    Py_CLEAR(m->shipped);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMemberDef method_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct tdl_streams_method, vectorcall), READONLY, NULL},
    {"__wrapped__", T_OBJECT, offsetof(struct tdl_streams_method, shipped), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot method_slots[] = {
    {Py_tp_doc, TDL_DOC("A method of asyncio's streams, in C where it is called.")},
    {Py_tp_dealloc, method_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, method_get},
    {Py_tp_repr, method_repr},
    {Py_tp_members, method_members},
    {0, NULL},
};

static PyType_Spec method_spec = {
    .name = "treadle._treadle.StreamMethod",
    .basicsize = sizeof(struct tdl_streams_method),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = method_slots,
};

PyObject *tdl__streams_method_new(struct tdl_module_state *st, struct tdl_streams_kind *kind,
                                  const char *name, enum tdl_streams_call call)
{
    PyObject *shipped = PyObject_GetAttrString((PyObject *)kind->asyncio, name);
    struct tdl_streams_method *m = shipped != NULL && PyFunction_Check(shipped)
                                       ? PyObject_New(struct tdl_streams_method, st->streams->method_type)
                                       : NULL;
    if (m == NULL) {
        Py_XDECREF(shipped);
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError, "asyncio's %s is no function", name);
        }
        return NULL;
    }
    m->vectorcall = method_call;
    m->state = st;
    m->kind = kind;
    m->name = PyUnicode_InternFromString(name);
    m->shipped = shipped;
    m->call = (uint8_t)call;
    if (m->name == NULL) {
        Py_CLEAR(m);
    }
    return (PyObject *)m;
}

int tdl__streams_method_type(PyObject *module)
{
    struct tdl_streams *s = tdl__state_of_module(module)->streams;
    s->method_type = tdl__add_type(module, &method_spec, NULL);
    return s->method_type != NULL ? 0 : -1;
}
