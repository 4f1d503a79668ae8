/* A reader's attributes, read and changed as asyncio's methods do, and the way in for what a transport
 * received. */
#include "streams/internal.h"

#include <string.h>

/* What __init__ sets, in its order: going through them costs less than looking up some. */
enum { TDL_READER_ATTRIBUTES = 8 };

/* Whether no attribute of the object stands in front of a method or a property of its class. */
TDL_RARE static bool hides_nothing(PyObject *dict, PyObject *shipped)
{
    Py_ssize_t at = 0;
    PyObject *name, *value;
    while (PyDict_Next(dict, &at, &name, &value)) {
        PyObject *behind = PyDict_GetItemWithError(shipped, name);
        if (behind != NULL ? behind != Py_None : PyErr_Occurred() != NULL) {
            PyErr_Clear();
            return false;
        }
    }
    return true;
}

static bool truth_of(PyObject *value, bool *truth)
{
    *truth = value == Py_True;
    return value == Py_True || value == Py_False;
}

/* Take the attributes, if these and no others are there that change what a method does. */
static bool take_attributes(struct tdl_streams *s, struct tdl_reader *r)
{
    PyObject *const names[TDL_READER_ATTRIBUTES] = {s->str__limit,     s->str__loop,   s->str__buffer,
                                                    s->str__eof,       s->str__waiter, s->str__exception,
                                                    s->str__transport, s->str__paused};
    PyObject *values[TDL_READER_ATTRIBUTES];
    Py_ssize_t at = 0;
    PyObject *name;
    for (size_t i = 0; i < TDL_READER_ATTRIBUTES; i++) {
        if (!PyDict_Next(r->dict, &at, &name, &values[i]) || name != names[i]) {
            return false;
        }
    }
    r->loop = values[1];
    r->buffer = values[2];
    r->waiter = values[4];
    r->exception = values[5];
    r->limit = PyLong_CheckExact(values[0]) ? PyLong_AsSsize_t(values[0]) : -1;
    return truth_of(values[3], &r->eof) && truth_of(values[7], &r->paused) &&
           PyByteArray_CheckExact(r->buffer) && r->limit > 0 && r->limit < PY_SSIZE_T_MAX / 4 &&
           (PyDict_GET_SIZE(r->dict) == TDL_READER_ATTRIBUTES ||
            hides_nothing(r->dict, s->reader.standard->shipped));
}

/* Look at a reader; false, with nothing to give back, if it is not in the plain case. */
bool tdl__reader_look(struct tdl_streams *s, PyObject *reader, struct tdl_reader *r)
{
    if (!tdl__streams_is(&s->reader, reader)) {
        return false;
    }
    r->dict = PyObject_GenericGetDict(reader, NULL);
    if (r->dict != NULL && take_attributes(s, r)) {
        return true;
    }
    PyErr_Clear();
    Py_CLEAR(r->dict);
    return false;
}

/* Whether a reader's exception() is asyncio's, and gives none. */
bool tdl__reader_is_well(struct tdl_streams *s, PyObject *reader)
{
    PyObject *dict = tdl__streams_is(&s->reader, reader) ? PyObject_GenericGetDict(reader, NULL) : NULL;
    bool well =
        dict != NULL && PyDict_GetItemWithError(dict, s->str__exception) == Py_None &&
        (PyDict_GET_SIZE(dict) == TDL_READER_ATTRIBUTES || hides_nothing(dict, s->reader.standard->shipped));
    Py_XDECREF(dict);
    PyErr_Clear();
    return well;
}

/* Set an attribute: past the class, while it has nothing to say. */
int tdl__reader_set(struct tdl_streams *s, PyObject *reader, PyObject *name, PyObject *value)
{
    if (!tdl__streams_is(&s->reader, reader)) {
        return PyObject_SetAttr(reader, name, value);
    }
    PyObject *dict = PyObject_GenericGetDict(reader, NULL);
    int code = dict != NULL ? PyDict_SetItem(dict, name, value) : -1;
    Py_XDECREF(dict);
    return code;
}

