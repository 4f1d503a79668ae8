/* The type treadle.TCPTransport, for TCP and Unix stream sockets: construction, extra info, limits, reading
 * on and off. What it does with bytes is in stream_read.c and stream_write.c, how it ends in stream_close.c.
 */
#include "transport/transport.h"

#include "ground/fileno.h"
#include "loop/handle.h"
#include "loop/soon.h"
#include "streams/streams.h"
#include "transport/stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

enum { TDL_STREAM_HIGH_WATER = 64 * 1024 };

void tdl__stream_call_handler(TdlStream *t, const char *message, PyObject *exc)
{
    PyObject *protocol = t->protocol != NULL ? t->protocol : Py_None;
    PyObject *context = Py_BuildValue("{s:s,s:O,s:O,s:O}", "message", message, "exception", exc, "transport",
                                      t, "protocol", protocol);
    PyObject *result = context != NULL
                           ? PyObject_CallMethodOneArg((PyObject *)t->loop,
                                                       t->loop->state->str_call_exception_handler, context)
                           : NULL;
    if (result == NULL) {
        tdl_sched_interrupt(&t->loop->sched);
    }
    Py_XDECREF(context);
    Py_XDECREF(result);
}

int tdl__stream_set_protocol(TdlStream *t, PyObject *protocol)
{
    int buffered = PyObject_IsInstance(protocol, t->loop->state->buffered_protocol);
    if (buffered < 0) {
        return -1;
    }
    t->buffered = buffered > 0;
    t->tls = PyObject_TypeCheck(protocol, t->loop->state->tls_type);
    t->streams = !t->tls && !t->buffered && tdl__streams_adopt(t->loop, protocol);
    Py_XSETREF(t->protocol, Py_NewRef(protocol));
    return 0;
}

TdlStream *tdl__stream_new(TdlLoop *loop, int fd, PyObject *sock, PyObject *protocol, PyObject *server,
                           PyObject *context)
{
    struct tdl_module_state *st = loop->state;
    TdlStream *t = (TdlStream *)st->stream_type->tp_alloc(st->stream_type, 0);
    if (t == NULL) {
        return NULL;
    }
    t->fd = -1; /* the caller keeps the descriptor unless this succeeds */
    t->state = TDL_STREAM_CLOSED;
    t->loop = (TdlLoop *)Py_NewRef((PyObject *)loop);
    tdl__item_init(&t->read_item, tdl__stream_read_run, offsetof(TdlStream, read_item));
    tdl__item_init(&t->write_item, tdl__stream_write_run, offsetof(TdlStream, write_item));
    tdl__item_init(&t->start_item, tdl__stream_start_run, offsetof(TdlStream, start_item));
    tdl__item_init(&t->lost_item, tdl__stream_lost_run, offsetof(TdlStream, lost_item));
    t->high_water = TDL_STREAM_HIGH_WATER;
    t->low_water = TDL_STREAM_HIGH_WATER / 4;
    t->context = context != NULL ? Py_NewRef(context) : PyContext_CopyCurrent();
    if (t->context == NULL || tdl__stream_set_protocol(t, protocol) < 0) {
        Py_DECREF(t);
        return NULL;
    }
    t->watch = tdl__watch_fresh(&loop->poller, fd, sock == NULL); /* accept or connect gave it just now */
    if (t->watch == NULL) {
        Py_DECREF(t);
        return NULL;
    }
    t->watch->transport = (PyObject *)t;
    t->watch->holder = &t->watch;
    t->fd = fd;
    t->sock = Py_XNewRef(sock);
    t->sock_number = sock != NULL ? tdl__socket_number(loop->state, sock, fd) : NULL;
    t->state = TDL_STREAM_OPEN;
    if (server != NULL && server != Py_None) {
        t->server = Py_NewRef(server);
        PyObject *result = PY_VERSION_HEX >= 0x030D0000
                               ? PyObject_CallMethodOneArg(server, st->str__attach, (PyObject *)t)
                               : PyObject_CallMethodNoArgs(server, st->str__attach);
        if (result == NULL) {
            Py_CLEAR(t->server);
            t->sock_number = NULL;
            t->sock = NULL;
            t->fd = -1;
            Py_XDECREF(sock);
            Py_DECREF(t);
            return NULL;
        }
        Py_DECREF(result);
    }
    return t;
}

