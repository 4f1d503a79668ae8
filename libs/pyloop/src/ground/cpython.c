/* Whether CPython's insides are as cpython.h describes them. */
#include "ground/cpython.h"

#include <stdlib.h>
#include <string.h>

struct tdl_cpython tdl__cpython;

bool tdl__distrusts(const char *name)
{
    const char *names = getenv("TREADLE_TEST_DISTRUST");
    size_t len = strlen(name);
    while (names != NULL) {
        const char *end = strchr(names, ',');
        if (strncmp(names, name, len) == 0 && (names[len] == ',' || names[len] == '\0')) {
            return true;
        }
        names = end != NULL ? end + 1 : NULL;
    }
    return false;
}

static int set_in(PyObject *context, PyObject *var, PyObject *value)
{
    if (PyContext_Enter(context) < 0) {
        return -1;
    }
    PyObject *token = PyContextVar_Set(var, value);
    Py_XDECREF(token);
    return PyContext_Exit(context) < 0 || token == NULL ? -1 : 0;
}

/* Whether the field is what its name says: another object after each change of a variable, the same in a
 * copy. */
static bool vars_hold(PyObject *context, PyObject *var)
{
    PyObject *before = tdl__context_vars(context);
    if (set_in(context, var, Py_None) < 0) {
        return false;
    }
    PyObject *first = tdl__context_vars(context);
    PyObject *copy = PyContext_Copy(context);
    bool same = copy != NULL && tdl__context_vars(copy) == first;
    bool changed =
        first != before && set_in(context, var, Py_True) == 0 && tdl__context_vars(context) != first;
    bool kept = same && tdl__context_vars(copy) == first;
    Py_XDECREF(copy);
    return changed && kept;
}

/* Whether the thread's field shows the context that is entered. */
static bool current_holds(PyObject *context)
{
    PyObject *outside = tdl__context_current();
    if (PyContext_Enter(context) < 0) {
        return false;
    }
    bool inside = tdl__context_current() == context;
    return PyContext_Exit(context) == 0 && inside && tdl__context_current() == outside;
}

static bool check_context_vars(void)
{
    PyObject *context = PyContext_New();
    PyObject *var = context != NULL ? PyContextVar_New("treadle_probe", NULL) : NULL;
    bool holds = var != NULL && (size_t)Py_TYPE(context)->tp_basicsize >= sizeof(struct tdl_context_head) &&
                 vars_hold(context, var) && current_holds(context);
    Py_XDECREF(var);
    Py_XDECREF(context);
    return holds;
}

/* The version of a type that was looked at just now. */
static unsigned tag_seen(PyObject *type)
{
    Py_XDECREF(PyObject_GetAttrString(type, "__init__"));
    return tdl__type_tag((PyTypeObject *)type);
}

/* Whether a type's version is another when the type has changed, and when its base has. */
static bool check_type_tags(void)
{
    PyObject *base = PyObject_CallFunction((PyObject *)&PyType_Type, "s(){}", "Base");
    PyObject *type =
        base != NULL ? PyObject_CallFunction((PyObject *)&PyType_Type, "s(O){}", "Probe", base) : NULL;
    bool holds = type != NULL;
    PyObject *const changed[] = {type, base};
    unsigned tag = holds ? tag_seen(type) : 0;
    for (size_t i = 0; holds && i < sizeof changed / sizeof changed[0]; i++) {
        bool same = tag_seen(type) == tag;
        holds = tag != 0 && same && PyObject_SetAttrString(changed[i], "probe", Py_None) == 0 &&
                tdl__type_tag((PyTypeObject *)type) != tag;
        unsigned next = tag_seen(type);
        holds = holds && next != tag;
        tag = next;
    }
    Py_XDECREF(type);
    Py_XDECREF(base);
    return holds;
}

#if PY_VERSION_HEX < 0x030C0000
uint64_t tdl__dict_tag(PyObject *dict)
{
    return ((PyDictObject *)dict)->ma_version_tag;
}

static bool check_dict_tags(void)
{
    PyObject *dict = PyDict_New();
    uint64_t tags[3] = {0};
    for (int i = 0; dict != NULL && i < 3; i++) {
        tags[i] = tdl__dict_tag(dict);
        if (PyDict_SetItemString(dict, "probe", i == 0 ? Py_None : Py_True) < 0) {
            tags[i] = 0;
        }
    }
    Py_XDECREF(dict);
    return tags[0] != 0 && tags[0] != tags[1] && tags[1] != tags[2];
}
#else
uint64_t tdl__dict_tag(PyObject *Py_UNUSED(dict))
{
    return 0;
}

