/* What a finished file operation gives: its value, or the exception. */
#include "files/files.h"
#include "ground/cpython.h"

#include <poll.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "treadle/clock.h"

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

PyObject *tdl__files_op_bytes_value(FileOp *op)
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
        return tdl__files_op_bytes_value(op);
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
        tdl__files_op_release_buffers(op);
        Py_CLEAR(op->payload);
    }
    Py_CLEAR(op->path);
}

PyObject *tdl__files_op_take(FileOp *op)
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
