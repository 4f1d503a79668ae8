/* The hot path of TLS: records in, plaintext to the application, plaintext out, records to the transport.
 * The state lives in members that asyncio's SSLProtocol, the next class in the method resolution order, uses
 * under its own names; whatever is not the plain case is left to its Python. */
#include "transport/tls.h"

#include "ground/asyncio.h"
#include "loop/loop.h"
#include "loop/soon.h"
#include "streams/streams.h"
#include "transport/tls_span.h"

static TdlSpan *span_of(TdlLoop *loop, TdlSpan **slot)
{
    if (*slot == NULL) {
        *slot = tdl__span_new(loop->state, TDL_READ_BUFFER_SIZE);
    }
    return *slot;
}

char *tdl__tls_input(TdlLoop *loop)
{
    TdlSpan *span = span_of(loop, (TdlSpan **)&loop->tls_records);
    return span != NULL ? span->memory : NULL;
}

static int call(TdlTls *p, const char *method)
{
    PyObject *result = PyObject_CallMethod((PyObject *)p, method, NULL);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

/* An exception of the connection ends it as asyncio does; one that ends the run stays raised. */
static int failed(TdlTls *p)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return -1;
    }
    PyObject *exc = PyErr_GetRaisedException();
    PyObject *result = PyObject_CallMethod((PyObject *)p, "_failed", "O", exc);
    Py_DECREF(exc);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

/* Whether SSLProtocol.__init__ has run; its __del__ and the collector come too early and too late. */
bool tdl__tls_is_ready(const TdlTls *p)
{
    return p->loop != NULL && p->state != NULL && p->sslobj != NULL && p->incoming != NULL &&
           p->outgoing != NULL && p->transport != NULL && p->app_protocol != NULL && p->backlog != NULL;
}

static struct tdl_module_state *state_of(const TdlTls *p)
{
    return TDL_LOOP(p->loop)->state;
}

/* Bytes in a BIO that OpenSSL has not taken yet; -1 with an exception. */
static Py_ssize_t pending(const TdlTls *p, PyObject *bio)
{
    PyObject *number = PyObject_GetAttr(bio, state_of(p)->str_pending);
    Py_ssize_t n = number != NULL ? PyLong_AsSsize_t(number) : -1;
    Py_XDECREF(number);
    return n;
}

/* ssl wants more records before it can go on: nothing failed. */
static bool wants_more(const TdlTls *p)
{
    if (!PyErr_ExceptionMatches(state_of(p)->tls_again)) {
        return false;
    }
    PyErr_Clear();
    return true;
}

static int control_app_writing(TdlTls *p, Py_ssize_t left)
{
    double size = (double)(left + p->write_buffer_size);
    if (p->app_writing_paused ? size <= p->out_low : size >= p->out_high) {
        return call(p, TDL_TLS_CONTROL_APP_WRITING);
    }
    return 0;
}

static int control_ssl_reading(TdlTls *p)
{
    Py_ssize_t n = pending(p, p->incoming);
    if (n < 0) {
        return -1;
    }
    if (p->ssl_reading_paused ? (double)n <= p->in_low : (double)n >= p->in_high) {
        return call(p, TDL_TLS_CONTROL_SSL_READING);
    }
    return 0;
}

int tdl__tls_process_outgoing(TdlTls *p)
{
    Py_ssize_t n = pending(p, p->outgoing);
    if (n > 0 && !p->ssl_writing_paused) {
        PyObject *data = PyObject_CallMethodNoArgs(p->outgoing, state_of(p)->str_read);
        PyObject *transport = Py_NewRef(p->transport);
        PyObject *result =
            data != NULL ? PyObject_CallMethodOneArg(transport, state_of(p)->str_write, data) : NULL;
        Py_DECREF(transport);
        Py_XDECREF(data);
        Py_XDECREF(result);
        if (result == NULL) {
            return -1;
        }
        n = 0;
    }
    return n < 0 ? -1 : control_app_writing(p, n);
}

