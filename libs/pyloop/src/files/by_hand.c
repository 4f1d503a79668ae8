/* A file context without a loop: operations submitted, awaited and reaped by hand. */
#include "files/files.h"
#include "loop/loop.h"

#include <limits.h>
#include <math.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "treadle/clock.h"

PyObject *tdl__files_context_submit(PyObject *self, PyObject *op)
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    if (!Py_IS_TYPE(op, c->state->op_type) || TDL_FILE_OP(op)->context != c ||
        TDL_FILE_OP(op)->phase != FILES_NEW) {
        PyErr_SetString(PyExc_TypeError, "submit() takes a fresh operation of this context");
        return NULL;
    }
    if (tdl__files_submit(c, TDL_FILE_OP(op)) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *tdl__files_flush(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    tdl_fio_step(&c->fio);
    int count = tdl__files_check_open(c) < 0 ? -1 : tdl_fio_flush(&c->fio);
    if (count < 0) {
        if (!PyErr_Occurred()) {
            errno = -count;
            PyErr_SetFromErrno(PyExc_OSError);
        }
        return NULL;
    }
    return PyLong_FromLong(count);
}

PyObject *tdl__files_reap(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    struct tdl_queue finished;
    tdl_queue_init(&finished);
    PyObject *list = PyList_New(0);
    if (list == NULL || c->closed) {
        return list;
    }
    tdl_fio_step(&c->fio);
    (void)tdl_fio_reap(&c->fio, &finished);
    FileOp *op;
    while ((op = tdl__files_give_back(&finished)) != NULL) {
        /* What is awaited is not the caller's: its task goes on. */
        if (op->raw ? PyList_Append(list, (PyObject *)op) < 0 : tdl__files_op_wake(op, false) < 0) {
            PyErr_WriteUnraisable(self);
        }
        Py_DECREF(op);
    }
    if (tdl_fio_wants_flush(&c->fio)) {
        (void)tdl_fio_flush(&c->fio);
    }
    return list;
}

PyObject *tdl__files_context_cancel(PyObject *self, PyObject *op)
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    if (!Py_IS_TYPE(op, c->state->op_type) || TDL_FILE_OP(op)->context != c) {
        PyErr_SetString(PyExc_TypeError, "cancel() takes an operation of this context");
        return NULL;
    }
    int rc = c->closed ? -ENOENT : tdl_fio_cancel(&c->fio, &TDL_FILE_OP(op)->fop);
    if (rc == 0 && c->loop != NULL && tdl__files_schedule(c) < 0) {
        return NULL;
    }
    return PyLong_FromLong(rc);
}

/* The descriptor that shows results; -1 with an exception. */
static int fd_of(FileContext *c)
{
    if (tdl__files_check_open(c) < 0) {
        return -1;
    }
    int fd = tdl_fio_fd(&c->fio);
    if (fd < 0) {
        errno = -fd;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    return fd;
}

PyObject *tdl__files_fileno(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    int fd = fd_of(TDL_FILE_CONTEXT(self));
    return fd >= 0 ? PyLong_FromLong(fd) : NULL;
}

/* Whether an operation of the context that has begun, or is about to, uses this descriptor. */
PyObject *tdl__files_uses(PyObject *self, PyObject *arg)
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    int fd;
    if (!tdl__files_fd_from(arg, &fd)) {
        return NULL;
    }
    return PyBool_FromLong(!c->closed && tdl_fio_names(&c->fio, fd));
}

/* Milliseconds for poll(), -1 for ever; more than it can hold is as good as for ever. */
static int milliseconds_of(double seconds)
{
    if (seconds < 0 || isnan(seconds) || seconds >= INT_MAX / 1000) {
        return -1;
    }
    return (int)(seconds * 1000 + 0.999);
}

/* Beside the descriptor that tells of results, the one that tells of the end. A negative code is an errno. */
static int wait_for_results(FileContext *c, int fd, double seconds)
{
    if (c->closing_fd < 0) {
        c->closing_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    struct pollfd both[] = {{.fd = fd, .events = POLLIN, .revents = 0},
                            {.fd = c->closing_fd, .events = POLLIN, .revents = 0}};
    c->waiters++;
    PyThreadState *save = PyEval_SaveThread();
    int ready = poll(both, 2, milliseconds_of(seconds));
    ready = ready < 0 ? -errno : ready;
    PyEval_RestoreThread(save);
    c->waiters--;
    if (c->closed) {
        tdl__files_shut_waiters(c);
    }
    return ready;
}

PyObject *tdl__files_wait(PyObject *self, PyObject *arg)
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    double seconds = PyFloat_AsDouble(arg);
    if (seconds == -1 && PyErr_Occurred()) {
        return NULL;
    }
    int fd = fd_of(c);
    if (fd < 0) {
        return NULL;
    }
    int ready = 1;
    double end = tdl__files_seconds_now() + seconds;
    while (!tdl_fio_has_finished(&c->fio)) {
        ready = wait_for_results(c, fd, seconds);
        if ((ready == -EINTR && PyErr_CheckSignals() < 0) || tdl__files_check_open(c) < 0) {
            return NULL;
        }
        if (ready != -EINTR) {
            break;
        }
        /* The signal's handler had nothing against waiting on. */
        if (seconds >= 0) {
            seconds = fmax(0, end - tdl__files_seconds_now());
        }
        ready = 1;
    }
    if (ready < 0) {
        errno = -ready;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyBool_FromLong(ready > 0);
}

const char *const tdl__files_mode_names[] = {"adaptive", "deferred", "immediate"};

PyObject *tdl__files_caps(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    if (tdl__files_check_open(c) < 0) {
        return NULL;
    }
    int rc = tdl_fio_start(&c->fio);
    if (rc < 0) {
        errno = -rc;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    const struct tdl_fio_caps *caps = tdl_fio_caps(&c->fio);
    const struct tdl_fio_stats *stats = tdl_fio_stats(&c->fio);
    return Py_BuildValue(
        "{s:s,s:s,s:s,s:i,s:I,s:I,s:I,s:I,s:I,s:O,s:O,s:K,s:K,s:K,s:K,s:K,s:K}", "engine",
        tdl_fio_engine_name(caps->engine), "mode", tdl__files_mode_names[caps->mode], "refused",
        tdl_fio_engine_name(caps->refused_engine), "refused_code", caps->refused_code, "max_requests",
        caps->inflight_max, "ring_flags", caps->ring_flags, "sq_entries", caps->sq_entries, "cq_entries",
        caps->cq_entries, "kernel_ops", caps->kernel_ops, "sqpoll", caps->sqpoll ? Py_True : Py_False,
        "single_syscall", caps->single_syscall ? Py_True : Py_False, "submissions", stats->submissions,
        "submit_calls", stats->submit_calls, "other_calls", stats->other_calls, "completed", stats->completed,
        "inlined", stats->inlined, "polled", stats->polled);
}
