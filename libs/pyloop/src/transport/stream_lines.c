/* writelines(): pieces sent with one system call. */
#include "ground/audit.h"
#include "loop/readers.h"
#include "loop/snapshot.h"
#include "streams/streams.h"
#include "transport/stream.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "treadle/alloc.h"

/* The lines as a sequence of bytes objects; all of them or, with an exception, none. */
static PyObject *lines_to_bytes(PyObject *lines)
{
    PyObject *seq = PySequence_Fast(lines, "can only join an iterable");
    if (seq == NULL) {
        return NULL;
    }
    Py_ssize_t exact = 0;
    while (exact < PySequence_Fast_GET_SIZE(seq) &&
           PyBytes_CheckExact(PySequence_Fast_GET_ITEM(seq, exact))) {
        exact++;
    }
    if (exact == PySequence_Fast_GET_SIZE(seq)) {
        return seq;
    }
    PyObject *list = PyList_New(0);
    int code = list != NULL ? 0 : -1;
    for (Py_ssize_t i = 0; code == 0 && i < PySequence_Fast_GET_SIZE(seq); i++) {
        PyObject *line = Py_NewRef(PySequence_Fast_GET_ITEM(seq, i));
        PyObject *data = tdl__stream_check_bytes_like(line) == 0 ? PyBytes_FromObject(line) : NULL;
        code = data != NULL ? PyList_Append(list, data) : -1;
        Py_XDECREF(data);
        Py_DECREF(line);
    }
    Py_DECREF(seq);
    if (code < 0) {
        Py_CLEAR(list);
    }
    return list;
}

/* Forget the last objects of the queue. */
static void queue_cut(TdlStream *t, uint32_t len)
{
    while (t->queue_len > len) {
        PyObject *data = t->queue[t->queue_head + --t->queue_len];
        t->write_size -= (size_t)PyBytes_GET_SIZE(data);
        Py_DECREF(data);
    }
}

/* Queue all of them or, with an exception, none. */
static int queue_lines(TdlStream *t, PyObject *seq)
{
    uint32_t len = t->queue_len;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(seq); i++) {
        PyObject *data = PySequence_Fast_GET_ITEM(seq, i);
        if (PyBytes_GET_SIZE(data) > 0 && tdl__stream_queue_push(t, data, 0) < 0) {
            queue_cut(t, len);
            return -1;
        }
    }
    return 0;
}

/* What is held leaves with the lines, in one system call. */
static int send_lines(TdlStream *t, PyObject *seq)
{
    if (t->state >= TDL_STREAM_LOST) { /* aborted by what made the lines */
        return 0;
    }
    bool idle = t->queue_len == 0;
    if (tdl__stream_held_to_queue(t) < 0 || t->state >= TDL_STREAM_LOST) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int code = queue_lines(t, seq);
    PyObject *exc = code < 0 ? PyErr_GetRaisedException() : NULL;
    if (idle && t->queue_len > 0) {
        tdl__stream_send_queued(t);
    }
    code = tdl__stream_wait_rest(t);
    if (exc != NULL) {
        PyErr_Clear();
        PyErr_SetRaisedException(exc);
        code = -1;
    }
    return code;
}

PyObject *tdl__stream_writelines(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    TdlStream *t = TDL_STREAM(self);
    PyObject *replaced = tdl__stream_replaced(t, t->loop->state->str_writelines);
    if (replaced != NULL) {
        PyObject *result = PyObject_Vectorcall(replaced, args, (size_t)nargs, kwnames);
        Py_DECREF(replaced);
        return result;
    }
    PyObject *lines =
        PyErr_Occurred() ? NULL : tdl__only_argument("writelines", "list_of_data", args, nargs, kwnames);
    if (lines == NULL ||
        tdl__stream_write_refused(t, PY_VERSION_HEX >= 0x030C0000 ? "writelines" : "write") < 0) {
        return NULL;
    }
    if (t->state >= TDL_STREAM_LOST) {
        int truth = PyObject_IsTrue(lines);
        if (truth < 0 || (truth > 0 && tdl__stream_write_lost(t) < 0)) {
            return NULL;
        }
        Py_RETURN_NONE;
    }
    PyObject *seq = lines_to_bytes(lines);
    if (seq == NULL) {
        return NULL;
    }
    int code = send_lines(t, seq);
    Py_DECREF(seq);
    if (code < 0) {
        return NULL;
    }
    if (t->unserved) {
        tdl__stream_used(t, TDL_STREAMS_WROTE);
    }
    Py_RETURN_NONE;
}
