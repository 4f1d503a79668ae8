/* One awaited file operation: coroutine and future in one object, so that a hit costs neither and a miss costs no future.
 * Its _asyncio_future_blocking is None until it is suspended: ensure_future and gather see a coroutine, tasks see a future.
 * A kept one outlives who awaits it: cancelling wakes its tasks, which await it again if they were not the ones meant. */
#include "files/files.h"
#include "ground/cpython.h"

#include <poll.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "treadle/clock.h"

/* How often a wait for a worker looks by itself: another thread may take what was told. */
#define PARTED_LOOK_MS 10

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

static void release_buffers(FileOp *op)
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
static void abandon(FileOp *op)
{
    if (op->result == FILES_DESCRIPTOR && op->phase == FILES_READY && !op->seen && !op->cancelled &&
        op->fop.result >= 0) {
        (void)close((int)op->fop.result);
        op->cancelled = true;
    }
}

static inline void end_op(FileOp *op)
{
    abandon(op);
    /* A held operation has a reference of its context, so nothing here can be in the kernel's hands. */
    release_buffers(op);
    Py_CLEAR(op->value);
    Py_CLEAR(op->payload);
    Py_CLEAR(op->path);
    Py_CLEAR(op->filename);
    Py_CLEAR(op->filename2);
    keep_or_free(op);
}

/* Only an owner and callbacks may lead to a further one, and so on for longer than the stack is; few have any by then. */
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

/* Makes the bytes that a read fills; the library asks when it is about to. */
int tdl__files_provide(struct tdl_fop *fop)
{
    FileOp *op = TDL_CONTAINER_OF(fop, FileOp, fop);
    op->payload = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)fop->length);
    if (op->payload == NULL) {
        PyErr_Clear();
        op->unmade = true;
        return -ENOMEM;
    }
    char *bytes = PyBytes_AS_STRING(op->payload);
    if (fop->code == TDL_FOP_READ_FILE) {
        fop->to.buffer = bytes;
    } else {
        fop->at.buffer = bytes;
    }
    return 0;
}

void tdl__files_raise(FileOp *op, int64_t code)
{
    if (op->unmade) {
        PyErr_NoMemory();
        return;
    }
    if (code <= -4096) {
        PyErr_SetString(PyExc_RuntimeError, "file context is closed");
        return;
    }
    if (op->context->make_error != NULL) {
        PyObject *error = PyObject_CallFunction(op->context->make_error, "i", (int)-code);
        if (error != NULL) {
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
            Py_DECREF(error);
        }
        return;
    }
    errno = (int)-code;
    if (op->filename2 != NULL) {
        PyErr_SetFromErrnoWithFilenameObjects(PyExc_OSError, op->filename, op->filename2);
    } else if (op->filename != NULL) {
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, op->filename);
    } else {
        PyErr_SetFromErrno(PyExc_OSError);
    }
}

static PyObject *bytes_value(FileOp *op)
{
    Py_ssize_t got = (Py_ssize_t)op->fop.result;
    PyObject *bytes = op->payload;
    op->payload = NULL;
    if (got == PyBytes_GET_SIZE(bytes)) {
        return bytes;
    }
    if (Py_REFCNT(bytes) != 1) {
        PyObject *part = PyBytes_FromStringAndSize(PyBytes_AS_STRING(bytes), got);
        Py_DECREF(bytes);
        return part;
    }
    (void)tdl__bytes_resize(&bytes, got);
    return bytes;
}

static double seconds_of(const struct statx_timestamp *t)
{
    return (double)t->tv_sec + 1e-9 * (double)t->tv_nsec;
}

static long long ns_of(const struct statx_timestamp *t)
{
    return (long long)t->tv_sec * (long long)TDL_NS_PER_S + (long long)t->tv_nsec;
}

