/* asyncio's registry of tasks, quicker: up to Python 3.13 each new task is put into a WeakSet whose add() and
 * whose weak references' callback are written in Python, a seventh of what a short task costs. The set itself
 * stays what it is. */
#include "loop/registry.h"

#if PY_VERSION_HEX < 0x030e0000
/* What `self` of the two functions is: a tuple of the WeakSet's own parts. */
enum { DATA, PENDING, ITERATING, CALLBACK, COMMIT, PARTS };

#define PART(parts, which) PyTuple_GET_ITEM(parts, which)

/* WeakSet's _remove: while somebody iterates, a dead reference is only noted. */
static PyObject *registry_forget(PyObject *parts, PyObject *reference)
{
    int code;
    if (PySet_GET_SIZE(PART(parts, ITERATING)) > 0) {
        code = PyList_Append(PART(parts, PENDING), reference);
    } else {
        code = PySet_Discard(PART(parts, DATA), reference);
    }
    if (code < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef forget_def = {"_remove", registry_forget, METH_O, NULL};

static PyObject *registry_add(PyObject *parts, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    bool named = nargs == 0 && kwnames != NULL && PyTuple_GET_SIZE(kwnames) == 1 &&
                 PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "item") == 0;
    if (!named && (nargs != 1 || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0))) {
        PyErr_SetString(PyExc_TypeError, "WeakSet.add() takes one argument: 'item'");
        return NULL;
    }
    PyObject *task = args[0];
    if (PyList_GET_SIZE(PART(parts, PENDING)) > 0) {
        PyObject *done = PyObject_CallNoArgs(PART(parts, COMMIT));
        if (done == NULL) {
            return NULL;
        }
        Py_DECREF(done);
    }
    PyObject *reference = PyWeakref_NewRef(task, PART(parts, CALLBACK));
    int code = reference != NULL ? PySet_Add(PART(parts, DATA), reference) : -1;
    Py_XDECREF(reference);
    if (code < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef add_def = {"add", (PyCFunction)(void (*)(void))registry_add, METH_FASTCALL | METH_KEYWORDS,
                              NULL};

/* A WeakSet as this file knows it, with an add() that nobody has replaced: its parts, else NULL without an
 * exception. */
static PyObject *parts_of(PyObject *registry)
{
    PyObject *weak_set = tdl__import_from("weakref", "WeakSet");
    PyObject *own = weak_set != NULL && Py_IS_TYPE(registry, (PyTypeObject *)weak_set)
                        ? PyObject_GenericGetDict(registry, NULL)
                        : NULL;
    PyObject *parts = NULL;
    if (own != NULL && PyDict_GetItemString(own, "add") == NULL) {
        PyObject *data = PyDict_GetItemString(own, TDL_WEAKSET_DATA);
        PyObject *pending = PyDict_GetItemString(own, TDL_WEAKSET_PENDING);
        PyObject *iterating = PyDict_GetItemString(own, TDL_WEAKSET_ITERATING);
        PyObject *commit = PyObject_GetAttrString(registry, TDL_WEAKSET_COMMIT);
        bool known = data != NULL && PySet_CheckExact(data) && pending != NULL &&
                     PyList_CheckExact(pending) && iterating != NULL && PySet_CheckExact(iterating) &&
                     commit != NULL;
        if (known) {
            parts = PyTuple_Pack(3, data, pending, iterating);
        }
        PyObject *forget = parts != NULL ? PyCFunction_New(&forget_def, parts) : NULL;
        Py_XSETREF(parts,
                   forget != NULL ? PyTuple_Pack(PARTS, data, pending, iterating, forget, commit) : NULL);
        Py_XDECREF(forget);
        Py_XDECREF(commit);
    }
    Py_XDECREF(own);
    Py_XDECREF(weak_set);
    PyErr_Clear();
    return parts;
}

void tdl__registry_quicken(struct tdl_module_state *st)
{
    if (st->registry_seen) {
        return;
    }
    st->registry_seen = true;
    PyObject *registry = PyDict_GetItemString(st->tasks_dict, TDL_TASK_REGISTRY);
    PyObject *parts = registry != NULL && !tdl__distrusts("task_registry") ? parts_of(registry) : NULL;
    PyObject *add = parts != NULL ? PyCFunction_New(&add_def, parts) : NULL;
    st->registry_known = add != NULL;
    if (add == NULL || PyObject_SetAttrString(registry, "add", add) < 0) {
        PyErr_Clear();
    }
    Py_XDECREF(add);
    Py_XDECREF(parts);
}
#else
void tdl__registry_quicken(struct tdl_module_state *st)
{
    (void)st;
}
#endif
