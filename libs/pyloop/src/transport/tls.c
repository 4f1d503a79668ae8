/* The hot path of TLS: records in, plaintext to the application, plaintext out, records to the transport.
 * The state lives in members that asyncio's SSLProtocol, the next class in the method resolution order, uses under its
 * own names; whatever is not the plain case is left to its Python. */
#include "transport/tls.h"

#include "ground/asyncio.h"
#include "loop/loop.h"
#include "loop/soon.h"
#include "streams/streams.h"
#include "transport/tls_span.h"

typedef struct {
    PyObject_HEAD PyObject *loop;
    PyObject *state; /* a member of asyncio.sslproto.SSLProtocolState */
    PyObject *sslobj, *incoming, *outgoing;
    PyObject *transport;
    PyObject *app_protocol;
    PyObject *backlog;            /* a deque: what the application wrote before the handshake was done */
    Py_ssize_t write_buffer_size; /* bytes in backlog */
    double out_high, out_low, in_high, in_low;
    bool app_is_buffer;
    bool app_reading_paused, app_writing_paused;
    bool ssl_reading_paused, ssl_writing_paused;
} TdlTls;

#define TDL_TLS(op) ((TdlTls *)(op))

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
static bool is_ready(const TdlTls *p)
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

static int process_outgoing(TdlTls *p)
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

/* Decrypt into the loop's memory until records run out. A read that is shorter than asked for, with nothing left in
 * the BIO, has taken everything: asking once more would only cost an exception. */
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

static int do_read(TdlTls *p)
{
    if (!reads(p)) {
        return 0;
    }
    int code = 0;
    if (!p->app_reading_paused) {
        code = p->app_is_buffer ? read_buffered(p) : read_copied(p);
        if (code == 0) {
            Py_ssize_t waiting = PyObject_Length(p->backlog);
            code = waiting < 0 ? -1 : waiting > 0 ? call(p, TDL_TLS_DO_WRITE) : process_outgoing(p);
        }
    }
    if (code == 0) {
        code = control_ssl_reading(p);
    }
    return code < 0 ? failed(p) : 0;
}

static int not_ready(void)
{
    PyErr_SetString(PyExc_RuntimeError, "the TLS protocol has no connection");
    return -1;
}

