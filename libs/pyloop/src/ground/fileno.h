/* The descriptor behind what a program gives for a file. Thread: with the GIL. */
#ifndef TDL_PYLOOP_FILENO_H
#define TDL_PYLOOP_FILENO_H

#include "ground/compat.h"

struct tdl_module_state;

PyObject *tdl__number_of(PyObject *fileobj);
int tdl__fd_of(PyObject *fileobj);
int tdl__fd_of_open(PyObject *fileobj);
const int *tdl__socket_number(const struct tdl_module_state *st, PyObject *sock, int fd);

/* A socket object that owns a descriptor; NULL with an exception, and the descriptor is still the
 * caller's. */
PyObject *tdl__socket_over(const struct tdl_module_state *st, int family, int type, int proto, int fd);

#endif