static PyObject *stat_value(FileOp *op)
{
    const struct statx *s = op->statx;
    return PyObject_CallFunction(
        op->context->state->stat_result, "((IKKIIIKLLLdddLLLIKK))", (unsigned)s->stx_mode,
        (unsigned long long)s->stx_ino, (unsigned long long)makedev(s->stx_dev_major, s->stx_dev_minor),
        s->stx_nlink, s->stx_uid, s->stx_gid, (unsigned long long)s->stx_size, (long long)s->stx_atime.tv_sec,
        (long long)s->stx_mtime.tv_sec, (long long)s->stx_ctime.tv_sec, seconds_of(&s->stx_atime),
        seconds_of(&s->stx_mtime), seconds_of(&s->stx_ctime), ns_of(&s->stx_atime), ns_of(&s->stx_mtime),
        ns_of(&s->stx_ctime), s->stx_blksize, (unsigned long long)s->stx_blocks,
        (unsigned long long)makedev(s->stx_rdev_major, s->stx_rdev_minor));
}

/* The value of a good result, NULL with an exception for a bad one. */
static PyObject *value_of(FileOp *op)
{
    if (op->fop.result < 0) {
        tdl__files_raise(op, op->fop.result);
        return NULL;
    }
    switch ((enum files_result)op->result) {
    case FILES_BYTES:
        return bytes_value(op);
    case FILES_STAT:
        return stat_value(op);
    case FILES_NOTHING:
        Py_RETURN_NONE;
    default:
        return PyLong_FromLongLong((long long)op->fop.result);
    }
}

bool tdl__files_op_is_lost(const FileOp *op)
{
    return op->fop.result == -EBADF && op->context->lost;
}

/* The context gave the operation back: let go of what only the kernel needed. */
void tdl__files_op_settle(FileOp *op)
{
    op->phase = FILES_READY;
    op->blocking = false;
    op->lingers = false;
    if (op->fop.result == -ECANCELED && op->fop.code == TDL_FOP_CLOSE) {
        /* The number belongs to the operation: what the context did not get to is done here. */
        (void)close(op->fop.fd);
    }
    if (op->cancelled && op->result == FILES_DESCRIPTOR && op->fop.result >= 0) {
        (void)close((int)op->fop.result);
    }
    if (!op->cancelled && op->owner == NULL && op->fop.result >= 0) {
        op->value = value_of(op);
    }
    if (tdl__files_op_is_lost(op)) {
        return;
    }
    if (op->result != FILES_BYTES || op->owner == NULL) {
        release_buffers(op);
        Py_CLEAR(op->payload);
    }
    Py_CLEAR(op->path);
}

