/* Accepting: a listening socket whose connections become stream transports without a task or a Python socket
 * each. */
#include "ground/audit.h"
#include "ground/fileno.h"
#include "loop/snapshot.h"
#include "transport/stream.h"
#include "transport/transport.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    PyObject_HEAD TdlLoop *loop;
    PyObject *sock;
    PyObject *factory;
    PyObject *server;
    PyObject *context;
    const int *sock_number; /* where sock keeps its number, or NULL */
    struct tdl_item item;
    int fd, backlog;
    int family, type, proto;
} TdlAcceptor;

/* Tell why an incoming connection came to nothing. */
static void connection_failed(TdlAcceptor *a, PyObject *protocol)
{
    if (tdl__is_exit_exception()) {
        tdl_sched_interrupt(&a->loop->sched);
        return;
    }
    PyObject *exc = PyErr_GetRaisedException();
    PyObject *result =
        PyObject_CallMethodObjArgs((PyObject *)a->loop, a->loop->state->str__accept_failed_connection, exc,
                                   protocol != NULL ? protocol : Py_None, NULL);
    if (result == NULL) {
        tdl_sched_interrupt(&a->loop->sched);
    }
    Py_XDECREF(result);
    Py_DECREF(exc);
}

/* Close what became no connection, by its socket if it has one. */
static void let_go(int fd, PyObject *sock)
{
    if (sock == NULL) {
        close(fd);
        return;
    }
    PyObject *raised = PyErr_GetRaisedException();
    PyObject *result = PyObject_CallMethod(sock, "close", NULL);
    if (result == NULL) {
        PyErr_WriteUnraisable(sock);
    }
    Py_XDECREF(result);
    if (raised != NULL) {
        PyErr_SetRaisedException(raised);
    }
}

/* Make the protocol and the transport of one connection, in its own context. */
static void make_connection(TdlAcceptor *a, int fd, PyObject *sock, const union tdl_stream_addr *addr,
                            socklen_t len, PyObject *context)
{
    PyObject *protocol = PyObject_CallNoArgs(a->factory);
    TdlStream *t = protocol != NULL ? tdl__stream_new(a->loop, fd, sock, protocol, a->server, context) : NULL;
    if (t == NULL) {
        let_go(fd, sock);
        connection_failed(a, protocol);
        Py_XDECREF(protocol);
        return;
    }
    t->family = a->family;
    t->type = a->type;
    t->proto = a->proto;
    if (len <= sizeof t->peer && (addr->any.sa_family == AF_INET || addr->any.sa_family == AF_INET6)) {
        t->peer = *addr;
        t->peer_len = (uint8_t)len;
    }
    if (tdl__stream_start(t, NULL) < 0) {
        tdl__stream_force_close(t, NULL);
        connection_failed(a, protocol);
    }
    Py_DECREF(protocol);
    Py_DECREF(t);
}

/* What the protocol and its factory do with context variables is this connection's: the context is a copy of
 * the server's. */
static void accept_connection(TdlAcceptor *a, int fd, PyObject *sock, const union tdl_stream_addr *addr,
                              socklen_t len)
{
    PyObject *context = PyContext_Copy(a->context);
    if (context == NULL || PyContext_Enter(context) < 0) {
        let_go(fd, sock);
        connection_failed(a, NULL);
    } else {
        make_connection(a, fd, sock, addr, len, context);
        tdl__context_leave(a->loop, context);
    }
    Py_XDECREF(context);
}

/* What sock.accept() does behind accept(2), for audit hooks: a socket object, made at once. A hook that
 * raises leaves the exception, which is no matter of the one connection. */
static PyObject *audited_socket(TdlAcceptor *a, int fd)
{
    PyObject *sock = tdl__socket_over(a->loop->state, a->family, a->type, a->proto, fd);
    PyObject *result = sock != NULL ? PyObject_CallMethod(sock, "setblocking", "O", Py_False) : NULL;
    if (result == NULL) {
        let_go(fd, sock);
        Py_CLEAR(sock);
    }
    Py_XDECREF(result);
    return sock;
}

static bool out_of_resources(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM || error == ENOSPC;
}

/* Report what accepting raised; if asked, the loop pauses accepting for a second. */
static void accept_raised(TdlAcceptor *a, bool pause)
{
    if (tdl__is_exit_exception()) {
        tdl_sched_interrupt(&a->loop->sched);
        return;
    }
    PyObject *exc = PyErr_GetRaisedException();
    PyObject *result =
        PyObject_CallMethod((PyObject *)a->loop, "_accept_failed", "OOOOOi", exc, pause ? Py_True : Py_False,
                            a->sock, a->factory, a->server, a->backlog);
    if (result == NULL) {
        tdl_sched_interrupt(&a->loop->sched);
    }
    Py_XDECREF(result);
    Py_DECREF(exc);
}

static void accept_failed(TdlAcceptor *a, int error)
{
    errno = error;
    PyErr_SetFromErrno(PyExc_OSError);
    accept_raised(a, out_of_resources(error));
}

/* Whether the socket still has the number that is watched: it may be another listener's by now. */
static bool is_open(const TdlAcceptor *a)
{
    return (a->sock_number != NULL ? *a->sock_number : tdl__fd_of_open(a->sock)) == a->fd;
}

