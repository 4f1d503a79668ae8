/* Whether socket.getaddrinfo and socket.getnameinfo are still the standard library's own, asked at every
 * lookup. */
#include "dns/dns.h"
#include "ground/cpython.h"
#include "ground/state.h"

#include <string.h>

#include "treadle/alloc.h"

static PyObject *module_dict(PyObject *module)
{
    return PyModule_GetDict(module);
}

static bool dict_has(PyObject *dict, PyObject *name, PyObject *value)
{
    PyObject *found = value != NULL ? PyDict_GetItemWithError(dict, name) : NULL;
    if (found == NULL) {
        PyErr_Clear();
    }
    return found != NULL && found == value;
}

static bool code_is(PyObject *function, PyObject *code)
{
    return function != NULL && PyFunction_Check(function) && PyFunction_GET_CODE(function) == code;
}

/* Every object that a call of socket.getaddrinfo(...) by asyncio would pass through. */
static bool names_in_place(struct tdl_dns_state *st)
{
    PyObject *base = module_dict(st->base_events);
    PyObject *socket = module_dict(st->socket);
    return dict_has(base, st->str_socket, st->socket) &&
           dict_has(socket, st->str_getaddrinfo, st->getaddrinfo) &&
           dict_has(socket, st->str__socket, st->raw_socket) &&
           dict_has(socket, st->str_converter, st->converter) &&
           dict_has(socket, st->str_AddressFamily, st->address_family) &&
           dict_has(socket, st->str_SocketKind, st->socket_kind) &&
           dict_has(socket, st->str_getnameinfo, st->getnameinfo) &&
           dict_has(module_dict(st->raw_socket), st->str_getaddrinfo, st->raw_getaddrinfo);
}

static void versions_now(struct tdl_dns_state *st, uint64_t out[3])
{
    out[0] = tdl__dict_tag(module_dict(st->base_events));
    out[1] = tdl__dict_tag(module_dict(st->socket));
    out[2] = tdl__dict_tag(module_dict(st->raw_socket));
}

/* A dict's version changes with each change of it, so equal versions say that no name was rebound. */
static bool modules_in_place(struct tdl_dns_state *st)
{
    if (!tdl__cpython.dict_tags) {
        return names_in_place(st);
    }
    uint64_t now[3];
    versions_now(st, now);
    if (memcmp(now, st->seen, sizeof now) == 0) {
        return true;
    }
    if (!names_in_place(st)) {
        return false;
    }
    memcpy(st->seen, now, sizeof now);
    return true;
}

/* Replaced before treadle was imported: a function that is not of socket's own file, or not a built-in of
 * _socket. */
static bool is_pristine(struct tdl_dns_state *st)
{
    PyObject *function = st->getaddrinfo;
    if (!PyFunction_Check(function) || !PyFunction_Check(st->converter) ||
        PyFunction_GET_GLOBALS(function) != module_dict(st->socket) ||
        !PyCFunction_Check(st->raw_getaddrinfo) ||
        PyCFunction_GET_SELF(st->raw_getaddrinfo) != st->raw_socket || !PyCFunction_Check(st->getnameinfo) ||
        PyCFunction_GET_SELF(st->getnameinfo) != st->raw_socket) {
        return false;
    }
    PyObject *file = ((PyCodeObject *)PyFunction_GET_CODE(function))->co_filename;
    PyObject *other = ((PyCodeObject *)PyFunction_GET_CODE(st->converter))->co_filename;
    return PyUnicode_Compare(file, other) == 0;
}

static PyObject *attribute(PyObject *module, const char *name)
{
    return module != NULL ? PyObject_GetAttrString(module, name) : NULL;
}

static int intern_names(struct tdl_dns_state *st)
{
#define TDL_INTERN(name)                                                                                     \
    st->str_##name = PyUnicode_InternFromString(#name);                                                      \
    if (st->str_##name == NULL) {                                                                            \
        return -1;                                                                                           \
    }
    TDL_DNS_NAMES(TDL_INTERN)
#undef TDL_INTERN
    Py_SETREF(st->str_converter, PyUnicode_InternFromString(TDL_INT_ENUM_CONVERTER));
    return st->str_converter != NULL ? 0 : -1;
}

int tdl__dns_state_init(struct tdl_dns_state *st)
{
    st->base_events = PyImport_ImportModule("asyncio.base_events");
    st->socket = attribute(st->base_events, "socket");
    st->raw_socket = PyImport_ImportModule("_socket");
    st->getaddrinfo = attribute(st->socket, "getaddrinfo");
    st->getnameinfo = attribute(st->socket, "getnameinfo");
    st->converter = attribute(st->socket, TDL_INT_ENUM_CONVERTER);
    st->address_family = attribute(st->socket, "AddressFamily");
    st->socket_kind = attribute(st->socket, "SocketKind");
    st->address_info = attribute(st->socket, "AddressInfo");
    st->raw_getaddrinfo = attribute(st->raw_socket, "getaddrinfo");
    st->gaierror = attribute(st->raw_socket, "gaierror");
    st->empty = PyUnicode_FromStringAndSize(NULL, 0);
    if (PyErr_Occurred() || intern_names(st) < 0 || tdl__dns_members_init(st) < 0) {
        return -1;
    }
    if (!PyModule_Check(st->socket) || !PyModule_Check(st->raw_socket) || !is_pristine(st)) {
        Py_CLEAR(st->getaddrinfo);
        return 0;
    }
    st->getaddrinfo_code = Py_NewRef(PyFunction_GET_CODE(st->getaddrinfo));
    st->converter_code = Py_NewRef(PyFunction_GET_CODE(st->converter));
    return 0;
}