static bool check_dict_tags(void)
{
    return false;
}
#endif

/* Whether it gives one reference and leaves the type as it is. The object is one of no other owner, with none
 * in it. */
static bool check_new_reference(void)
{
    PyObject *set = PySet_New(NULL);
    if (set == NULL) {
        return false;
    }
    PyTypeObject *type = Py_TYPE(set);
    Py_ssize_t owners = Py_REFCNT(type);
    Py_SET_REFCNT(set, 0);
    _Py_NewReference(set);
    bool holds = Py_REFCNT(set) == 1 && Py_TYPE(set) == type && Py_REFCNT(type) == owners;
    Py_DECREF(set);
    return holds;
}

static int depth_by_sys(void)
{
    PyObject *get = PySys_GetObject("get_coroutine_origin_tracking_depth");
    PyObject *number = get != NULL ? PyObject_CallNoArgs(get) : NULL;
    long depth = number != NULL ? PyLong_AsLong(number) : 0;
    Py_XDECREF(number);
    PyErr_Clear();
    return depth > 0;
}

int tdl__origin_depth(void)
{
    return tdl__cpython.origin_depth ? PyThreadState_Get()->coroutine_origin_tracking_depth : depth_by_sys();
}

static bool set_depth(int depth)
{
    PyObject *set = PySys_GetObject("set_coroutine_origin_tracking_depth");
    PyObject *done = set != NULL ? PyObject_CallFunction(set, "i", depth) : NULL;
    Py_XDECREF(done);
    return done != NULL;
}

static bool check_origin_depth(void)
{
    int before = PyThreadState_Get()->coroutine_origin_tracking_depth;
    bool holds = before >= 0 && set_depth(before + 1) &&
                 PyThreadState_Get()->coroutine_origin_tracking_depth == before + 1;
    return set_depth(before) && holds && PyThreadState_Get()->coroutine_origin_tracking_depth == before;
}

static PyObject *probe(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored))
{
    Py_RETURN_NONE;
}

static bool check_method_defs(void)
{
    static PyMethodDef def = {"probe", probe, METH_NOARGS, NULL};
    PyObject *function = PyCFunction_New(&def, NULL);
    bool holds = function != NULL && ((PyCFunctionObject *)(void *)function)->m_ml == &def;
    Py_XDECREF(function);
    return holds;
}

struct socket_head {
    PyObject_HEAD int fd;
};

const int *tdl__socket_field(PyObject *sock, PyTypeObject *raw_type, int fd)
{
    if (!tdl__cpython.socket_numbers || !PyObject_TypeCheck(sock, raw_type)) {
        return NULL;
    }
    const int *number = &((struct socket_head *)(void *)sock)->fd;
    return *number == fd ? number : NULL;
}

/* Whether a closed socket's field says so: a number that no descriptor has. */
static bool check_socket_numbers(void)
{
    PyObject *module = PyImport_ImportModule("_socket");
    PyObject *type = module != NULL ? PyObject_GetAttrString(module, "socket") : NULL;
    PyObject *blank = type != NULL && PyType_Check(type) &&
                              (size_t)((PyTypeObject *)type)->tp_basicsize >= sizeof(struct socket_head)
                          ? PyObject_CallMethod(type, "__new__", "O", type)
                          : NULL;
    bool holds = blank != NULL && ((struct socket_head *)(void *)blank)->fd == -1;
    Py_XDECREF(blank);
    Py_XDECREF(type);
    Py_XDECREF(module);
    return holds;
}

void tdl__cpython_check(void)
{
    tdl__cpython.context_vars = !tdl__distrusts("context_vars") && check_context_vars();
    PyErr_Clear();
    tdl__cpython.type_tags = !tdl__distrusts("type_tags") && check_type_tags();
    PyErr_Clear();
    tdl__cpython.dict_tags = !tdl__distrusts("dict_tags") && check_dict_tags();
    PyErr_Clear();
    tdl__cpython.new_reference = !tdl__distrusts("new_reference") && check_new_reference();
    PyErr_Clear();
    tdl__cpython.origin_depth = !tdl__distrusts("origin_depth") && check_origin_depth();
    PyErr_Clear();
    tdl__cpython.method_defs = !tdl__distrusts("method_defs") && check_method_defs();
    PyErr_Clear();
    tdl__cpython.socket_numbers = !tdl__distrusts("socket_numbers") && check_socket_numbers();
    PyErr_Clear();
}
