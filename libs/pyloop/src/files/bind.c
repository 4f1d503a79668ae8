/* A file context and the loop that it serves: found by the first operation that waits, told of results, asked
 * before a poll. */
#include "files/files.h"
#include "loop/loop.h"

#include <limits.h>
#include <math.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "treadle/clock.h"

/* A task's wake-up calls result() by name on anything but asyncio's own future, which costs a tenth of an
 * operation. */
static PyObject *finished_future(FilesState *st, PyObject *loop)
{
    PyObject *kwnames = Py_BuildValue("(s)", "loop");
    PyObject *future = kwnames != NULL ? PyObject_Vectorcall(st->future_type, &loop, 0, kwnames) : NULL;
    Py_XDECREF(kwnames);
    PyObject *set = future != NULL ? PyObject_CallMethodOneArg(future, st->str_set_result, Py_None) : NULL;
    if (set == NULL) {
        Py_XDECREF(future);
        return NULL;
    }
    Py_DECREF(set);
    return future;
}

int tdl__files_bind_loop(FileContext *c)
{
    /* Whoever a step wakes runs on the step's own loop. */
    if (c->dispatching && c->step_thread == PyThread_get_thread_ident()) {
        return 0;
    }
    PyObject *loop = tdl__files_running_loop(c->state);
    if (loop == NULL || loop == c->loop) {
        Py_XDECREF(loop);
        return loop != NULL ? 0 : -1;
    }
    if (c->loop != NULL) {
        Py_DECREF(loop);
        PyErr_SetString(PyExc_RuntimeError, "file context belongs to another event loop");
        return -1;
    }
    int fd = tdl_fio_fd(&c->fio);
    if (fd < 0) {
        Py_DECREF(loop);
        errno = -fd;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    Py_XSETREF(c->done, finished_future(c->state, loop));
    Py_XSETREF(c->on_step, PyObject_GetAttrString((PyObject *)c, "_step"));
    Py_XSETREF(c->on_ready, PyObject_GetAttrString((PyObject *)c, "_ready"));
    PyObject *number = PyLong_FromLong(fd);
    PyObject *done =
        c->done != NULL && c->on_step != NULL && c->on_ready != NULL && number != NULL
            ? PyObject_CallMethodObjArgs(loop, c->state->str_add_reader, number, c->on_ready, NULL)
            : NULL;
    Py_XDECREF(number);
    if (done == NULL) {
        Py_DECREF(loop);
        return -1;
    }
    Py_DECREF(done);
    if (c->loop != NULL || c->closed) {
        Py_DECREF(loop);
        PyErr_SetString(PyExc_RuntimeError, "file context was bound or closed while its loop was told of it");
        return -1;
    }
    c->loop = loop;
    c->native = PyObject_TypeCheck(loop, tdl__state_of_type(Py_TYPE((PyObject *)c))->loop_type) != 0;
    c->reader_fd = fd;
    return 0;
}

static int step_soon(FileContext *c)
{
    PyObject *loop = Py_NewRef(c->loop), *on_step = Py_NewRef(c->on_step);
    PyObject *handle = PyObject_CallMethodOneArg(loop, c->state->str_call_soon, on_step);
    Py_DECREF(loop);
    Py_DECREF(on_step);
    if (handle == NULL) {
        return -1;
    }
    Py_DECREF(handle);
    c->soon = true;
    return 0;
}

int tdl__files_schedule(FileContext *c)
{
    if (c->soon || c->listed || c->dispatching || c->loop == NULL || c->closed) {
        return 0;
    }
    if (c->native && !tdl_fio_has_finished(&c->fio)) {
        c->next_staged = TDL_LOOP(c->loop)->files;
        TDL_LOOP(c->loop)->files = c;
        TDL_LOOP(c->loop)->staged = true;
        c->listed = true;
        return 0;
    }
    return step_soon(c);
}

/* treadle's loop submits what its turn staged, without a callback of its own. */
static void before_poll(TdlLoop *loop)
{
    FileContext *c;
    while ((c = loop->files) != NULL) {
        loop->files = c->next_staged;
        c->next_staged = NULL;
        c->listed = false;
        (void)tdl_fio_flush(&c->fio);
        bool more = tdl_fio_wants_flush(&c->fio) || tdl_fio_has_finished(&c->fio);
        if (more && !c->soon) {
            Py_INCREF(c);
            if (step_soon(c) < 0) {
                PyErr_WriteUnraisable((PyObject *)c);
            }
            Py_DECREF(c);
        }
    }
}

const struct tdl_part tdl__files_part = {.before_poll = before_poll};

static void leave_list(FileContext *c)
{
    FileContext **at = &TDL_LOOP(c->loop)->files;
    while (*at != c) {
        at = &(*at)->next_staged;
    }
    *at = c->next_staged;
    c->next_staged = NULL;
    c->listed = false;
}

void tdl__files_unbind_loop(FileContext *c)
{
    if (c->listed) {
        leave_list(c);
    }
    if (c->reader_fd >= 0) {
        PyObject *loop = Py_NewRef(c->loop);
        PyObject *number = PyLong_FromLong(c->reader_fd);
        c->reader_fd = -1;
        PyObject *done =
            number != NULL ? PyObject_CallMethodOneArg(loop, c->state->str_remove_reader, number) : NULL;
        Py_XDECREF(number);
        Py_XDECREF(done);
        /* A closed loop has forgotten its readers already. */
        PyErr_Clear();
        Py_DECREF(loop);
    }
    Py_CLEAR(c->on_step);
    Py_CLEAR(c->on_ready);
}
