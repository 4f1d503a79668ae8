/* A block of memory whose chosen part is a Python buffer. It owns the block, so that whoever keeps a view of
 * it keeps the memory too. Thread: the GIL guards it. */
#ifndef TDL_PYLOOP_TLS_SPAN_H
#define TDL_PYLOOP_TLS_SPAN_H

#include "ground/state.h"

typedef struct {
    PyObject_HEAD char *memory;
    size_t start, len; /* the part that a buffer taken now shows */
} TdlSpan;

TdlSpan *tdl__span_new(struct tdl_module_state *state, size_t size);
int tdl__span_type(PyObject *module);

#endif
