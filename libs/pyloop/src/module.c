/* The extension module treadle._treadle: multi-phase, all state in the module. */
#include "dns/dns.h"
#include "files/files.h"
#include "ground/cpython.h"
#include "ground/state.h"
#include "loop/executor.h"
#include "loop/handle.h"
#include "loop/loop.h"
#include "loop/readers.h"
#include "loop/soon.h"
#include "sock/sockops.h"
#include "streams/streams.h"
#include "transport/tls.h"
#include "transport/transport.h"

#define TDL_TEXT_(x) #x
#define TDL_TEXT(x) TDL_TEXT_(x)
#define TDL_UV_BUILT TDL_TEXT(UV_VERSION_MAJOR) "." TDL_TEXT(UV_VERSION_MINOR) "." TDL_TEXT(UV_VERSION_PATCH)

static PyObject *module_features(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return Py_BuildValue("{s:s,s:s,s:s,s:s,s:s,s:s}", "treadle", TREADLE_VERSION, "libuv",
                         uv_version_string(), "libuv_built", TDL_UV_BUILT, "build_type", TREADLE_BUILD_TYPE,
                         "sanitizers", TREADLE_SANITIZERS, "compiler", TREADLE_COMPILER);
}

/* In C, since a Python function that is an attribute of a class becomes a method:
 * IsolatedAsyncioTestCase.loop_factory. */
static PyObject *module_new_event_loop(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    return PyObject_CallNoArgs(tdl__state_of_module(module)->standard.loop_class);
}

/* Which of the insides of CPython, asyncio and libuv are as treadle knows them, by the names of their
 * checks. */
static PyObject *module_trusted(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    const struct tdl_module_state *st = tdl__state_of_module(module);
    const struct {
        const char *name;
        bool holds;
    } checks[] = {
        {"context_vars", tdl__cpython.context_vars},
        {"type_tags", tdl__cpython.type_tags},
        {"dict_tags", tdl__cpython.dict_tags},
        {"new_reference", tdl__cpython.new_reference},
        {"origin_depth", tdl__cpython.origin_depth},
        {"method_defs", tdl__cpython.method_defs},
        {"socket_numbers", tdl__cpython.socket_numbers},
        {"uv_handles", st->poll_model.type == UV_POLL},
        {"flow_control", st->flow_control},
        {"task_registry", st->registry_known},
    };
    PyObject *result = PyDict_New();
    for (size_t i = 0; result != NULL && i < sizeof checks / sizeof checks[0]; i++) {
        if (PyDict_SetItemString(result, checks[i].name, checks[i].holds ? Py_True : Py_False) < 0) {
            Py_CLEAR(result);
        }
    }
    return result;
}

static PyMethodDef module_methods[] = {
    {"features", module_features, METH_NOARGS,
     PyDoc_STR("features($module, /)\n--\n\nReturn the versions that this module was built with and runs on, "
               "and how it was built.")},
    {"new_event_loop", module_new_event_loop, METH_NOARGS,
     PyDoc_STR("new_event_loop()\n--\n\nReturn a new treadle loop; it is not made the current one.")},
    {"_trusted", module_trusted, METH_NOARGS, NULL},
    {"_loop_setup", tdl__loop_setup, METH_VARARGS, NULL},
    {"_tls_setup", tdl__tls_setup, METH_VARARGS, NULL},
    {"_streams_watch", tdl__streams_watch_method, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* What the folders above loop/ do for each loop. */
static const struct tdl_part *const parts[] = {&tdl__held_part, &tdl__dns_part, &tdl__files_part, NULL};

/* The types, and the methods of a loop, which are each folder's own. */
static int add_types(PyObject *module)
{
    static int (*const types[])(PyObject *) = {
        tdl__handle_types, tdl__loop_type, tdl__stream_type, tdl__acceptor_type, tdl__sockwait_type,
        tdl__job_type,     tdl__udp_type,  tdl__tls_types,   tdl__streams_exec,  tdl_files_exec,
    };
    PyMethodDef *const loop_methods[] = {
        tdl__soon_methods,          tdl__reader_methods,         tdl__standard_loop_methods,
        tdl__executor_loop_methods, tdl__transport_loop_methods, tdl__server_loop_methods,
        tdl__udp_loop_methods,      tdl__sockops_loop_methods,   tdl__dns_methods,
    };
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof types / sizeof types[0]; i++) {
        code = types[i](module);
    }
    for (size_t i = 0; code == 0 && i < sizeof loop_methods / sizeof loop_methods[0]; i++) {
        code = tdl__add_methods(tdl__state_of_module(module)->loop_type, loop_methods[i]);
    }
    return code;
}

static int module_exec(PyObject *module)
{
#if PY_VERSION_HEX < 0x030C0000
    /* From 3.12 on the slot below says it, and Python refuses with the same words. */
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError,
                        "module treadle._treadle does not support loading in subinterpreters");
        return -1;
    }
#endif
    struct tdl_module_state *st = tdl__state_of_module(module);
    st->parts = parts;
    tdl__cpython_check();
    if (tdl__uv_setup(&st->poll_model) < 0 || tdl__state_init(module) < 0 || tdl__dns_module_init(st) < 0 ||
        add_types(module) < 0) {
        return -1;
    }
    return PyModule_AddStringConstant(module, "__version__", TREADLE_VERSION);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    int code = tdl__state_traverse(st, visit, arg);
    code = code != 0 || st->streams == NULL ? code : tdl__streams_traverse(st->streams, visit, arg);
    return code != 0 || st->dns == NULL ? code : tdl__dns_state_traverse(st->dns, visit, arg);
}

static int module_clear(PyObject *module)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    tdl__handle_clear_free(st);
    if (st->streams != NULL) {
        tdl__streams_clear(st->streams);
    }
    if (st->dns != NULL) {
        tdl__dns_state_clear(st->dns);
    }
    tdl__state_clear(st);
    return 0;
}

static void module_free(void *module)
{
    if (tdl__state_of_module(module) != NULL) {
        (void)module_clear(module);
        tdl__dns_module_free(tdl__state_of_module(module));
        tdl__streams_free(tdl__state_of_module(module));
    }
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

struct PyModuleDef tdl__module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "treadle._treadle",
    .m_doc = "The C part of treadle.",
    .m_size = sizeof(struct tdl_module_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__treadle(void);

PyMODINIT_FUNC PyInit__treadle(void)
{
    return PyModuleDef_Init(&tdl__module_def);
}
