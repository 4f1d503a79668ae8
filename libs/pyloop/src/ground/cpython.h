/* All of CPython's insides that treadle stands on: nothing else touches what its documentation does not name.
 * Each is checked when the module is imported, and where the check fails a slower way is taken that asks
 * nothing of the inside. The environment's TREADLE_TEST_DISTRUST names checks that fail for a test, separated
 * by commas.
 *
 * name              versions  what it is                                            where the check fails
 * context_vars      all       PyThreadState.context, and the field of a context     each handle copies its
 * context when it is made that another copy of the same values shares type_tags         all
 * PyTypeObject.tp_version_tag changes with the type     each short cut compares the classes and its bases
 * dict_tags         3.11      PyDictObject.ma_version_tag changes with the dict     each lookup compares the
 * names new_reference     all       _Py_NewReference() makes memory an object again that   PyObject_Init(),
 * which costs a callback 4% more was one, with its type origin_depth      all
 * PyThreadState.coroutine_origin_tracking_depth           sys is asked method_defs       all
 * PyCFunctionObject.m_ml: how a built-in function is      no small writes are held called, and where it leads
 * socket_numbers    all       a socket's number behind its head; checked against    fileno() is called
 *                             the number at each use too
 *
 * Thread: with the GIL. */
#ifndef TDL_PYLOOP_CPYTHON_H
#define TDL_PYLOOP_CPYTHON_H

#include "ground/compat.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* No type's version tag: a type without one has 0, and they are given out from the bottom. */
#define TDL_NO_TAG UINT_MAX

/* What was found to be as described; of the process, written once before anything else of the module runs. */
struct tdl_cpython {
    bool context_vars, type_tags, dict_tags, new_reference, origin_depth, method_defs, socket_numbers;
};

extern struct tdl_cpython tdl__cpython;

/* Look at all of them. Leaves no exception. */
void tdl__cpython_check(void);

/* Whether a test has the check of that name fail. */
bool tdl__distrusts(const char *name);

/* As much of a context object as is looked at. */
struct tdl_context_head {
    PyObject_HEAD void *prev;
    PyObject *vars;
};

/* Equal for contexts with the same values; only if context_vars holds. */
static inline PyObject *tdl__context_vars(PyObject *context)
{
    return ((struct tdl_context_head *)(void *)context)->vars;
}

/* The thread's context, borrowed; NULL for none yet. Only if context_vars holds. */
static inline PyObject *tdl__context_current(void)
{
    return PyThreadState_Get()->context;
}

/* The type's version, to compare with one that was kept; 0 while it has none. */
static inline unsigned tdl__type_tag(const PyTypeObject *type)
{
    return type->tp_version_tag;
}

/* The version to keep, TDL_NO_TAG if it proves nothing. A look-up gives a type a version, if there is one
 * left. */
static inline unsigned tdl__type_tag_kept(const PyTypeObject *type)
{
    unsigned tag = tdl__cpython.type_tags ? tdl__type_tag(type) : 0;
    return tag != 0 ? tag : TDL_NO_TAG;
}

/* A dict's version, to compare with one that was kept; only if dict_tags holds. */
uint64_t tdl__dict_tag(PyObject *dict);

/* Give memory that was an object, and still owns its type, a first reference again. */
static inline void tdl__object_anew(PyObject *object)
{
    if (tdl__cpython.new_reference) {
        _Py_NewReference(object);
    } else {
        (void)PyObject_Init(object, Py_TYPE(object));
        Py_DECREF(Py_TYPE(object)); /* a type of the heap is owned once more by this */
    }
}

/* How a function of C is called and where it leads; NULL if it is none, or this is not known. */
static inline PyMethodDef *tdl__method_def(PyObject *function)
{
    bool known = tdl__cpython.method_defs && PyCFunction_CheckExact(function);
    return known ? ((PyCFunctionObject *)(void *)function)->m_ml : NULL;
}

/* How much of its origin each coroutine of the thread remembers; 0 for none. Leaves no exception. */
int tdl__origin_depth(void);

/* Where a socket object of the raw type keeps its number, if it is this one; else NULL. */
const int *tdl__socket_field(PyObject *sock, PyTypeObject *raw_type, int fd);

/* Documented in spite of its name: cut a bytes object that nobody else has; NULL and an exception if that
 * fails. */
static inline int tdl__bytes_resize(PyObject **bytes, Py_ssize_t size)
{
    return _PyBytes_Resize(bytes, size);
}

#endif
