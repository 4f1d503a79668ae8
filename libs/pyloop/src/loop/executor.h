/* Jobs of a thread pool. Thread: with the GIL. */
#ifndef TDL_PYLOOP_EXECUTOR_H
#define TDL_PYLOOP_EXECUTOR_H

#include "ground/state.h"

int tdl__job_type(PyObject *module);
bool tdl__pools_in_place(TdlLoop *loop);
extern PyMethodDef tdl__executor_loop_methods[];

#endif
