/* add_reader and its kin: callbacks of the program's that a readable or writable descriptor runs. */
#include "loop/readers.h"

#include "ground/fileno.h"
#include "loop/handle.h"
#include "loop/loop.h"
#include "loop/soon.h"

#include <limits.h>

static bool is_cancelled(const struct tdl_item *item)
{
    return tdl__handle_cancelled(TDL_CONTAINER_OF(item, const TdlHandle, item));
}

/* The handle of a side, or NULL if it has none or is no handle; a new reference. */
static TdlHandle *side_handle(const struct tdl_watch_side *side)
{
    bool is_handle = side->cancelled == is_cancelled;
    return is_handle ? (TdlHandle *)Py_NewRef((PyObject *)tdl__handle_of(side->item)) : NULL;
}

/* Cancel and let go: the callback's end may run any code, so nothing of the watch is touched behind it. */
static void retire(TdlHandle *h)
{
    if (h != NULL) {
        (void)tdl__handle_cancel(h);
        Py_DECREF(h);
    }
}

/* Take a side from the callback that has it, which does not run any more though it was queued. Nothing else
 * is taken. */
void tdl__watch_retire(struct tdl_watch *w, int event)
{
    TdlHandle *h = w != NULL ? side_handle(tdl__watch_side(w, event)) : NULL;
    if (h != NULL) {
        (void)tdl__watch_unset(w, event);
        retire(h);
    }
}

/* As tdl__fd_of, but an object that was closed while it is registered still has the number it was registered
 * by. */
static int registered_fd(TdlLoop *loop, PyObject *fileobj)
{
    int fd = tdl__fd_of(fileobj);
    if (fd >= 0 || !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return fd;
    }
    for (int i = 0; i < loop->poller.watches_len; i++) {
        if (loop->poller.watches[i] != NULL && loop->poller.watches[i]->fileobj == fileobj) {
            PyErr_Clear();
            return i;
        }
    }
    return -1;
}

/* Let go of a watch that nobody waits by, if it still is that number's: any code may have run meanwhile. */
static void drop_unwanted(TdlLoop *loop, int fd, struct tdl_watch *w)
{
    if (tdl__watch_get(&loop->poller, fd) == w && w->want == 0 && w->holder == NULL) {
        tdl__watch_release(w);
    }
}

static int watch_handle(TdlLoop *loop, PyObject *fileobj, int fd, int event, TdlHandle *h)
{
    struct tdl_watch *w = tdl__watch_get(&loop->poller, fd);
    if (w != NULL && w->want == 0 && w->holder == NULL) {
        tdl__watch_release(w); /* the number may mean another file by now */
        w = NULL;
    }
    if (w == NULL && (w = tdl__watch_open(&loop->poller, fd, false)) == NULL) {
        return -1;
    }
    TdlHandle *old = side_handle(tdl__watch_side(w, event));
    if (old != NULL) {
        w->armed = 0; /* ask the kernel again: the number may have been closed and used anew */
    }
    if (w->want == 0 && w->fileobj == NULL) {
        w->fileobj = Py_NewRef(fileobj);
    }
    int code = tdl__watch_set_side(w, event, (struct tdl_watch_side){&h->item, (PyObject *)h, is_cancelled});
    retire(old);
    if (code < 0) {
        drop_unwanted(loop, fd, w);
        tdl__raise_uv(code);
    }
    return code;
}

static PyObject *watch_callback(TdlLoop *loop, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                                int event)
{
    if (tdl__check_closed(loop) < 0) {
        return NULL;
    }
    if (nargs < 2) {
        PyErr_SetString(PyExc_TypeError, "a file descriptor and a callback are required");
        return NULL;
    }
    int fd = registered_fd(loop, args[0]);
    if (fd < 0) {
        return NULL;
    }
    PyObject *context = tdl__given_context(loop, args + nargs, kwnames);
    TdlHandle *h =
        PyErr_Occurred() == NULL ? tdl__handle_new(loop, args[1], args + 2, nargs - 2, context) : NULL;
    if (h == NULL) {
        return NULL;
    }
    /* What was called may have run any code, that closes the loop too. */
    if ((loop->debug && tdl__handle_remember(h) < 0) || tdl__check_closed(loop) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    tdl__handle_track(h); /* the watch keeps it, run after run */
    if (watch_handle(loop, args[0], fd, event, h) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    return (PyObject *)h;
}

static PyObject *unwatch(TdlLoop *loop, PyObject *fileobj, int event)
{
    if (loop->closed) {
        Py_RETURN_FALSE;
    }
    int fd = registered_fd(loop, fileobj);
    if (fd < 0) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) {
            return NULL;
        }
        PyErr_Clear(); /* nobody registered it */
        Py_RETURN_FALSE;
    }
    struct tdl_watch *w = tdl__watch_get(&loop->poller, fd);
    if (w == NULL) {
        Py_RETURN_FALSE;
    }
    TdlHandle *old = side_handle(tdl__watch_side(w, event));
    bool had = tdl__watch_unset(w, event);
    drop_unwanted(loop, fd, w);
    retire(old);
    return PyBool_FromLong(had);
}

