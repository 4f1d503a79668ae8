/* One awaited file operation: coroutine and future in one object, so that a hit costs neither and a miss
 * costs no future. Its _asyncio_future_blocking is None until it is suspended: ensure_future and gather see a
 * coroutine, tasks see a future. A kept one outlives who awaits it: cancelling wakes its tasks, which await
 * it again if they were not the ones meant. */
#include "files/files.h"
#include "ground/cpython.h"

#include <poll.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "treadle/clock.h"

static void keep_or_free(FileOp *op);

FileOp *tdl__files_op_new(FileContext *context, enum files_result result)
{
    FilesState *st = context->state;
    FileOp *op = st->kept;
    if (op != NULL) {
        st->kept = (FileOp *)(void *)op->context;
        st->kept_count--;
        tdl__object_anew((PyObject *)op);
    } else {
        op = PyObject_GC_New(FileOp, st->op_type);
        if (op == NULL) {
            return NULL;
        }
    }
    memset((char *)op + offsetof(FileOp, held), 0, sizeof *op - offsetof(FileOp, held));
    op->context = (FileContext *)Py_NewRef((PyObject *)context);
    tdl_node_init(&op->held);
    op->result = (uint8_t)result;
    op->phase = FILES_NEW;
    return op;
}

/* From here on the collector shows it to others: it is prepared, and nothing of it changes any more. */
PyObject *tdl__files_op_prepared(FileOp *op)
{
    if (op != NULL) {
        PyObject_GC_Track((PyObject *)op);
    }
    return (PyObject *)op;
}

void tdl__files_op_release_buffers(FileOp *op)
{
    if (op->view.obj != NULL) {
        PyBuffer_Release(&op->view);
        op->view.obj = NULL;
    }
    for (unsigned i = 0; i < op->view_count; i++) {
        PyBuffer_Release(&op->views[i]);
    }
    op->view_count = 0;
    if (op->vector != NULL || op->views != NULL || op->statx != NULL) {
        PyMem_Free(op->vector);
        PyMem_Free(op->views);
        PyMem_Free(op->statx);
        op->vector = NULL;
        op->views = NULL;
        op->statx = NULL;
    }
}

