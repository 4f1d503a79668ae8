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
    {"get_extra_info", (PyCFunction)(void (*)(void))tdl__stream_get_extra_info, METH_VARARGS | METH_KEYWORDS,
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