/* Whether socket has another getaddrinfo() of the same code: importlib.reload() makes everything of a module
 * anew. */
static bool is_reloaded(struct tdl_dns_state *st)
{
    PyObject *now = PyDict_GetItemWithError(module_dict(st->socket), st->str_getaddrinfo);
    if (now == NULL || now == st->getaddrinfo || !PyFunction_Check(now) ||
        PyFunction_GET_GLOBALS(now) != module_dict(st->socket)) {
        return false;
    }
    return PyObject_RichCompareBool(PyFunction_GET_CODE(now), st->getaddrinfo_code, Py_EQ) > 0;
}

/* Take what a reload made for the standard library's own, if all of it is of the same code. */
static bool learn_anew(struct tdl_dns_state *st)
{
    struct tdl_dns_state fresh = {0};
    bool same = tdl__dns_state_init(&fresh) == 0 && fresh.getaddrinfo != NULL &&
                PyObject_RichCompareBool(fresh.getaddrinfo_code, st->getaddrinfo_code, Py_EQ) > 0 &&
                PyObject_RichCompareBool(fresh.converter_code, st->converter_code, Py_EQ) > 0;
    PyErr_Clear();
    if (same) {
        struct tdl_dns_state old = *st;
        *st = fresh;
        fresh = old;
    }
    tdl__dns_state_clear(&fresh);
    return same;
}

bool tdl__dns_is_standard(struct tdl_dns_state *st)
{
    if (st->getaddrinfo == NULL || !code_is(st->getaddrinfo, st->getaddrinfo_code) ||
        !code_is(st->converter, st->converter_code)) {
        return false;
    }
    return modules_in_place(st) || (is_reloaded(st) && learn_anew(st) && modules_in_place(st));
}

int tdl__dns_state_traverse(struct tdl_dns_state *st, visitproc visit, void *arg)
{
    Py_VISIT(st->base_events);
    Py_VISIT(st->socket);
    Py_VISIT(st->raw_socket);
    Py_VISIT(st->getaddrinfo);
    Py_VISIT(st->getaddrinfo_code);
    Py_VISIT(st->raw_getaddrinfo);
    Py_VISIT(st->getnameinfo);
    Py_VISIT(st->converter);
    Py_VISIT(st->converter_code);
    Py_VISIT(st->address_family);
    Py_VISIT(st->socket_kind);
    Py_VISIT(st->address_info);
    Py_VISIT(st->gaierror);
    for (int i = 0; i < TDL_DNS_FAMILIES; i++) {
        Py_VISIT(st->families[i]);
    }
    for (int i = 0; i < TDL_DNS_KINDS; i++) {
        Py_VISIT(st->kinds[i]);
    }
    return 0;
}

void tdl__dns_state_clear(struct tdl_dns_state *st)
{
    Py_CLEAR(st->base_events);
    Py_CLEAR(st->socket);
    Py_CLEAR(st->raw_socket);
    Py_CLEAR(st->getaddrinfo);
    Py_CLEAR(st->getaddrinfo_code);
    Py_CLEAR(st->raw_getaddrinfo);
    Py_CLEAR(st->getnameinfo);
    Py_CLEAR(st->converter);
    Py_CLEAR(st->converter_code);
    Py_CLEAR(st->address_family);
    Py_CLEAR(st->socket_kind);
    Py_CLEAR(st->address_info);
    Py_CLEAR(st->gaierror);
    Py_CLEAR(st->empty);
    for (int i = 0; i < TDL_DNS_FAMILIES; i++) {
        Py_CLEAR(st->families[i]);
    }
    for (int i = 0; i < TDL_DNS_KINDS; i++) {
        Py_CLEAR(st->kinds[i]);
    }
#define TDL_CLEAR_NAME(name) Py_CLEAR(st->str_##name);
    TDL_DNS_NAMES(TDL_CLEAR_NAME)
#undef TDL_CLEAR_NAME
}

int tdl__dns_module_init(struct tdl_module_state *module)
{
    module->dns = tdl_calloc(1, sizeof *module->dns);
    if (module->dns == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return tdl__dns_state_init(module->dns);
}

void tdl__dns_module_free(struct tdl_module_state *module)
{
    tdl_free(module->dns);
    module->dns = NULL;
}
