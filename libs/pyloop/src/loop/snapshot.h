/* The contexts that callbacks run in. Thread: with the GIL. */
#ifndef TDL_PYLOOP_SNAPSHOT_H
#define TDL_PYLOOP_SNAPSHOT_H

#include "ground/state.h"

PyObject *tdl__snapshot_take(TdlLoop *loop, bool *shared);
PyObject *tdl__snapshot_private(TdlLoop *loop, PyObject *shared);
void tdl__snapshot_give_back(TdlLoop *loop, TdlHandle *h);
void tdl__snapshot_forget(TdlLoop *loop);
void tdl__context_leave(TdlLoop *loop, PyObject *context);

#endif
