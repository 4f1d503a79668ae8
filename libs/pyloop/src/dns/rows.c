/* Answers as socket.getaddrinfo and socket.getnameinfo give them: rows with enum members, and their
 * errors. */
#include "dns/dns_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

/* The member of an enum for a number, or the number itself, as socket's converter has it. */
static PyObject *member_find(PyObject *enumeration, int value)
{
    PyObject *number = PyLong_FromLong(value);
    PyObject *found = number != NULL ? PyObject_CallOneArg(enumeration, number) : NULL;
    if (found == NULL && number != NULL && PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        return number;
    }
    Py_XDECREF(number);
    return found;
}

static PyObject *member(PyObject *const *cache, int size, PyObject *enumeration, int value)
{
    if (value >= 0 && value < size && cache[value] != NULL) {
        return Py_NewRef(cache[value]);
    }
    return member_find(enumeration, value);
}

/* What nearly every row holds is found once, at import, so that later nobody writes here. */
int tdl__dns_members_init(struct tdl_dns_state *st)
{
    const int families[] = {AF_INET, AF_INET6};
    const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};
    bool whole = true;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        st->families[families[i]] = member_find(st->address_family, families[i]);
        whole = whole && st->families[families[i]] != NULL;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        st->kinds[kinds[i]] = member_find(st->socket_kind, kinds[i]);
        whole = whole && st->kinds[kinds[i]] != NULL;
    }
    return whole ? 0 : -1;
}

/* A tuple of objects, each a new reference that it takes over; NULL if one of them is. */
static PyObject *tuple_of(PyObject *const *items, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    bool whole = tuple != NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        whole = whole && items[i] != NULL;
        if (tuple != NULL) {
            PyTuple_SET_ITEM(tuple, i, items[i]);
        } else {
            Py_XDECREF(items[i]);
        }
    }
    if (!whole) {
        Py_CLEAR(tuple);
    }
    return tuple;
}

/* The text of an address is ASCII, and short. */
static PyObject *text_of(const char *text)
{
    size_t length = strlen(text);
    PyObject *object = PyUnicode_New((Py_ssize_t)length, 127);
    if (object != NULL) {
        memcpy(PyUnicode_1BYTE_DATA(object), text, length);
    }
    return object;
}

static PyObject *address_v4(const struct sockaddr_in *in)
{
    char host[TDL_NUMERIC_HOST_MAX];
    char service[TDL_NUMERIC_SERVICE_MAX];
    bool answered = tdl_numeric_reverse(host, service, (const struct sockaddr *)in, sizeof *in,
                                        NI_NUMERICHOST | NI_NUMERICSERV);
    TDL_ASSERT(answered);
    PyObject *items[] = {text_of(host), PyLong_FromLong(ntohs(in->sin_port))};
    return tuple_of(items, 2);
}

static PyObject *address_v6(const struct sockaddr_in6 *in6)
{
    char text[INET6_ADDRSTRLEN];
    if (inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text) == NULL) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    PyObject *items[] = {text_of(text), PyLong_FromLong(ntohs(in6->sin6_port)),
                         PyLong_FromUnsignedLong(ntohl(in6->sin6_flowinfo)),
                         PyLong_FromUnsignedLong(in6->sin6_scope_id)};
    return tuple_of(items, 4);
}

static PyObject *address_of(const struct sockaddr *address, socklen_t length)
{
    if (address->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof in);
        return address_v4(&in);
    }
    if (address->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 in6;
        memcpy(&in6, address, sizeof in6);
        return address_v6(&in6);
    }
    return Py_BuildValue("iy#", address->sa_family, address->sa_data, (Py_ssize_t)sizeof address->sa_data);
}

/* Takes over the reference to the address. */
static PyObject *row_new(struct tdl_dns_state *st, int family, int kind, int protocol, const char *canonical,
                         PyObject *address)
{
    PyObject *items[] = {
        member(st->families, TDL_DNS_FAMILIES, st->address_family, family),
        member(st->kinds, TDL_DNS_KINDS, st->socket_kind, kind),
        PyLong_FromLong(protocol),
        canonical != NULL ? PyUnicode_FromString(canonical) : Py_NewRef(st->empty),
        address,
    };
    return tuple_of(items, 5);
}

PyObject *tdl__dns_rows(struct tdl_dns_state *st, const struct addrinfo *first)
{
    PyObject *rows = PyList_New(0);
    for (const struct addrinfo *at = first; at != NULL && rows != NULL; at = at->ai_next) {
        PyObject *row = row_new(st, at->ai_family, at->ai_socktype, at->ai_protocol, at->ai_canonname,
                                address_of(at->ai_addr, at->ai_addrlen));
        if (row == NULL || PyList_Append(rows, row) < 0) {
            Py_CLEAR(rows);
        }
        Py_XDECREF(row);
    }
    return rows;
}

/* All rows of a numeric answer have the same address, and it can't change, so they share it. */
PyObject *tdl__dns_numeric_rows(struct tdl_dns_state *st, const struct tdl_numeric *answer)
{
    PyObject *rows = PyList_New(answer->count);
    PyObject *address = rows != NULL ? address_of(&answer->address.any, answer->length) : NULL;
    if (address == NULL) {
        Py_XDECREF(rows);
        return NULL;
    }
    for (uint32_t i = 0; i < answer->count; i++) {
        const char *canonical = i == 0 ? answer->canonical : NULL;
        PyObject *row = row_new(st, answer->address.any.sa_family, answer->rows[i].socktype,
                                answer->rows[i].protocol, canonical, Py_NewRef(address));
        if (row == NULL) {
            Py_CLEAR(rows);
            break;
        }
        PyList_SET_ITEM(rows, i, row);
    }
    Py_DECREF(address);
    return rows;
}

PyObject *tdl__dns_names(const char *host, const char *service)
{
    PyObject *name = PyUnicode_DecodeFSDefault(host);
    return name != NULL ? Py_BuildValue("Ns", name, service) : NULL;
}

/* Raises what _socket raises for this code. */
void tdl__dns_raise(struct tdl_dns_state *st, int eai, int system_errno)
{
    if (eai == EAI_SYSTEM) {
        errno = system_errno;
        PyErr_SetFromErrno(PyExc_OSError);
        return;
    }
    /* The C library words it in the locale's encoding, which need not be UTF-8 (gh-93251). */
    PyObject *text = PyUnicode_DecodeLocale(gai_strerror(eai), "surrogateescape");
    PyObject *value = text != NULL ? Py_BuildValue("(iN)", eai, text) : NULL;
    if (value != NULL) {
        PyErr_SetObject(st->gaierror, value);
        Py_DECREF(value);
    }
}
