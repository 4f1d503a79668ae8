/* Receiving: several datagrams for each time the descriptor is readable, handed over one by one. */
#include "loop/snapshot.h"
#include "transport/udp.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "treadle/alloc.h"

enum {
    TDL_UDP_WAKE_MAX = 32, /* datagrams of one wake-up, so that other descriptors get their turn */
    TDL_UDP_SLOT_SIZE = TDL_READ_BUFFER_SIZE / TDL_UDP_BATCH,
};

void tdl__udp_update_reading(TdlUdp *t)
{
    if (t->watch == NULL) {
        return;
    }
    if (t->started && !t->paused && t->state == TDL_UDP_OPEN) {
        int code = 0;
        if (t->watch->reader.owner == NULL) {
            code = tdl__watch_set(t->watch, UV_READABLE, &t->read_item, (PyObject *)t);
        }
        if (code < 0) {
            tdl__raise_uv(code);
            tdl__udp_unwatched(t);
            return;
        }
        if (t->pending_len > 0 && t->read_item.link.state == TDL_ITEM_IDLE) {
            Py_INCREF(t); /* the queue's reference */
            tdl_sched_push(&t->loop->sched, &t->read_item);
        }
    } else {
        (void)tdl__watch_unset(t->watch, UV_READABLE);
    }
}

void tdl__udp_start_run(struct tdl_item *item)
{
    TdlUdp *t = TDL_CONTAINER_OF(item, TdlUdp, start_item);
    t->started = true;
    if (!t->loop->closed) {
        tdl__udp_update_reading(t);
    }
    Py_DECREF(t);
}

void tdl__udp_pending_clear(TdlUdp *t)
{
    while (t->pending_len > 0) {
        struct tdl_datagram d = t->pending[t->pending_head++];
        t->pending_len--;
        Py_DECREF(d.data);
        Py_DECREF(d.addr);
    }
}

void tdl__udp_peers_clear(TdlUdp *t)
{
    struct tdl_udp_peer *peers = t->peers;
    uint32_t len = t->peers_len;
    t->peers = NULL;
    t->peers_len = 0;
    t->last = NULL;
    for (uint32_t i = 0; i < len; i++) {
        Py_XDECREF(peers[i].tuple);
    }
    tdl_free(peers);
}

/* Make the table larger when it missed often: one peer needs little, many need room. Nothing points into it
 * now. */
