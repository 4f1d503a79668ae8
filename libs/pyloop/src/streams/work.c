/* What the coroutine methods do between two waits, where nothing is out of the ordinary. */
#include "streams/op.h"

#include <string.h>

static enum tdl_streams_outcome outcome_of(PyObject *result)
{
    return result != NULL ? TDL_STREAMS_RESULT : TDL_STREAMS_FAILED;
}

static enum tdl_streams_outcome read_some(TdlStreamsOp *op, const struct tdl_reader *r, bool waited,
                                          PyObject **result)
{
    Py_ssize_t len = PyByteArray_GET_SIZE(r->buffer);
    if (op->size == 0) {
        *result = PyBytes_FromStringAndSize(NULL, 0);
        return outcome_of(*result);
    }
    if (len == 0 && !r->eof && !waited) {
        return TDL_STREAMS_WAIT;
    }
    *result = tdl__reader_take(tdl__streams_of(op), op->self, r, len < op->size ? len : op->size);
    return outcome_of(*result);
}

static bool gives_lines(const TdlStreamsOp *op)
{
    return op->method->call == TDL_STREAMS_READLINE || op->method->call == TDL_STREAMS_ANEXT;
}

static void raise_made(PyObject *exc)
{
    if (exc != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
        Py_DECREF(exc);
    }
}

/* The end came before what was asked for: the rest is given as a line, or by IncompleteReadError. */
static enum tdl_streams_outcome ended(TdlStreamsOp *op, const struct tdl_reader *r, PyObject **result)
{
    PyObject *rest =
        PyBytes_FromStringAndSize(PyByteArray_AS_STRING(r->buffer), PyByteArray_GET_SIZE(r->buffer));
    if (rest == NULL || PyByteArray_Resize(r->buffer, 0) < 0) {
        Py_XDECREF(rest);
        return TDL_STREAMS_FAILED;
    }
    if (op->method->call == TDL_STREAMS_READLINE ||
        (op->method->call == TDL_STREAMS_ANEXT && PyBytes_GET_SIZE(rest) > 0)) {
        *result = rest;
        return TDL_STREAMS_RESULT;
    }
    if (op->method->call == TDL_STREAMS_ANEXT) {
        PyErr_SetNone(PyExc_StopAsyncIteration);
    } else if (op->method->call == TDL_STREAMS_READEXACTLY) {
        raise_made(PyObject_CallFunction(tdl__streams_of(op)->incomplete_error, "On", rest, op->size));
    } else {
        raise_made(PyObject_CallFunction(tdl__streams_of(op)->incomplete_error, "OO", rest, Py_None));
    }
    Py_DECREF(rest);
    return TDL_STREAMS_FAILED;
}

/* The line is longer than the limit: drop it, or what there is of it, and raise ValueError. */
static void drop_line(TdlStreamsOp *op, const struct tdl_reader *r, Py_ssize_t begin, PyObject *overrun)
{
    struct tdl_streams *s = tdl__streams_of(op);
    Py_ssize_t len = PyByteArray_GET_SIZE(r->buffer);
    bool found = begin < len && PyByteArray_AS_STRING(r->buffer)[begin] == '\n';
    PyObject *dropped = tdl__reader_take(s, op->self, r, found ? begin + 1 : len);
    PyObject *text = dropped != NULL ? PyObject_GetAttrString(overrun, "args") : NULL;
    PyObject *exc = text != NULL ? PyObject_CallOneArg(PyExc_ValueError, PyTuple_GET_ITEM(text, 0)) : NULL;
    if (exc != NULL) {
        PyException_SetContext(exc, Py_NewRef(overrun));
    }
    raise_made(exc);
    Py_XDECREF(text);
    Py_XDECREF(dropped);
}

static enum tdl_streams_outcome overran(TdlStreamsOp *op, const struct tdl_reader *r, const char *text,
                                        Py_ssize_t begin)
{
    PyObject *overrun = PyObject_CallFunction(tdl__streams_of(op)->overrun_error, "sn", text, begin);
    if (overrun != NULL && gives_lines(op)) {
        drop_line(op, r, begin, overrun);
        Py_DECREF(overrun);
    } else {
        raise_made(overrun);
    }
    return TDL_STREAMS_FAILED;
}

static enum tdl_streams_outcome read_exactly(TdlStreamsOp *op, const struct tdl_reader *r, PyObject **result)
{
    if (op->size == 0) {
        *result = PyBytes_FromStringAndSize(NULL, 0);
        return outcome_of(*result);
    }
    if (PyByteArray_GET_SIZE(r->buffer) < op->size) {
        return r->eof ? ended(op, r, result) : TDL_STREAMS_WAIT;
    }
    *result = tdl__reader_take(tdl__streams_of(op), op->self, r, op->size);
    return outcome_of(*result);
}