int tdl__tls_received(TdlLoop *loop, PyObject *protocol, Py_ssize_t n)
{
    TdlTls *p = TDL_TLS(protocol);
    if (!is_ready(p) || p->loop != (PyObject *)loop) {
        return not_ready();
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
        code = p->state == st->tls_wrapped ? do_read(p) : call(p, "_advance");
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
    return process_outgoing(p);
}

static int write_data(TdlTls *p, PyObject *data)
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

/* write() of the application's transport, a Python class: its protocol is a TdlTls. */
static PyObject *transport_write(PyObject *self, PyObject *data)
{
    if (!PyBytes_Check(data) && !PyByteArray_Check(data) && !PyMemoryView_Check(data)) {
        PyObject *name = PyType_GetName(Py_TYPE(data));
        if (name != NULL) {
            PyErr_Format(PyExc_TypeError, "data: expecting a bytes-like instance, got %U", name);
        }
        Py_XDECREF(name);
        return NULL;
    }
    int truth = PyObject_IsTrue(data);
    if (truth <= 0) {
        return truth < 0 ? NULL : Py_NewRef(Py_None);
    }
    PyObject *protocol = PyObject_GetAttrString(self, TDL_TLS_OF_TRANSPORT);
    if (protocol == NULL) {
        return NULL;
    }
    if (protocol == Py_None) {
        return protocol; /* closed twice: dropped */
    }
    PyObject *module = PyType_GetModuleByDef(Py_TYPE(protocol), &tdl__module_def);
    int code;
    if (module != NULL && PyObject_TypeCheck(protocol, tdl__state_of_module(module)->tls_type) &&
        is_ready(TDL_TLS(protocol))) {
        code = write_data(TDL_TLS(protocol), data);
    } else { /* another loop's protocol */
        PyErr_Clear();
        PyObject *result = PyObject_CallMethod(protocol, TDL_TLS_WRITE_APPDATA, "((O))", data);
        Py_XDECREF(result);
        code = result != NULL ? 0 : -1;
    }
    Py_DECREF(protocol);
    return code < 0 ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef transport_methods[] = {
    {"write", transport_write, METH_O,
     PyDoc_STR("write($self, data, /)\n--\n\nEncrypt and send data, or queue it; never blocks.")},
    {NULL, NULL, 0, NULL},
};

static PyObject *tls_do_read(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlTls *p = TDL_TLS(self);
    int code = is_ready(p) ? do_read(p) : not_ready();
    return code < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *tls_process_outgoing(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlTls *p = TDL_TLS(self);
    int code = is_ready(p) ? process_outgoing(p) : not_ready();
    return code < 0 ? NULL : Py_NewRef(Py_None);
}

/* _note_limits(out_high, out_low, in_high, in_low): the flow control's marks, any of which may be a float. */
static PyObject *tls_note_limits(PyObject *self, PyObject *args)
{
    TdlTls *p = TDL_TLS(self);
    if (!PyArg_ParseTuple(args, "dddd", &p->out_high, &p->out_low, &p->in_high, &p->in_low)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static int tls_traverse(PyObject *self, visitproc visit, void *arg)
{
    TdlTls *p = TDL_TLS(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(p->loop);
    Py_VISIT(p->state);
    Py_VISIT(p->sslobj);
    Py_VISIT(p->incoming);
    Py_VISIT(p->outgoing);
    Py_VISIT(p->transport);
    Py_VISIT(p->app_protocol);
    Py_VISIT(p->backlog);
    return 0;
}

static int tls_clear(PyObject *self)
{
    TdlTls *p = TDL_TLS(self);
    Py_CLEAR(p->loop);
    Py_CLEAR(p->state);
    Py_CLEAR(p->sslobj);
    Py_CLEAR(p->incoming);
    Py_CLEAR(p->outgoing);
    Py_CLEAR(p->transport);
    Py_CLEAR(p->app_protocol);
    Py_CLEAR(p->backlog);
    return 0;
}

static void tls_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, tls_dealloc);
    (void)tls_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
    Py_TRASHCAN_END;
}

static PyObject *get_loop(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *loop = TDL_TLS(self)->loop;
    return Py_NewRef(loop != NULL ? loop : Py_None);
}

static int set_loop(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    PyObject *module = value != NULL ? PyType_GetModuleByDef(Py_TYPE(value), &tdl__module_def) : NULL;
    if (module == NULL || !PyObject_TypeCheck(value, tdl__state_of_module(module)->loop_type)) {
        PyErr_SetString(PyExc_TypeError, "a treadle.Loop is required");
        return -1;
    }
    Py_XSETREF(TDL_TLS(self)->loop, Py_NewRef(value));
    return 0;
}

static PyGetSetDef tls_getset[] = {
    {"_loop", get_loop, set_loop, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef tls_members[] = {
    {TDL_TLS_STATE, T_OBJECT, offsetof(TdlTls, state), 0, NULL},
    {TDL_TLS_OBJECT, T_OBJECT, offsetof(TdlTls, sslobj), 0, NULL},
    {TDL_TLS_INCOMING, T_OBJECT, offsetof(TdlTls, incoming), 0, NULL},
    {TDL_TLS_OUTGOING, T_OBJECT, offsetof(TdlTls, outgoing), 0, NULL},
    {TDL_TLS_TRANSPORT, T_OBJECT, offsetof(TdlTls, transport), 0, NULL},
    {TDL_TLS_APP_PROTOCOL, T_OBJECT, offsetof(TdlTls, app_protocol), 0, NULL},
    {TDL_TLS_BACKLOG, T_OBJECT, offsetof(TdlTls, backlog), 0, NULL},
    {TDL_TLS_WRITE_SIZE, T_PYSSIZET, offsetof(TdlTls, write_buffer_size), 0, NULL},
    {TDL_TLS_APP_IS_BUFFER, T_BOOL, offsetof(TdlTls, app_is_buffer), 0, NULL},
    {TDL_TLS_APP_READING_PAUSED, T_BOOL, offsetof(TdlTls, app_reading_paused), 0, NULL},
    {TDL_TLS_APP_WRITING_PAUSED, T_BOOL, offsetof(TdlTls, app_writing_paused), 0, NULL},
    {TDL_TLS_SSL_READING_PAUSED, T_BOOL, offsetof(TdlTls, ssl_reading_paused), 0, NULL},
    {TDL_TLS_SSL_WRITING_PAUSED, T_BOOL, offsetof(TdlTls, ssl_writing_paused), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef tls_methods[] = {
    {TDL_TLS_DO_READ, tls_do_read, METH_NOARGS, NULL},
    {TDL_TLS_PROCESS_OUTGOING, tls_process_outgoing, METH_NOARGS, NULL},
    {"_note_limits", tls_note_limits, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tls_slots[] = {
    {Py_tp_doc, TDL_DOC("The C part of treadle's TLS protocol.")},
    {Py_tp_dealloc, tls_dealloc},
    {Py_tp_traverse, tls_traverse},
    {Py_tp_clear, tls_clear},
    {Py_tp_methods, tls_methods},
    {Py_tp_getset, tls_getset},
    {Py_tp_members, tls_members},
    {0, NULL},
};

static PyType_Spec tls_spec = {
    .name = "treadle._treadle.TLSBase",
    .basicsize = sizeof(TdlTls),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = tls_slots,
};

/* tls_setup(wrapped, flushing, again, transport_class): what C needs of asyncio.sslproto, once it is imported. */
PyObject *tdl__tls_setup(PyObject *module, PyObject *args)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    PyObject *wrapped, *flushing, *again, *transport;
    if (!PyArg_ParseTuple(args, "OOO!O!", &wrapped, &flushing, &PyTuple_Type, &again, &PyType_Type,
                          &transport)) {
        return NULL;
    }
    Py_XSETREF(st->tls_wrapped, Py_NewRef(wrapped));
    Py_XSETREF(st->tls_flushing, Py_NewRef(flushing));
    Py_XSETREF(st->tls_again, Py_NewRef(again));
    if (tdl__add_methods((PyTypeObject *)transport, transport_methods) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

int tdl__tls_types(PyObject *module)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    st->tls_type = tdl__add_type(module, &tls_spec, NULL);
    return st->tls_type != NULL ? tdl__span_type(module) : -1;
}
