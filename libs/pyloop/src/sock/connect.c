/* The connect of create_connection to a numeric address: no socket object, and often no wait. */
#include "ground/audit.h"
#include "sock/sockops.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* ('127.0.0.1', 80) as asyncio has it in the text of a failed connect. */
static PyObject *address_text(const TdlSockWait *s)
{
    char text[INET6_ADDRSTRLEN];
    if (s->address.sin6_family == AF_INET6) {
        inet_ntop(AF_INET6, &s->address.sin6_addr, text, sizeof text);
        return PyUnicode_FromFormat("Connect call failed ('%s', %d, 0, 0)", text,
                                    (int)ntohs(s->address.sin6_port));
    }
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&s->address;
    inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
    return PyUnicode_FromFormat("Connect call failed ('%s', %d)", text, (int)ntohs(in->sin_port));
}

static PyObject *connect_failed(const TdlSockWait *s, int error)
{
    PyObject *text = address_text(s);
    PyObject *exc = text != NULL ? PyObject_CallFunction(PyExc_OSError, "iO", error, text) : NULL;
    Py_XDECREF(text);
    if (exc != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
        Py_DECREF(exc);
    }
    return NULL;
}

/* Start to connect; NULL with or without an exception. */
static PyObject *connect_start(TdlSockWait *s)
{
    s->fd = socket(s->address.sin6_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (s->fd < 0) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    int code;
    do {
        code = connect(s->fd, (const struct sockaddr *)&s->address, s->address_len);
    } while (code < 0 && errno == EINTR);
    if (code < 0 && errno != EINPROGRESS) {
        return connect_failed(s, errno);
    }
    return NULL;
}

/* Positive if the connect has ended, 0 if it has not, negative if that cannot be asked, as errno says. */
static int is_answered(const TdlSockWait *s)
{
    struct pollfd ready = {.fd = s->fd, .events = POLLOUT};
    int code;
    do {
        code = poll(&ready, 1, 0);
    } while (code < 0 && errno == EINTR);
    return code;
}

/* On loopback the answer is there at once. It is not given before the next turn: between the two a cancel of
 * the connect must find no protocol made yet, as on asyncio. The poll is spared. */
bool tdl__sockwait_connected_at_once(const TdlSockWait *s)
{
    return s->op == TDL_SOCKOP_CONNECT && is_answered(s) > 0;
}

PyObject *tdl__sockwait_try_connect(TdlSockWait *s)
{
    if (s->fd < 0) {
        return connect_start(s);
    }
    int answered = is_answered(s);
    if (answered <= 0) {
        return answered < 0 ? PyErr_SetFromErrno(PyExc_OSError) : NULL;
    }
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) {
        error = errno;
    }
    return error != 0 ? connect_failed(s, error) : PyLong_FromLong(s->fd);
}

/* _connect_numeric(host, port): an awaitable that gives a connected descriptor; None if host is no plain
 * address, False if audit hooks are to be told of a socket. */
PyObject *tdl__loop_connect_numeric(PyObject *self, PyObject *args)
{
    const char *host;
    PyObject *number;
    int overflow;
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&in6;
    if (!PyArg_ParseTuple(args, "sO!", &host, &PyLong_Type, &number) ||
        tdl__check_closed(TDL_LOOP(self)) < 0) {
        return NULL;
    }
    if (tdl__audited()) {
        Py_RETURN_FALSE;
    }
    long port = PyLong_AsLongAndOverflow(number, &overflow);
    bool v6 = inet_pton(AF_INET6, host, &in6.sin6_addr) == 1;
    if (overflow != 0 || port < 0 || port > UINT16_MAX ||
        (!v6 && inet_pton(AF_INET, host, &in->sin_addr) != 1)) {
        Py_RETURN_NONE;
    }
    in6.sin6_family = v6 ? AF_INET6 : AF_INET;
    in6.sin6_port = htons((uint16_t)port);
    TdlSockWait *s = tdl__sockwait_make(TDL_LOOP(self), Py_None, -1, TDL_SOCKOP_CONNECT);
    if (s != NULL) {
        s->address = in6;
        s->address_len = v6 ? sizeof in6 : sizeof *in;
    }
    return (PyObject *)s;
}
