/* Classes of the standard library as they were shipped, and whether they still are. */
#include "ground/standard.h"

#include "ground/state.h"

#include <string.h>

/* Names between double underscores that change what a call does; others come and go by themselves. */
static bool is_telling(PyObject *name)
{
    static const char *const special[] = {"__init__",    "__new__",     "__getattribute__",
                                          "__getattr__", "__setattr__", "__anext__"};
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    if (text == NULL) {
        PyErr_Clear();
        return false;
    }
    if (strncmp(text, "__", 2) != 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        if (strcmp(text, special[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool same_function(PyObject *a, PyObject *b)
{
    int equal = PyFunction_GET_GLOBALS(a) == PyFunction_GET_GLOBALS(b)
                    ? PyObject_RichCompareBool(PyFunction_GET_CODE(a), PyFunction_GET_CODE(b), Py_EQ)
                    : 0;
    return equal > 0;
}

/* Whether two attributes do the same: importlib.reload() makes every function of a module anew. */
static bool same_attribute(PyObject *a, PyObject *b)
{
    if (a == b) {
        return true;
    }
    if (Py_TYPE(a) != Py_TYPE(b)) {
        return false;
    }
    if (PyFunction_Check(a)) {
        return same_function(a, b);
    }
    if (Py_IS_TYPE(a, &PyProperty_Type)) {
        PyObject *fa = PyObject_GetAttrString(a, "fget");
        PyObject *fb = PyObject_GetAttrString(b, "fget");
        bool same =
            fa != NULL && fb != NULL && PyFunction_Check(fa) && PyFunction_Check(fb) && same_function(fa, fb);
        Py_XDECREF(fa);
        Py_XDECREF(fb);
        return same;
    }
    if (Py_IS_TYPE(a, &PyMemberDescr_Type) || Py_IS_TYPE(a, &PyGetSetDescr_Type)) {
        return true; /* the class's slots */
    }
    return PyObject_RichCompareBool(a, b, Py_EQ) > 0;
}

/* Whether each telling attribute of one class is in the other. */
static bool all_in(PyObject *attributes, PyObject *other)
{
    Py_ssize_t at = 0;
    PyObject *name, *value;
    while (PyDict_Next(attributes, &at, &name, &value)) {
        if (!is_telling(name)) {
            continue;
        }
        PyObject *found = PyDict_GetItemWithError(other, name);
        if (found == NULL || !same_attribute(found, value)) {
            return false;
        }
    }
    return true;
}

static PyObject *attributes_of(PyTypeObject *type)
{
    PyObject *proxy = PyObject_GetAttrString((PyObject *)type, "__dict__");
    PyObject *copy = proxy != NULL ? PyDict_New() : NULL;
    if (copy != NULL && PyDict_Update(copy, proxy) < 0) {
        Py_CLEAR(copy);
    }
    Py_XDECREF(proxy);
    return copy;
}

/* A look-up gives a type a version tag, if there is one left. */
static unsigned tag_of(PyTypeObject *type)
{
    Py_XDECREF(PyObject_GetAttrString((PyObject *)type, "__init__"));
    return tdl__type_tag_kept(type);
}

/* Compare the class with what was shipped, which takes long, and remember the outcome for this version of
 * it. */
bool tdl__class_compare(struct tdl_class *c)
{
    if (c->type == NULL) {
        return false;
    }
    PyObject *exc = PyErr_GetRaisedException();
    unsigned tag = tag_of(c->type);
    PyObject *now = attributes_of(c->type);
    c->in_place = now != NULL && all_in(now, c->shipped) && all_in(c->shipped, now);
    Py_XDECREF(now);
    PyErr_Clear();
    c->tag = tag;
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
    return c->in_place;
}

/* Whether a class's functions are those of its module: whoever replaced one brought a function of another. */
static bool made_by(PyObject *attributes, PyObject *globals)
{
    Py_ssize_t at = 0;
    PyObject *name, *value;
    while (PyDict_Next(attributes, &at, &name, &value)) {
        if (is_telling(name) && PyFunction_Check(value) && PyFunction_GET_GLOBALS(value) != globals) {
            return false;
        }
    }
    return true;
}

/* Learn the class as it is now; one that was replaced already is never taken for the standard one. */
static int class_learn(struct tdl_class *c, const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *type = module != NULL ? PyObject_GetAttrString(module, name) : NULL;
    PyObject *home = type != NULL ? PyObject_GetAttrString(type, "__module__") : NULL;
    int code = home != NULL ? 0 : -1;
    if (code == 0 && PyType_Check(type) && PyUnicode_Check(home) &&
        PyUnicode_CompareWithASCIIString(home, module_name) == 0) {
        c->shipped = attributes_of((PyTypeObject *)type);
        code = c->shipped != NULL ? 0 : -1;
        if (code == 0 && made_by(c->shipped, PyModule_GetDict(module))) {
            c->type = (PyTypeObject *)Py_NewRef(type);
        }
    }
    c->tag = TDL_NO_TAG;
    Py_XDECREF(home);
    Py_XDECREF(type);
    Py_XDECREF(module);
    return code;
}

int tdl__class_watch(struct tdl_class *c, PyTypeObject *type)
{
    c->tag = TDL_NO_TAG;
    c->shipped = attributes_of(type);
    c->type = c->shipped != NULL ? (PyTypeObject *)Py_NewRef((PyObject *)type) : NULL;
    return c->type != NULL ? 0 : -1;
}

static void function_learn(struct tdl_function *f, const struct tdl_class *c, const char *name)
{
    PyObject *function = c->type != NULL ? PyDict_GetItemString(c->shipped, name) : NULL;
    if (function != NULL && PyFunction_Check(function)) {
        f->function = Py_NewRef(function);
        f->code = Py_NewRef(PyFunction_GET_CODE(function));
    }
}

static PyObject *module_of(const char *name)
{
    PyObject *module = PyImport_ImportModule(name);
    if (module != NULL && !PyModule_Check(module)) {
        Py_CLEAR(module);
        PyErr_Format(PyExc_ImportError, "%s is no module", name);
    }
    return module;
}

/* The methods that asyncio's transport of streams inherits, and one in C has for itself; None for a replaced
 * one. */
static PyObject *transport_methods(void)
{
    static const char *const names[] = {"get_extra_info", "writelines"};
    PyObject *base = tdl__import_from("asyncio.transports", TDL_FLOW_CONTROL);
    PyObject *asyncios = tdl__import_from("asyncio.selector_events", TDL_SOCKET_TRANSPORT);
    PyObject *globals = tdl__import_from("asyncio.transports", "__dict__");
    bool known = base != NULL && asyncios != NULL && globals != NULL;
    PyErr_Clear();
    PyObject *methods = PyDict_New();
    for (size_t i = 0; known && methods != NULL && i < sizeof names / sizeof names[0]; i++) {
        PyObject *inherited = PyObject_GetAttrString(base, names[i]);
        PyObject *used = PyObject_GetAttrString(asyncios, names[i]);
        bool own =
            inherited != NULL && PyFunction_Check(inherited) && PyFunction_GET_GLOBALS(inherited) == globals;
        if (inherited == NULL || used == NULL ||
            (used == inherited && PyDict_SetItemString(methods, names[i], own ? inherited : Py_None) < 0)) {
            Py_CLEAR(methods);
        }
        Py_XDECREF(inherited);
        Py_XDECREF(used);
    }
    Py_XDECREF(base);
    Py_XDECREF(asyncios);
    Py_XDECREF(globals);
    return methods;
}

/* Whether one of them is replaced by now; remembered for this version of the class in C. */
bool tdl__transports_compare(struct tdl_standard *s, PyTypeObject *type, PyObject *asyncios)
{
    unsigned tag = tag_of(type);
    bool replaced = false;
    Py_ssize_t at = 0;
    PyObject *name, *shipped;
    while (PyDict_Next(s->transport_shipped, &at, &name, &shipped)) {
        PyObject *now = PyObject_GetAttr(asyncios, name);
        replaced = replaced || now != shipped;
        Py_XDECREF(now);
    }
    PyErr_Clear();
    s->transport_tag = !replaced ? tag : TDL_NO_TAG;
    return replaced;
}

int tdl__standard_init(struct tdl_standard *s)
{
    if (class_learn(&s->socket, "socket", "socket") < 0 ||
        class_learn(&s->pool, "concurrent.futures.thread", "ThreadPoolExecutor") < 0 ||
        class_learn(&s->handle, "asyncio.events", "Handle") < 0 ||
        class_learn(&s->timer_handle, "asyncio.events", "TimerHandle") < 0 ||
        class_learn(&s->stream_reader, "asyncio.streams", "StreamReader") < 0 ||
        class_learn(&s->stream_writer, "asyncio.streams", "StreamWriter") < 0 ||
        class_learn(&s->stream_protocol, "asyncio.streams", "StreamReaderProtocol") < 0 ||
        class_learn(&s->stream_flow, "asyncio.streams", "FlowControlMixin") < 0) {
        return -1;
    }
    function_learn(&s->submit, &s->pool, "submit");
    function_learn(&s->adjust, &s->pool, TDL_POOL_ADJUST);
    s->str_socket = PyUnicode_InternFromString("socket");
    s->base_events_dict = tdl__import_from("asyncio.base_events", "__dict__");
    s->socket_module = module_of("socket");
    s->raw_socket_type = tdl__import_from("_socket", "socket");
    s->work_queue_type = tdl__import_from("_queue", "SimpleQueue");
    s->transport_shipped = transport_methods();
    s->transport_tag = TDL_NO_TAG;
    return s->str_socket && s->base_events_dict && s->socket_module && s->raw_socket_type &&
                   s->work_queue_type && s->transport_shipped
               ? 0
               : -1;
}

static int class_traverse(struct tdl_class *c, visitproc visit, void *arg)
{
    Py_VISIT(c->type);
    Py_VISIT(c->shipped);
    return 0;
}

static int function_traverse(struct tdl_function *f, visitproc visit, void *arg)
{
    Py_VISIT(f->function);
    Py_VISIT(f->code);
    return 0;
}

int tdl__standard_traverse(struct tdl_standard *s, visitproc visit, void *arg)
{
    struct tdl_class *classes[] = {&s->socket,          &s->pool,          &s->handle,
                                   &s->timer_handle,    &s->stream_reader, &s->stream_writer,
                                   &s->stream_protocol, &s->stream_flow};
    struct tdl_function *functions[] = {&s->submit, &s->adjust, &s->run_in_executor};
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof classes / sizeof classes[0]; i++) {
        code = class_traverse(classes[i], visit, arg);
    }
    for (size_t i = 0; code == 0 && i < sizeof functions / sizeof functions[0]; i++) {
        code = function_traverse(functions[i], visit, arg);
    }
    if (code != 0) {
        return code;
    }
    Py_VISIT(s->base_events_dict);
    Py_VISIT(s->socket_module);
    Py_VISIT(s->raw_socket_type);
    Py_VISIT(s->work_queue_type);
    Py_VISIT(s->transport_shipped);
    Py_VISIT(s->loop_class);
    Py_VISIT(s->loop_own);
    Py_VISIT(s->loop_shipped);
    Py_VISIT(s->loop_asyncio);
    return 0;
}

void tdl__standard_clear(struct tdl_standard *s)
{
    struct tdl_class *classes[] = {&s->socket,          &s->pool,          &s->handle,
                                   &s->timer_handle,    &s->stream_reader, &s->stream_writer,
                                   &s->stream_protocol, &s->stream_flow};
    struct tdl_function *functions[] = {&s->submit, &s->adjust, &s->run_in_executor};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        Py_CLEAR(classes[i]->type);
        Py_CLEAR(classes[i]->shipped);
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        Py_CLEAR(functions[i]->function);
        Py_CLEAR(functions[i]->code);
    }
    Py_CLEAR(s->str_socket);
    Py_CLEAR(s->base_events_dict);
    Py_CLEAR(s->socket_module);
    Py_CLEAR(s->raw_socket_type);
    Py_CLEAR(s->work_queue_type);
    Py_CLEAR(s->transport_shipped);
    Py_CLEAR(s->loop_class);
    Py_CLEAR(s->loop_own);
    Py_CLEAR(s->loop_shipped);
    Py_CLEAR(s->loop_asyncio);
}

/* The class that stands for the standard one after importlib.reload(socket): another object of the same
 * make. */
static void adopt(struct tdl_class *c, PyObject *type)
{
    PyObject *now = PyType_Check(type) ? attributes_of((PyTypeObject *)type) : NULL;
    if (now != NULL && all_in(now, c->shipped) && all_in(c->shipped, now)) {
        Py_SETREF(c->type, (PyTypeObject *)Py_NewRef(type));
        Py_SETREF(c->shipped, Py_NewRef(now));
        c->tag = TDL_NO_TAG;
    }
    Py_XDECREF(now);
    PyErr_Clear();
}

/* Whether socket.socket(...) in asyncio makes a standard socket with the standard methods. */
bool tdl__sockets_in_place(struct tdl_standard *s)
{
    struct tdl_class *c = &s->socket;
    if (c->type == NULL || PyDict_GetItemWithError(s->base_events_dict, s->str_socket) != s->socket_module) {
        return false;
    }
    PyObject *type = PyDict_GetItemWithError(PyModule_GetDict(s->socket_module), s->str_socket);
    if (type != NULL && type != (PyObject *)c->type) {
        adopt(c, type);
    }
    return type == (PyObject *)c->type && tdl__class_in_place(c);
}

/* What asyncio's transports call on a socket. */
static bool defines_calls(PyObject *attributes)
{
    static const char *const calls[] = {
        "accept",    "bind",        "close",           "connect",     "connect_ex",   "detach",
        "fileno",    "getpeername", "getsockopt",      "getsockname", "listen",       "recv",
        "recv_into", "recvfrom",    "recvfrom_into",   "recvmsg",     "recvmsg_into", "send",
        "sendall",   "sendmsg",     "sendto",          "setblocking", "setsockopt",   "shutdown",
        "family",    "__getattr__", "__getattribute__"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (PyMapping_HasKeyString(attributes, calls[i])) {
            return true;
        }
    }
    return false;
}

static bool own_attributes_define(PyObject *object)
{
    PyObject *own = PyObject_GetAttrString(object, "__dict__");
    bool defines = own != NULL && defines_calls(own);
    Py_XDECREF(own);
    PyErr_Clear();
    return defines;
}

/* Whether the socket's methods are the standard ones, so that its descriptor may be used past it. */
bool tdl__socket_is_plain(struct tdl_standard *s, PyObject *sock)
{
    struct tdl_class *c = &s->socket;
    if (Py_TYPE(sock) == c->type) {
        return tdl__class_in_place(c);
    }
    PyObject *mro = Py_TYPE(sock)->tp_mro;
    if (!PyObject_TypeCheck(sock, (PyTypeObject *)s->raw_socket_type) || mro == NULL ||
        own_attributes_define(sock)) {
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
        PyObject *base = PyTuple_GET_ITEM(mro, i);
        if (base == s->raw_socket_type) {
            return true;
        }
        if (base == (PyObject *)c->type ? !tdl__class_in_place(c) : own_attributes_define(base)) {
            return false;
        }
    }
    return false;
}
