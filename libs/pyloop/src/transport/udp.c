/* The type treadle.UDPTransport, for datagram sockets: construction, limits, reading on and off. What it does
 * with datagrams is in udp_read.c and udp_write.c, how it ends in udp_close.c. */
#include "transport/udp.h"

#include "ground/fileno.h"
#include "loop/handle.h"
#include "loop/soon.h"
#include "transport/transport.h"

enum { TDL_UDP_HIGH_WATER = 64 * 1024 };

void tdl__udp_call_handler(TdlUdp *t, const char *message, PyObject *exc)
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

static PyObject *udp_pause_reading(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlUdp *t = TDL_UDP(self);
    if (t->state == TDL_UDP_OPEN && !t->paused) {
        t->paused = true;
        tdl__udp_update_reading(t);
        if (t->loop->debug) {
            return PyObject_CallMethod(t->loop->state->support, "_transport_debug", "sO", "%r pauses reading",
                                       self);
        }
    }
    Py_RETURN_NONE;
}

static PyObject *udp_resume_reading(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlUdp *t = TDL_UDP(self);
    if (t->state == TDL_UDP_OPEN && t->paused) {
        t->paused = false;
        t->started = true;
        tdl__udp_update_reading(t);
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

static PyObject *udp_is_reading(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(TDL_UDP(self)->state == TDL_UDP_OPEN && !TDL_UDP(self)->paused);
}

static PyObject *udp_set_protocol(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *protocol = tdl__only_argument("set_protocol", "protocol", args, nargs, kwnames);
    if (protocol == NULL) {
        return NULL;
    }
    Py_XSETREF(TDL_UDP(self)->protocol, Py_NewRef(protocol));
    Py_RETURN_NONE;
}

static PyObject *udp_get_protocol(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *protocol = TDL_UDP(self)->protocol;
    return Py_NewRef(protocol != NULL ? protocol : Py_None);
}

static PyObject *udp_get_write_buffer_size(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromSize_t(TDL_UDP(self)->write_size);
}

static PyObject *udp_get_write_buffer_limits(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlUdp *t = TDL_UDP(self);
    return Py_BuildValue("(nn)", (Py_ssize_t)t->low_water, (Py_ssize_t)t->high_water);
}

static PyObject *udp_set_write_buffer_limits(PyObject *self, PyObject *args, PyObject *kwargs)
{
    TdlUdp *t = TDL_UDP(self);
    if (tdl__parse_write_limits(t->loop, args, kwargs, &t->high_water, &t->low_water) < 0) {
        return NULL;
    }
    tdl__udp_maybe_pause(t);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *udp_repr(PyObject *self)
{
    TdlUdp *t = TDL_UDP(self);
    const char *state = t->state == TDL_UDP_CLOSED ? " closed" : t->state != TDL_UDP_OPEN ? " closing" : "";
    if (t->watch == NULL) {
        return PyUnicode_FromFormat("<UDPTransport%s fd=%d>", state, t->fd);
    }
    return PyUnicode_FromFormat("<UDPTransport%s fd=%d read=%s write=<%s, bufsize=%zu>>", state, t->fd,
                                t->watch->want & UV_READABLE ? "polling" : "idle",
                                t->watch->want & UV_WRITABLE ? "polling" : "idle", t->write_size);
}

/* asyncio's __init__, inherited, would begin a transport anew that has a connection. */
static int udp_init(PyObject *self, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    PyErr_Format(PyExc_TypeError, "%s is made by a loop, once", Py_TYPE(self)->tp_name);
    return -1;
}

static int udp_traverse(PyObject *self, visitproc visit, void *arg)
{
    TdlUdp *t = TDL_UDP(self);
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
    Py_VISIT(t->address);
    Py_VISIT(t->lost_exc);
    for (int i = 0; i < t->pending_len; i++) {
        Py_VISIT(t->pending[t->pending_head + i].data);
        Py_VISIT(t->pending[t->pending_head + i].addr);
    }
    for (uint32_t i = 0; i < t->queue_len; i++) {
        Py_VISIT(t->queue[t->queue_head + i].addr);
    }
    return 0;
}

static int udp_clear(PyObject *self)
{
    TdlUdp *t = TDL_UDP(self);
    Py_CLEAR(t->extra);
    for (size_t i = 0; i < TDL_MIXIN_SLOTS; i++) {
        Py_CLEAR(t->mixin_slots[i]);
    }
    Py_CLEAR(t->dict);
    Py_CLEAR(t->protocol);
    Py_CLEAR(t->lost_exc);
    tdl__udp_pending_clear(t);
    tdl__udp_queue_clear(t);
    return 0;
}

static void udp_finalize(PyObject *self)
{
    TdlUdp *t = TDL_UDP(self);
    if (t->sock == NULL) {
        return;
    }
    PyObject *exc = PyErr_GetRaisedException();
    if (PyErr_ResourceWarning(self, 1, "unclosed transport %R", self) < 0) {
        PyErr_WriteUnraisable(self);
    }
    tdl__udp_shut(t);
    t->state = TDL_UDP_CLOSED;
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

static void udp_dealloc(PyObject *self)
{
    TdlUdp *t = TDL_UDP(self);
    PyTypeObject *type = Py_TYPE(self);
    if (PyObject_CallFinalizerFromDealloc(self) < 0) {
        return;
    }
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, udp_dealloc);
    if (t->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    if (t->watch != NULL) {
        tdl__watch_release(t->watch);
    }
    (void)udp_clear(self);
    tdl__udp_peers_clear(t);
    Py_CLEAR(t->address);
    Py_CLEAR(t->context);
    t->sock_number = NULL;
    Py_CLEAR(t->sock);
    Py_CLEAR(t->loop);
    type->tp_free(self);
    Py_DECREF(type);
    Py_TRASHCAN_END;
}

static PyObject *get_sock(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *sock = TDL_UDP(self)->sock;
    return Py_NewRef(sock != NULL ? sock : Py_None);
}

static PyObject *get_loop(PyObject *self, void *Py_UNUSED(closure))
{
    TdlUdp *t = TDL_UDP(self);
    return Py_NewRef(t->state == TDL_UDP_CLOSED ? Py_None : (PyObject *)t->loop);
}

static PyObject *get_protocol(PyObject *self, void *Py_UNUSED(closure))
{
    return udp_get_protocol(self, NULL);
}

static PyObject *get_protocol_paused(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(TDL_UDP(self)->protocol_paused);
}

static int set_protocol_paused(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    return tdl__parse_flag(value, &TDL_UDP(self)->protocol_paused);
}

static PyObject *get_high_water(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(TDL_UDP(self)->high_water);
}

static int set_high_water(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    return tdl__parse_water(value, &TDL_UDP(self)->high_water);
}

static PyObject *get_low_water(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(TDL_UDP(self)->low_water);
}

static int set_low_water(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    return tdl__parse_water(value, &TDL_UDP(self)->low_water);
}

static PyMethodDef udp_methods[] = {
    {"pause_reading", udp_pause_reading, METH_NOARGS,
     PyDoc_STR(
         "pause_reading($self, /)\n--\n\nHand no more datagrams to the protocol until resume_reading().")},
    {"resume_reading", udp_resume_reading, METH_NOARGS,
     PyDoc_STR("resume_reading($self, /)\n--\n\nHand datagrams to the protocol again.")},
    {"is_reading", udp_is_reading, METH_NOARGS,
     PyDoc_STR("is_reading($self, /)\n--\n\nReturn True unless paused, closing or closed.")},
    {"set_protocol", (PyCFunction)(void (*)(void))udp_set_protocol, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("set_protocol($self, /, protocol)\n--\n\nMake protocol the one that is called from now on.")},
    {"get_protocol", udp_get_protocol, METH_NOARGS,
     PyDoc_STR("get_protocol($self, /)\n--\n\nReturn the protocol in use.")},
    {"get_write_buffer_size", udp_get_write_buffer_size, METH_NOARGS,
     PyDoc_STR(
         "get_write_buffer_size($self, /)\n--\n\nReturn the bytes queued and not yet sent, as asyncio counts "
         "them.")},
    {"get_write_buffer_limits", udp_get_write_buffer_limits, METH_NOARGS,
     PyDoc_STR(
         "get_write_buffer_limits($self, /)\n--\n\nReturn (low, high), the flow control's marks in bytes.")},
    {"set_write_buffer_limits", (PyCFunction)(void (*)(void))udp_set_write_buffer_limits,
     METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("set_write_buffer_limits($self, /, high=None, low=None)\n--\n\n"
               "Set the marks in bytes: above high the protocol's pause_writing() is called, at low "
               "resume_writing().")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef udp_getset[] = {
    {"_sock", get_sock, NULL, NULL, NULL},
    {"_loop", get_loop, NULL, NULL, NULL},
    {"_protocol", get_protocol, NULL, NULL, NULL},
    {"_protocol_paused", get_protocol_paused, set_protocol_paused, NULL, NULL},
    {"_high_water", get_high_water, set_high_water, NULL, NULL},
    {"_low_water", get_low_water, set_low_water, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef udp_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TdlUdp, weakrefs), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(TdlUdp, dict), READONLY, NULL},
    {"_sock_fd", T_INT, offsetof(TdlUdp, fd), READONLY, NULL},
    {"_address", T_OBJECT, offsetof(TdlUdp, address), READONLY, NULL},
    {"_conn_lost", T_UINT, offsetof(TdlUdp, conn_lost), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot udp_slots[] = {
    {Py_tp_doc, TDL_DOC("A datagram endpoint, as asyncio.DatagramTransport.")},
    {Py_tp_init, udp_init},
    {Py_tp_dealloc, udp_dealloc},
    {Py_tp_finalize, udp_finalize},
    {Py_tp_traverse, udp_traverse},
    {Py_tp_clear, udp_clear},
    {Py_tp_repr, udp_repr},
    {Py_tp_methods, udp_methods},
    {Py_tp_getset, udp_getset},
    {Py_tp_members, udp_members},
    {0, NULL},
};

static PyType_Spec udp_spec = {
    .name = "treadle.UDPTransport",
    .basicsize = sizeof(TdlUdp),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = udp_slots,
};

/* A transport that owns sock; extra has its addresses already. */
static TdlUdp *udp_new(TdlLoop *loop, int fd, PyObject *sock, PyObject *protocol, PyObject *address,
                       PyObject *extra)
{
    PyObject *peer = Py_XNewRef(PyDict_GetItemWithError(extra, loop->state->str_peername));
    int connected = peer != NULL ? PyObject_IsTrue(peer) : 0;
    Py_XDECREF(peer);
    if (connected < 0 || PyErr_Occurred()) {
        return NULL;
    }
    TdlUdp *t = (TdlUdp *)loop->state->udp_type->tp_alloc(loop->state->udp_type, 0);
    if (t == NULL) {
        return NULL;
    }
    t->fd = -1;
    t->state = TDL_UDP_CLOSED; /* the caller keeps the socket unless this succeeds */
    t->loop = (TdlLoop *)Py_NewRef((PyObject *)loop);
    tdl__item_init(&t->read_item, tdl__udp_read_run, offsetof(TdlUdp, read_item));
    tdl__item_init(&t->write_item, tdl__udp_write_run, offsetof(TdlUdp, write_item));
    tdl__item_init(&t->start_item, tdl__udp_start_run, offsetof(TdlUdp, start_item));
    tdl__item_init(&t->lost_item, tdl__udp_lost_run, offsetof(TdlUdp, lost_item));
    t->high_water = TDL_UDP_HIGH_WATER;
    t->low_water = TDL_UDP_HIGH_WATER / 4;
    t->extra = Py_NewRef(extra);
    t->address = Py_NewRef(address);
    t->protocol = Py_NewRef(protocol);
    t->connected = connected > 0;
    int family = 0;
    socklen_t len = sizeof family;
    (void)getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len);
    t->family = family;
    t->context = PyContext_CopyCurrent();
    t->watch = t->context != NULL ? tdl__watch_fresh(&loop->poller, fd, false) : NULL;
    if (t->watch == NULL) {
        Py_DECREF(t);
        return NULL;
    }
    t->watch->transport = (PyObject *)t;
    t->watch->holder = &t->watch;
    t->fd = fd;
    t->sock = Py_NewRef(sock);
    t->sock_number = tdl__socket_number(loop->state, sock, fd);
    t->state = TDL_UDP_OPEN;
    return t;
}

/* Queue connection_made, then the start of reading, then the waiter's result, as asyncio does. */
static int udp_start(TdlUdp *t, PyObject *waiter)
{
    TdlLoop *loop = t->loop;
    PyObject *made = PyObject_GetAttr(t->protocol, loop->state->str_connection_made);
    int code = made != NULL ? tdl__call_soon(loop, made, (PyObject *)t, t->context) : -1;
    Py_XDECREF(made);
    if (code < 0) {
        Py_CLEAR(t->protocol); /* who is not told of a connection is not told of its loss */
        return -1;
    }
    Py_INCREF(t); /* the queue's reference */
    tdl_sched_push(&loop->sched, &t->start_item);
    if (waiter == Py_None) {
        return 0;
    }
    PyObject *wake = PyObject_GetAttrString(loop->state->support, "wake_waiter");
    PyObject *args[2] = {waiter, Py_None};
    TdlHandle *h = wake != NULL ? tdl__handle_new(loop, wake, args, 2, NULL) : NULL;
    Py_XDECREF(wake);
    if (h == NULL) {
        return -1;
    }
    tdl_sched_push(&loop->sched, &h->item);
    return 0;
}

/* _make_datagram(sock, protocol, address, waiter, extra) */
static PyObject *loop_make_datagram(PyObject *self, PyObject *args)
{
    TdlLoop *loop = TDL_LOOP(self);
    PyObject *sock, *protocol, *address, *waiter, *extra;
    if (!PyArg_ParseTuple(args, "OOOOO!", &sock, &protocol, &address, &waiter, &PyDict_Type, &extra) ||
        tdl__check_closed(loop) < 0) {
        return NULL;
    }
    int fd = tdl__fd_of(sock);
    TdlUdp *t = fd >= 0 ? udp_new(loop, fd, sock, protocol, address, extra) : NULL;
    if (t != NULL && udp_start(t, waiter) < 0) {
        tdl__udp_force_close(t, Py_None);
        Py_CLEAR(t);
    }
    return (PyObject *)t;
}

PyMethodDef tdl__udp_loop_methods[] = {
    {"_make_datagram", loop_make_datagram, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int tdl__udp_type(PyObject *module)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    PyObject *transports = PyImport_ImportModule("asyncio.transports");
    PyObject *datagram = transports != NULL ? PyObject_GetAttrString(transports, "DatagramTransport") : NULL;
    Py_XDECREF(transports);
    if (datagram == NULL) {
        return -1;
    }
    st->flow_control = st->flow_control &&
                       ((PyTypeObject *)st->asyncio_transport)->tp_basicsize == offsetof(TdlUdp, weakrefs) &&
                       ((PyTypeObject *)datagram)->tp_basicsize == offsetof(TdlUdp, mixin_slots);
    PyObject *bases = PyTuple_Pack(2, st->asyncio_transport, datagram); /* as asyncio's own is both */
    Py_DECREF(datagram);
    if (bases == NULL) {
        return -1;
    }
    st->udp_type = tdl__add_type(module, &udp_spec, st->flow_control ? bases : NULL);
    Py_DECREF(bases);
    return st->udp_type == NULL || tdl__add_methods(st->udp_type, tdl__udp_write_methods) < 0 ||
                   tdl__add_methods(st->udp_type, tdl__udp_close_methods) < 0
               ? -1
               : 0;
}