/* Where the separator begins, from `offset` on; -1 if nowhere. */
static Py_ssize_t find(const char *text, Py_ssize_t len, Py_ssize_t offset, const char *separator,
                       size_t size)
{
    const char *at = size == 1 ? memchr(text + offset, separator[0], (size_t)(len - offset))
                               : memmem(text + offset, (size_t)(len - offset), separator, size);
    return at != NULL ? at - text : -1;
}

static enum tdl_streams_outcome read_until(TdlStreamsOp *op, const struct tdl_reader *r, PyObject **result)
{
    Py_ssize_t len = PyByteArray_GET_SIZE(r->buffer);
    const char *separator = op->separator != NULL ? PyBytes_AS_STRING(op->separator) : "\n";
    Py_ssize_t size = op->separator != NULL ? PyBytes_GET_SIZE(op->separator) : 1;
    if (len - op->size >= size) {
        Py_ssize_t at = find(PyByteArray_AS_STRING(r->buffer), len, op->size, separator, (size_t)size);
        if (at > r->limit) {
            return overran(op, r, "Separator is found, but chunk is longer than limit", at);
        }
        if (at >= 0) {
            *result = tdl__reader_take(tdl__streams_of(op), op->self, r, at + size);
            return outcome_of(*result);
        }
        op->size = len + 1 - size;
        if (op->size > r->limit) {
            return overran(op, r, "Separator is not found, and chunk exceed the limit", op->size);
        }
    }
    return r->eof ? ended(op, r, result) : TDL_STREAMS_WAIT;
}

static PyObject *new_future(TdlStreamsOp *op, PyObject *loop)
{
    struct tdl_module_state *st = op->method->state;
    return PyObject_TypeCheck(loop, st->loop_type) ? tdl__future_new(TDL_LOOP(loop))
                                                   : PyObject_CallMethodNoArgs(loop, st->str_create_future);
}

static PyObject *await_of(PyObject *future)
{
    PyAsyncMethods *methods = Py_TYPE(future)->tp_as_async;
    if (methods != NULL && methods->am_await != NULL) {
        return methods->am_await(future);
    }
    PyErr_Format(PyExc_TypeError, "object %.100s can't be used in 'await' expression",
                 Py_TYPE(future)->tp_name);
    return NULL;
}

/* reader._wait_for_data(), until it awaits. */
static enum tdl_streams_outcome begin_wait(TdlStreamsOp *op, const struct tdl_reader *r)
{
    struct tdl_streams *s = tdl__streams_of(op);
    PyObject *loop = Py_NewRef(r->loop);
    PyObject *future = r->paused && tdl__reader_resume(s, op->self) < 0 ? NULL : new_future(op, loop);
    Py_DECREF(loop);
    if (future != NULL && tdl__reader_set(s, op->self, s->str__waiter, future) == 0) {
        op->await = await_of(future);
        if (op->await == NULL) {
            PyObject *exc = PyErr_GetRaisedException();
            (void)tdl__reader_set(s, op->self, s->str__waiter, Py_None);
            PyErr_Clear();
            PyErr_SetRaisedException(exc);
        }
    }
    Py_XDECREF(future);
    return op->await != NULL ? TDL_STREAMS_WAIT : TDL_STREAMS_FAILED;
}

static enum tdl_streams_outcome read_plain(TdlStreamsOp *op, const struct tdl_reader *r, bool waited,
                                           PyObject **result)
{
    switch (op->method->call) {
    case TDL_STREAMS_READ:
        return read_some(op, r, waited, result);
    case TDL_STREAMS_READEXACTLY:
        return read_exactly(op, r, result);
    default:
        return read_until(op, r, result);
    }
}

static enum tdl_streams_outcome read_work(TdlStreamsOp *op, bool waited, PyObject **result)
{
    struct tdl_streams *s = tdl__streams_of(op);
    struct tdl_reader r;
    if (!tdl__reader_look(s, op->self, &r)) {
        return waited && tdl__reader_set(s, op->self, s->str__waiter, Py_None) < 0 ? TDL_STREAMS_FAILED
                                                                                   : TDL_STREAMS_ASYNCIO;
    }
    enum tdl_streams_outcome outcome = TDL_STREAMS_ASYNCIO;
    if (waited && r.waiter != Py_None) {
        outcome = tdl__reader_set(s, op->self, s->str__waiter, Py_None) < 0 ? TDL_STREAMS_FAILED : outcome;
        r.waiter = Py_None;
    }
    if (outcome != TDL_STREAMS_FAILED && (waited || r.exception == Py_None)) {
        outcome = read_plain(op, &r, waited, result);
    }
    if (outcome == TDL_STREAMS_WAIT) { /* if somebody does already, asyncio raises */
        outcome = r.waiter == Py_None ? begin_wait(op, &r) : TDL_STREAMS_ASYNCIO;
    }
    Py_DECREF(r.dict);
    return outcome;
}

