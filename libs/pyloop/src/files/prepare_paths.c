/* Operations on names: each checked and made ready, and run when it is awaited. */
#include "files/files.h"
#include "ground/audit.h"

#include <fcntl.h>
#include <limits.h>

/* A path as audit hooks get it from CPython, made only if there are any. */
static PyObject *audited_path(void *path)
{
    return PyOS_FSPath(path);
}

/* A fresh operation with a path in it; NULL with an exception. */
static FileOp *on_path(PyObject *self, PyObject *path, enum files_result result, const char **encoded)
{
    FileOp *op = tdl__files_op_new(TDL_FILE_CONTEXT(self), result);
    if (op == NULL) {
        return NULL;
    }
    tdl_fop_nop(&op->fop);
    *encoded = tdl__files_path_into(op, path);
    if (*encoded == NULL) {
        Py_DECREF(op);
        return NULL;
    }
    return op;
}

static PyObject *open_path(PyObject *self, PyObject *const *args, Py_ssize_t nargs, bool audited)
{
    int flags, mode;
    const char *path;
    if (!tdl__files_counted("open", nargs, 2, 3) || !tdl__files_int_from(args, nargs, 1, 0, &flags) ||
        !tdl__files_int_from(args, nargs, 2, 0666, &mode) ||
        (audited && TDL_REFUSED("open", "O&Oi", audited_path, args[0], Py_None, flags))) {
        return NULL;
    }
    FileOp *op = on_path(self, args[0], FILES_DESCRIPTOR, &path);
    if (op != NULL) {
        tdl_fop_open(&op->fop, AT_FDCWD, path, flags, (mode_t)mode);
    }
    return tdl__files_op_prepared(op);
}

PyObject *tdl__files_open(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return open_path(self, args, nargs, true);
}

/* The open of a file object, of which open() has told audit hooks in its own way. */
PyObject *tdl__files_file_open(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return open_path(self, args, nargs, false);
}

PyObject *tdl__files_stat(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    int flags, fd = AT_FDCWD;
    const char *path = "";
    if (!tdl__files_counted("stat", nargs, 1, 2) || !tdl__files_int_from(args, nargs, 1, 0, &flags)) {
        return NULL;
    }
    bool by_fd = PyLong_Check(args[0]);
    FileOp *op;
    if (by_fd) {
        op = tdl__files_on_fd(self, args[0], &fd);
        fd = fd < 0 ? -1 : fd; /* AT_FDCWD is no descriptor */
        flags |= AT_EMPTY_PATH;
    } else {
        op = on_path(self, args[0], FILES_STAT, &path);
    }
    if (op == NULL) {
        return NULL;
    }
    op->result = FILES_STAT;
    op->statx = PyMem_New(struct statx, 1);
    if (op->statx == NULL) {
        PyErr_NoMemory();
        return tdl__files_unmade(op);
    }
    tdl_fop_statx(&op->fop, fd, path, flags, STATX_BASIC_STATS, op->statx);
    return tdl__files_op_prepared(op);
}

PyObject *tdl__files_unlink(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    int flags;
    const char *path;
    if (!tdl__files_counted("unlink", nargs, 1, 2) || !tdl__files_int_from(args, nargs, 1, 0, &flags) ||
        TDL_REFUSED((flags & AT_REMOVEDIR) != 0 ? "os.rmdir" : "os.remove", "O&i", audited_path, args[0],
                    -1)) {
        return NULL;
    }
    FileOp *op = on_path(self, args[0], FILES_NOTHING, &path);
    if (op != NULL) {
        tdl_fop_unlink(&op->fop, AT_FDCWD, path, flags);
    }
    return tdl__files_op_prepared(op);
}

PyObject *tdl__files_mkdir(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    int mode;
    const char *path;
    if (!tdl__files_counted("mkdir", nargs, 1, 2) || !tdl__files_int_from(args, nargs, 1, 0777, &mode) ||
        TDL_REFUSED("os.mkdir", "O&ii", audited_path, args[0], mode, -1)) {
        return NULL;
    }
    FileOp *op = on_path(self, args[0], FILES_NOTHING, &path);
    if (op != NULL) {
        tdl_fop_mkdir(&op->fop, AT_FDCWD, path, (mode_t)mode);
    }
    return tdl__files_op_prepared(op);
}

PyObject *tdl__files_rename(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    int flags;
    const char *from;
    PyObject *to = NULL;
    if (!tdl__files_counted("rename", nargs, 2, 3) || !tdl__files_int_from(args, nargs, 2, 0, &flags) ||
        TDL_REFUSED("os.rename", "O&O&ii", audited_path, args[0], audited_path, args[1], -1, -1)) {
        return NULL;
    }
    FileOp *op = on_path(self, args[0], FILES_NOTHING, &from);
    if (op == NULL) {
        return NULL;
    }
    to = tdl__files_encoded_path(args[1], &op->filename2);
    if (to == NULL) {
        return tdl__files_unmade(op);
    }
    op->payload = to;
    tdl_fop_rename(&op->fop, AT_FDCWD, from, AT_FDCWD, PyBytes_AS_STRING(to), (unsigned)flags);
    return tdl__files_op_prepared(op);
}

PyObject *tdl__files_read_file(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t size;
    const char *path;
    if (!tdl__files_counted("read_file", nargs, 2, 2) || !tdl__files_size_from(args[1], &size) ||
        TDL_REFUSED("open", "O&si", audited_path, args[0], "r", O_RDONLY | O_CLOEXEC)) {
        return NULL;
    }
    FileOp *op = on_path(self, args[0], FILES_BYTES, &path);
    if (op == NULL) {
        return NULL;
    }
    tdl_fop_read_file(&op->fop, AT_FDCWD, path, NULL, (size_t)size);
    return tdl__files_with_bytes(op, size);
}
