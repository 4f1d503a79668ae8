/* The context's methods that make operations: arguments in, a prepared operation out, nothing started. */
#include "files/files.h"
#include "ground/audit.h"

#include <fcntl.h>
#include <limits.h>

/* Bytes of a result that are made when they are about to be filled: many waiting reads then touch no memory
 * yet. Larger ones are made at once, so that a size that no memory has room for is refused by the call
 * itself. */
#define BYTES_LATER_MAX (512 << 10)

/* Between low and high arguments, else a TypeError. */
bool tdl__files_counted(const char *name, Py_ssize_t nargs, Py_ssize_t low, Py_ssize_t high)
{
    if (nargs >= low && nargs <= high) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s() takes %zd to %zd positional arguments (%zd given)", name, low, high,
                 nargs);
    return false;
}

bool tdl__files_fd_from(PyObject *arg, int *fd)
{
    long value = PyLong_AsLong(arg);
    if (value == -1 && PyErr_Occurred()) {
        return false;
    }
    if (value < INT_MIN || value > INT_MAX) {
        PyErr_SetString(PyExc_OverflowError, "file descriptor out of range");
        return false;
    }
    *fd = (int)value;
    return true;
}

/* A missing offset is the descriptor's own position; a negative one the kernel refuses. */
static bool offset_from(PyObject *const *args, Py_ssize_t nargs, Py_ssize_t index, uint64_t *offset)
{
    *offset = TDL_FOP_POSITION;
    if (index >= nargs || args[index] == Py_None) {
        return true;
    }
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(args[index], &overflow);
    if (value == -1 && PyErr_Occurred()) {
        return false;
    }
    if (overflow < 0) {
        PyErr_SetString(PyExc_OverflowError, "offset out of range");
        return false;
    }
    if (overflow > 0) {
        /* All ones is how the kernel's interfaces write "the position". */
        *offset = PyLong_AsUnsignedLongLong(args[index]);
        return PyErr_Occurred() == NULL;
    }
    /* -1 would be the position again. */
    *offset = value >= 0 && overflow == 0 ? (uint64_t)value : (uint64_t)1 << 63;
    return true;
}

bool tdl__files_size_from(PyObject *arg, Py_ssize_t *size)
{
    *size = PyLong_AsSsize_t(arg);
    if (*size >= 0) {
        return true;
    }
    if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "size must not be negative");
    }
    return false;
}

bool tdl__files_int_from(PyObject *const *args, Py_ssize_t nargs, Py_ssize_t index, int preset, int *value)
{
    *value = preset;
    if (index >= nargs) {
        return true;
    }
    long given = PyLong_AsLong(args[index]);
    if (given == -1 && PyErr_Occurred()) {
        return false;
    }
    if (given < INT_MIN || given > INT_MAX) {
        PyErr_SetString(PyExc_OverflowError, "argument is out of the range of a C int");
        return false;
    }
    *value = (int)given;
    return true;
}

/* A path as the kernel gets it, and its text as errors of CPython have it. */
PyObject *tdl__files_encoded_path(PyObject *path, PyObject **text)
{
    PyObject *encoded = NULL;
    *text = PyOS_FSPath(path);
    if (*text != NULL && !PyUnicode_FSConverter(*text, &encoded)) {
        Py_CLEAR(*text);
    }
    return encoded;
}

/* The operation keeps the encoded path for the kernel and its text for the error. */
const char *tdl__files_path_into(FileOp *op, PyObject *path)
{
    op->path = tdl__files_encoded_path(path, &op->filename);
    return op->path != NULL ? PyBytes_AS_STRING(op->path) : NULL;
}

PyObject *tdl__files_unmade(FileOp *op)
{
    Py_DECREF(op);
    return NULL;
}

PyObject *tdl__files_with_bytes(FileOp *op, Py_ssize_t size)
{
    if (size <= BYTES_LATER_MAX || tdl__files_provide(&op->fop) == 0) {
        return tdl__files_op_prepared(op);
    }
    tdl__files_raise(op, -ENOMEM);
    return tdl__files_unmade(op);
}

