/* The module's state: types, cached imports, interned names. */
#include "ground/state.h"

struct tdl_module_state *tdl__state_of_module(PyObject *module)
{
    return PyModule_GetState(module);
}

struct tdl_module_state *tdl__state_of_type(PyTypeObject *type)
{
    return PyType_GetModuleState(type);
}

PyTypeObject *tdl__add_type(PyObject *module, PyType_Spec *spec, PyObject *bases)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, bases);
    if (type != NULL && PyModule_AddType(module, (PyTypeObject *)type) < 0) {
        Py_CLEAR(type);
    }
    return (PyTypeObject *)type;
}

/* Add a file's methods to the type; each concern keeps its own table. */
int tdl__add_methods(PyTypeObject *type, PyMethodDef *table)
{
    for (PyMethodDef *def = table; def->ml_name != NULL; def++) {
        PyObject *descr = PyDescr_NewMethod(type, def);
        int code = descr != NULL ? PyObject_SetAttrString((PyObject *)type, def->ml_name, descr) : -1;
        Py_XDECREF(descr);
        if (code < 0) {
            return -1;
        }
    }
    return 0;
}

static int intern_names(struct tdl_module_state *st)
{
#define TDL_INTERN(name)                                                                                     \
    st->str_##name = PyUnicode_InternFromString(#name);                                                      \
    if (st->str_##name == NULL) {                                                                            \
        return -1;                                                                                           \
    }
    TDL_NAMES(TDL_INTERN)
#undef TDL_INTERN
    st->loop_kwname = PyTuple_Pack(1, st->str_loop);
    st->task_kwnames = PyTuple_Pack(3, st->str_loop, st->str_name, st->str_context);
    return st->loop_kwname != NULL && st->task_kwnames != NULL ? 0 : -1;
}

PyObject *tdl__import_from(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *value = module != NULL ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
    return value;
}

/* What of asyncio's the module calls or derives from; the first that is missing is the import's error. */
static int import_names(struct tdl_module_state *st)
{
    const struct {
        PyObject **value;
        const char *module, *name;
    } wanted[] = {
        {&st->asyncio_handle, "asyncio.events", "Handle"},
        {&st->asyncio_timer_handle, "asyncio.events", "TimerHandle"},
        {&st->buffered_protocol, "asyncio.protocols", "BufferedProtocol"},
        {&st->futures_dict, "asyncio.futures", "__dict__"},
        {&st->tasks_dict, "asyncio.tasks", "__dict__"},
        {&st->events_dict, "asyncio.events", "__dict__"},
        {&st->socket_type, "socket", "socket"},
        {&st->set_wakeup_fd, "_signal", "set_wakeup_fd"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        *wanted[i].value = tdl__import_from(wanted[i].module, wanted[i].name);
        if (*wanted[i].value == NULL) {
            return -1;
        }
    }
    st->asyncio_transport = tdl__import_from("asyncio.transports", TDL_FLOW_CONTROL);
    if (st->asyncio_transport == NULL) {
        PyErr_Clear();
        st->asyncio_transport = Py_NewRef((PyObject *)&PyBaseObject_Type); /* whose size is no transport's */
    }
    st->asyncio_threadsafe_handle = tdl__import_from("asyncio.events", TDL_THREADSAFE_HANDLE);
    if (st->asyncio_threadsafe_handle == NULL) {
        PyErr_Clear(); /* new in Python 3.14 */
    }
    st->support = PyImport_ImportModule("treadle._support");
    return st->support != NULL ? 0 : -1;
}

int tdl__state_init(PyObject *module)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    return intern_names(st) < 0 || import_names(st) < 0 ? -1 : tdl__standard_init(&st->standard);
}

int tdl__state_traverse(struct tdl_module_state *st, visitproc visit, void *arg)
{
    for (unsigned i = 0; i < st->handle_free_count; i++) {
        Py_VISIT(st->handle_type);
    }
    for (unsigned i = 0; i < st->timer_free_count; i++) {
        Py_VISIT(st->timer_handle_type);
    }
    Py_VISIT(st->loop_type);
    Py_VISIT(st->handle_type);
    Py_VISIT(st->timer_handle_type);
    Py_VISIT(st->stream_type);
    Py_VISIT(st->acceptor_type);
    Py_VISIT(st->sockwait_type);
    Py_VISIT(st->job_type);
    Py_VISIT(st->udp_type);
    Py_VISIT(st->tls_type);
    Py_VISIT(st->span_type);
    Py_VISIT(st->tls_wrapped);
    Py_VISIT(st->tls_flushing);
    Py_VISIT(st->tls_again);
    Py_VISIT(st->asyncio_handle);
    Py_VISIT(st->asyncio_timer_handle);
    Py_VISIT(st->asyncio_threadsafe_handle);
    Py_VISIT(st->asyncio_transport);
    Py_VISIT(st->buffered_protocol);
    Py_VISIT(st->futures_dict);
    Py_VISIT(st->tasks_dict);
    Py_VISIT(st->events_dict);
    Py_VISIT(st->socket_type);
    Py_VISIT(st->set_wakeup_fd);
    Py_VISIT(st->support);
    return tdl__standard_traverse(&st->standard, visit, arg);
}

void tdl__state_clear(struct tdl_module_state *st)
{
    Py_CLEAR(st->loop_type);
    Py_CLEAR(st->handle_type);
    Py_CLEAR(st->timer_handle_type);
    Py_CLEAR(st->stream_type);
    Py_CLEAR(st->acceptor_type);
    Py_CLEAR(st->sockwait_type);
    Py_CLEAR(st->job_type);
    Py_CLEAR(st->udp_type);
    Py_CLEAR(st->tls_type);
    Py_CLEAR(st->span_type);
    Py_CLEAR(st->tls_wrapped);
    Py_CLEAR(st->tls_flushing);
    Py_CLEAR(st->tls_again);
    Py_CLEAR(st->asyncio_handle);
    Py_CLEAR(st->asyncio_timer_handle);
    Py_CLEAR(st->asyncio_threadsafe_handle);
    Py_CLEAR(st->asyncio_transport);
    Py_CLEAR(st->buffered_protocol);
    Py_CLEAR(st->futures_dict);
    Py_CLEAR(st->tasks_dict);
    Py_CLEAR(st->events_dict);
    Py_CLEAR(st->socket_type);
    Py_CLEAR(st->set_wakeup_fd);
    Py_CLEAR(st->support);
    tdl__standard_clear(&st->standard);
    Py_CLEAR(st->loop_kwname);
    Py_CLEAR(st->task_kwnames);
#define TDL_CLEAR_NAME(name) Py_CLEAR(st->str_##name);
    TDL_NAMES(TDL_CLEAR_NAME)
#undef TDL_CLEAR_NAME
}

/* The one argument of a method, given by position or by name; borrowed. */
PyObject *tdl__only_argument(const char *method, const char *name, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames)
{
    Py_ssize_t given = kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t i = 0; i < given; i++) {
        if (nargs > 0 || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), name) != 0) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R", method,
                         PyTuple_GET_ITEM(kwnames, i));
            return NULL;
        }
    }
    if (nargs + given == 0) {
        PyErr_Format(PyExc_TypeError, "%s() missing 1 required positional argument: '%s'", method, name);
        return NULL;
    }
    if (nargs > 1) {
        PyErr_Format(PyExc_TypeError, "%s() takes 2 positional arguments but %zd were given", method,
                     nargs + 1);
        return NULL;
    }
    return args[0];
}