static PyObject *take_value(FileOp *op)
{
    if (op->cancelled) {
        PyErr_SetNone(op->context->state->cancelled_error);
        return NULL;
    }
    if (op->value != NULL) {
        op->seen = true;
        return Py_NewRef(op->value);
    }
    if (op->fop.result < 0) {
        tdl__files_raise(op, op->fop.result);
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    return NULL;
}

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

static PyObject *op_iternext(PyObject *self)
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
    PyObject *value = take_value(op);
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

static PyObject *op_await(PyObject *self)
{
    return Py_NewRef(self);
}

static PyObject *op_send(PyObject *self, PyObject *value)
{
    if (value != Py_None && TDL_FILE_OP(self)->phase == FILES_NEW) {
        PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started file operation");
        return NULL;
    }
    PyObject *next = op_iternext(self);
    if (next == NULL && !PyErr_Occurred()) {
        PyErr_SetNone(PyExc_StopIteration);
    }
    return next;
}

/* Asks the context to drop it. Its awaiter goes on at once and buffer and slot stay until the kernel is done, unless somebody
 * may still look up a descriptor by its number: then it lingers, since the awaiter's next step may be to close it. A close is
 * not taken back: the number is the operation's. While another thread closes the context, that one gives it back. */
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

static PyObject *op_cancel(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
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
    abandon(op);
    if (op->phase != FILES_PENDING) {
        op->phase = FILES_TAKEN;
    }
    return rc;
}

static PyObject *op_throw(PyObject *self, PyObject *args)
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

static PyObject *op_close(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (leave(TDL_FILE_OP(self)) < 0) {
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}

static PyObject *op_keep(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TDL_FILE_OP(self)->kept = true;
    return Py_NewRef(self);
}

static bool is_done(const FileOp *op)
{
    return op->phase >= FILES_READY || (op->cancelled && !op->lingers);
}

static PyObject *op_add_done_callback(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
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

static PyObject *op_remove_done_callback(PyObject *self, PyObject *callback)
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

static PyObject *op_done(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(is_done(TDL_FILE_OP(self)));
}

static PyObject *op_cancelled(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(TDL_FILE_OP(self)->cancelled && is_done(TDL_FILE_OP(self)));
}

static PyObject *op_result(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FileOp *op = TDL_FILE_OP(self);
    if (!is_done(op)) {
        PyErr_SetString(op->context->state->invalid_state_error, "Result is not set.");
        return NULL;
    }
    return take_value(op);
}

static PyObject *op_exception(PyObject *self, PyObject *ignored)
{
    PyObject *value = op_result(self, ignored);
    if (value != NULL) {
        Py_DECREF(value);
        Py_RETURN_NONE;
    }
    if (!PyErr_ExceptionMatches(PyExc_OSError) && !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        return NULL;
    }
    return PyErr_GetRaisedException();
}

static PyObject *op_get_loop(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *loop = TDL_FILE_OP(self)->context->loop;
    if (loop == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "file operation has no loop yet");
        return NULL;
    }
    return Py_NewRef(loop);
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
    return bytes_value(op);
}

static PyMethodDef op_methods[] = {
    {"send", op_send, METH_O, PyDoc_STR("send($self, value, /)\n--\n\nGo on, as a coroutine does.")},
    {"throw", op_throw, METH_VARARGS,
     PyDoc_STR("throw($self, type, value=None, traceback=None, /)\n--\n\nDrop the operation and raise.")},
    {"close", op_close, METH_NOARGS, PyDoc_STR("close($self, /)\n--\n\nDrop the operation.")},
    {"keep", op_keep, METH_NOARGS,
     PyDoc_STR(
         "keep($self, /)\n--\n\nHave it outlive who awaits it: a cancel leaves it running, and it may be "
         "awaited again. Return it.")},
    {"cancel", (PyCFunction)(void (*)(void))op_cancel, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR(
         "cancel($self, /, msg=None)\n--\n\nDrop the operation; those who wait get CancelledError at once.")},
    {"add_done_callback", (PyCFunction)(void (*)(void))op_add_done_callback, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("add_done_callback($self, callback, /, *, context=None)\n--\n\nCall back when done.")},
    {"remove_done_callback", op_remove_done_callback, METH_O,
     PyDoc_STR("remove_done_callback($self, callback, /)\n--\n\nReturn how many were removed.")},
    {"done", op_done, METH_NOARGS, PyDoc_STR("done($self, /)\n--\n\nTell whether there is a result.")},
    {"cancelled", op_cancelled, METH_NOARGS,
     PyDoc_STR("cancelled($self, /)\n--\n\nTell whether it was cancelled.")},
    {"result", op_result, METH_NOARGS,
     PyDoc_STR("result($self, /)\n--\n\nReturn the result or raise the error.")},
    {"exception", op_exception, METH_NOARGS,
     PyDoc_STR("exception($self, /)\n--\n\nReturn the error or None.")},
    {"get_loop", op_get_loop, METH_NOARGS, PyDoc_STR("get_loop($self, /)\n--\n\nReturn the loop.")},
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
    {Py_am_await, op_await},
    {Py_tp_iter, op_await},
    {Py_tp_iternext, op_iternext},
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
