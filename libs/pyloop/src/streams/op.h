/* The object that a stream's coroutine method gives. */
#ifndef TDL_PYLOOP_STREAMS_OP_H
#define TDL_PYLOOP_STREAMS_OP_H

#include "streams/internal.h"

enum tdl_streams_phase {
    TDL_STREAMS_NEW,     /* nothing was done: a coroutine starts when it is awaited */
    TDL_STREAMS_WAITING, /* for the reader's future */
    TDL_STREAMS_HANDED,  /* to asyncio's own coroutine */
    TDL_STREAMS_DONE,    /* the result or exception was given out */
};

typedef struct tdl_streams_op {
    PyObject_HEAD struct tdl_streams_method *method;
    PyObject *self;      /* the reader, writer or protocol */
    PyObject *separator; /* readuntil's argument, or NULL */
    PyObject *await;     /* the future's iterator, or asyncio's coroutine */
    PyObject *weakrefs;
    Py_ssize_t
        size;      /* read's and readexactly's argument; of the others how much of the buffer was searched */
    uint8_t phase; /* enum tdl_streams_phase */
    bool running;
} TdlStreamsOp;

#define TDL_OP(object) ((TdlStreamsOp *)(object))

/* What came of a step. */
enum tdl_streams_outcome {
    TDL_STREAMS_RESULT,  /* and there it is */
    TDL_STREAMS_FAILED,  /* an exception */
    TDL_STREAMS_WAIT,    /* for data: what to await is there, and reader._waiter set */
    TDL_STREAMS_ASYNCIO, /* is to do it: not the plain case */
};

/* work.c */
enum tdl_streams_outcome tdl__streams_work(TdlStreamsOp *op, bool waited, PyObject **result);
bool tdl__streams_attributes(PyObject *self, PyObject *const *names, PyObject **values, size_t count);

static inline struct tdl_streams *tdl__streams_of(const TdlStreamsOp *op)
{
    return op->method->state->streams;
}

/* op.c and op_type.c share */
PyObject *tdl__streams_op_close(PyObject *self, PyObject *Py_UNUSED(ignored));
PyObject *tdl__streams_op_iternext(PyObject *self);
PyObject *tdl__streams_op_send_method(PyObject *self, PyObject *arg);
PyObject *tdl__streams_op_throw(PyObject *self, PyObject *args);
PySendResult tdl__streams_op_send(PyObject *self, PyObject *arg, PyObject **result);
int tdl__streams_op_clear(PyObject *self);
void tdl__streams_op_dealloc(PyObject *self);
void tdl__streams_op_finalize(PyObject *self);

#endif
