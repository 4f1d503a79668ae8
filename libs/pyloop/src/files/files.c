/* What the file types share, and their place in the module. */
#include "files/files.h"

#include "loop/loop.h"

static int state_traverse(PyObject *self, visitproc visit, void *arg)
{
    FilesState *st = (FilesState *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(st->op_type);
    Py_VISIT(st->context_type);
    Py_VISIT(st->get_running_loop);
    Py_VISIT(st->cancelled_error);
    Py_VISIT(st->invalid_state_error);
    Py_VISIT(st->future_type);
    Py_VISIT(st->stat_result);
    return 0;
}

static int state_clear(PyObject *self)
{
    FilesState *st = (FilesState *)self;
    tdl__files_ops_free(st);
    Py_CLEAR(st->op_type);
    Py_CLEAR(st->context_type);
    Py_CLEAR(st->get_running_loop);
    Py_CLEAR(st->cancelled_error);
    Py_CLEAR(st->invalid_state_error);
    Py_CLEAR(st->future_type);
    Py_CLEAR(st->stat_result);
    return 0;
}

static void state_dealloc(PyObject *self)
{
    FilesState *st = (FilesState *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)state_clear(self);
    Py_CLEAR(st->str_call_soon);
    Py_CLEAR(st->str_set_result);
    Py_CLEAR(st->str_add_reader);
    Py_CLEAR(st->str_remove_reader);
    Py_CLEAR(st->str_call_exception_handler);
    Py_CLEAR(st->context_kwname);
    Py_CLEAR(st->empty_bytes);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot state_slots[] = {
    {Py_tp_traverse, state_traverse},
    {Py_tp_clear, state_clear},
    {Py_tp_dealloc, state_dealloc},
    {0, NULL},
};

static PyType_Spec state_spec = {
    .name = "treadle._treadle._FilesState",
    .basicsize = sizeof(FilesState),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = state_slots,
};

static PyObject *attribute_of(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *value = module != NULL ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
    return value;
}

static int fill_state(FilesState *st)
{
    st->get_running_loop = attribute_of("asyncio", "_get_running_loop");
    st->cancelled_error = attribute_of("asyncio", "CancelledError");
    st->invalid_state_error = attribute_of("asyncio", "InvalidStateError");
    st->future_type = attribute_of("asyncio", "Future");
    st->stat_result = attribute_of("os", "stat_result");
    st->str_call_soon = PyUnicode_InternFromString("call_soon");
    st->str_set_result = PyUnicode_InternFromString("set_result");
    st->str_add_reader = PyUnicode_InternFromString("add_reader");
    st->str_remove_reader = PyUnicode_InternFromString("remove_reader");
    st->str_call_exception_handler = PyUnicode_InternFromString("call_exception_handler");
    st->context_kwname = Py_BuildValue("(s)", "context");
    st->empty_bytes = PyBytes_FromStringAndSize(NULL, 0);
    return st->get_running_loop && st->cancelled_error && st->invalid_state_error && st->future_type &&
                   st->stat_result && st->str_call_soon && st->str_set_result && st->str_add_reader &&
                   st->str_remove_reader && st->str_call_exception_handler && st->context_kwname &&
                   st->empty_bytes
               ? 0
               : -1;
}

static int add_types(PyObject *module, FilesState *st)
{
    st->op_type = tdl__add_type(module, &tdl__files_op_spec, NULL);
    st->context_type = st->op_type != NULL ? tdl__add_type(module, &tdl__files_context_spec, NULL) : NULL;
    return st->context_type != NULL ? 0 : -1;
}

static PyObject *sqpoll_allowed(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(tdl_fio_sqpoll_is_allowed());
}

static PyObject *aio_refused(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromLong(-(long)tdl_fio_aio_is_refused());
}

/* What a raw operation's callback raises goes to sys.unraisablehook, as from any other callback of C. */
static PyObject *call_guarded(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "_call_guarded() takes a callback and an argument");
        return NULL;
    }
    PyObject *done = PyObject_CallOneArg(args[0], args[1]);
    if (done == NULL) {
        PyErr_WriteUnraisable(args[0]);
    }
    Py_XDECREF(done);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_call_guarded", (PyCFunction)(void (*)(void))call_guarded, METH_FASTCALL,
     PyDoc_STR(
         "_call_guarded($module, callback, argument, /)\n--\n\nCall; report what it raises as unraisable.")},
    {"sqpoll_allowed", sqpoll_allowed, METH_NOARGS,
     PyDoc_STR("sqpoll_allowed($module, /)\n--\n\nTell whether the kernel grants a polling thread to this "
               "process.")},
    {"_aio_refused", aio_refused, METH_NOARGS,
     PyDoc_STR("_aio_refused($module, /)\n--\n\nReturn the number of the error with which linux_aio is "
               "refused, else 0.")},
    {NULL, NULL, 0, NULL},
};

int tdl_files_exec(PyObject *module)
{
    PyObject *state_type = PyType_FromModuleAndSpec(module, &state_spec, NULL);
    if (state_type == NULL) {
        return -1;
    }
    FilesState *st = PyObject_GC_New(FilesState, (PyTypeObject *)state_type);
    Py_DECREF(state_type);
    if (st == NULL) {
        return -1;
    }
    memset((char *)st + sizeof(PyObject), 0, sizeof *st - sizeof(PyObject));
    PyObject_GC_Track((PyObject *)st);
    int rc = fill_state(st) < 0 || add_types(module, st) < 0 ||
                     PyModule_AddFunctions(module, functions) < 0 ||
                     PyModule_AddObjectRef(module, "_files", (PyObject *)st) < 0
                 ? -1
                 : 0;
    Py_DECREF(st);
    return rc;
}

FilesState *tdl__files_state(PyTypeObject *type)
{
    PyObject *module = PyType_GetModule(type);
    PyObject *state = module != NULL ? PyObject_GetAttrString(module, "_files") : NULL;
    return (FilesState *)state;
}

PyObject *tdl__files_running_loop(FilesState *state)
{
    PyObject *loop = PyObject_CallNoArgs(state->get_running_loop);
    if (loop == Py_None) {
        Py_DECREF(loop);
        PyErr_SetString(PyExc_RuntimeError, "no running event loop");
        return NULL;
    }
    return loop;
}
