/* What differs between CPython 3.11 and 3.14, in one place. */
#ifndef TDL_PYLOOP_COMPAT_H
#define TDL_PYLOOP_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <structmember.h>

/* A list of keyword names for PyArg_ParseTupleAndKeywords, which takes no const before 3.13. */
#define TDL_KEYWORDS(names) ((char **)(uintptr_t)(names))

/* A text for a type slot, which takes a pointer that is not const. */
#define TDL_DOC(text) ((void *)(uintptr_t)(text))

/* Whether a weak reference still leads to this very object. */
static inline bool tdl__weakref_is(PyObject *ref, PyObject *object)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *found = NULL;
    (void)PyWeakref_GetRef(ref, &found);
    Py_XDECREF(found);
    return found == object;
#else
    return PyWeakref_GetObject(ref) == object;
#endif
}

/* What a weak reference leads to, as a reference of the caller's; NULL if it has died. */
static inline PyObject *tdl__weakref_get(PyObject *ref)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *found = NULL;
    (void)PyWeakref_GetRef(ref, &found);
    return found;
#else
    PyObject *found = PyWeakref_GetObject(ref);
    return found != Py_None ? Py_NewRef(found) : NULL;
#endif
}

#if PY_VERSION_HEX < 0x030C0000
/* The exception as one object, as 3.12 and later give it. */
static inline PyObject *PyErr_GetRaisedException(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (type == NULL) {
        return NULL;
    }
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
        Py_DECREF(traceback);
    }
    Py_DECREF(type);
    return value;
}

static inline void PyErr_SetRaisedException(PyObject *exc)
{
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(exc)), exc, PyException_GetTraceback(exc));
}
#endif

#endif
