/* The future that a file operation is for who asks it: callbacks, outcome, loop. */
#include "files/files.h"
#include "ground/cpython.h"

#include <poll.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "treadle/clock.h"

static bool is_done(const FileOp *op)
{
    return op->phase >= FILES_READY || (op->cancelled && !op->lingers);
}

PyObject *tdl__files_op_add_done_callback(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                          PyObject *kwnames)
{
    FileOp *op = TDL_FILE_OP(self);
    if (nargs != 1 || (kwnames != NULL &&
                       (PyTuple_GET_SIZE(kwnames) != 1 ||
                        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "context") != 0))) {
        PyErr_SetString(PyExc_TypeError, "add_done_callback() takes a callback and context=");
        return NULL;
    }
    PyObject *context = kwnames != NULL && args[1] != Py_None ? Py_NewRef(args[1]) : PyContext_CopyCurrent();
    if (context == NULL) {
        return NULL;
    }
    int rc = 0;
    if (op->callback == NULL && op->more == NULL) {
        op->callback = Py_NewRef(args[0]);
        op->callback_context = context;
    } else {
        PyObject *pair = PyTuple_Pack(2, args[0], context);
        Py_DECREF(context);
        if (op->more == NULL) {
            op->more = PyList_New(0);
        }
        rc = pair == NULL || op->more == NULL ? -1 : PyList_Append(op->more, pair);
        Py_XDECREF(pair);
    }
    if (rc == 0 && is_done(op)) {
        rc = tdl__files_op_wake(op, false);
    }
    if (rc < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *tdl__files_op_remove_done_callback(PyObject *self, PyObject *callback)
{
    FileOp *op = TDL_FILE_OP(self);
    long removed = 0;
    if (op->callback != NULL) {
        PyObject *first = Py_NewRef(op->callback);
        int same = PyObject_RichCompareBool(first, callback, Py_EQ);
        /* The comparison may have called back here. */
        if (same > 0 && op->callback == first) {
            Py_CLEAR(op->callback);
            Py_CLEAR(op->callback_context);
            removed++;
        }
        Py_DECREF(first);
        if (same < 0) {
            return NULL;
        }
    }
    for (Py_ssize_t i = 0; op->more != NULL && i < PyList_GET_SIZE(op->more);) {
        PyObject *list = Py_NewRef(op->more);
        PyObject *pair = Py_NewRef(PyList_GET_ITEM(list, i));
        int same = PyObject_RichCompareBool(PyTuple_GET_ITEM(pair, 0), callback, Py_EQ);
        bool still = op->more == list && i < PyList_GET_SIZE(list) && PyList_GET_ITEM(list, i) == pair;
        if (same > 0 && still) {
            same = PyList_SetSlice(list, i, i + 1, NULL) < 0 ? -1 : 1;
            removed++;
        } else {
            i++;
        }
        Py_DECREF(pair);
        Py_DECREF(list);
        if (same < 0) {
            return NULL;
        }
    }
    return PyLong_FromLong(removed);
}

PyObject *tdl__files_op_done(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(is_done(TDL_FILE_OP(self)));
}

PyObject *tdl__files_op_cancelled(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(TDL_FILE_OP(self)->cancelled && is_done(TDL_FILE_OP(self)));
}

PyObject *tdl__files_op_result(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FileOp *op = TDL_FILE_OP(self);
    if (!is_done(op)) {
        PyErr_SetString(op->context->state->invalid_state_error, "Result is not set.");
        return NULL;
    }
    return tdl__files_op_take(op);
}

PyObject *tdl__files_op_exception(PyObject *self, PyObject *ignored)
{
    PyObject *value = tdl__files_op_result(self, ignored);
    if (value != NULL) {
        Py_DECREF(value);
        Py_RETURN_NONE;
    }
    if (!PyErr_ExceptionMatches(PyExc_OSError) && !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        return NULL;
    }
    return PyErr_GetRaisedException();
}

PyObject *tdl__files_op_get_loop(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *loop = TDL_FILE_OP(self)->context->loop;
    if (loop == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "file operation has no loop yet");
        return NULL;
    }
    return Py_NewRef(loop);
}
