/* What a stream tells of itself: asyncio's extra info, made when it is asked for, and its socket. */
#include "ground/fileno.h"
#include "loop/handle.h"
#include "loop/soon.h"
#include "streams/streams.h"
#include "transport/stream.h"
#include "transport/transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

PyObject *tdl__stream_socket(TdlStream *t)
{
    if (t->sock == NULL && t->fd >= 0) {
        struct tdl_module_state *st = t->loop->state;
        t->sock = tdl__socket_over(st, t->family, t->type, t->proto, t->fd);
        if (t->sock != NULL) {
            t->sock_number = tdl__socket_number(t->loop->state, t->sock, t->fd);
            PyObject *result = PyObject_CallMethod(t->sock, "setblocking", "O", Py_False);
            Py_XDECREF(result);
            PyErr_Clear();
        }
    }
    return Py_XNewRef(t->sock);
}

static PyObject *extra_dict(TdlStream *t)
{
    if (t->extra == NULL || !PyDict_Check(t->extra)) {
        Py_XSETREF(t->extra, PyDict_New());
    }
    return t->extra;
}

static PyObject *addr_to_python(const union tdl_stream_addr *addr)
{
    char text[INET6_ADDRSTRLEN];
    if (addr->any.sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, addr->bytes, sizeof in);
        inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
        return Py_BuildValue("(si)", text, (int)ntohs(in.sin_port));
    }
    struct sockaddr_in6 in6;
    memcpy(&in6, addr->bytes, sizeof in6);
    inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
    return Py_BuildValue("(siII)", text, (int)ntohs(in6.sin6_port), (unsigned)ntohl(in6.sin6_flowinfo),
                         (unsigned)in6.sin6_scope_id);
}

/* Ask the Python socket for an address; a failure means None, as in asyncio. */
static PyObject *ask_socket(TdlStream *t, PyObject *method)
{
    PyObject *sock = tdl__stream_socket(t);
    PyObject *value = sock != NULL ? PyObject_CallMethodNoArgs(sock, method) : NULL;
    Py_XDECREF(sock);
    if (value == NULL) {
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OSError)) {
            return NULL;
        }
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    return value;
}

/* Own address of an INET socket, without making the Python socket for it. */
static PyObject *own_sockname(TdlStream *t)
{
    union tdl_stream_addr addr;
    socklen_t len = sizeof addr;
    if (t->fd >= 0 && getsockname(tdl__stream_fd(t), &addr.any, &len) == 0 && len <= sizeof addr &&
        (addr.any.sa_family == AF_INET || addr.any.sa_family == AF_INET6)) {
        return addr_to_python(&addr);
    }
    return ask_socket(t, t->loop->state->str_getsockname);
}

/* Values that asyncio takes at construction; here they are made when first asked for, and kept. */
static PyObject *lazy_extra(TdlStream *t, PyObject *name)
{
    struct tdl_module_state *st = t->loop->state;
    if (PyUnicode_Compare(name, st->str_peername) == 0) {
        return t->peer_len != 0 ? addr_to_python(&t->peer) : ask_socket(t, st->str_getpeername);
    }
    if (PyUnicode_Compare(name, st->str_sockname) == 0) {
        return own_sockname(t);
    }
    if (PyUnicode_Compare(name, st->str_socket) == 0) {
        PyObject *sock = tdl__stream_socket(t);
        PyObject *wrapped = sock != NULL
                                ? PyObject_CallMethodObjArgs(st->support, st->str__wrap_transport_socket,
                                                             sock, (PyObject *)t, NULL)
                                : NULL;
        Py_XDECREF(sock);
        return wrapped;
    }
    return NULL;
}

/* Everything that get_extra_info() would find, for who looks into _extra by himself. */
static int fill_extra(TdlStream *t)
{
    struct tdl_module_state *st = t->loop->state;
    PyObject *const names[] = {st->str_socket, st->str_sockname, st->str_peername};
    PyObject *extra = extra_dict(t);
    for (size_t i = 0; extra != NULL && i < sizeof names / sizeof names[0]; i++) {
        if ((t->fd < 0 && t->peer_len == 0) || PyDict_Contains(extra, names[i]) > 0) {
            continue;
        }
        PyObject *value = lazy_extra(t, names[i]);
        int code = value != NULL ? PyDict_SetItem(extra, names[i], value) : -1;
        Py_XDECREF(value);
        if (code < 0) {
            return -1;
        }
    }
    return extra != NULL ? 0 : -1;
}

/* What somebody put in the place of a method of asyncio's transports, bound to this one; NULL if nobody did,
 * or with an exception. */
TDL_RARE static PyObject *find_replaced(TdlStream *t, PyObject *name)
{
    struct tdl_module_state *st = t->loop->state;
    if (!tdl__transports_compare(&st->standard, Py_TYPE(t), st->asyncio_transport) || fill_extra(t) < 0) {
        return NULL;
    }
    PyObject *shipped = PyDict_GetItemWithError(st->standard.transport_shipped, name);
    PyObject *now = shipped != NULL ? PyObject_GetAttr(st->asyncio_transport, name) : NULL;
    bool replaced = now != NULL && now != shipped;
    Py_XDECREF(now);
    if (!replaced) {
        return NULL;
    }
    PyObject *behind = PyObject_CallFunctionObjArgs((PyObject *)&PySuper_Type, (PyObject *)st->stream_type,
                                                    (PyObject *)t, NULL);
    PyObject *method = behind != NULL ? PyObject_GetAttr(behind, name) : NULL;
    Py_XDECREF(behind);
    return method;
}

/* The same, asked at each call. */
PyObject *tdl__stream_replaced(TdlStream *t, PyObject *name)
{
    return tdl__type_tag(Py_TYPE(t)) == t->loop->state->standard.transport_tag ? NULL
                                                                               : find_replaced(t, name);
}

PyObject *tdl__stream_get_extra_info(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name", "default", NULL};
    TdlStream *t = TDL_STREAM(self);
    PyObject *replaced = tdl__stream_replaced(t, t->loop->state->str_get_extra_info);
    if (replaced != NULL) {
        PyObject *result = PyObject_Call(replaced, args, kwargs);
        Py_DECREF(replaced);
        return result;
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    PyObject *name;
    PyObject *fallback = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:get_extra_info", TDL_KEYWORDS(names), &name,
                                     &fallback)) {
        return NULL;
    }
    tdl__stream_flush(t);
    PyObject *extra = Py_XNewRef(extra_dict(t)); /* a name's __eq__ may replace it */
    PyObject *value = extra != NULL ? Py_XNewRef(PyDict_GetItemWithError(extra, name)) : NULL;
    if (value == NULL && !PyErr_Occurred() && PyUnicode_Check(name) && (t->fd >= 0 || t->peer_len != 0)) {
        value = lazy_extra(t, name);
        if (value != NULL && PyDict_SetItem(extra, name, value) < 0) {
            Py_CLEAR(value);
        }
    }
    Py_XDECREF(extra);
    return value != NULL || PyErr_Occurred() ? value : Py_NewRef(fallback);
}
