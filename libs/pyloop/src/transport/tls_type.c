/* The type of TLS protocols, under the names of asyncio's SSLProtocol, and write() of its transport. */
#include "ground/asyncio.h"
#include "loop/loop.h"
#include "loop/soon.h"
#include "streams/streams.h"
#include "transport/tls.h"
#include "transport/tls_span.h"

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
        tdl__tls_is_ready(TDL_TLS(protocol))) {
        code = tdl__tls_write_data(TDL_TLS(protocol), data);
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
    int code = tdl__tls_is_ready(p) ? tdl__tls_do_read(p) : tdl__tls_not_ready();
    return code < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *tls_process_outgoing(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlTls *p = TDL_TLS(self);
    int code = tdl__tls_is_ready(p) ? tdl__tls_process_outgoing(p) : tdl__tls_not_ready();
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

/* tls_setup(wrapped, flushing, again, transport_class): what C needs of asyncio.sslproto, once it is
 * imported. */
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
