/* Sending: at once if the kernel takes it, else queued; errors go to the protocol and leave the endpoint
 * open. */
#include "ground/audit.h"
#include "loop/snapshot.h"
#include "transport/udp.h"

#include <errno.h>
#include <string.h>

#include "treadle/alloc.h"

enum {
    TDL_UDP_LOST_LOG_MIN = 5, /* asyncio's LOG_THRESHOLD_FOR_CONNLOST_WRITES */
    TDL_UDP_QUEUE_MIN = 4,
};

/* How a send ended. */
enum tdl_udp_sent {
    TDL_UDP_SENT,
    TDL_UDP_BLOCKED, /* the kernel takes no more for now */
    TDL_UDP_FAILED,  /* an exception is set */
};

void tdl__udp_queue_clear(TdlUdp *t)
{
    struct tdl_datagram *queue = t->queue;
    uint32_t head = t->queue_head;
    uint32_t len = t->queue_len;
    t->queue = NULL;
    t->queue_head = t->queue_len = t->queue_cap = 0;
    t->write_size = 0;
    for (uint32_t i = 0; i < len; i++) {
        Py_DECREF(queue[head + i].data);
        Py_DECREF(queue[head + i].addr);
    }
    tdl_free(queue);
}

static int queue_push(TdlUdp *t, PyObject *data, PyObject *addr)
{
    if (t->queue_head + t->queue_len == t->queue_cap) {
        if (t->queue_head > t->queue_cap / 2) {
            memmove(t->queue, t->queue + t->queue_head, t->queue_len * sizeof *t->queue);
            t->queue_head = 0;
        } else {
            uint32_t cap = t->queue_cap > 0 ? t->queue_cap * 2 : TDL_UDP_QUEUE_MIN;
            struct tdl_datagram *queue = tdl_realloc(t->queue, cap * sizeof *queue);
            if (queue == NULL) {
                PyErr_NoMemory();
                return -1;
            }
            t->queue = queue;
            t->queue_cap = cap;
        }
    }
    t->queue[t->queue_head + t->queue_len++] = (struct tdl_datagram){Py_NewRef(data), Py_NewRef(addr)};
    t->write_size += (size_t)PyBytes_GET_SIZE(data) + TDL_UDP_HEADER_SIZE;
    return 0;
}

/* Take the oldest datagram out of the queue; the caller owns both references. */
static struct tdl_datagram queue_pop(TdlUdp *t)
{
    struct tdl_datagram d = t->queue[t->queue_head++];
    t->queue_len--;
    if (t->queue_len == 0) {
        t->queue_head = 0;
    }
    t->write_size -= (size_t)PyBytes_GET_SIZE(d.data) + TDL_UDP_HEADER_SIZE;
    return d;
}

static void tell_protocol(TdlUdp *t, PyObject *method, const char *message)
{
    PyObject *protocol = Py_NewRef(t->protocol);
    PyObject *result = PyObject_CallMethodNoArgs(protocol, method);
    Py_DECREF(protocol);
    if (result == NULL && !tdl__udp_exit_raised(t)) {
        PyObject *exc = PyErr_GetRaisedException();
        tdl__udp_call_handler(t, message, exc);
        Py_DECREF(exc);
    }
    Py_XDECREF(result);
}

void tdl__udp_maybe_pause(TdlUdp *t)
{
    if (t->write_size > t->high_water && !t->protocol_paused && t->protocol != NULL) {
        t->protocol_paused = true;
        tell_protocol(t, t->loop->state->str_pause_writing, "protocol.pause_writing() failed");
    }
}

static void maybe_resume(TdlUdp *t)
{
    if (t->protocol_paused && t->write_size <= t->low_water) {
        t->protocol_paused = false;
        tell_protocol(t, t->loop->state->str_resume_writing, "protocol.resume_writing() failed");
    }
}

static enum tdl_udp_sent sent(ssize_t n)
{
    if (n >= 0) {
        return TDL_UDP_SENT;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return TDL_UDP_BLOCKED;
    }
    PyErr_SetFromErrno(PyExc_OSError);
    return TDL_UDP_FAILED;
}

static enum tdl_udp_sent send_by_socket(TdlUdp *t, PyObject *data, PyObject *addr)
{
    PyObject *result = PyObject_CallMethod(t->sock, "sendto", "OO", data, addr);
    if (result != NULL) {
        Py_DECREF(result);
        return TDL_UDP_SENT;
    }
    if (PyErr_ExceptionMatches(PyExc_BlockingIOError) || PyErr_ExceptionMatches(PyExc_InterruptedError)) {
        PyErr_Clear();
        return TDL_UDP_BLOCKED;
    }
    return TDL_UDP_FAILED;
}

/* Whether the kernel knows where to send without an address. asyncio takes an empty name for none, as that of
 * one of a Unix pair, and then fails: it is sent here. */
