/* The coroutine that a file operation is for who awaits it: stepped, thrown into, cancelled and closed. */
#include "files/files.h"
#include "ground/cpython.h"

#include <poll.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "treadle/clock.h"

/* How often a wait for a worker looks by itself: another thread may take what was told. */
#define PARTED_LOOK_MS 10

/* A tuple would be taken for the exception's arguments. */
static PyObject *stop_with(PyObject *value)
{
    if (PyTuple_Check(value)) {
        PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, value);
        if (stop != NULL) {
            PyErr_SetObject(PyExc_StopIteration, stop);
            Py_DECREF(stop);
        }
    } else {
        PyErr_SetObject(PyExc_StopIteration, value);
    }
    Py_DECREF(value);
    return NULL;
}

PyObject *tdl__files_op_iternext(PyObject *self)
{
    FileOp *op = TDL_FILE_OP(self);
    if (op->phase == FILES_NEW) {
        int now = tdl__files_start(op->context, op);
        if (now < 0) {
            op->phase = FILES_TAKEN;
            return NULL;
        }
    }
    if (op->phase == FILES_PENDING && (!op->cancelled || op->lingers)) {
        if (op->blocking) {
            PyErr_SetString(PyExc_RuntimeError, "await wasn't used with future");
            return NULL;
        }
        op->blocking = true;
        return Py_NewRef(self);
    }
    if (op->phase == FILES_TAKEN) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited file operation");
        return NULL;
    }
    PyObject *value = tdl__files_op_take(op);
    if (op->phase != FILES_PENDING && !op->kept) {
        op->phase = FILES_TAKEN;
    }
    if (value == NULL) {
        return NULL;
    }
    if (value == Py_None) {
        Py_DECREF(value);
        return NULL;
    }
    return stop_with(value);
}

PyObject *tdl__files_op_await(PyObject *self)
{
    return Py_NewRef(self);
}

PyObject *tdl__files_op_send(PyObject *self, PyObject *value)
{
    if (value != Py_None && TDL_FILE_OP(self)->phase == FILES_NEW) {
        PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started file operation");
        return NULL;
    }
    PyObject *next = tdl__files_op_iternext(self);
    if (next == NULL && !PyErr_Occurred()) {
        PyErr_SetNone(PyExc_StopIteration);
    }
    return next;
}

/* Asks the context to drop it. Its awaiter goes on at once and buffer and slot stay until the kernel is done,
 * unless somebody may still look up a descriptor by its number: then it lingers, since the awaiter's next
 * step may be to close it. A close is not taken back: the number is the operation's. While another thread
 * closes the context, that one gives it back. */
static bool drop(FileOp *op)
{
    FileContext *c = op->context;
    if (op->phase != FILES_PENDING || (op->cancelled && !op->lingers)) {
        return false;
    }
    if (op->cancelled) {
        return true;
    }
    op->cancelled = true;
    if (c->closed) {
        op->lingers = true;
    } else if (op->fop.code != TDL_FOP_CLOSE) {
        (void)tdl_fio_cancel(&c->fio, &op->fop);
        op->lingers = tdl_fio_borrows(&c->fio, &op->fop);
    }
    op->blocking = false;
    return true;
}

/* For those who cannot be told later. */
static void wait_until_parted(FileOp *op)
{
    FileContext *c = op->context;
    while (op->lingers && op->phase == FILES_PENDING) {
        int fd = c->closed ? -1 : tdl_fio_fd(&c->fio);
        struct pollfd one = {.fd = fd, .events = POLLIN, .revents = 0};
        PyThreadState *save = PyEval_SaveThread();
        (void)poll(&one, 1, PARTED_LOOK_MS);
        PyEval_RestoreThread(save);
        if (!c->closed) {
            struct tdl_queue finished;
            tdl_queue_init(&finished);
            (void)tdl_fio_reap(&c->fio, &finished);
            tdl_fio_put_back(&c->fio, &finished);
            op->lingers = tdl_fio_borrows(&c->fio, &op->fop);
        }
    }
}

PyObject *tdl__files_op_cancel(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    (void)args;
    (void)nargs;
    (void)kwnames;
    FileOp *op = TDL_FILE_OP(self);
    if (op->kept) {
        /* A task that is told False cancels itself in the step that the wake-up brings. */
        if (op->phase == FILES_PENDING && op->context->loop != NULL && tdl__files_op_wake(op, false) < 0) {
            return NULL;
        }
        Py_RETURN_FALSE;
    }
    bool again = op->cancelled;
    if (!drop(op)) {
        Py_RETURN_FALSE;
    }
    if (!again && op->context->loop != NULL &&
        (tdl__files_schedule(op->context) < 0 || (!op->lingers && tdl__files_op_wake(op, false) < 0))) {
        return NULL;
    }
    Py_RETURN_TRUE;
}

/* Whoever awaited it goes away: drops what goes on, and what it has is nobody's. */
static int leave(FileOp *op)
{
    if (op->kept) {
        return 0;
    }
    int rc = drop(op) && op->context->loop != NULL ? tdl__files_schedule(op->context) : 0;
    wait_until_parted(op);
    tdl__files_abandon(op);
    if (op->phase != FILES_PENDING) {
        op->phase = FILES_TAKEN;
    }
    return rc;
}

PyObject *tdl__files_op_throw(PyObject *self, PyObject *args)
{
    PyObject *type, *value = NULL, *traceback = NULL;
    if (!PyArg_UnpackTuple(args, "throw", 1, 3, &type, &value, &traceback)) {
        return NULL;
    }
    if (leave(TDL_FILE_OP(self)) < 0) {
        return NULL;
    }
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    } else if (PyExceptionClass_Check(type)) {
        PyErr_SetObject(type, value != NULL && value != Py_None ? value : NULL);
    } else {
        PyErr_SetString(PyExc_TypeError,
                        "exceptions must be classes or instances deriving from BaseException");
    }
    return NULL;
}

PyObject *tdl__files_op_close(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (leave(TDL_FILE_OP(self)) < 0) {
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}

PyObject *tdl__files_op_keep(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TDL_FILE_OP(self)->kept = true;
    return Py_NewRef(self);
}
