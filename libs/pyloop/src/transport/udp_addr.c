/* Socket addresses of datagrams, from the kernel's form to Python's and back. */
#include "transport/udp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

static PyObject *unix_to_python(const struct sockaddr *addr, size_t len)
{
    const struct sockaddr_un *un = (const struct sockaddr_un *)(const void *)addr;
    size_t offset = offsetof(struct sockaddr_un, sun_path);
    size_t size = len > offset ? len - offset : 0;
    if (size > 0 && un->sun_path[0] == 0) {
        return PyBytes_FromStringAndSize(un->sun_path, (Py_ssize_t)size); /* an abstract name, to the byte */
    }
    return PyUnicode_DecodeFSDefaultAndSize(un->sun_path, (Py_ssize_t)strnlen(un->sun_path, size));
}

/* "a.b.c.d" and the port; as inet_ntop writes it, several times faster. */
static PyObject *inet_to_python(const struct sockaddr_in *in)
{
    char text[INET_ADDRSTRLEN];
    const unsigned char *octets = (const unsigned char *)&in->sin_addr.s_addr;
    int len = 0;
    for (int i = 0; i < 4; i++) {
        unsigned value = octets[i];
        if (value >= 100) {
            text[len++] = (char)('0' + value / 100);
        }
        if (value >= 10) {
            text[len++] = (char)('0' + value / 10 % 10);
        }
        text[len++] = (char)('0' + value % 10);
        text[len++] = '.';
    }
    PyObject *host = PyUnicode_FromStringAndSize(text, len - 1);
    PyObject *port = PyLong_FromLong(ntohs(in->sin_port));
    PyObject *tuple = host != NULL && port != NULL ? PyTuple_New(2) : NULL;
    if (tuple == NULL) {
        Py_XDECREF(host);
        Py_XDECREF(port);
        return NULL;
    }
    PyTuple_SET_ITEM(tuple, 0, host);
    PyTuple_SET_ITEM(tuple, 1, port);
    return tuple;
}

/* What socket.recvfrom returns for this address. */
PyObject *tdl__udp_addr_to_python(const struct sockaddr *addr, size_t len)
{
    char text[INET6_ADDRSTRLEN];
    if (len == 0) {
        return Py_NewRef(Py_None);
    }
    if (addr->sa_family == AF_UNIX) {
        return unix_to_python(addr, len);
    }
    if (addr->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, addr, sizeof in);
        return inet_to_python(&in);
    }
    struct sockaddr_in6 in6;
    memcpy(&in6, addr, sizeof in6);
    inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
    return Py_BuildValue("(siII)", text, (int)ntohs(in6.sin6_port), (unsigned)ntohl(in6.sin6_flowinfo),
                         (unsigned)in6.sin6_scope_id);
}

static bool number_of(PyObject *tuple, Py_ssize_t index, long max, long *out)
{
    *out = 0;
    if (index >= PyTuple_GET_SIZE(tuple)) {
        return true;
    }
    PyObject *item = PyTuple_GET_ITEM(tuple, index);
    int overflow = 0;
    *out = PyLong_CheckExact(item) ? PyLong_AsLongAndOverflow(item, &overflow) : -1;
    return overflow == 0 && *out >= 0 && *out <= max;
}

/* Translate (numeric host, port...); false for any other form, which Python's socket answers. */
bool tdl__udp_addr_parse(int family, PyObject *value, struct tdl_udp_addr *out)
{
    Py_ssize_t most = family == AF_INET ? 2 : family == AF_INET6 ? 4 : 0;
    if (!PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) < 2 || PyTuple_GET_SIZE(value) > most) {
        return false;
    }
    PyObject *host = PyTuple_GET_ITEM(value, 0);
    long port, flow, scope;
    if (!PyUnicode_CheckExact(host) || !PyUnicode_IS_ASCII(host) || !number_of(value, 1, 65535, &port) ||
        !number_of(value, 2, 0xfffff, &flow) || !number_of(value, 3, (long)UINT32_MAX, &scope)) {
        return false;
    }
    const char *text = (const char *)PyUnicode_1BYTE_DATA(host);
    if (strlen(text) != (size_t)PyUnicode_GET_LENGTH(host)) {
        return false;
    }
    if (family == AF_INET) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        if (inet_pton(AF_INET, text, &in.sin_addr) != 1) {
            return false;
        }
        memcpy(out->bytes, &in, sizeof in);
        out->len = sizeof in;
        return true;
    }
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)port),
                               .sin6_flowinfo = htonl((uint32_t)flow),
                               .sin6_scope_id = (uint32_t)scope};
    if (inet_pton(AF_INET6, text, &in6.sin6_addr) != 1) {
        return false;
    }
    memcpy(out->bytes, &in6, sizeof in6);
    out->len = sizeof in6;
    return true;
}