/* Read plaintext into buffer: its bytes, 0 after close_notify, -1 with an exception. */
static Py_ssize_t read_object(TdlTls *p, Py_ssize_t size, PyObject *buffer)
{
    PyObject *length = PyLong_FromSsize_t(size);
    if (length == NULL) {
        return -1;
    }
    PyObject *stack[3] = {p->sslobj, length, buffer};
    PyObject *count =
        PyObject_VectorcallMethod(state_of(p)->str_read, stack, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_DECREF(length);
    Py_ssize_t n = count != NULL ? PyLong_AsSsize_t(count) : -1;
    Py_XDECREF(count);
    return n;
}

/* How a read of all that there is ended. */
struct tdl_plain {
    size_t size;
    bool closed; /* the peer sent close_notify */
    bool full;   /* there may be more */
};

/* Decrypt into the loop's memory until records run out. A read that is shorter than asked for, with nothing
 * left in the BIO, has taken everything: asking once more would only cost an exception. */
static int read_plain(TdlTls *p, TdlSpan *span, struct tdl_plain *plain)
{
    *plain = (struct tdl_plain){0};
    while (plain->size < TDL_READ_BUFFER_SIZE) {
        span->start = plain->size;
        span->len = TDL_READ_BUFFER_SIZE - plain->size;
        Py_ssize_t n = read_object(p, (Py_ssize_t)span->len, (PyObject *)span);
        if (n < 0) {
            return wants_more(p) ? 0 : -1;
        }
        if (n == 0) {
            plain->closed = true;
            return 0;
        }
        bool filled = (size_t)n == span->len;
        plain->size += (size_t)n;
        Py_ssize_t left = filled ? 1 : pending(p, p->incoming);
        if (left <= 0) {
            return left < 0 ? -1 : 0;
        }
    }
    plain->full = true;
    return 0;
}

static int on_close_notify(TdlTls *p)
{
    return call(p, TDL_TLS_CALL_EOF) < 0 ? -1 : call(p, TDL_TLS_START_SHUTDOWN);
}

static bool reads(const TdlTls *p)
{
    const struct tdl_module_state *st = state_of(p);
    return p->state == st->tls_wrapped || p->state == st->tls_flushing;
}

static int deliver(TdlTls *p, const char *bytes, size_t size)
{
    PyObject *app = Py_NewRef(p->app_protocol);
    int taken = tdl__streams_feed(state_of(p), app, bytes, (Py_ssize_t)size);
    PyObject *data = taken == 0 ? PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size) : NULL;
    if (data == NULL) {
        Py_DECREF(app);
        return taken > 0 ? 0 : -1;
    }
    (void)tdl__streams_count(TDL_LOOP(p->loop), app, &p->use, TDL_STREAMS_RECEIVED);
    PyObject *result = PyObject_CallMethodOneArg(app, state_of(p)->str_data_received, data);
    Py_DECREF(app);
    Py_DECREF(data);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

static int read_copied(TdlTls *p)
{
    TdlLoop *loop = TDL_LOOP(p->loop);
    TdlSpan *span = span_of(loop, (TdlSpan **)&loop->tls_plain);
    struct tdl_plain plain = {.full = true};
    while (span != NULL && plain.full && reads(p) && !p->app_reading_paused) {
        if (read_plain(p, span, &plain) < 0) {
            return -1;
        }
        if (plain.size > 0 && deliver(p, span->memory, plain.size) < 0) {
            return -1;
        }
        if (plain.closed) {
            return on_close_notify(p);
        }
    }
    return span != NULL ? 0 : -1;
}

/* Fill the application's buffer, of which `size` bytes may be written; `plain` says how it ended. */
static int fill_buffer(TdlTls *p, PyObject *view, Py_ssize_t size, struct tdl_plain *plain)
{
    *plain = (struct tdl_plain){0};
    while ((Py_ssize_t)plain->size < size) {
        Py_ssize_t offset = (Py_ssize_t)plain->size;
        PyObject *part = offset == 0 ? Py_NewRef(view) : PySequence_GetSlice(view, offset, size);
        Py_ssize_t n = part != NULL ? read_object(p, size - offset, part) : -1;
        Py_XDECREF(part);
        if (n < 0) {
            return wants_more(p) ? 0 : -1;
        }
        if (n == 0) {
            plain->closed = true;
            return 0;
        }
        plain->size += (size_t)n;
        Py_ssize_t left = n == size - offset ? 1 : pending(p, p->incoming);
        if (left <= 0) {
            return left < 0 ? -1 : 0;
        }
    }
    plain->full = true;
    return 0;
}

static int read_buffered(TdlTls *p)
{
    struct tdl_module_state *st = state_of(p);
    PyObject *hint = PyObject_GetAttr(p->incoming, st->str_pending);
    PyObject *buffer =
        hint != NULL ? PyObject_CallMethodOneArg(p->app_protocol, st->str_get_buffer, hint) : NULL;
    PyObject *view = buffer != NULL ? PyMemoryView_FromObject(buffer) : NULL;
    Py_XDECREF(hint);
    Py_XDECREF(buffer);
    Py_ssize_t size = view != NULL ? PyObject_Length(view) : -1;
    struct tdl_plain plain = {0};
    int code = size >= 0 ? fill_buffer(p, view, size, &plain) : -1;
    Py_XDECREF(view);
    if (code < 0) {
        return -1;
    }
    if (plain.full) {
        PyObject *again = PyObject_GetAttrString((PyObject *)p, TDL_TLS_DO_READ);
        code = again != NULL ? tdl__call_soon(TDL_LOOP(p->loop), again, NULL, NULL) : -1;
        Py_XDECREF(again);
    }
    if (code == 0 && plain.size > 0) {
        PyObject *count = PyLong_FromSize_t(plain.size);
        PyObject *result =
            count != NULL ? PyObject_CallMethodOneArg(p->app_protocol, st->str_buffer_updated, count) : NULL;
        Py_XDECREF(count);
        Py_XDECREF(result);
        code = result != NULL ? 0 : -1;
    }
    return code == 0 && plain.closed ? on_close_notify(p) : code;
}

int tdl__tls_do_read(TdlTls *p)
{
    if (!reads(p)) {
        return 0;
    }
    int code = 0;
    if (!p->app_reading_paused) {
        code = p->app_is_buffer ? read_buffered(p) : read_copied(p);
        if (code == 0) {
            Py_ssize_t waiting = PyObject_Length(p->backlog);
            code = waiting < 0 ? -1 : waiting > 0 ? call(p, TDL_TLS_DO_WRITE) : tdl__tls_process_outgoing(p);
        }
    }
    if (code == 0) {
        code = control_ssl_reading(p);
    }
    return code < 0 ? failed(p) : 0;
}

int tdl__tls_not_ready(void)
{
    PyErr_SetString(PyExc_RuntimeError, "the TLS protocol has no connection");
    return -1;
}

int tdl__tls_received(TdlLoop *loop, PyObject *protocol, Py_ssize_t n)
{
    TdlTls *p = TDL_TLS(protocol);
    if (!tdl__tls_is_ready(p) || p->loop != (PyObject *)loop) {
        return tdl__tls_not_ready();
    }
    Py_INCREF(p);
    struct tdl_module_state *st = state_of(p);
    TdlSpan *span = (TdlSpan *)Py_NewRef(loop->tls_records);
    span->start = 0;
    span->len = (size_t)n;
    PyObject *taken = PyObject_CallMethodOneArg(p->incoming, st->str_write, (PyObject *)span);
    Py_DECREF(span);
    int code = -1;
    if (taken != NULL) {
        code = p->state == st->tls_wrapped ? tdl__tls_do_read(p) : call(p, "_advance");
    }
    Py_XDECREF(taken);
    Py_DECREF(p);
    return code;
}

/* Encrypt and send, as SSLProtocol._write_appdata does for one piece on an established connection. */
static int write_now(TdlTls *p, PyObject *data)
{
    PyObject *count = PyObject_CallMethodOneArg(p->sslobj, state_of(p)->str_write, data);
    if (count == NULL) {
        if (!wants_more(p)) {
            return -1;
        }
        Py_ssize_t size = PyObject_Length(data);
        PyObject *kept = size >= 0 ? PyObject_CallMethod(p->backlog, "append", "O", data) : NULL;
        Py_XDECREF(kept);
        if (kept == NULL) {
            return -1;
        }
        p->write_buffer_size += size;
    }
    Py_XDECREF(count);
    return tdl__tls_process_outgoing(p);
}

int tdl__tls_write_data(TdlTls *p, PyObject *data)
{
    Py_ssize_t waiting = p->backlog != NULL ? PyObject_Length(p->backlog) : 1;
    if (waiting < 0) {
        return -1;
    }
    if (waiting > 0 || p->state != state_of(p)->tls_wrapped) {
        PyObject *result = PyObject_CallMethod((PyObject *)p, TDL_TLS_WRITE_APPDATA, "((O))", data);
        Py_XDECREF(result);
        return result != NULL ? 0 : -1;
    }
    return write_now(p, data) < 0 ? failed(p) : 0;
}