/* A read of TCP that does not fill its buffer has taken all there was (epoll(7)), but for urgent data, of which the poller
 * hears. Others may stop short: a Unix socket where descriptors came along, for one, and TLS in the kernel at each end of a
 * kind of records, which no accepted or connected socket has until it is given. */
static bool reads_all(const TdlStream *t)
{
    int proto = t->proto; /* accept's */
    socklen_t len = sizeof proto;
    char above[16] = ""; /* a layer between TCP and us, by name */
    socklen_t above_len = sizeof above;
    if (t->sock != NULL &&
        (getsockopt(t->fd, SOL_SOCKET, SO_PROTOCOL, &proto, &len) < 0 ||
         (proto == IPPROTO_TCP && getsockopt(t->fd, IPPROTO_TCP, TCP_ULP, above, &above_len) < 0))) {
        return false;
    }
    return proto == IPPROTO_TCP && above[0] == '\0';
}

/* Queue connection_made, then the start of reading, then the waiter's result, as asyncio does. */
int tdl__stream_start(TdlStream *t, PyObject *waiter)
{
    TdlLoop *loop = t->loop;
    struct tdl_module_state *st = loop->state;
    if (t->watch != NULL) {
        t->watch->edge = reads_all(t);
    }
    PyObject *made = PyObject_GetAttr(t->protocol, st->str_connection_made);
    int code = made != NULL ? tdl__call_soon(loop, made, (PyObject *)t, t->context) : -1;
    Py_XDECREF(made);
    if (code < 0) {
        Py_CLEAR(t->protocol); /* who is not told of a connection is not told of its loss */
        return -1;
    }
    Py_INCREF(t); /* the queue's reference */
    tdl_sched_push(&loop->sched, &t->start_item);
    if (waiter != NULL && waiter != Py_None) {
        PyObject *wake = PyObject_GetAttrString(st->support, "wake_waiter");
        PyObject *args[2] = {waiter, Py_None};
        TdlHandle *h = wake != NULL ? tdl__handle_new(loop, wake, args, 2, NULL) : NULL;
        Py_XDECREF(wake);
        if (h == NULL) {
            return -1;
        }
        tdl_sched_push(&loop->sched, &h->item);
    }
    return code;
}

PyObject *tdl__stream_socket(TdlStream *t)
{
    if (t->sock == NULL && t->fd >= 0) {
        struct tdl_module_state *st = t->loop->state;
        t->sock = tdl__socket_over(st, t->family, t->type, t->proto, t->fd);
        if (t->sock != NULL) {
            t->sock_number = tdl__socket_number(t->loop->state, t->sock, t->fd);
            PyObject *result = PyObject_CallMethod(t->sock, "setblocking", "O", Py_False);
            Py_XDECREF(result);
            PyErr_Clear();
        }
    }
    return Py_XNewRef(t->sock);
}

static PyObject *extra_dict(TdlStream *t)
{
    if (t->extra == NULL || !PyDict_Check(t->extra)) {
        Py_XSETREF(t->extra, PyDict_New());
    }
    return t->extra;
}

static PyObject *addr_to_python(const union tdl_stream_addr *addr)
{
    char text[INET6_ADDRSTRLEN];
    if (addr->any.sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, addr->bytes, sizeof in);
        inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
        return Py_BuildValue("(si)", text, (int)ntohs(in.sin_port));
    }
    struct sockaddr_in6 in6;
    memcpy(&in6, addr->bytes, sizeof in6);
    inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
    return Py_BuildValue("(siII)", text, (int)ntohs(in6.sin6_port), (unsigned)ntohl(in6.sin6_flowinfo),
                         (unsigned)in6.sin6_scope_id);
}