static bool has_peer(int fd)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;
    return getpeername(fd, (struct sockaddr *)&addr, &len) == 0;
}

/* Send one datagram; names to look up and other families are for Python's socket. */
static enum tdl_udp_sent send_view(TdlUdp *t, PyObject *data, const Py_buffer *view, PyObject *addr)
{
    struct tdl_udp_addr parsed;
    const struct tdl_udp_addr *to = NULL;
    if (!t->connected && !(addr == Py_None && has_peer(tdl__udp_fd(t)))) {
        if (t->last != NULL && t->last->tuple == addr) {
            parsed = t->last->addr; /* a copy: an audit hook may send to somebody else */
            to = &parsed;
        } else if (tdl__udp_addr_parse(t->family, addr, &parsed)) {
            to = &parsed;
        } else {
            return send_by_socket(t, data, addr);
        }
    }
    if (to != NULL && TDL_REFUSED("socket.sendto", "OO", t->sock, addr)) {
        return TDL_UDP_FAILED;
    }
    int fd = tdl__udp_fd(t);
    ssize_t n;
    do {
        n = to == NULL ? send(fd, view->buf, (size_t)view->len, 0)
                       : sendto(fd, view->buf, (size_t)view->len, 0, &to->any, to->len);
    } while (n < 0 && errno == EINTR);
    return sent(n);
}

/* Tell the protocol of a failed send, or close if the failure is none of the system's; -1 if one of them
 * raised. */
