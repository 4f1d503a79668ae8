/* Streams: made for a connected descriptor, and started. */
#include "transport/stream.h"

#include "ground/fileno.h"
#include "loop/handle.h"
#include "loop/soon.h"
#include "streams/streams.h"
#include "transport/transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

enum { TDL_STREAM_HIGH_WATER = 64 * 1024 };

void tdl__stream_call_handler(TdlStream *t, const char *message, PyObject *exc)
{
    PyObject *protocol = t->protocol != NULL ? t->protocol : Py_None;
    PyObject *context = Py_BuildValue("{s:s,s:O,s:O,s:O}", "message", message, "exception", exc, "transport",
                                      t, "protocol", protocol);
    PyObject *result = context != NULL
                           ? PyObject_CallMethodOneArg((PyObject *)t->loop,
                                                       t->loop->state->str_call_exception_handler, context)
                           : NULL;
    if (result == NULL) {
        tdl_sched_interrupt(&t->loop->sched);
    }
    Py_XDECREF(context);
    Py_XDECREF(result);
}

int tdl__stream_set_protocol(TdlStream *t, PyObject *protocol)
{
    int buffered = PyObject_IsInstance(protocol, t->loop->state->buffered_protocol);
    if (buffered < 0) {
        return -1;
    }
    t->buffered = buffered > 0;
    t->tls = PyObject_TypeCheck(protocol, t->loop->state->tls_type);
    t->streams = tdl__streams_is_served(t->loop->state, protocol);
    t->unserved = tdl__streams_is_asyncios(t->loop->state, protocol);
    t->use = 0;
    tdl__streams_watch(t->loop, protocol);
    Py_XSETREF(t->protocol, Py_NewRef(protocol));
    return 0;
}

void tdl__stream_used(TdlStream *t, uint8_t added)
{
    PyObject *protocol = Py_XNewRef(t->protocol);
    if (protocol == NULL) {
        return; /* the connection is lost */
    }
    t->streams = tdl__streams_count(t->loop, protocol, &t->use, added);
    t->unserved = !t->streams;
    Py_DECREF(protocol);
}

TdlStream *tdl__stream_new(TdlLoop *loop, int fd, PyObject *sock, PyObject *protocol, PyObject *server,
                           PyObject *context)
{
    struct tdl_module_state *st = loop->state;
    TdlStream *t = (TdlStream *)st->stream_type->tp_alloc(st->stream_type, 0);
    if (t == NULL) {
        return NULL;
    }
    t->fd = -1; /* the caller keeps the descriptor unless this succeeds */
    t->state = TDL_STREAM_CLOSED;
    t->loop = (TdlLoop *)Py_NewRef((PyObject *)loop);
    tdl__item_init(&t->read_item, tdl__stream_read_run, offsetof(TdlStream, read_item));
    tdl__item_init(&t->write_item, tdl__stream_write_run, offsetof(TdlStream, write_item));
    tdl__item_init(&t->start_item, tdl__stream_start_run, offsetof(TdlStream, start_item));
    tdl__item_init(&t->lost_item, tdl__stream_lost_run, offsetof(TdlStream, lost_item));
    t->high_water = TDL_STREAM_HIGH_WATER;
    t->low_water = TDL_STREAM_HIGH_WATER / 4;
    t->context = context != NULL ? Py_NewRef(context) : PyContext_CopyCurrent();
    if (t->context == NULL || tdl__stream_set_protocol(t, protocol) < 0) {
        Py_DECREF(t);
        return NULL;
    }
    t->watch = tdl__watch_fresh(&loop->poller, fd, sock == NULL); /* accept or connect gave it just now */
    if (t->watch == NULL) {
        Py_DECREF(t);
        return NULL;
    }
    t->watch->transport = (PyObject *)t;
    t->watch->holder = &t->watch;
    t->fd = fd;
    t->sock = Py_XNewRef(sock);
    t->sock_number = sock != NULL ? tdl__socket_number(loop->state, sock, fd) : NULL;
    t->state = TDL_STREAM_OPEN;
    if (server != NULL && server != Py_None) {
        t->server = Py_NewRef(server);
        PyObject *result = PY_VERSION_HEX >= 0x030D0000
                               ? PyObject_CallMethodOneArg(server, st->str__attach, (PyObject *)t)
                               : PyObject_CallMethodNoArgs(server, st->str__attach);
        if (result == NULL) {
            Py_CLEAR(t->server);
            t->sock_number = NULL;
            t->sock = NULL;
            t->fd = -1;
            Py_XDECREF(sock);
            Py_DECREF(t);
            return NULL;
        }
        Py_DECREF(result);
    }
    return t;
}

/* A read of TCP that does not fill its buffer has taken all there was (epoll(7)), but for urgent data, of
 * which the poller hears. Others may stop short: a Unix socket where descriptors came along, for one, and TLS
 * in the kernel at each end of a kind of records, which no accepted or connected socket has until it is
 * given. */
static bool reads_all(const TdlStream *t)
{
    int proto = t->proto; /* accept's */
    socklen_t len = sizeof proto;
    char above[16] = ""; /* a layer between TCP and us, by name */
    socklen_t above_len = sizeof above;
    if (t->sock != NULL &&
        (getsockopt(t->fd, SOL_SOCKET, SO_PROTOCOL, &proto, &len) < 0 ||
         (proto == IPPROTO_TCP && getsockopt(t->fd, IPPROTO_TCP, TCP_ULP, above, &above_len) < 0))) {
        return false;
    }
    return proto == IPPROTO_TCP && above[0] == '\0';
}

/* Queue connection_made, then the start of reading, then the waiter's result, as asyncio does. */
int tdl__stream_start(TdlStream *t, PyObject *waiter)
{
    TdlLoop *loop = t->loop;
    struct tdl_module_state *st = loop->state;
    if (t->watch != NULL) {
        t->watch->edge = reads_all(t);
    }
    PyObject *made = PyObject_GetAttr(t->protocol, st->str_connection_made);
    int code = made != NULL ? tdl__call_soon(loop, made, (PyObject *)t, t->context) : -1;
    Py_XDECREF(made);
    if (code < 0) {
        Py_CLEAR(t->protocol); /* who is not told of a connection is not told of its loss */
        return -1;
    }
    Py_INCREF(t); /* the queue's reference */
    tdl_sched_push(&loop->sched, &t->start_item);
    if (waiter != NULL && waiter != Py_None) {
        PyObject *wake = PyObject_GetAttrString(st->support, "wake_waiter");
        PyObject *args[2] = {waiter, Py_None};
        TdlHandle *h = wake != NULL ? tdl__handle_new(loop, wake, args, 2, NULL) : NULL;
        Py_XDECREF(wake);
        if (h == NULL) {
            return -1;
        }
        tdl_sched_push(&loop->sched, &h->item);
    }
    return code;
}
