/* The awaitable of a socket operation, shared by sockops.c and connect.c.
 * Thread: the GIL guards it; its item runs on the loop's thread. */
#ifndef TDL_PYLOOP_SOCKOPS_H
#define TDL_PYLOOP_SOCKOPS_H

#include "loop/loop.h"

#include <netinet/in.h>

/* What a wait does when its descriptor is ready. */
enum tdl_sockop {
    TDL_SOCKOP_RECV,
    TDL_SOCKOP_RECV_INTO,
    TDL_SOCKOP_SENDALL,
    TDL_SOCKOP_CONNECT, /* gives the descriptor, which it owns until then */
};

enum tdl_sockwait_state {
    TDL_SOCKWAIT_NEW,     /* nothing tried: a coroutine starts when it is awaited */
    TDL_SOCKWAIT_WAITING, /* the future is pending, or done and not yet fetched; back to NEW if a recv found
                             nothing */
    TDL_SOCKWAIT_DONE,    /* the result or exception was given out */
};

typedef struct {
    PyObject_HEAD TdlLoop *loop;
    PyObject *sock;
    PyObject *weakrefs;
    PyObject *future; /* while waiting */
    PyObject *await;  /* the future's iterator: it yields the future to the task */
    Py_buffer view;   /* recv_into and sendall */
    struct tdl_item item;
    struct sockaddr_in6 address; /* connect: AF_INET6, or a sockaddr_in in its first bytes */
    socklen_t address_len;
    size_t done; /* bytes sent */
    Py_ssize_t size;
    const int *sock_number; /* where sock keeps its number, or NULL */
    int fd;
    uint8_t op;    /* enum tdl_sockop */
    uint8_t state; /* enum tdl_sockwait_state */
} TdlSockWait;

TdlSockWait *tdl__sockwait_make(TdlLoop *loop, PyObject *sock, int fd, enum tdl_sockop op);
PyObject *tdl__sockwait_try_connect(TdlSockWait *s);
bool tdl__sockwait_connected_at_once(const TdlSockWait *s);
PyObject *tdl__loop_connect_numeric(PyObject *self, PyObject *args);

int tdl__sockwait_type(PyObject *module);
extern PyMethodDef tdl__sockops_loop_methods[];

/* sockops.c and sockwait.c share */
PyObject *tdl__sockwait_try_now(TdlSockWait *s);
bool tdl__sockwait_receives(const TdlSockWait *s);
int tdl__sockwait_start_waiting(TdlSockWait *s);
void tdl__sockwait_finish(TdlSockWait *s, bool given);
void tdl__sockwait_release_view(TdlSockWait *s);

#endif