static int peers_fit(TdlUdp *t)
{
    if (t->peers_len > 0 && (t->peers_missed < 2 * t->peers_len || t->peers_len == TDL_UDP_PEERS_MAX)) {
        return 0;
    }
    uint32_t len = t->peers_len > 0 ? t->peers_len * 4 : TDL_UDP_PEERS_MIN;
    len = len < TDL_UDP_PEERS_MAX ? len : TDL_UDP_PEERS_MAX;
    tdl__udp_peers_clear(t);
    t->peers = tdl_calloc(len, sizeof *t->peers);
    if (t->peers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    t->peers_len = len;
    t->peers_missed = 0;
    return 0;
}

/* What the protocol's callback raised: reported as asyncio reports a callback of the loop; the endpoint stays
 * open. */
static void callback_failed(TdlUdp *t)
{
    if (!tdl__udp_exit_raised(t)) {
        PyObject *exc = PyErr_GetRaisedException();
        tdl__udp_call_handler(t, "Exception in callback UDPTransport._read_ready()", exc);
        Py_DECREF(exc);
    }
}

static void receive_failed(TdlUdp *t)
{
    if (!PyErr_ExceptionMatches(PyExc_OSError)) {
        tdl__udp_fatal(t, "Fatal read error on datagram transport");
        return;
    }
    PyObject *exc = PyErr_GetRaisedException();
    PyObject *protocol = Py_NewRef(t->protocol);
    PyObject *result = PyObject_CallMethodOneArg(protocol, t->loop->state->str_error_received, exc);
    Py_DECREF(protocol);
    if (result == NULL) {
        callback_failed(t);
    }
    Py_XDECREF(result);
    Py_DECREF(exc);
}

static struct tdl_udp_peer *peer_slot(TdlUdp *t, const struct sockaddr *addr)
{
    struct sockaddr_in in; /* the port stands at the same place in sockaddr_in6 */
    memcpy(&in, addr, sizeof in);
    uint32_t hash = in.sin_port;
    hash ^= addr->sa_family == AF_INET ? in.sin_addr.s_addr : 0;
    hash *= 2654435761U; /* neighbouring ports go to far slots */
    return &t->peers[(hash >> 16) & (t->peers_len - 1)];
}

/* The Python form of a peer's address; the same tuple as before if its slot was not taken by another. */
static PyObject *peer_tuple(TdlUdp *t, const struct sockaddr *addr, size_t len)
{
    t->pending_peer[t->pending_len] = NULL;
    if (len == 0 || (addr->sa_family != AF_INET && addr->sa_family != AF_INET6) ||
        len > sizeof t->last->addr.bytes) {
        return tdl__udp_addr_to_python(addr, len);
    }
    struct tdl_udp_peer *peer = peer_slot(t, addr);
    if (peer->addr.len != len || memcmp(peer->addr.bytes, addr, len) != 0) {
        PyObject *tuple = tdl__udp_addr_to_python(addr, len);
        if (tuple == NULL) {
            return NULL;
        }
        t->peers_missed++;
        memcpy(peer->addr.bytes, addr, len);
        peer->addr.len = (uint32_t)len;
        Py_XSETREF(peer->tuple, tuple);
    }
    t->pending_peer[t->pending_len] = peer;
    return Py_NewRef(peer->tuple);
}

static int pending_push(TdlUdp *t, PyObject *data, PyObject *addr)
{
    if (data == NULL || addr == NULL) {
        Py_XDECREF(data);
        Py_XDECREF(addr);
        return -1;
    }
    t->pending[t->pending_len++] = (struct tdl_datagram){data, addr};
    return 0;
}

/* Receive up to TDL_UDP_BATCH datagrams of an INET socket; their number, or -1 with errno or an exception. */
static int receive_inet(TdlUdp *t, char *buffer)
{
    if (peers_fit(t) < 0) {
        return -1;
    }
    struct mmsghdr msgs[TDL_UDP_BATCH];
    struct iovec iov[TDL_UDP_BATCH];
    struct sockaddr_in6 addrs[TDL_UDP_BATCH];
    memset(msgs, 0, sizeof msgs);
    for (int i = 0; i < TDL_UDP_BATCH; i++) {
        iov[i] = (struct iovec){buffer + i * TDL_UDP_SLOT_SIZE, TDL_UDP_SLOT_SIZE};
        msgs[i].msg_hdr = (struct msghdr){
            .msg_name = &addrs[i], .msg_namelen = sizeof addrs[i], .msg_iov = &iov[i], .msg_iovlen = 1};
    }
    int n = recvmmsg(tdl__udp_fd(t), msgs, TDL_UDP_BATCH, MSG_DONTWAIT, NULL);
    for (int i = 0; i < n; i++) {
        PyObject *data = PyBytes_FromStringAndSize(iov[i].iov_base, (Py_ssize_t)msgs[i].msg_len);
        PyObject *addr = peer_tuple(t, (struct sockaddr *)&addrs[i], msgs[i].msg_hdr.msg_namelen);
        if (pending_push(t, data, addr) < 0) {
            return -1;
        }
    }
    return n;
}

/* One datagram of a Unix socket, which may be longer than 64 KiB. */
static int receive_unix(TdlUdp *t, char *buffer)
{
    struct sockaddr_un addr;
    socklen_t len = sizeof addr;
    ssize_t n =
        recvfrom(tdl__udp_fd(t), buffer, TDL_READ_BUFFER_SIZE, MSG_DONTWAIT, (struct sockaddr *)&addr, &len);
    t->pending_peer[0] = NULL;
    if (n < 0) {
        return -1;
    }
    return pending_push(t, PyBytes_FromStringAndSize(buffer, n),
                        tdl__udp_addr_to_python((struct sockaddr *)&addr, len)) == 0
               ? 1
               : -1;
}

/* Any other family: Python knows the form of its addresses. */
static int receive_other(TdlUdp *t)
{
    PyObject *pair = PyObject_CallMethod(t->sock, "recvfrom", "i", (int)TDL_READ_BUFFER_SIZE);
    if (pair == NULL) {
        if (PyErr_ExceptionMatches(PyExc_BlockingIOError) || PyErr_ExceptionMatches(PyExc_InterruptedError)) {
            PyErr_Clear();
            errno = EAGAIN;
        }
        return -1;
    }
    PyObject *data, *addr;
    t->pending_peer[0] = NULL;
    int code =
        PyArg_ParseTuple(pair, "OO", &data, &addr) ? pending_push(t, Py_NewRef(data), Py_NewRef(addr)) : -1;
    Py_DECREF(pair);
    return code == 0 ? 1 : -1;
}

/* Fill pending; the number received, 0 if there is nothing, -1 with an exception. */
static int receive(TdlUdp *t)
{
    t->pending_head = 0;
    char *buffer = tdl__read_buffer(t->loop);
    if (buffer == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int n;
    do {
        errno = 0;
        n = t->family == AF_INET || t->family == AF_INET6 ? receive_inet(t, buffer)
            : t->family == AF_UNIX                        ? receive_unix(t, buffer)
                                                          : receive_other(t);
    } while (n < 0 && errno == EINTR && !PyErr_Occurred());
    if (n >= 0 || PyErr_Occurred()) {
        return n;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return 0;
    }
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

static bool reads(const TdlUdp *t)
{
    return t->state == TDL_UDP_OPEN && !t->paused && !t->loop->closed;
}

/* Hand over what was received while the protocol wants it; false if an exit was raised. */
static bool deliver(TdlUdp *t)
{
    while (t->pending_len > 0 && reads(t)) {
        t->last = t->pending_peer[t->pending_head];
        struct tdl_datagram d = t->pending[t->pending_head++];
        t->pending_len--;
        PyObject *protocol = Py_NewRef(t->protocol);
        PyObject *stack[3] = {protocol, d.data, d.addr};
        PyObject *result = PyObject_VectorcallMethod(t->loop->state->str_datagram_received, stack,
                                                     3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        Py_DECREF(protocol);
        Py_DECREF(d.data);
        Py_DECREF(d.addr);
        if (result == NULL) {
            callback_failed(t);
            if (PyErr_Occurred()) {
                return false;
            }
        }
        Py_XDECREF(result);
    }
    return true;
}

static void read_some(TdlUdp *t)
{
    int batch = t->family == AF_INET || t->family == AF_INET6 ? TDL_UDP_BATCH : 1;
    if (!deliver(t)) {
        return;
    }
    for (int taken = 0; taken < TDL_UDP_WAKE_MAX && reads(t);) {
        int n = receive(t);
        if (n < 0) {
            receive_failed(t);
            return;
        }
        if (n == 0 || !deliver(t) || n < batch) {
            return;
        }
        taken += n;
    }
}

void tdl__udp_read_run(struct tdl_item *item)
{
    TdlUdp *t = TDL_CONTAINER_OF(item, TdlUdp, read_item);
    if (tdl__watch_failed(t->watch)) {
        tdl__udp_unwatched(t);
    }
    if (!t->loop->closed && reads(t)) {
        PyObject *context = Py_NewRef(t->context);
        if (PyContext_Enter(context) < 0) {
            tdl__udp_fatal(t, "Fatal read error on datagram transport");
        } else {
            read_some(t);
            tdl__context_leave(t->loop, context);
        }
        Py_DECREF(context);
        if (t->pending_len > 0 && !t->loop->closed) {
            if (t->state == TDL_UDP_OPEN) {
                tdl__udp_update_reading(t); /* an exit came in between: the rest waits for the next run */
            } else {
                tdl__udp_pending_clear(t);
            }
        }
    }
    Py_DECREF(t);
}