static int op_traverse(PyObject *self, visitproc visit, void *arg)
{
    FileOp *op = TDL_FILE_OP(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(op->context);
    Py_VISIT(op->payload);
    Py_VISIT(op->filename);
    Py_VISIT(op->filename2);
    Py_VISIT(op->value);
    Py_VISIT(op->callback);
    Py_VISIT(op->callback_context);
    Py_VISIT(op->more);
    Py_VISIT(op->owner);
    Py_VISIT(op->view.obj);
    return 0;
}

static int op_clear(PyObject *self)
{
    FileOp *op = TDL_FILE_OP(self);
    Py_CLEAR(op->callback);
    Py_CLEAR(op->callback_context);
    Py_CLEAR(op->more);
    Py_CLEAR(op->owner);
    Py_CLEAR(op->value);
    return 0;
}

/* Nobody takes a descriptor whose opener went away. */
void tdl__files_abandon(FileOp *op)
{
    if (op->result == FILES_DESCRIPTOR && op->phase == FILES_READY && !op->seen && !op->cancelled &&
        op->fop.result >= 0) {
        (void)close((int)op->fop.result);
        op->cancelled = true;
    }
}

static inline void end_op(FileOp *op)
{
    tdl__files_abandon(op);
    /* A held operation has a reference of its context, so nothing here can be in the kernel's hands. */
    tdl__files_op_release_buffers(op);
    Py_CLEAR(op->value);
    Py_CLEAR(op->payload);
    Py_CLEAR(op->path);
    Py_CLEAR(op->filename);
    Py_CLEAR(op->filename2);
    keep_or_free(op);
}

/* Only an owner and callbacks may lead to a further one, and so on for longer than the stack is; few have any
 * by then. */
static void op_dealloc(PyObject *self)
{
    FileOp *op = TDL_FILE_OP(self);
    PyObject_GC_UnTrack(self);
    if (op->owner == NULL && op->callback == NULL && op->more == NULL) {
        end_op(op);
        return;
    }
    Py_TRASHCAN_BEGIN(self, op_dealloc)(void) op_clear(self);
    end_op(op);
    Py_TRASHCAN_END
}

static void keep_or_free(FileOp *op)
{
    FileContext *context = op->context;
    FilesState *st = context != NULL ? context->state : NULL;
    if (st != NULL && st->op_type == Py_TYPE((PyObject *)op) && st->kept_count < TDL_FILES_OPS_KEPT) {
        op->context = (FileContext *)(void *)st->kept;
        st->kept = op;
        st->kept_count++;
    } else {
        PyTypeObject *type = Py_TYPE((PyObject *)op);
        PyObject_GC_Del(op);
        Py_DECREF(type);
    }
    Py_XDECREF(context);
}

void tdl__files_ops_free(FilesState *st)
{
    while (st->kept != NULL) {
        FileOp *op = st->kept;
        st->kept = (FileOp *)(void *)op->context;
        PyTypeObject *type = Py_TYPE((PyObject *)op);
        PyObject_GC_Del(op);
        Py_DECREF(type);
    }
    st->kept_count = 0;
}

static PyObject *get_blocking(PyObject *self, void *Py_UNUSED(closure))
{
    FileOp *op = TDL_FILE_OP(self);
    if (op->phase != FILES_PENDING) {
        Py_RETURN_NONE;
    }
    return PyBool_FromLong(op->blocking);
}

static int set_blocking(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    int truth = value != NULL ? PyObject_IsTrue(value) : 0;
    if (truth < 0) {
        return -1;
    }
    TDL_FILE_OP(self)->blocking = truth != 0;
    return 0;
}

static PyObject *get_code(PyObject *self, void *Py_UNUSED(closure))
{
    TDL_FILE_OP(self)->seen = true;
    return PyLong_FromLongLong((long long)TDL_FILE_OP(self)->fop.result);
}

static PyObject *get_payload(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *payload = TDL_FILE_OP(self)->payload;
    return Py_NewRef(payload != NULL ? payload : Py_None);
}

static PyObject *get_owner(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *owner = TDL_FILE_OP(self)->owner;
    return Py_NewRef(owner != NULL ? owner : Py_None);
}

static int set_owner(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    Py_XSETREF(TDL_FILE_OP(self)->owner, Py_XNewRef(value));
    return 0;
}

/* The bytes of a raw read, cut to what was read; takes the buffer. */
static PyObject *op_take_bytes(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FileOp *op = TDL_FILE_OP(self);
    if (op->phase != FILES_READY || op->payload == NULL || op->result != FILES_BYTES || op->fop.result < 0) {
        PyErr_SetString(op->context->state->invalid_state_error, "no bytes to take");
        return NULL;
    }
    return tdl__files_op_bytes_value(op);
}

static PyMethodDef op_methods[] = {
    {"send", tdl__files_op_send, METH_O,
     PyDoc_STR("send($self, value, /)\n--\n\nGo on, as a coroutine does.")},
    {"throw", tdl__files_op_throw, METH_VARARGS,
     PyDoc_STR("throw($self, type, value=None, traceback=None, /)\n--\n\nDrop the operation and raise.")},
    {"close", tdl__files_op_close, METH_NOARGS, PyDoc_STR("close($self, /)\n--\n\nDrop the operation.")},
    {"keep", tdl__files_op_keep, METH_NOARGS,
     PyDoc_STR(
         "keep($self, /)\n--\n\nHave it outlive who awaits it: a cancel leaves it running, and it may be "
         "awaited again. Return it.")},
    {"cancel", (PyCFunction)(void (*)(void))tdl__files_op_cancel, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR(
         "cancel($self, /, msg=None)\n--\n\nDrop the operation; those who wait get CancelledError at once.")},
    {"add_done_callback", (PyCFunction)(void (*)(void))tdl__files_op_add_done_callback,
     METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("add_done_callback($self, callback, /, *, context=None)\n--\n\nCall back when done.")},
    {"remove_done_callback", tdl__files_op_remove_done_callback, METH_O,
     PyDoc_STR("remove_done_callback($self, callback, /)\n--\n\nReturn how many were removed.")},
    {"done", tdl__files_op_done, METH_NOARGS,
     PyDoc_STR("done($self, /)\n--\n\nTell whether there is a result.")},
    {"cancelled", tdl__files_op_cancelled, METH_NOARGS,
     PyDoc_STR("cancelled($self, /)\n--\n\nTell whether it was cancelled.")},
    {"result", tdl__files_op_result, METH_NOARGS,
     PyDoc_STR("result($self, /)\n--\n\nReturn the result or raise the error.")},
    {"exception", tdl__files_op_exception, METH_NOARGS,
     PyDoc_STR("exception($self, /)\n--\n\nReturn the error or None.")},
    {"get_loop", tdl__files_op_get_loop, METH_NOARGS,
     PyDoc_STR("get_loop($self, /)\n--\n\nReturn the loop.")},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, PyDoc_STR("For annotations.")},
    {"take_bytes", op_take_bytes, METH_NOARGS,
     PyDoc_STR("take_bytes($self, /)\n--\n\nReturn the bytes of a finished raw read.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef op_getset[] = {
    {"_asyncio_future_blocking", get_blocking, set_blocking, PyDoc_STR("None until suspended."), NULL},
    {"code", get_code, NULL, PyDoc_STR("The result as the kernel gave it: a count or -errno."), NULL},
    {"payload", get_payload, NULL, PyDoc_STR("The buffer."), NULL},
    {"owner", get_owner, set_owner, PyDoc_STR("Whom a raw operation belongs to."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot op_slots[] = {
    {Py_tp_doc, TDL_DOC("A file operation; await it once.")},
    {Py_tp_traverse, op_traverse},
    {Py_tp_clear, op_clear},
    {Py_tp_dealloc, op_dealloc},
    {Py_am_await, tdl__files_op_await},
    {Py_tp_iter, tdl__files_op_await},
    {Py_tp_iternext, tdl__files_op_iternext},
    {Py_tp_methods, op_methods},
    {Py_tp_getset, op_getset},
    {0, NULL},
};

PyType_Spec tdl__files_op_spec = {
    .name = "treadle._treadle.FileOp",
    .basicsize = sizeof(FileOp),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = op_slots,
};