/* Ask the Python socket for an address; a failure means None, as in asyncio. */
static PyObject *ask_socket(TdlStream *t, PyObject *method)
{
    PyObject *sock = tdl__stream_socket(t);
    PyObject *value = sock != NULL ? PyObject_CallMethodNoArgs(sock, method) : NULL;
    Py_XDECREF(sock);
    if (value == NULL) {
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OSError)) {
            return NULL;
        }
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    return value;
}

/* Own address of an INET socket, without making the Python socket for it. */
static PyObject *own_sockname(TdlStream *t)
{
    union tdl_stream_addr addr;
    socklen_t len = sizeof addr;
    if (t->fd >= 0 && getsockname(tdl__stream_fd(t), &addr.any, &len) == 0 && len <= sizeof addr &&
        (addr.any.sa_family == AF_INET || addr.any.sa_family == AF_INET6)) {
        return addr_to_python(&addr);
    }
    return ask_socket(t, t->loop->state->str_getsockname);
}

/* Values that asyncio takes at construction; here they are made when first asked for, and kept. */
static PyObject *lazy_extra(TdlStream *t, PyObject *name)
{
    struct tdl_module_state *st = t->loop->state;
    if (PyUnicode_Compare(name, st->str_peername) == 0) {
        return t->peer_len != 0 ? addr_to_python(&t->peer) : ask_socket(t, st->str_getpeername);
    }
    if (PyUnicode_Compare(name, st->str_sockname) == 0) {
        return own_sockname(t);
    }
    if (PyUnicode_Compare(name, st->str_socket) == 0) {
        PyObject *sock = tdl__stream_socket(t);
        PyObject *wrapped = sock != NULL
                                ? PyObject_CallMethodObjArgs(st->support, st->str__wrap_transport_socket,
                                                             sock, (PyObject *)t, NULL)
                                : NULL;
        Py_XDECREF(sock);
        return wrapped;
    }
    return NULL;
}

/* Everything that get_extra_info() would find, for who looks into _extra by himself. */
static int fill_extra(TdlStream *t)
{
    struct tdl_module_state *st = t->loop->state;
    PyObject *const names[] = {st->str_socket, st->str_sockname, st->str_peername};
    PyObject *extra = extra_dict(t);
    for (size_t i = 0; extra != NULL && i < sizeof names / sizeof names[0]; i++) {
        if ((t->fd < 0 && t->peer_len == 0) || PyDict_Contains(extra, names[i]) > 0) {
            continue;
        }
        PyObject *value = lazy_extra(t, names[i]);
        int code = value != NULL ? PyDict_SetItem(extra, names[i], value) : -1;
        Py_XDECREF(value);
        if (code < 0) {
            return -1;
        }
    }
    return extra != NULL ? 0 : -1;
}

/* What somebody put in the place of a method of asyncio's transports, bound to this one; NULL if nobody did, or with an
 * exception. */
TDL_RARE static PyObject *find_replaced(TdlStream *t, PyObject *name)
{
    struct tdl_module_state *st = t->loop->state;
    if (!tdl__transports_compare(&st->standard, Py_TYPE(t), st->asyncio_transport) || fill_extra(t) < 0) {
        return NULL;
    }
    PyObject *shipped = PyDict_GetItemWithError(st->standard.transport_shipped, name);
    PyObject *now = shipped != NULL ? PyObject_GetAttr(st->asyncio_transport, name) : NULL;
    bool replaced = now != NULL && now != shipped;
    Py_XDECREF(now);
    if (!replaced) {
        return NULL;
    }
    PyObject *behind = PyObject_CallFunctionObjArgs((PyObject *)&PySuper_Type, (PyObject *)st->stream_type,
                                                    (PyObject *)t, NULL);
    PyObject *method = behind != NULL ? PyObject_GetAttr(behind, name) : NULL;
    Py_XDECREF(behind);
    return method;
}

