/* Transports for sockets that are connected already: made from a Python socket, or from a descriptor
 * alone. */
#include "ground/fileno.h"
#include "transport/stream.h"
#include "transport/transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

/* Learn the peer of an INET socket, and send small writes at once, as asyncio does for TCP. */
static void set_up_tcp(TdlStream *t)
{
    socklen_t len = sizeof t->peer;
    if (getpeername(t->fd, &t->peer.any, &len) == 0 && len <= sizeof t->peer &&
        (t->peer.any.sa_family == AF_INET || t->peer.any.sa_family == AF_INET6)) {
        t->peer_len = (uint8_t)len;
        int on = 1;
        (void)setsockopt(t->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
}

static PyObject *stream_started(TdlStream *t, PyObject *waiter)
{
    if (tdl__stream_start(t, waiter) < 0) {
        tdl__stream_force_close(t, NULL);
        Py_CLEAR(t);
    }
    return (PyObject *)t;
}

/* _make_stream_fd(fd, protocol, waiter, context): a transport for a connected TCP descriptor, which it owns
 * from here on. */
static PyObject *loop_make_stream_fd(PyObject *self, PyObject *args)
{
    TdlLoop *loop = TDL_LOOP(self);
    int fd;
    PyObject *protocol, *waiter, *context;
    if (!PyArg_ParseTuple(args, "iOOO", &fd, &protocol, &waiter, &context)) {
        return NULL;
    }
    TdlStream *t =
        tdl__check_closed(loop) < 0 ? NULL : tdl__stream_new(loop, fd, NULL, protocol, NULL, context);
    if (t == NULL) {
        close(fd);
        return NULL;
    }
    set_up_tcp(t);
    socklen_t len = sizeof t->family;
    (void)getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &t->family, &len);
    t->type = SOCK_STREAM;
    t->proto = IPPROTO_TCP;
    return stream_started(t, waiter);
}

/* _make_stream(sock, protocol, waiter, extra, server, context): a transport for a connected socket object,
 * whose callbacks run in context, None for a copy of the current one. */
static PyObject *loop_make_stream(PyObject *self, PyObject *args)
{
    TdlLoop *loop = TDL_LOOP(self);
    PyObject *sock, *protocol, *waiter, *extra, *server, *context;
    if (!PyArg_ParseTuple(args, "OOOOOO", &sock, &protocol, &waiter, &extra, &server, &context) ||
        tdl__check_closed(loop) < 0) {
        return NULL;
    }
    int fd = tdl__fd_of(sock);
    if (fd < 0) {
        return NULL;
    }
    TdlStream *t = tdl__stream_new(loop, fd, sock, protocol, server, context != Py_None ? context : NULL);
    if (t == NULL) {
        return NULL;
    }
    t->extra = PyDict_Check(extra) ? Py_NewRef(extra) : NULL;
    set_up_tcp(t);
    return stream_started(t, waiter);
}

PyMethodDef tdl__transport_loop_methods[] = {
    {"_make_stream", loop_make_stream, METH_VARARGS, NULL},
    {"_make_stream_fd", loop_make_stream_fd, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