static void accept_some(TdlAcceptor *a)
{
    /* The kernel lets one more wait than it was told. */
    for (long i = 0; i <= a->backlog && !PyErr_Occurred(); i++) {
        union tdl_stream_addr addr;
        struct sockaddr_storage storage;
        socklen_t len = sizeof storage;
        int fd = accept4(a->fd, (struct sockaddr *)&storage, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == ECONNABORTED) {
                continue; /* the peer left before it was accepted: others may wait behind it */
            }
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
                accept_failed(a, errno);
            }
            return;
        }
        memcpy(&addr, &storage, sizeof addr);
        PyObject *sock = NULL;
        if (tdl__audited() && (sock = audited_socket(a, fd)) == NULL) {
            accept_raised(a, false);
            return;
        }
        accept_connection(a, fd, sock, &addr, len);
        Py_XDECREF(sock);
        if (a->loop->closed || !is_open(a)) {
            return; /* a protocol's constructor closed the server */
        }
    }
}

static void acceptor_run(struct tdl_item *item)
{
    TdlAcceptor *a = TDL_CONTAINER_OF(item, TdlAcceptor, item);
    struct tdl_watch *w = a->loop->closed ? NULL : tdl__watch_get(&a->loop->poller, a->fd);
    if (w != NULL && w->reader.item == item) { /* not stopped since it was queued */
        PyObject *context = Py_NewRef(a->context);
        if (PyContext_Enter(context) == 0) {
            if (!is_open(a)) {
                tdl__watch_release(w); /* closed behind our back: who has the number now is not served here */
            } else if (w->error != 0) {
                int error = w->error;
                w->error = 0;
                accept_failed(a, error);
            } else {
                accept_some(a);
            }
            tdl__context_leave(a->loop, context);
        } else {
            connection_failed(a, NULL);
        }
        Py_DECREF(context);
    }
    Py_DECREF(a);
}

static int acceptor_traverse(PyObject *self, visitproc visit, void *arg)
{
    TdlAcceptor *a = (TdlAcceptor *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(a->loop);
    Py_VISIT(a->sock);
    Py_VISIT(a->factory);
    Py_VISIT(a->server);
    Py_VISIT(a->context);
    return 0;
}

static int acceptor_clear(PyObject *self)
{
    TdlAcceptor *a = (TdlAcceptor *)self;
    a->sock_number = NULL;
    Py_CLEAR(a->sock);
    Py_CLEAR(a->factory);
    Py_CLEAR(a->server);
    return 0;
}

static void acceptor_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, acceptor_dealloc);
    (void)acceptor_clear(self);
    Py_CLEAR(((TdlAcceptor *)self)->context);
    Py_CLEAR(((TdlAcceptor *)self)->loop);
    type->tp_free(self);
    Py_DECREF(type);
    Py_TRASHCAN_END;
}

static int socket_option(int fd, int option)
{
    int value = 0;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &len) == 0 ? value : 0;
}

/* _start_accepting(sock, protocol_factory, server, backlog, context): each connection has a copy of context,
 * None for the current one. */
static PyObject *loop_start_accepting(PyObject *self, PyObject *args)
{
    TdlLoop *loop = TDL_LOOP(self);
    PyObject *sock, *factory, *server, *context;
    int backlog;
    if (!PyArg_ParseTuple(args, "OOOiO", &sock, &factory, &server, &backlog, &context) ||
        tdl__check_closed(loop) < 0) {
        return NULL;
    }
    int fd = tdl__fd_of(sock);
    if (fd < 0) {
        return NULL;
    }
    PyTypeObject *type = loop->state->acceptor_type;
    TdlAcceptor *a = (TdlAcceptor *)type->tp_alloc(type, 0);
    if (a == NULL) {
        return NULL;
    }
    tdl__item_init(&a->item, acceptor_run, offsetof(TdlAcceptor, item));
    a->loop = (TdlLoop *)Py_NewRef(self);
    a->sock = Py_NewRef(sock);
    a->sock_number = tdl__socket_number(loop->state, sock, fd);
    a->factory = Py_NewRef(factory);
    a->server = Py_NewRef(server);
    a->context = context != Py_None ? Py_NewRef(context) : PyContext_CopyCurrent();
    a->fd = fd;
    a->backlog = backlog > 0 ? backlog : 0;
    a->family = socket_option(fd, SO_DOMAIN);
    a->type = socket_option(fd, SO_TYPE);
    a->proto = socket_option(fd, SO_PROTOCOL);
    int on = 1; /* accepted sockets inherit it: asyncio sets it on each */
    if (a->family == AF_INET || a->family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    struct tdl_watch *w = a->context != NULL ? tdl__watch_fresh(&loop->poller, fd, false) : NULL;
    if (w == NULL) {
        Py_DECREF(a);
        return NULL;
    }
    int code = tdl__watch_set(w, UV_READABLE, &a->item, (PyObject *)a);
    Py_DECREF(a); /* the watch keeps it */
    if (code < 0) {
        tdl__watch_release(w);
        tdl__raise_uv(code);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyType_Slot acceptor_slots[] = {
    {Py_tp_doc, TDL_DOC("A listening socket in service.")},
    {Py_tp_dealloc, acceptor_dealloc},
    {Py_tp_traverse, acceptor_traverse},
    {Py_tp_clear, acceptor_clear},
    {0, NULL},
};

static PyType_Spec acceptor_spec = {
    .name = "treadle._treadle.Acceptor",
    .basicsize = sizeof(TdlAcceptor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = acceptor_slots,
};

PyMethodDef tdl__server_loop_methods[] = {
    {"_start_accepting", loop_start_accepting, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int tdl__acceptor_type(PyObject *module)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    st->acceptor_type = tdl__add_type(module, &acceptor_spec, NULL);
    return st->acceptor_type != NULL ? 0 : -1;
}