static int send_failed(TdlUdp *t)
{
    if (!PyErr_ExceptionMatches(PyExc_OSError)) {
        tdl__udp_fatal(t, "Fatal write error on datagram transport");
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *exc = PyErr_GetRaisedException();
    PyObject *protocol = Py_NewRef(t->protocol);
    PyObject *result = PyObject_CallMethodOneArg(protocol, t->loop->state->str_error_received, exc);
    Py_DECREF(protocol);
    Py_DECREF(exc);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

/* Forget the first of the queue if it still is that one. */
static void queue_forget(TdlUdp *t, const struct tdl_datagram *first)
{
    if (t->queue_len > 0 && t->queue[t->queue_head].data == first->data) {
        struct tdl_datagram d = queue_pop(t);
        Py_DECREF(d.data);
        Py_DECREF(d.addr);
    }
}

/* Send what is queued until the kernel takes no more; -1 if a callback raised, 1 if a datagram failed. An
 * audit hook, which the send tells, may abort and so clear the queue. */
static int send_queue(TdlUdp *t)
{
    while (t->queue_len > 0) {
        struct tdl_datagram d = t->queue[t->queue_head];
        Py_buffer view = {.buf = PyBytes_AS_STRING(d.data), .len = PyBytes_GET_SIZE(d.data)};
        Py_INCREF(d.data);
        Py_INCREF(d.addr);
        enum tdl_udp_sent code = send_view(t, d.data, &view, d.addr);
        if (code != TDL_UDP_BLOCKED) {
            queue_forget(t, &d);
        }
        Py_DECREF(d.data);
        Py_DECREF(d.addr);
        if (code == TDL_UDP_BLOCKED) {
            return 0;
        }
        if (code == TDL_UDP_FAILED) {
            return send_failed(t) < 0 ? -1 : 1;
        }
    }
    return 0;
}

static void write_ready(TdlUdp *t)
{
    int code = send_queue(t);
    if (code < 0) {
        if (!tdl__udp_exit_raised(t)) {
            PyObject *exc = PyErr_GetRaisedException();
            tdl__udp_call_handler(t, "Exception in callback UDPTransport._sendto_ready()", exc);
            Py_DECREF(exc);
        }
        return;
    }
    if (code > 0 || t->protocol == NULL) {
        return; /* the rest goes when the kernel says so again */
    }
    maybe_resume(t); /* may send more, close or abort */
    if (t->queue_len == 0 && t->watch != NULL && !PyErr_Occurred()) {
        (void)tdl__watch_unset(t->watch, UV_WRITABLE);
        if (t->state == TDL_UDP_CLOSING) {
            tdl__udp_lost_now(t, Py_None);
        }
    }
}

void tdl__udp_write_run(struct tdl_item *item)
{
    TdlUdp *t = TDL_CONTAINER_OF(item, TdlUdp, write_item);
    if (tdl__watch_failed(t->watch)) {
        tdl__udp_unwatched(t);
    }
    if (!t->loop->closed && t->fd >= 0 && t->watch != NULL && t->watch->writer.owner != NULL) {
        PyObject *context = Py_NewRef(t->context);
        if (PyContext_Enter(context) == 0) {
            write_ready(t);
            tdl__context_leave(t->loop, context);
        } else {
            tdl__udp_fatal(t, "Fatal write error on datagram transport");
        }
        Py_DECREF(context);
    }
    Py_DECREF(t);
}

static int write_lost(TdlUdp *t)
{
    struct tdl_module_state *st = tdl__state_of_type(Py_TYPE(t));
    if (t->conn_lost >= TDL_UDP_LOST_LOG_MIN) {
        PyObject *result = PyObject_CallMethodNoArgs(st->support, st->str__log_conn_lost);
        if (result == NULL) {
            return -1;
        }
        Py_DECREF(result);
    }
    t->conn_lost++;
    return 0;
}

/* The address to send to, as asyncio checks it; NULL with ValueError for another than the endpoint's. */
static PyObject *checked_address(TdlUdp *t, PyObject *addr)
{
    int bound = t->address == Py_None ? 0 : PyObject_IsTrue(t->address);
    if (bound <= 0) {
        return bound < 0 ? NULL : addr;
    }
    int same = addr == Py_None || addr == t->address ? 1 : PyObject_RichCompareBool(addr, t->address, Py_EQ);
    if (same == 0) {
        PyErr_Format(PyExc_ValueError, "Invalid address: must be None or %S", t->address);
    }
    return same > 0 ? t->address : NULL;
}

static int sendto_view(TdlUdp *t, PyObject *data, const Py_buffer *view, PyObject *addr)
{
    addr = checked_address(t, addr);
    if (addr == NULL) {
        return -1;
    }
    if (t->fd < 0 || (t->conn_lost > 0 && t->address != Py_None)) {
        return write_lost(t);
    }
    if (t->queue_len == 0) {
        enum tdl_udp_sent code = send_view(t, data, view, addr);
        if (code != TDL_UDP_BLOCKED) {
            return code == TDL_UDP_SENT ? 0 : send_failed(t);
        }
        if (t->watch == NULL) {
            PyErr_SetString(PyExc_RuntimeError, "Event loop is closed");
            return -1;
        }
        int refused = 0;
        if (t->watch->writer.owner == NULL) {
            refused = tdl__watch_set(t->watch, UV_WRITABLE, &t->write_item, (PyObject *)t);
        }
        if (refused < 0) {
            tdl__raise_uv(refused);
            return -1;
        }
    }
    /* What is kept must not change any more. */
    PyObject *kept =
        PyBytes_CheckExact(data) ? Py_NewRef(data) : PyBytes_FromStringAndSize(view->buf, view->len);
    int code = kept != NULL ? queue_push(t, kept, addr) : -1;
    Py_XDECREF(kept);
    if (code == 0) {
        tdl__udp_maybe_pause(t);
    }
    return PyErr_Occurred() ? -1 : code;
}

static int sendto_object(TdlUdp *t, PyObject *data, PyObject *addr)
{
    Py_buffer view = {.buf = NULL};
    if (PyBytes_CheckExact(data)) {
        view.buf = PyBytes_AS_STRING(data);
        view.len = PyBytes_GET_SIZE(data);
    } else if (!PyBytes_Check(data) && !PyByteArray_Check(data) && !PyMemoryView_Check(data)) {
        PyObject *name = PyType_GetName(Py_TYPE(data));
        if (name != NULL) {
            PyErr_Format(PyExc_TypeError, "data argument must be a bytes-like object, not %R", name);
        }
        Py_XDECREF(name);
        return -1;
    } else if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    int code = 0;
    if (view.len > 0 || PY_VERSION_HEX >= 0x030D0000) { /* older Pythons send no empty datagrams */
        code = sendto_view(t, data, &view, addr);
    }
    if (view.obj != NULL) {
        PyBuffer_Release(&view);
    }
    return code;
}

static PyObject *udp_sendto(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"data", "addr"};
    PyObject *values[2] = {NULL, Py_None};
    if (nargs > 2) {
        PyErr_Format(PyExc_TypeError, "sendto() takes at most 2 arguments (%zd given)", nargs);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < nargs; i++) {
        values[i] = args[i];
    }
    for (Py_ssize_t i = 0; kwnames != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, i);
        int which = PyUnicode_CompareWithASCIIString(key, names[0]) == 0   ? 0
                    : PyUnicode_CompareWithASCIIString(key, names[1]) == 0 ? 1
                                                                           : -1;
        if (which < 0 || which < nargs) {
            PyErr_Format(PyExc_TypeError, "sendto() got an unexpected keyword argument %R", key);
            return NULL;
        }
        values[which] = args[nargs + i];
    }
    if (values[0] == NULL) {
        PyErr_SetString(PyExc_TypeError, "sendto() missing required argument 'data'");
        return NULL;
    }
    if (sendto_object(TDL_UDP(self), values[0], values[1]) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyMethodDef tdl__udp_write_methods[] = {
    {"sendto", (PyCFunction)(void (*)(void))udp_sendto, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR(
         "sendto($self, /, data, addr=None)\n--\n\n"
         "Send a datagram, or queue it if the kernel takes none now; never blocks. Without addr it goes to "
         "the "
         "endpoint's remote address. What the system refuses goes to the protocol's error_received().")},
    {NULL, NULL, 0, NULL},
};
