/* Telling those who wait for a file operation. */
#include "files/files.h"
#include "ground/asyncio.h"

/* The wake-up of asyncio's C tasks takes nothing from its argument but whether it raises. The function is
 * known by its name, and from then on by its address; what is not known is given the operation itself, as a
 * future would be. */
static bool is_task_wakeup(FilesState *st, PyObject *callback)
{
    if (!PyCFunction_CheckExact(callback)) {
        return false;
    }
    PyCFunction function = PyCFunction_GET_FUNCTION(callback);
    if (function != st->task_wakeup && function != st->no_wakeup) {
        PyObject *name = PyObject_GetAttrString(callback, "__name__");
        bool wakes = name != NULL && PyUnicode_Check(name) &&
                     PyUnicode_CompareWithASCIIString(name, TDL_TASK_WAKEUP) == 0;
        *(wakes ? &st->task_wakeup : &st->no_wakeup) = function;
        Py_XDECREF(name);
        PyErr_Clear();
    }
    return function == st->task_wakeup;
}

static int wake_one(FileOp *op, PyObject *callback, PyObject *context, bool directly)
{
    FileContext *fc = op->context;
    bool plain =
        op->value != NULL && !op->cancelled && fc->done != NULL && is_task_wakeup(fc->state, callback);
    bool early = op->kept && op->phase == FILES_PENDING && fc->done != NULL;
    PyObject *told = plain || early ? fc->done : (PyObject *)op;
    PyObject *done;
    if (directly) {
        if (PyContext_Enter(context) < 0) {
            return -1;
        }
        done = PyObject_CallOneArg(callback, told);
        PyObject *raised = done == NULL ? PyErr_GetRaisedException() : NULL;
        if (PyContext_Exit(context) < 0) {
            PyErr_WriteUnraisable((PyObject *)op);
        }
        if (raised != NULL) {
            PyErr_SetRaisedException(raised);
        }
    } else {
        PyObject *loop = fc->loop != NULL ? Py_NewRef(fc->loop) : tdl__files_running_loop(fc->state);
        PyObject *args[] = {loop, callback, told, context};
        done = loop != NULL
                   ? PyObject_VectorcallMethod(fc->state->str_call_soon, args,
                                               3 | PY_VECTORCALL_ARGUMENTS_OFFSET, fc->state->context_kwname)
                   : NULL;
        Py_XDECREF(loop);
    }
    Py_XDECREF(done);
    return done != NULL ? 0 : -1;
}

/* What a handle of the loop does with an exception of its callback. */
static void report(FileOp *op, PyObject *callback)
{
    FileContext *fc = op->context;
    PyObject *error = PyErr_GetRaisedException();
    PyObject *message = PyUnicode_FromFormat("Exception in callback %R", callback);
    PyObject *context =
        message != NULL ? Py_BuildValue("{sOsO}", "message", message, "exception", error) : NULL;
    PyObject *done = context != NULL
                         ? PyObject_CallMethodOneArg(fc->loop, fc->state->str_call_exception_handler, context)
                         : NULL;
    if (done == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetRaisedException(Py_NewRef(error));
        }
        PyErr_WriteUnraisable((PyObject *)op);
    }
    Py_XDECREF(done);
    Py_XDECREF(context);
    Py_XDECREF(message);
    Py_DECREF(error);
}

/* As a turn of the loop: one callback's exception keeps no other from being called, and what ends the run
 * leaves the others to the next one. */
static void tell(FileOp *op, PyObject *callback, PyObject *context, bool directly, PyObject **stopped)
{
    if (wake_one(op, callback, context, directly && *stopped == NULL) == 0) {
        return;
    }
    bool stops = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) || PyErr_ExceptionMatches(PyExc_SystemExit);
    if (directly && *stopped == NULL && !stops) {
        report(op, callback);
    } else if (*stopped == NULL) {
        *stopped = PyErr_GetRaisedException();
    } else {
        PyErr_WriteUnraisable((PyObject *)op);
    }
}

/* Tells those who wait; `directly` runs them now, as the loop itself would one turn later. */
int tdl__files_op_wake(FileOp *op, bool directly)
{
    PyObject *callback = op->callback, *context = op->callback_context, *more = op->more;
    op->callback = NULL;
    op->callback_context = NULL;
    op->more = NULL;
    PyObject *stopped = NULL;
    if (callback != NULL) {
        tell(op, callback, context, directly, &stopped);
    }
    for (Py_ssize_t i = 0; more != NULL && i < PyList_GET_SIZE(more); i++) {
        PyObject *pair = Py_NewRef(PyList_GET_ITEM(more, i));
        tell(op, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1), directly, &stopped);
        Py_DECREF(pair);
    }
    Py_XDECREF(callback);
    Py_XDECREF(context);
    Py_XDECREF(more);
    if (stopped != NULL) {
        PyErr_SetRaisedException(stopped);
        return -1;
    }
    return 0;
}
