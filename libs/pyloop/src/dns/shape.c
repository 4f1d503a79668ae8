/* Which arguments are plain enough to be looked up without asyncio's executor: those that _socket would pass
 * to libc as they are. */
#include "dns/dns_internal.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define LABEL_MAX 63
#define PORT_MAX 65535
#define FLOWINFO_MAX 0xfffff

/* Without a NUL inside, which would cut the name short. */
static const char *plain_bytes(PyObject *object)
{
    const char *text = PyBytes_AS_STRING(object);
    return strlen(text) == (size_t)PyBytes_GET_SIZE(object) ? text : NULL;
}

static const char *plain_ascii(PyObject *object, Py_ssize_t *length)
{
    if (!PyUnicode_CheckExact(object) || !PyUnicode_IS_COMPACT_ASCII(object)) {
        return NULL;
    }
    const char *text = PyUnicode_DATA(object);
    *length = PyUnicode_GET_LENGTH(object);
    return strlen(text) == (size_t)*length ? text : NULL;
}

/* The IDNA codec leaves an ASCII name as it is if no label is too long and none but the last is empty. */
static bool idna_leaves(const char *name, Py_ssize_t length)
{
    Py_ssize_t label = 0;
    for (Py_ssize_t i = 0; i < length; i++) {
        if (name[i] != '.') {
            label++;
            continue;
        }
        if (label == 0 || label > LABEL_MAX) {
            return false;
        }
        label = 0;
    }
    return label <= LABEL_MAX;
}

static bool shape_node(PyObject *host, const char **out)
{
    *out = NULL;
    if (host == Py_None) {
        return true;
    }
    if (PyBytes_CheckExact(host)) {
        *out = plain_bytes(host);
        return *out != NULL;
    }
    Py_ssize_t length;
    *out = plain_ascii(host, &length);
    return *out != NULL && idna_leaves(*out, length);
}

/* An int, or a member of one of socket's enums, that fits between the two. */
static bool shape_number(struct tdl_dns_state *st, PyObject *object, long low, long high, long *out)
{
    PyTypeObject *type = Py_TYPE(object);
    bool plain = PyLong_CheckExact(object) || (PyObject *)type == st->address_family ||
                 (PyObject *)type == st->socket_kind || (PyObject *)type == st->address_info;
    int overflow = 0;
    if (!plain || !PyLong_Check(object)) {
        return false;
    }
    *out = PyLong_AsLongAndOverflow(object, &overflow);
    return overflow == 0 && *out >= low && *out <= high;
}

static bool shape_int(struct tdl_dns_state *st, PyObject *object, int *out)
{
    long value = 0;
    bool plain = shape_number(st, object, INT_MIN, INT_MAX, &value);
    *out = (int)value;
    return plain;
}

static void port_text(char *out, unsigned port)
{
    char digits[8];
    int count = 0;
    do {
        digits[count++] = (char)('0' + port % 10);
        port /= 10;
    } while (port != 0);
    while (count > 0) {
        *out++ = digits[--count];
    }
    *out = '\0';
}

static bool shape_service(PyObject *port, struct tdl_dns_ask *out)
{
    Py_ssize_t length;
    int overflow = 0;
    out->service = NULL;
    if (port == Py_None) {
        return true;
    }
    if (PyLong_CheckExact(port)) {
        long value = PyLong_AsLongAndOverflow(port, &overflow);
        if (overflow != 0 || value < 0 || value > PORT_MAX) {
            return false;
        }
        port_text(out->port, (unsigned)value);
        out->service = out->port;
        return true;
    }
    out->service = PyBytes_CheckExact(port) ? plain_bytes(port) : plain_ascii(port, &length);
    return out->service != NULL;
}

int tdl__dns_shape(struct tdl_dns_state *st, PyObject *const args[6], struct tdl_dns_ask *out)
{
    memset(&out->hints, 0, sizeof out->hints);
    return shape_node(args[0], &out->node) && shape_service(args[1], out) &&
           shape_int(st, args[2], &out->hints.ai_family) && shape_int(st, args[3], &out->hints.ai_socktype) &&
           shape_int(st, args[4], &out->hints.ai_protocol) && shape_int(st, args[5], &out->hints.ai_flags);
}

/* As _socket.getnameinfo makes its address: by a numeric getaddrinfo, then flow and scope from the tuple. */
int tdl__dns_shape_reverse(struct tdl_dns_state *st, PyObject *sockaddr, PyObject *flags,
                           struct tdl_dns_ask_reverse *out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST};
    long numbers[3] = {0, 0, 0};
    const long most[3] = {PORT_MAX, FLOWINFO_MAX, UINT32_MAX};
    struct tdl_numeric answer;
    char port[TDL_DNS_TEXT_MAX];
    Py_ssize_t length;
    Py_ssize_t size = PyTuple_CheckExact(sockaddr) ? PyTuple_GET_SIZE(sockaddr) : 0;
    if (size < 2 || size > 4 || !shape_int(st, flags, &out->flags)) {
        return 0;
    }
    const char *node = plain_ascii(PyTuple_GET_ITEM(sockaddr, 0), &length);
    for (Py_ssize_t i = 1; i < size; i++) {
        if (!shape_number(st, PyTuple_GET_ITEM(sockaddr, i), 0, most[i - 1], &numbers[i - 1])) {
            return 0;
        }
    }
    port_text(port, (unsigned)numbers[0]);
    if (node == NULL || !tdl_numeric_forward(&answer, node, port, &hints)) {
        return 0;
    }
    if (answer.address.any.sa_family == AF_INET6) {
        answer.address.in6.sin6_flowinfo = htonl((uint32_t)numbers[1]);
        answer.address.in6.sin6_scope_id = (uint32_t)numbers[2];
    } else if (size != 2) {
        return 0;
    }
    memcpy(&out->address, &answer.address, answer.length);
    out->length = answer.length;
    return 1;
}
