/* What the stream transport needs of TLS: whether its protocol is one, and the way in for what was received.
 * The protocol is asyncio's own SSLProtocol, in Python, over the base class in tls.c: C reads and writes records of an
 * established connection, Python shakes hands and says goodbye.
 * Thread: the GIL guards it; ssl releases the GIL inside a read or write, so the buffers belong to the loop. */
#ifndef TDL_PYLOOP_TLS_H
#define TDL_PYLOOP_TLS_H

#include "ground/state.h"

/* The memory that the kernel's bytes are received into before tdl__tls_received(), TDL_READ_BUFFER_SIZE long; NULL
 * with an exception. */
char *tdl__tls_input(TdlLoop *loop);

/* Give the protocol n bytes of that memory: decrypt, call the application, send what it wrote; -1 with an exception. */
int tdl__tls_received(TdlLoop *loop, PyObject *protocol, Py_ssize_t n);

/* What module.c, state.c and the class in treadle/_tls.py need. */
int tdl__tls_types(PyObject *module);
PyObject *tdl__tls_setup(PyObject *module, PyObject *args);

#endif