PyObject *tdl__files_prepare_read(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    int fd;
    Py_ssize_t size;
    uint64_t offset;
    if (!tdl__files_counted("read", nargs, 2, 3) || !tdl__files_fd_from(args[0], &fd) ||
        !tdl__files_size_from(args[1], &size) || !offset_from(args, nargs, 2, &offset)) {
        return NULL;
    }
    FileOp *op = tdl__files_op_new(TDL_FILE_CONTEXT(self), FILES_BYTES);
    if (op == NULL) {
        return NULL;
    }
    tdl_fop_read(&op->fop, fd, NULL, (size_t)size, offset);
    return tdl__files_with_bytes(op, size);
}

PyObject *tdl__files_readinto(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    int fd;
    uint64_t offset;
    if (!tdl__files_counted("readinto", nargs, 2, 3) || !tdl__files_fd_from(args[0], &fd) ||
        !offset_from(args, nargs, 2, &offset)) {
        return NULL;
    }
    FileOp *op = tdl__files_op_new(TDL_FILE_CONTEXT(self), FILES_COUNT);
    if (op == NULL) {
        return NULL;
    }
    tdl_fop_read(&op->fop, fd, NULL, 0, offset);
    if (PyObject_GetBuffer(args[1], &op->view, PyBUF_WRITABLE) < 0) {
        op->view.obj = NULL;
        return tdl__files_unmade(op);
    }
    tdl_fop_read(&op->fop, fd, op->view.buf, (size_t)op->view.len, offset);
    return tdl__files_op_prepared(op);
}

PyObject *tdl__files_write(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    int fd;
    uint64_t offset;
    if (!tdl__files_counted("write", nargs, 2, 3) || !tdl__files_fd_from(args[0], &fd) ||
        !offset_from(args, nargs, 2, &offset)) {
        return NULL;
    }
    FileOp *op = tdl__files_op_new(TDL_FILE_CONTEXT(self), FILES_COUNT);
    if (op == NULL) {
        return NULL;
    }
    tdl_fop_nop(&op->fop);
    if (PyBytes_CheckExact(args[1])) {
        op->payload = Py_NewRef(args[1]);
        tdl_fop_write(&op->fop, fd, PyBytes_AS_STRING(args[1]), (size_t)PyBytes_GET_SIZE(args[1]), offset);
        return tdl__files_op_prepared(op);
    }
    if (PyObject_GetBuffer(args[1], &op->view, PyBUF_SIMPLE) < 0) {
        op->view.obj = NULL;
        return tdl__files_unmade(op);
    }
    tdl_fop_write(&op->fop, fd, op->view.buf, (size_t)op->view.len, offset);
    return tdl__files_op_prepared(op);
}

/* Buffers of a sequence become the vector; false with an exception. */
static bool vector_into(FileOp *op, PyObject *buffers, int flags)
{
    /* A copy: a buffer's maker may change a list. */
    PyObject *items = PySequence_Check(buffers) ? PySequence_Tuple(buffers) : NULL;
    if (items == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "buffers must be a sequence");
        }
        return false;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    op->vector = PyMem_New(struct iovec, (size_t)count + 1);
    op->views = PyMem_New(Py_buffer, (size_t)count + 1);
    if (op->vector == NULL || op->views == NULL || count > IOV_MAX) {
        Py_DECREF(items);
        if (count > IOV_MAX) {
            PyErr_SetString(PyExc_ValueError, "too many buffers");
        } else {
            PyErr_NoMemory();
        }
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(items, i), &op->views[i], flags) < 0) {
            break;
        }
        op->vector[i].iov_base = op->views[i].buf;
        op->vector[i].iov_len = (size_t)op->views[i].len;
        op->view_count++;
    }
    Py_DECREF(items);
    return op->view_count == (unsigned)count;
}

static PyObject *prepare_vector(PyObject *self, PyObject *const *args, Py_ssize_t nargs, bool writes)
{
    int fd;
    uint64_t offset;
    if (!tdl__files_counted(writes ? "writev" : "readv", nargs, 2, 3) || !tdl__files_fd_from(args[0], &fd) ||
        !offset_from(args, nargs, 2, &offset)) {
        return NULL;
    }
    FileOp *op = tdl__files_op_new(TDL_FILE_CONTEXT(self), FILES_COUNT);
    if (op == NULL) {
        return NULL;
    }
    tdl_fop_nop(&op->fop);
    if (!vector_into(op, args[1], writes ? PyBUF_SIMPLE : PyBUF_WRITABLE)) {
        return tdl__files_unmade(op);
    }
    if (writes) {
        tdl_fop_writev(&op->fop, fd, op->vector, op->view_count, offset);
    } else {
        tdl_fop_readv(&op->fop, fd, op->vector, op->view_count, offset);
    }
    return tdl__files_op_prepared(op);
}

