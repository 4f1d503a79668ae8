/* A block of memory that shows a chosen part of itself to the ssl module, so that no buffer is made for each
 * read. */
#include "transport/tls_span.h"

#include "treadle/alloc.h"

TdlSpan *tdl__span_new(struct tdl_module_state *state, size_t size)
{
    TdlSpan *span = PyObject_New(TdlSpan, state->span_type);
    if (span == NULL) {
        return NULL;
    }
    span->start = span->len = 0;
    span->memory = tdl_malloc(size);
    if (span->memory == NULL) {
        Py_DECREF(span);
        return (TdlSpan *)PyErr_NoMemory();
    }
    return span;
}

static int span_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    TdlSpan *span = (TdlSpan *)self;
    return PyBuffer_FillInfo(view, self, span->memory + span->start, (Py_ssize_t)span->len, 0, flags);
}

static void span_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    tdl_free(((TdlSpan *)self)->memory);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot span_slots[] = {
    {Py_tp_doc, TDL_DOC("A loop's memory for TLS records.")},
    {Py_tp_dealloc, span_dealloc},
    {Py_bf_getbuffer, span_getbuffer},
    {0, NULL},
};

static PyType_Spec span_spec = {
    .name = "treadle._treadle.Span",
    .basicsize = sizeof(TdlSpan),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = span_slots,
};

int tdl__span_type(PyObject *module)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    st->span_type = tdl__add_type(module, &span_spec, NULL);
    return st->span_type != NULL ? 0 : -1;
}