static PyObject *loop_add_reader(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return watch_callback(TDL_LOOP(self), args, nargs, kwnames, UV_READABLE);
}

static PyObject *loop_add_writer(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return watch_callback(TDL_LOOP(self), args, nargs, kwnames, UV_WRITABLE);
}

static PyObject *loop_remove_reader(PyObject *self, PyObject *fileobj)
{
    return unwatch(TDL_LOOP(self), fileobj, UV_READABLE);
}

static PyObject *loop_remove_writer(PyObject *self, PyObject *fileobj)
{
    return unwatch(TDL_LOOP(self), fileobj, UV_WRITABLE);
}

static PyObject *loop_watched(PyObject *self, PyObject *fileobj)
{
    int fd = tdl__fd_of(fileobj);
    if (fd < 0) {
        return NULL;
    }
    const struct tdl_watch *w = tdl__watch_get(&TDL_LOOP(self)->poller, fd);
    return PyLong_FromLong(w != NULL ? w->want : 0);
}

int tdl__has_transports(TdlLoop *loop)
{
    PyObject *transports = Py_XNewRef(loop->transports); /* none before asyncio's __init__ */
    Py_ssize_t size = transports != NULL ? PyObject_Size(transports) : 0;
    Py_XDECREF(transports);
    return size < 0 ? -1 : size > 0;
}

static PyObject *used_by_transport(PyObject *fileobj, PyObject *transport)
{
    PyErr_Format(PyExc_RuntimeError, "File descriptor %R is used by transport %R", fileobj, transport);
    return NULL;
}

static PyObject *loop_ensure_fd_no_transport(PyObject *self, PyObject *fileobj)
{
    TdlLoop *loop = TDL_LOOP(self);
    PyObject *number = tdl__number_of(fileobj);
    if (number == NULL) {
        return NULL;
    }
    int overflow;
    long given = PyLong_AsLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    if (overflow != 0 || given < 0 || given > INT_MAX) {
        Py_RETURN_NONE; /* the registration's error to tell, and none for what is closed while it is
                           registered */
    }
    int fd = (int)given;
    const struct tdl_watch *w = tdl__watch_get(&loop->poller, fd);
    PyObject *transport = w != NULL ? Py_XNewRef(w->transport) : NULL;
    int others = tdl__has_transports(loop);
    if (others < 0) {
        Py_XDECREF(transport);
        return NULL;
    }
    if (transport == NULL && others > 0) {
        PyObject *transports = Py_NewRef(loop->transports);
        transport = PyObject_CallMethod(transports, "get", "i", fd);
        Py_DECREF(transports);
        if (transport == NULL) {
            return NULL;
        }
    }
    if (transport == NULL || transport == Py_None) {
        Py_XDECREF(transport);
        Py_RETURN_NONE;
    }
    PyObject *closing = PyObject_CallMethodNoArgs(transport, loop->state->str_is_closing);
    int is_closing = closing != NULL ? PyObject_IsTrue(closing) : -1;
    Py_XDECREF(closing);
    PyObject *result = NULL;
    if (is_closing > 0) {
        result = Py_NewRef(Py_None);
    } else if (is_closing == 0) {
        result = used_by_transport(fileobj, transport);
    }
    Py_DECREF(transport);
    return result;
}

PyMethodDef tdl__reader_methods[] = {
    {"_add_reader", (PyCFunction)(void (*)(void))loop_add_reader, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_add_writer", (PyCFunction)(void (*)(void))loop_add_writer, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_remove_reader", loop_remove_reader, METH_O, NULL},
    {"_remove_writer", loop_remove_writer, METH_O, NULL},
    {"_watched", loop_watched, METH_O, NULL},
    {"_ensure_fd_no_transport", loop_ensure_fd_no_transport, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