/* The same, asked at each call. */
PyObject *tdl__stream_replaced(TdlStream *t, PyObject *name)
{
    return tdl__type_tag(Py_TYPE(t)) == t->loop->state->standard.transport_tag ? NULL
                                                                               : find_replaced(t, name);
}

static PyObject *stream_get_extra_info(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name", "default", NULL};
    TdlStream *t = TDL_STREAM(self);
    PyObject *replaced = tdl__stream_replaced(t, t->loop->state->str_get_extra_info);
    if (replaced != NULL) {
        PyObject *result = PyObject_Call(replaced, args, kwargs);
        Py_DECREF(replaced);
        return result;
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    PyObject *name;
    PyObject *fallback = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:get_extra_info", TDL_KEYWORDS(names), &name,
                                     &fallback)) {
        return NULL;
    }
    tdl__stream_flush(t);
    PyObject *extra = Py_XNewRef(extra_dict(t)); /* a name's __eq__ may replace it */
    PyObject *value = extra != NULL ? Py_XNewRef(PyDict_GetItemWithError(extra, name)) : NULL;
    if (value == NULL && !PyErr_Occurred() && PyUnicode_Check(name) && (t->fd >= 0 || t->peer_len != 0)) {
        value = lazy_extra(t, name);
        if (value != NULL && PyDict_SetItem(extra, name, value) < 0) {
            Py_CLEAR(value);
        }
    }
    Py_XDECREF(extra);
    return value != NULL || PyErr_Occurred() ? value : Py_NewRef(fallback);
}

static PyObject *stream_pause_reading(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlStream *t = TDL_STREAM(self);
    if (t->state == TDL_STREAM_OPEN && !t->paused) {
        t->paused = true;
        tdl__stream_update_reading(t);
        if (t->loop->debug) {
            return PyObject_CallMethod(t->loop->state->support, "_transport_debug", "sO", "%r pauses reading",
                                       self);
        }
    }
    Py_RETURN_NONE;
}

static PyObject *stream_resume_reading(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlStream *t = TDL_STREAM(self);
    if (t->state == TDL_STREAM_OPEN && t->paused) {
        t->paused = false;
        t->read_eof = false; /* who reads on is told of the end again */
        t->started = true;
        tdl__stream_update_reading(t);
        if (tdl__check_closed(t->loop) < 0) {
            return NULL;
        }
        if (t->loop->debug) {
            return PyObject_CallMethod(t->loop->state->support, "_transport_debug", "sO",
                                       "%r resumes reading", self);
        }
    }
    Py_RETURN_NONE;
}

static PyObject *stream_is_reading(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlStream *t = TDL_STREAM(self);
    return PyBool_FromLong(t->state == TDL_STREAM_OPEN && !t->paused);
}

static PyObject *stream_set_protocol(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                     PyObject *kwnames)
{
    PyObject *protocol = tdl__only_argument("set_protocol", "protocol", args, nargs, kwnames);
    if (protocol == NULL || tdl__stream_set_protocol(TDL_STREAM(self), protocol) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *stream_get_protocol(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *protocol = TDL_STREAM(self)->protocol;
    return Py_NewRef(protocol != NULL ? protocol : Py_None);
}

static PyObject *stream_get_write_buffer_size(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    tdl__stream_flush(TDL_STREAM(self));
    return PyLong_FromSize_t(TDL_STREAM(self)->write_size);
}

static PyObject *stream_get_write_buffer_limits(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlStream *t = TDL_STREAM(self);
    return Py_BuildValue("(nn)", (Py_ssize_t)t->low_water, (Py_ssize_t)t->high_water);
}

int tdl__parse_write_limits(TdlLoop *loop, PyObject *args, PyObject *kwargs, size_t *high_water,
                            size_t *low_water)
{
    static const char *const names[] = {"high", "low", NULL};
    PyObject *high = Py_None;
    PyObject *low = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:set_write_buffer_limits", TDL_KEYWORDS(names), &high,
                                     &low)) {
        return -1;
    }
    PyObject *limits = PyObject_CallMethod(loop->state->support, "write_buffer_limits", "OO", high, low);
    Py_ssize_t high_size = 0;
    Py_ssize_t low_size = 0;
    int ok = limits != NULL && PyArg_ParseTuple(limits, "nn", &high_size, &low_size);
    Py_XDECREF(limits);
    if (!ok) {
        return -1;
    }
    *high_water = (size_t)high_size;
    *low_water = (size_t)low_size;
    return 0;
}