PyObject *tdl__files_readv(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return prepare_vector(self, args, nargs, false);
}

PyObject *tdl__files_writev(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return prepare_vector(self, args, nargs, true);
}

FileOp *tdl__files_on_fd(PyObject *self, PyObject *arg, int *fd)
{
    if (!tdl__files_fd_from(arg, fd)) {
        return NULL;
    }
    FileOp *op = tdl__files_op_new(TDL_FILE_CONTEXT(self), FILES_NOTHING);
    if (op != NULL) {
        tdl_fop_nop(&op->fop);
    }
    return op;
}

PyObject *tdl__files_fsync(PyObject *self, PyObject *arg)
{
    int fd;
    FileOp *op = tdl__files_on_fd(self, arg, &fd);
    if (op != NULL) {
        tdl_fop_fsync(&op->fop, fd);
    }
    return tdl__files_op_prepared(op);
}

PyObject *tdl__files_fdatasync(PyObject *self, PyObject *arg)
{
    int fd;
    FileOp *op = tdl__files_on_fd(self, arg, &fd);
    if (op != NULL) {
        tdl_fop_fdatasync(&op->fop, fd);
    }
    return tdl__files_op_prepared(op);
}

PyObject *tdl__files_close_fd(PyObject *self, PyObject *arg)
{
    int fd;
    FileOp *op = tdl__files_on_fd(self, arg, &fd);
    if (op != NULL) {
        tdl_fop_close(&op->fop, fd);
    }
    return tdl__files_op_prepared(op);
}

static PyObject *truncate_to(PyObject *self, PyObject *const *args, Py_ssize_t nargs, bool audited)
{
    int fd;
    Py_ssize_t size;
    if (!tdl__files_counted("truncate", nargs, 2, 2) || !tdl__files_size_from(args[1], &size) ||
        (audited && TDL_REFUSED("os.truncate", "On", args[0], size))) {
        return NULL;
    }
    FileOp *op = tdl__files_on_fd(self, args[0], &fd);
    if (op != NULL) {
        tdl_fop_truncate(&op->fop, fd, (uint64_t)size);
    }
    return tdl__files_op_prepared(op);
}

PyObject *tdl__files_truncate(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return truncate_to(self, args, nargs, true);
}

/* The truncate() of a file object, of which audit hooks are not told. */
PyObject *tdl__files_file_truncate(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return truncate_to(self, args, nargs, false);
}

PyObject *tdl__files_fallocate(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    int fd, mode;
    Py_ssize_t offset, size;
    if (!tdl__files_counted("fallocate", nargs, 4, 4) || !tdl__files_int_from(args, nargs, 1, 0, &mode) ||
        !tdl__files_size_from(args[2], &offset) || !tdl__files_size_from(args[3], &size)) {
        return NULL;
    }
    FileOp *op = tdl__files_on_fd(self, args[0], &fd);
    if (op != NULL) {
        tdl_fop_fallocate(&op->fop, fd, mode, (uint64_t)offset, (uint64_t)size);
    }
    return tdl__files_op_prepared(op);
}

static PyObject *prepare_pair(PyObject *self, PyObject *const *args, Py_ssize_t nargs, bool splices)
{
    int from, to;
    uint64_t from_offset, to_offset;
    Py_ssize_t size;
    if (!tdl__files_counted(splices ? "splice" : "copy", nargs, 5, 5) ||
        !tdl__files_fd_from(args[0], &from) || !offset_from(args, nargs, 1, &from_offset) ||
        !tdl__files_fd_from(args[2], &to) || !offset_from(args, nargs, 3, &to_offset) ||
        !tdl__files_size_from(args[4], &size)) {
        return NULL;
    }
    FileOp *op = tdl__files_op_new(TDL_FILE_CONTEXT(self), FILES_COUNT);
    if (op == NULL) {
        return NULL;
    }
    if (splices) {
        tdl_fop_splice(&op->fop, from, from_offset, to, to_offset, (size_t)size, 0);
    } else {
        tdl_fop_copy(&op->fop, from, from_offset, to, to_offset, (uint64_t)size);
    }
    return tdl__files_op_prepared(op);
}

PyObject *tdl__files_splice(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return prepare_pair(self, args, nargs, true);
}

PyObject *tdl__files_copy(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return prepare_pair(self, args, nargs, false);
}
