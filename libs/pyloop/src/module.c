/* The extension module treadle._treadle: multi-phase, all state in the module. */
#include "pyloop.h"
#include "transport/tls.h"

#define TDL_TEXT_(x) #x
#define TDL_TEXT(x) TDL_TEXT_(x)
#define TDL_UV_BUILT TDL_TEXT(UV_VERSION_MAJOR) "." TDL_TEXT(UV_VERSION_MINOR) "." TDL_TEXT(UV_VERSION_PATCH)

static PyObject *module_features(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return Py_BuildValue("{s:s,s:s,s:s,s:s,s:s,s:s}", "treadle", TREADLE_VERSION, "libuv",
                         uv_version_string(), "libuv_built", TDL_UV_BUILT, "build_type",
                         TREADLE_BUILD_TYPE, "sanitizers", TREADLE_SANITIZERS, "compiler",
                         TREADLE_COMPILER);
}

/* In C, since a Python function that is an attribute of a class becomes a method: IsolatedAsyncioTestCase.loop_factory. */
static PyObject *module_new_event_loop(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    return PyObject_CallNoArgs(tdl__state_of_module(module)->standard.loop_class);
}

static PyMethodDef module_methods[] = {
    {"features", module_features, METH_NOARGS,
     PyDoc_STR(
         "features($module, /)\n--\n\nReturn the versions that this module was built with and runs on, and how it was built.")},
    {"new_event_loop", module_new_event_loop, METH_NOARGS,
     PyDoc_STR("new_event_loop()\n--\n\nReturn a new treadle loop; it is not made the current one.")},
    {"_loop_setup", tdl__loop_setup, METH_VARARGS, NULL},
    {"_tls_setup", tdl__tls_setup, METH_VARARGS, NULL},
    {"_streams_adopt", tdl__streams_adopt_method, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

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
    if (tdl__uv_setup(&tdl__state_of_module(module)->poll_model) < 0 || tdl__state_init(module) < 0 ||
        tdl__handle_types(module) < 0 || tdl__loop_type(module) < 0 || tdl__stream_type(module) < 0 ||
        tdl__acceptor_type(module) < 0 || tdl__sockwait_type(module) < 0 || tdl__job_type(module) < 0 ||
        tdl__udp_type(module) < 0 || tdl__tls_types(module) < 0 ||
        tdl__streams_exec(module) < 0 || tdl_files_exec(module) < 0) {
        return -1;
    }
    return PyModule_AddStringConstant(module, "__version__", TREADLE_VERSION);
}

static int module_clear(PyObject *module)
{
    return tdl__state_clear(module);
}

static void module_free(void *module)
{
    if (tdl__state_of_module(module) != NULL) {
        (void)tdl__state_clear(module);
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
    .m_traverse = tdl__state_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__treadle(void);

PyMODINIT_FUNC PyInit__treadle(void)
{
    return PyModuleDef_Init(&tdl__module_def);
}
