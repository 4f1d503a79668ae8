/* Contexts of callbacks: one copy for all that are scheduled from the same context, and a private one when
 * each runs. asyncio copies the current context for every handle; that copy only has to exist when the
 * callback runs. */
#include "loop/snapshot.h"

#include "ground/cpython.h"
#include "loop/handle.h"
#include "loop/loop.h"

PyObject *tdl__snapshot_take(TdlLoop *loop, bool *shared)
{
    if (!tdl__cpython.context_vars) {
        *shared = false;
        return PyContext_CopyCurrent();
    }
    *shared = true;
    PyObject *current = tdl__context_current();
    if (current != NULL && loop->snapshot != NULL &&
        tdl__context_vars(current) == tdl__context_vars(loop->snapshot)) {
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
    if (spare != NULL && tdl__context_vars(spare) == tdl__context_vars(shared)) {
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

/* Leave the context that a transport's callback ran in. What entered another one there and did not leave it
 * has the exit refused: that goes to the exception handler, as it does from asyncio's handles, and the run
 * goes on. */
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
