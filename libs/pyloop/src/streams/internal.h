/* What the files of this folder share. */
#ifndef TDL_PYLOOP_STREAMS_INTERNAL_H
#define TDL_PYLOOP_STREAMS_INTERNAL_H

#include "loop/loop.h"
#include "streams/streams.h"

/* What a method in C does. */
enum tdl_streams_call {
    TDL_STREAMS_READ,
    TDL_STREAMS_READUNTIL,
    TDL_STREAMS_READLINE,
    TDL_STREAMS_READEXACTLY,
    TDL_STREAMS_ANEXT,
    TDL_STREAMS_EXCEPTION,
    TDL_STREAMS_AT_EOF,
    TDL_STREAMS_WRITE,
    TDL_STREAMS_WRITELINES,
    TDL_STREAMS_DRAIN,
    TDL_STREAMS_DRAIN_HELPER,
};

/* A method of one of the classes in C: called it is C, taken from an object it is asyncio's. */
struct tdl_streams_method {
    PyObject_HEAD vectorcallfunc vectorcall;
    struct tdl_module_state *state;
    struct tdl_streams_kind *kind;
    PyObject *name;
    PyObject *shipped; /* asyncio's function */
    uint8_t call;      /* enum tdl_streams_call */
};

/* What of a reader's attributes C goes by, all borrowed but the dictionary. */
struct tdl_reader {
    PyObject *dict;
    PyObject *loop;
    PyObject *buffer; /* a bytearray */
    PyObject *waiter;
    PyObject *exception;
    Py_ssize_t limit;
    bool eof, paused;
};

/* classes.c */
bool tdl__streams_compare(struct tdl_streams_kind *kind);
PyObject *tdl__streams_asyncios(const struct tdl_streams_method *m, PyObject *self);

/* reader.c */
bool tdl__reader_look(struct tdl_streams *s, PyObject *reader, struct tdl_reader *r);
bool tdl__reader_is_well(struct tdl_streams *s, PyObject *reader);
int tdl__reader_set(struct tdl_streams *s, PyObject *reader, PyObject *name, PyObject *value);
int tdl__reader_resume(struct tdl_streams *s, PyObject *reader);
PyObject *tdl__reader_take(struct tdl_streams *s, PyObject *reader, const struct tdl_reader *r, Py_ssize_t n);

/* op.c */
int tdl__streams_op_type(PyObject *module);
void tdl__streams_op_clear_free(struct tdl_streams *s);
PyObject *tdl__streams_op_new(struct tdl_streams_method *m, PyObject *self, PyObject *separator,
                              Py_ssize_t size);

/* method.c */
int tdl__streams_method_type(PyObject *module);
PyObject *tdl__streams_method_new(struct tdl_module_state *st, struct tdl_streams_kind *kind,
                                  const char *name, enum tdl_streams_call call);

/* Whether the object is one of ours whose class, and asyncio's, are as they were shipped. */
static inline bool tdl__streams_is(struct tdl_streams_kind *kind, PyObject *object)
{
    return Py_TYPE(object) == kind->type &&
           (tdl__type_tag(kind->type) == kind->tag ? kind->in_place : tdl__streams_compare(kind));
}

#endif