/* Let a reader's paused transport go on. */
int tdl__reader_resume(struct tdl_streams *s, PyObject *reader)
{
    if (tdl__reader_set(s, reader, s->str__paused, Py_False) < 0) {
        return -1;
    }
    PyObject *transport = PyObject_GetAttr(reader, s->str__transport);
    PyObject *result = transport != NULL ? PyObject_CallMethodNoArgs(transport, s->str_resume_reading) : NULL;
    Py_XDECREF(transport);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

static int drop_front(PyObject *buffer, Py_ssize_t n)
{
    return n == PyByteArray_GET_SIZE(buffer) ? PyByteArray_Resize(buffer, 0)
                                             : PySequence_DelSlice(buffer, 0, n);
}

/* Take the first n bytes out of the buffer, and let the transport go on if that is enough room. */
PyObject *tdl__reader_take(struct tdl_streams *s, PyObject *reader, const struct tdl_reader *r, Py_ssize_t n)
{
    PyObject *buffer = Py_NewRef(r->buffer);
    PyObject *data = PyBytes_FromStringAndSize(PyByteArray_AS_STRING(buffer), n);
    if (data != NULL && n > 0 && drop_front(buffer, n) < 0) {
        Py_CLEAR(data);
    }
    if (data != NULL && r->paused && PyByteArray_GET_SIZE(buffer) <= r->limit &&
        tdl__reader_resume(s, reader) < 0) {
        Py_CLEAR(data);
    }
    Py_DECREF(buffer);
    return data;
}

static int append(PyObject *buffer, const char *data, Py_ssize_t n)
{
    Py_ssize_t size = PyByteArray_GET_SIZE(buffer);
    if (PyByteArray_Resize(buffer, size + n) < 0) {
        return -1;
    }
    memcpy(PyByteArray_AS_STRING(buffer) + size, data, (size_t)n);
    return 0;
}

/* A result that a future does not take is an error, unless it was canceled. */
static int not_taken(struct tdl_streams *s, PyObject *waiter)
{
    PyObject *exc = PyErr_GetRaisedException();
    PyObject *cancelled = PyObject_CallMethodNoArgs(waiter, s->str_cancelled);
    int truth = cancelled != NULL ? PyObject_IsTrue(cancelled) : -1;
    Py_XDECREF(cancelled);
    if (truth == 0) {
        PyErr_SetRaisedException(exc);
        return -1;
    }
    Py_XDECREF(exc);
    return truth < 0 ? -1 : 0;
}

/* Wake whoever waits for data, unless he was canceled meanwhile: asked first, where the future may be
 * somebody's own. */
static int wake(struct tdl_streams *s, PyObject *reader, PyObject *waiter)
{
    if (tdl__reader_set(s, reader, s->str__waiter, Py_None) < 0) {
        return -1;
    }
    bool plain = Py_TYPE(waiter) == s->future_type;
    PyObject *cancelled = plain ? Py_NewRef(Py_False) : PyObject_CallMethodNoArgs(waiter, s->str_cancelled);
    int truth = cancelled != NULL ? PyObject_IsTrue(cancelled) : -1;
    Py_XDECREF(cancelled);
    if (truth != 0) {
        return truth < 0 ? -1 : 0;
    }
    PyObject *result = PyObject_CallMethodOneArg(waiter, s->str_set_result, Py_None);
    if (result == NULL) {
        return plain ? not_taken(s, waiter) : -1;
    }
    Py_DECREF(result);
    return 0;
}

/* There is more than a reader should hold: stop the transport. */
static int stop_transport(struct tdl_streams *s, PyObject *reader)
{
    PyObject *transport = PyObject_GetAttr(reader, s->str__transport);
    if (transport == NULL || transport == Py_None) {
        Py_XDECREF(transport);
        return transport != NULL ? 0 : -1;
    }
    PyObject *result = PyObject_CallMethodNoArgs(transport, s->str_pause_reading);
    Py_DECREF(transport);
    if (result != NULL) {
        Py_DECREF(result);
        return tdl__reader_set(s, reader, s->str__paused, Py_True);
    }
    if (!PyErr_ExceptionMatches(PyExc_NotImplementedError)) {
        return -1;
    }
    PyErr_Clear();
    return tdl__reader_set(s, reader, s->str__transport, Py_None);
}

/* reader.feed_data(data): 0 if asyncio's is to be called. */
static int feed(struct tdl_streams *s, PyObject *reader, const char *data, Py_ssize_t n)
{
    struct tdl_reader r;
    if (!tdl__reader_look(s, reader, &r)) {
        return 0;
    }
    if (r.eof) {
        Py_DECREF(r.dict);
        return 0;
    }
    PyObject *waiter = Py_NewRef(r.waiter);
    PyObject *buffer = Py_NewRef(r.buffer);
    Py_DECREF(r.dict);
    int code = append(buffer, data, n);
    if (code == 0 && waiter != Py_None) {
        code = wake(s, reader, waiter);
    }
    if (code == 0 && !r.paused && PyByteArray_GET_SIZE(buffer) > 2 * r.limit) {
        code = stop_transport(s, reader);
    }
    Py_DECREF(waiter);
    Py_DECREF(buffer);
    return code < 0 ? -1 : 1;
}

int tdl__streams_feed(struct tdl_module_state *st, PyObject *protocol, const char *data, Py_ssize_t n)
{
    struct tdl_streams *s = st->streams;
    if (s->protocol.type == NULL || !tdl__streams_is(&s->protocol, protocol)) {
        return 0;
    }
    PyObject *dict = PyObject_GenericGetDict(protocol, NULL);
    PyObject *ref = NULL;
    if (dict != NULL && PyDict_GetItemWithError(dict, s->str_data_received) == NULL) {
        ref = Py_XNewRef(PyDict_GetItemWithError(dict, s->str__stream_reader_wr));
    }
    Py_XDECREF(dict);
    PyErr_Clear();
    int code = 0;
    if (ref != NULL && PyWeakref_CheckRefExact(ref)) {
        PyObject *reader = tdl__weakref_get(ref);
        code = reader != NULL ? feed(s, reader, data, n) : 1;
        Py_XDECREF(reader);
    }
    Py_XDECREF(ref);
    return code;
}
