/* What the stream transport needs of TLS: whether its protocol is one, and the way in for what was received.
 * The protocol is asyncio's own SSLProtocol, in Python, over the base class in tls.c: C reads and writes
 * records of an established connection, Python shakes hands and says goodbye. Thread: the GIL guards it; ssl
 * releases the GIL inside a read or write, so the buffers belong to the loop. */
#ifndef TDL_PYLOOP_TLS_H
#define TDL_PYLOOP_TLS_H

#include "ground/state.h"

typedef struct {
    PyObject_HEAD PyObject *loop;
    PyObject *state; /* a member of asyncio.sslproto.SSLProtocolState */
    PyObject *sslobj, *incoming, *outgoing;
    PyObject *transport;
    PyObject *app_protocol;
    PyObject *backlog;            /* a deque: what the application wrote before the handshake was done */
    Py_ssize_t write_buffer_size; /* bytes in backlog */
    double out_high, out_low, in_high, in_low;
    uint8_t use; /* by asyncio's protocol of streams, until it is served in C: tdl__streams_count() */
    bool app_is_buffer;
    bool app_reading_paused, app_writing_paused;
    bool ssl_reading_paused, ssl_writing_paused;
} TdlTls;

#define TDL_TLS(op) ((TdlTls *)(op))

/* The memory that the kernel's bytes are received into before tdl__tls_received(), TDL_READ_BUFFER_SIZE long;
 * NULL with an exception. */
char *tdl__tls_input(TdlLoop *loop);

/* Give the protocol n bytes of that memory: decrypt, call the application, send what it wrote; -1 with an
 * exception. */
int tdl__tls_received(TdlLoop *loop, PyObject *protocol, Py_ssize_t n);

/* What module.c, state.c and the class in treadle/_tls.py need. */
int tdl__tls_types(PyObject *module);
PyObject *tdl__tls_setup(PyObject *module, PyObject *args);

/* tls.c and tls_type.c share */
bool tdl__tls_is_ready(const TdlTls *p);
int tdl__tls_do_read(TdlTls *p);
int tdl__tls_not_ready(void);
int tdl__tls_process_outgoing(TdlTls *p);
int tdl__tls_write_data(TdlTls *p, PyObject *data);

#endif
