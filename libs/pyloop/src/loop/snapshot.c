/* Contexts of callbacks: one copy for all that are scheduled from the same context, and a private one when each runs.
 * asyncio copies the current context for every handle; that copy only has to exist when the callback runs. */
#include "pyloop.h"

/* The head of CPython's context object as far as it matters here; checked at import, not believed. */
struct context_head {
    PyObject_HEAD void *prev;
    PyObject *vars;
};

static PyObject *vars_of(PyObject *context)
{
    return ((struct context_head *)(void *)context)->vars;
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

/* Whether the field is what its name says: another object after each change of a variable, the same in a copy. */
static bool layout_holds(PyObject *context, PyObject *var)
{
    PyObject *before = vars_of(context);
    if (set_in(context, var, Py_None) < 0) {
        return false;
    }
    PyObject *first = vars_of(context);
    PyObject *copy = PyContext_Copy(context);
    bool same = copy != NULL && vars_of(copy) == first;
    bool changed = first != before && set_in(context, var, Py_True) == 0 && vars_of(context) != first;
    bool kept = same && vars_of(copy) == first;
    Py_XDECREF(copy);
    return changed && kept;
}

void tdl__snapshot_probe(struct tdl_module_state *st)
{
    PyObject *context = PyContext_New();
    PyObject *var = context != NULL ? PyContextVar_New("treadle_probe", NULL) : NULL;
    st->snapshots = var != NULL && (size_t)Py_TYPE(context)->tp_basicsize >= sizeof(struct context_head) &&
                    layout_holds(context, var);
    PyErr_Clear();
    Py_XDECREF(var);
    Py_XDECREF(context);
}

PyObject *tdl__snapshot_take(TdlLoop *loop, bool *shared)
{
    if (!loop->state->snapshots) {
        *shared = false;
        return PyContext_CopyCurrent();
    }
    *shared = true;
    PyObject *current = PyThreadState_Get()->context;
    if (current != NULL && loop->snapshot != NULL && vars_of(current) == vars_of(loop->snapshot)) {
        return Py_NewRef(loop->snapshot);
    }
    PyObject *copy = PyContext_CopyCurrent();
    if (copy != NULL) {
        Py_XSETREF(loop->snapshot, Py_NewRef(copy));
    }
    return copy;
}

PyObject *tdl__snapshot_private(TdlLoop *loop, PyObject *shared)
{
    PyObject *spare = loop->spare_context;
    if (spare != NULL && vars_of(spare) == vars_of(shared)) {
        loop->spare_context = NULL;
        return spare;
    }
    return PyContext_Copy(shared);
}

void tdl__snapshot_give_back(TdlLoop *loop, TdlHandle *h)
{
    if (loop->spare_context == NULL && h->context != NULL && Py_REFCNT(h->context) == 1) {
        loop->spare_context = h->context;
        h->context = NULL;
    }
}

void tdl__snapshot_forget(TdlLoop *loop)
{
    Py_CLEAR(loop->snapshot);
    Py_CLEAR(loop->spare_context);
}

/* Leave the context that a transport's callback ran in. What entered another one there and did not leave it has the
 * exit refused: that goes to the exception handler, as it does from asyncio's handles, and the run goes on. */
void tdl__context_leave(TdlLoop *loop, PyObject *context)
{
    PyObject *ending = PyErr_Occurred() != NULL ? PyErr_GetRaisedException() : NULL;
    PyObject *refused = PyContext_Exit(context) < 0 ? PyErr_GetRaisedException() : NULL;
    if (ending != NULL) {
        PyErr_SetRaisedException(ending);
    } else if (refused != NULL) {
        PyObject *told = Py_BuildValue("{s:s,s:O}", "message", "Exception in callback", "exception", refused);
        PyObject *result =
            told == NULL
                ? NULL
                : PyObject_CallMethodOneArg((PyObject *)loop, loop->state->str_call_exception_handler, told);
        if (result == NULL) {
            tdl_sched_interrupt(&loop->sched);
        }
        Py_XDECREF(told);
        Py_XDECREF(result);
    }
    Py_XDECREF(refused);
}
