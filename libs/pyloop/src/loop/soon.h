/* Scheduling. Thread: with the GIL. */
#ifndef TDL_PYLOOP_SOON_H
#define TDL_PYLOOP_SOON_H

#include "ground/state.h"

extern PyMethodDef tdl__soon_methods[];
int tdl__call_soon(TdlLoop *loop, PyObject *callback, PyObject *arg, PyObject *context);
PyObject *tdl__given_context(TdlLoop *loop, PyObject *const *values, PyObject *kwnames);
uint64_t tdl__when_to_ns(double when);

#endif