/* The first attributes of an object, as references, if they have these names in this order: that of its
 * class's __init__. */
bool tdl__streams_attributes(PyObject *self, PyObject *const *names, PyObject **values, size_t count)
{
    PyObject *dict = PyObject_GenericGetDict(self, NULL);
    Py_ssize_t at = 0;
    PyObject *name;
    size_t found = 0;
    while (dict != NULL && found < count && PyDict_Next(dict, &at, &name, &values[found]) &&
           name == names[found]) {
        Py_INCREF(values[found]);
        found++;
    }
    Py_XDECREF(dict);
    if (found < count) {
        while (found > 0) {
            Py_DECREF(values[--found]);
        }
        PyErr_Clear();
        return false;
    }
    return true;
}

/* Whether protocol._drain_helper() has nothing to wait for and nothing to raise. */
static bool may_write(struct tdl_streams *s, PyObject *protocol)
{
    PyObject *const names[] = {s->str__loop, s->str__paused, s->str__drain_waiters, s->str__connection_lost};
    PyObject *values[4];
    if (!tdl__streams_is(&s->protocol, protocol) || !tdl__streams_attributes(protocol, names, values, 4)) {
        return false;
    }
    for (size_t i = 0; i < 4; i++) {
        Py_DECREF(values[i]); /* what is compared lives for ever */
    }
    return values[1] == Py_False && values[3] == Py_False;
}

/* Whether the protocol has no method of its own in the place of the class's. */
static bool is_unhidden(struct tdl_streams *s, PyObject *protocol)
{
    PyObject *dict = PyObject_GenericGetDict(protocol, NULL);
    bool unhidden = dict != NULL && PyDict_GetItemWithError(dict, s->str__drain_helper) == NULL;
    Py_XDECREF(dict);
    PyErr_Clear();
    return unhidden;
}

/* Whether transport.is_closing() says no: what it raises, asyncio's own call will raise again. */
static bool is_open(struct tdl_streams *s, PyObject *transport)
{
    PyObject *closing = PyObject_CallMethodNoArgs(transport, s->str_is_closing);
    Py_XDECREF(closing);
    PyErr_Clear();
    return closing == Py_False;
}

/* Whether reader.exception() may give one. */
static bool has_failed(struct tdl_streams *s, PyObject *reader)
{
    return reader != Py_None && !tdl__reader_is_well(s, reader);
}

static enum tdl_streams_outcome drain(TdlStreamsOp *op, PyObject **result)
{
    struct tdl_streams *s = tdl__streams_of(op);
    if (!tdl__streams_is(&s->writer, op->self)) {
        return TDL_STREAMS_ASYNCIO;
    }
    PyObject *const names[] = {s->str__transport, s->str__protocol, s->str__reader};
    PyObject *values[3];
    if (!tdl__streams_attributes(op->self, names, values, 3)) {
        return TDL_STREAMS_ASYNCIO;
    }
    bool done = !has_failed(s, values[2]) && is_open(s, values[0]) && may_write(s, values[1]) &&
                is_unhidden(s, values[1]);
    for (size_t i = 0; i < 3; i++) {
        Py_DECREF(values[i]);
    }
    *result = done ? Py_NewRef(Py_None) : NULL;
    return done ? TDL_STREAMS_RESULT : TDL_STREAMS_ASYNCIO;
}

/* Do what can be done now. `waited`: this goes on behind a wait. */
enum tdl_streams_outcome tdl__streams_work(TdlStreamsOp *op, bool waited, PyObject **result)
{
    *result = NULL;
    switch (op->method->call) {
    case TDL_STREAMS_DRAIN:
        return drain(op, result);
    case TDL_STREAMS_DRAIN_HELPER:
        if (!may_write(tdl__streams_of(op), op->self)) {
            return TDL_STREAMS_ASYNCIO;
        }
        *result = Py_NewRef(Py_None);
        return TDL_STREAMS_RESULT;
    default:
        return read_work(op, waited, result);
    }
}