/* A mark as asyncio's inherited code sets it. */
int tdl__parse_water(PyObject *value, size_t *water)
{
    Py_ssize_t size = value != NULL ? PyNumber_AsSsize_t(value, PyExc_OverflowError) : 0;
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "a transport's mark cannot be deleted");
    } else if (size < 0 && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "a transport's mark must not be negative");
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    *water = (size_t)size;
    return 0;
}

int tdl__parse_flag(PyObject *value, bool *flag)
{
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "a transport's flag cannot be deleted");
        return -1;
    }
    int truth = PyObject_IsTrue(value);
    if (truth < 0) {
        return -1;
    }
    *flag = truth > 0;
    return 0;
}

static PyObject *stream_set_write_buffer_limits(PyObject *self, PyObject *args, PyObject *kwargs)
{
    TdlStream *t = TDL_STREAM(self);
    tdl__stream_flush(t);
    if (tdl__parse_write_limits(t->loop, args, kwargs, &t->high_water, &t->low_water) < 0) {
        return NULL;
    }
    if (t->protocol != NULL) {
        tdl__stream_maybe_pause(t);
    }
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *stream_repr(PyObject *self)
{
    TdlStream *t = TDL_STREAM(self);
    const char *state = t->state == TDL_STREAM_CLOSED ? " closed"
                        : t->state != TDL_STREAM_OPEN ? " closing"
                                                      : "";
    if (t->watch == NULL) {
        return PyUnicode_FromFormat("<%s%s fd=%d>", "TCPTransport", state, t->fd);
    }
    return PyUnicode_FromFormat("<TCPTransport%s fd=%d read=%s write=<%s, bufsize=%zu>>", state, t->fd,
                                t->watch->want & UV_READABLE ? "polling" : "idle",
                                t->watch->want & UV_WRITABLE ? "polling" : "idle", t->write_size);
}

/* asyncio's __init__, inherited, would begin a transport anew that has a connection. */
static int stream_init(PyObject *self, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    PyErr_Format(PyExc_TypeError, "%s is made by a loop, once", Py_TYPE(self)->tp_name);
    return -1;
}

static int stream_traverse(PyObject *self, visitproc visit, void *arg)
{
    TdlStream *t = TDL_STREAM(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(t->extra);
    for (size_t i = 0; i < TDL_MIXIN_SLOTS; i++) {
        Py_VISIT(t->mixin_slots[i]);
    }
    Py_VISIT(t->dict);
    Py_VISIT(t->loop);
    Py_VISIT(t->protocol);
    Py_VISIT(t->context);
    Py_VISIT(t->sock);
    Py_VISIT(t->server);
    Py_VISIT(t->empty_waiter);
    Py_VISIT(t->lost_exc);
    return 0;
}

static int stream_clear(PyObject *self)
{
    TdlStream *t = TDL_STREAM(self);
    Py_CLEAR(t->extra);
    for (size_t i = 0; i < TDL_MIXIN_SLOTS; i++) {
        Py_CLEAR(t->mixin_slots[i]);
    }
    Py_CLEAR(t->dict);
    Py_CLEAR(t->protocol);
    Py_CLEAR(t->server);
    Py_CLEAR(t->empty_waiter);
    Py_CLEAR(t->lost_exc);
    return 0;
}

static void stream_finalize(PyObject *self)
{
    TdlStream *t = TDL_STREAM(self);
    if (t->fd < 0) {
        return;
    }
    PyObject *exc = PyErr_GetRaisedException();
    if (PyErr_ResourceWarning(self, 1, "unclosed transport %R", self) < 0) {
        PyErr_WriteUnraisable(self);
    }
    tdl__stream_shut(t);
    t->state = TDL_STREAM_CLOSED;
    if (t->server != NULL) {
        PyObject *result =
            PyObject_CallMethod(t->loop->state->support, "detach_server", "OO", t->server, self);
        if (result == NULL) {
            PyErr_WriteUnraisable(self);
        }
        Py_XDECREF(result);
    }
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

static void stream_dealloc(PyObject *self)
{
    TdlStream *t = TDL_STREAM(self);
    PyTypeObject *type = Py_TYPE(self);
    if (PyObject_CallFinalizerFromDealloc(self) < 0) {
        return;
    }
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, stream_dealloc);
    if (t->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    if (t->watch != NULL) {
        tdl__watch_release(t->watch);
    }
    tdl__stream_queue_clear(t);
    (void)stream_clear(self);
    Py_CLEAR(t->context);
    t->sock_number = NULL;
    Py_CLEAR(t->sock);
    Py_CLEAR(t->loop);
    type->tp_free(self);
    Py_DECREF(type);
    Py_TRASHCAN_END;
}

static PyObject *stream_lend(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    tdl__stream_lend(TDL_STREAM(self));
    Py_RETURN_NONE;
}

static PyObject *get_sock(PyObject *self, void *Py_UNUSED(closure))
{
    TdlStream *t = TDL_STREAM(self);
    if (t->empty_waiter == NULL) { /* else it is for a sendfile, which gives it back */
        tdl__stream_lend(t);
    }
    PyObject *sock = t->state == TDL_STREAM_CLOSED ? NULL : tdl__stream_socket(t);
    return sock != NULL || PyErr_Occurred() ? sock : Py_NewRef(Py_None);
}

static PyObject *get_loop(PyObject *self, void *Py_UNUSED(closure))
{
    TdlStream *t = TDL_STREAM(self);
    return Py_NewRef(t->state == TDL_STREAM_CLOSED ? Py_None : (PyObject *)t->loop);
}

static PyObject *get_protocol(PyObject *self, void *Py_UNUSED(closure))
{
    return stream_get_protocol(self, NULL);
}

static PyObject *get_protocol_paused(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(TDL_STREAM(self)->protocol_paused);
}

static int set_protocol_paused(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    return tdl__parse_flag(value, &TDL_STREAM(self)->protocol_paused);
}

static PyObject *get_high_water(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(TDL_STREAM(self)->high_water);
}

static int set_high_water(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    return tdl__parse_water(value, &TDL_STREAM(self)->high_water);
}

static PyObject *get_low_water(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(TDL_STREAM(self)->low_water);
}

static int set_low_water(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    return tdl__parse_water(value, &TDL_STREAM(self)->low_water);
}

static PyObject *get_start_tls(PyObject *Py_UNUSED(self), void *Py_UNUSED(closure))
{
    Py_RETURN_TRUE;
}

static PyObject *get_sendfile(PyObject *self, void *Py_UNUSED(closure))
{
    return PyObject_GetAttrString(TDL_STREAM(self)->loop->state->support, "SENDFILE_MODE");
}

static PyMethodDef stream_methods[] = {
    {"get_extra_info", (PyCFunction)(void (*)(void))stream_get_extra_info, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("get_extra_info($self, /, name, default=None)\n--\n\n"
               "Return 'socket', 'sockname', 'peername' or what start_tls and the like added.")},
    {"pause_reading", stream_pause_reading, METH_NOARGS,
     PyDoc_STR("pause_reading($self, /)\n--\n\nHand no more data to the protocol until resume_reading().")},
    {"resume_reading", stream_resume_reading, METH_NOARGS,
     PyDoc_STR("resume_reading($self, /)\n--\n\nHand data to the protocol again.")},
    {"is_reading", stream_is_reading, METH_NOARGS,
     PyDoc_STR("is_reading($self, /)\n--\n\nReturn True unless paused, closing or closed.")},
    {"set_protocol", (PyCFunction)(void (*)(void))stream_set_protocol, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("set_protocol($self, /, protocol)\n--\n\nMake protocol the one that is called from now on.")},
    {"get_protocol", stream_get_protocol, METH_NOARGS,
     PyDoc_STR("get_protocol($self, /)\n--\n\nReturn the protocol in use.")},
    {"get_write_buffer_size", stream_get_write_buffer_size, METH_NOARGS,
     PyDoc_STR("get_write_buffer_size($self, /)\n--\n\nReturn the bytes queued and not yet sent.")},
    {"get_write_buffer_limits", stream_get_write_buffer_limits, METH_NOARGS,
     PyDoc_STR(
         "get_write_buffer_limits($self, /)\n--\n\nReturn (low, high), the flow control's marks in bytes.")},
    {"set_write_buffer_limits", (PyCFunction)(void (*)(void))stream_set_write_buffer_limits,
     METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("set_write_buffer_limits($self, /, high=None, low=None)\n--\n\n"
               "Set the high-water and low-water marks in bytes: above high the protocol's pause_writing() "
               "is called, "
               "at low resume_writing().")},
    {"_lend", stream_lend, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef stream_getset[] = {
    {"_sock", get_sock, NULL, NULL, NULL},
    {"_loop", get_loop, NULL, NULL, NULL},
    {"_protocol", get_protocol, NULL, NULL, NULL},
    {"_protocol_paused", get_protocol_paused, set_protocol_paused, NULL, NULL},
    {"_high_water", get_high_water, set_high_water, NULL, NULL},
    {"_low_water", get_low_water, set_low_water, NULL, NULL},
    {"_start_tls_compatible", get_start_tls, NULL, NULL, NULL},
    {"_sendfile_compatible", get_sendfile, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef stream_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TdlStream, weakrefs), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(TdlStream, dict), READONLY, NULL},
    {"_sock_fd", T_INT, offsetof(TdlStream, fd), READONLY, NULL},
    {"_paused", T_BOOL, offsetof(TdlStream, paused), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_doc, TDL_DOC("A connection over a TCP or Unix stream socket, as asyncio.Transport.")},
    {Py_tp_init, stream_init},
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_finalize, stream_finalize},
    {Py_tp_traverse, stream_traverse},
    {Py_tp_clear, stream_clear},
    {Py_tp_repr, stream_repr},
    {Py_tp_methods, stream_methods},
    {Py_tp_getset, stream_getset},
    {Py_tp_members, stream_members},
    {0, NULL},
};

static PyType_Spec stream_spec = {
    .name = "treadle.TCPTransport",
    .basicsize = sizeof(TdlStream),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = stream_slots,
};

int tdl__stream_type(PyObject *module)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    st->flow_control = !tdl__distrusts("flow_control") && PyType_Check(st->asyncio_transport) &&
                       ((PyTypeObject *)st->asyncio_transport)->tp_basicsize == offsetof(TdlStream, weakrefs);
    /* Without the base the type is there, but not used: asyncio's own transports are, whose base it is. */
    PyObject *bases = PyTuple_Pack(1, st->asyncio_transport);
    if (bases == NULL) {
        return -1;
    }
    st->stream_type =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &stream_spec, st->flow_control ? bases : NULL);
    Py_DECREF(bases);
    if (st->stream_type == NULL) {
        return -1;
    }
    return tdl__add_methods(st->stream_type, tdl__stream_write_methods) < 0 ||
                   tdl__add_methods(st->stream_type, tdl__stream_close_methods) < 0
               ? -1
               : PyModule_AddType(module, st->stream_type);
}
