/* What module.c registers of the transports. */
#ifndef TDL_PYLOOP_TRANSPORT_H
#define TDL_PYLOOP_TRANSPORT_H

#include "loop/part.h"

extern const struct tdl_part tdl__held_part; /* small writes that wait for the end of a step */
int tdl__stream_type(PyObject *module);
int tdl__acceptor_type(PyObject *module);
int tdl__udp_type(PyObject *module);
extern PyMethodDef tdl__transport_loop_methods[];
extern PyMethodDef tdl__server_loop_methods[];
extern PyMethodDef tdl__udp_loop_methods[];

#endif
