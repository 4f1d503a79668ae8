/* The classes in C, made when the first connection wants them, and giving them to objects. */
#include "streams/internal.h"

#include "treadle/alloc.h"

struct call {
    const char *name;
    enum tdl_streams_call call;
};

static const struct call reader_calls[] = {
    {"read", TDL_STREAMS_READ},         {"readuntil", TDL_STREAMS_READUNTIL},
    {"readline", TDL_STREAMS_READLINE}, {"readexactly", TDL_STREAMS_READEXACTLY},
    {"__anext__", TDL_STREAMS_ANEXT},   {"exception", TDL_STREAMS_EXCEPTION},
    {"at_eof", TDL_STREAMS_AT_EOF},     {NULL, 0},
};

static const struct call writer_calls[] = {
    {"write", TDL_STREAMS_WRITE},
    {"writelines", TDL_STREAMS_WRITELINES},
    {"drain", TDL_STREAMS_DRAIN},
    {NULL, 0},
};

static const struct call protocol_calls[] = {
    {"_drain_helper", TDL_STREAMS_DRAIN_HELPER},
    {NULL, 0},
};

/* obj.__class__ is asyncio's: only type(obj) tells. */
static PyObject *get_class(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef((PyObject *)Py_TYPE(self)->tp_base);
}

static int set_class(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    PyObject *attributes = PyObject_GetAttrString((PyObject *)&PyBaseObject_Type, "__dict__");
    PyObject *own = attributes != NULL ? PyMapping_GetItemString(attributes, "__class__") : NULL;
    int code = own != NULL ? Py_TYPE(own)->tp_descr_set(own, self, value) : -1;
    Py_XDECREF(own);
    Py_XDECREF(attributes);
    return code;
}

/* A copy is asyncio's; to pickle one is refused with its words. */
static PyObject *reduce_ex(PyObject *self, PyObject *protocol)
{
    PyObject *reduced =
        PyObject_CallMethod((PyObject *)&PyBaseObject_Type, "__reduce_ex__", "OO", self, protocol);
    PyObject *args = reduced != NULL && PyTuple_Check(reduced) && PyTuple_GET_SIZE(reduced) > 1
                         ? PyTuple_GET_ITEM(reduced, 1)
                         : NULL;
    if (args != NULL && PyTuple_Check(args) && PyTuple_GET_SIZE(args) > 0 &&
        PyTuple_GET_ITEM(args, 0) == (PyObject *)Py_TYPE(self)) {
        PyObject *head = PyTuple_Pack(1, (PyObject *)Py_TYPE(self)->tp_base);
        PyObject *rest = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
        PyObject *all = head != NULL && rest != NULL ? PySequence_Concat(head, rest) : NULL;
        PyObject *copy = all != NULL ? PySequence_List(reduced) : NULL;
        if (copy != NULL && PyList_SetItem(copy, 1, Py_NewRef(all)) < 0) {
            Py_CLEAR(copy);
        }
        Py_SETREF(reduced, copy != NULL ? PyList_AsTuple(copy) : NULL);
        Py_XDECREF(copy);
        Py_XDECREF(all);
        Py_XDECREF(rest);
        Py_XDECREF(head);
    }
    return reduced;
}

static PyMethodDef reduce_method = {"__reduce_ex__", reduce_ex, METH_O, NULL};
static PyGetSetDef class_getset = {"__class__", get_class, set_class, NULL, NULL};

/* type(name, (asyncio's class,), {methods}): it adds no attribute, so that objects may change between the
 * two. */
static int make_class(struct tdl_module_state *st, struct tdl_streams_kind *kind, const struct call *call)
{
    kind->asyncio = kind->standard->type;
    kind->tag = TDL_NO_TAG;
    PyObject *name = PyType_GetName(kind->asyncio);
    PyObject *space = Py_BuildValue("{s:(),s:s,s:s}", "__slots__", "__module__", "asyncio.streams", "__doc__",
                                    kind->asyncio->tp_doc);
    PyObject *descr = PyDescr_NewGetSet(kind->asyncio, &class_getset);
    PyObject *reduce = PyDescr_NewMethod(kind->asyncio, &reduce_method);
    int code = name && space && descr && reduce && PyDict_SetItemString(space, "__class__", descr) == 0
                   ? PyDict_SetItemString(space, "__reduce_ex__", reduce)
                   : -1;
    for (; code == 0 && call->name != NULL; call++) {
        PyObject *method = tdl__streams_method_new(st, kind, call->name, call->call);
        code = method != NULL ? PyDict_SetItemString(space, call->name, method) : -1;
        Py_XDECREF(method);
    }
    if (code == 0) {
        kind->type = (PyTypeObject *)PyObject_CallFunction((PyObject *)&PyType_Type, "O(O)O", name,
                                                           kind->asyncio, space);
        code = kind->type != NULL ? tdl__class_watch(&kind->own, kind->type) : -1;
    }
    Py_XDECREF(name);
    Py_XDECREF(space);
    Py_XDECREF(descr);
    Py_XDECREF(reduce);
    return code;
}

static int make_classes(struct tdl_module_state *st)
{
    struct tdl_streams *s = st->streams;
    return make_class(st, &s->reader, reader_calls) < 0 || make_class(st, &s->writer, writer_calls) < 0 ||
                   make_class(st, &s->protocol, protocol_calls) < 0
               ? -1
               : 0;
}

static bool asyncios_in_place(const struct tdl_streams_kind *kind)
{
    return tdl__class_in_place(kind->standard) &&
           (kind->mixed_in == NULL || tdl__class_in_place(kind->mixed_in));
}

/* Compare the class with what it was, and asyncio's; a class that has used up its versions is never taken for
 * the same. */
bool tdl__streams_compare(struct tdl_streams_kind *kind)
{
    kind->in_place = asyncios_in_place(kind) && tdl__class_in_place(&kind->own) &&
                     tdl__type_tag_kept(kind->type) != TDL_NO_TAG;
    kind->tag = tdl__type_tag_kept(kind->type);
    return kind->in_place;
}

/* What would be called if the class in C were not there, bound to the object. */
PyObject *tdl__streams_asyncios(const struct tdl_streams_method *m, PyObject *self)
{
    if (self == NULL) {
        return PyObject_GetAttr((PyObject *)m->kind->asyncio, m->name);
    }
    if (tdl__streams_is(m->kind, self) || !PyObject_TypeCheck(self, m->kind->type)) {
        return PyMethod_New(m->shipped, self);
    }
    PyObject *behind =
        PyObject_CallFunctionObjArgs((PyObject *)&PySuper_Type, (PyObject *)m->kind->type, self, NULL);
    PyObject *method = behind != NULL ? PyObject_GetAttr(behind, m->name) : NULL;
    Py_XDECREF(behind);
    return method;
}

/* Give an object that is exactly asyncio's the class in C. */
static bool turn(struct tdl_streams_kind *kind, PyObject *object)
{
    return Py_TYPE(object) == kind->asyncio &&
           PyObject_SetAttrString(object, "__class__", (PyObject *)kind->type) == 0;
}

/* Stands in the place of a protocol's client_connected_cb until it is called: the writer, which asyncio makes
 * just before, is seen nowhere else. */
static PyObject *connected(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *callback = PyTuple_GET_ITEM(self, 0);
    struct tdl_module_state *st = TDL_LOOP(PyTuple_GET_ITEM(self, 1))->state;
    struct tdl_streams *s = st->streams;
    if (nargs == 2 && kwnames == NULL && PyObject_TypeCheck(args[1], s->writer.asyncio)) {
        PyObject *protocol = PyObject_GetAttr(args[1], s->str__protocol);
        if (protocol == NULL || PyObject_SetAttr(protocol, s->str__client_connected_cb, callback) < 0 ||
            (asyncios_in_place(&s->writer) && !turn(&s->writer, args[1]))) {
            PyErr_Clear();
        }
        Py_XDECREF(protocol);
    }
    return PyObject_Vectorcall(callback, args, (size_t)nargs, kwnames);
}

static PyMethodDef connected_method = {"client_connected_cb", (PyCFunction)(void (*)(void))connected,
                                       METH_FASTCALL | METH_KEYWORDS, NULL};

static int watch_for_writer(struct tdl_loop *loop, PyObject *protocol)
{
    struct tdl_streams *s = loop->state->streams;
    PyObject *callback = PyObject_GetAttr(protocol, s->str__client_connected_cb);
    PyObject *transport = callback != NULL ? PyObject_GetAttr(protocol, s->str__transport) : NULL;
    int code = transport != NULL ? 0 : -1;
    if (code == 0 && callback != Py_None && transport == Py_None) {
        PyObject *pair = PyTuple_Pack(2, callback, (PyObject *)loop);
        PyObject *stand_in = pair != NULL ? PyCFunction_New(&connected_method, pair) : NULL;
        code = stand_in != NULL ? PyObject_SetAttr(protocol, s->str__client_connected_cb, stand_in) : -1;
        Py_XDECREF(pair);
        Py_XDECREF(stand_in);
    }
    Py_XDECREF(callback);
    Py_XDECREF(transport);
    return code;
}

/* The writer that a server's protocol made for its client_connected_cb, where the protocol keeps it: up to
 * Python 3.12. */
static void turn_writer(struct tdl_streams *s, PyObject *protocol)
{
    PyObject *writer = PyObject_GetAttr(protocol, s->str__stream_writer);
    if (writer == NULL || (asyncios_in_place(&s->writer) && !turn(&s->writer, writer))) {
        PyErr_Clear();
    }
    Py_XDECREF(writer);
}

static bool classes_ready(struct tdl_module_state *st)
{
    struct tdl_streams *s = st->streams;
    if (s->protocol.type == NULL && !s->refused) {
        s->refused = make_classes(st) < 0;
        PyErr_Clear();
    }
    return !s->refused;
}

/* The reader of an untouched protocol: exactly asyncio's, of this loop; NULL if there is none. */
static PyObject *plain_reader(struct tdl_loop *loop, PyObject *protocol)
{
    struct tdl_streams *s = loop->state->streams;
    PyObject *ref = PyObject_GetAttr(protocol, s->str__stream_reader_wr);
    PyObject *reader = ref != NULL && PyWeakref_CheckRefExact(ref) ? PyObject_CallNoArgs(ref) : NULL;
    Py_XDECREF(ref);
    PyTypeObject *type = reader != NULL ? Py_TYPE(reader) : NULL;
    PyObject *of = type != NULL && (type == s->reader.asyncio || type == s->reader.type)
                       ? PyObject_GetAttr(reader, s->str__loop)
                       : NULL;
    if (of != (PyObject *)loop) {
        Py_CLEAR(reader);
    }
    Py_XDECREF(of);
    PyErr_Clear();
    return reader;
}

/* Serve the protocol in C, and its reader and writer, if they are asyncio's own and the loop does not
 * debug. */
static bool adopt(struct tdl_loop *loop, PyObject *protocol)
{
    struct tdl_module_state *st = loop->state;
    struct tdl_streams *s = st->streams;
    if (loop->debug || !asyncios_in_place(&s->protocol) || !asyncios_in_place(&s->reader) ||
        !classes_ready(st)) {
        return false;
    }
    PyObject *reader = plain_reader(loop, protocol);
    bool adopted = reader != NULL && (Py_TYPE(reader) == s->reader.type || turn(&s->reader, reader)) &&
                   turn(&s->protocol, protocol);
    Py_XDECREF(reader);
    PyErr_Clear();
    if (adopted) {
        turn_writer(s, protocol);
    }
    return adopted;
}

void tdl__streams_watch(struct tdl_loop *loop, PyObject *protocol)
{
    if (PY_VERSION_HEX < 0x030D0000 || !tdl__streams_is_asyncios(loop->state, protocol) || loop->debug ||
        !asyncios_in_place(&loop->state->streams->protocol) || !classes_ready(loop->state)) {
        return;
    }
    PyObject *exc = PyErr_GetRaisedException();
    if (watch_for_writer(loop, protocol) < 0) {
        PyErr_Clear();
    }
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

/* _streams_watch(loop, protocol): for protocols behind TLS. */
PyObject *tdl__streams_watch_method(PyObject *module, PyObject *args)
{
    PyObject *loop, *protocol;
    if (!PyArg_ParseTuple(args, "O!O", tdl__state_of_module(module)->loop_type, &loop, &protocol)) {
        return NULL;
    }
    tdl__streams_watch(TDL_LOOP(loop), protocol);
    Py_RETURN_NONE;
}

bool tdl__streams_is_asyncios(const struct tdl_module_state *st, PyObject *protocol)
{
    return Py_TYPE(protocol) == st->standard.stream_protocol.type;
}

bool tdl__streams_is_served(const struct tdl_module_state *st, PyObject *protocol)
{
    return st->streams->protocol.type != NULL && Py_TYPE(protocol) == st->streams->protocol.type;
}

bool tdl__streams_count(struct tdl_loop *loop, PyObject *protocol, uint8_t *use, uint8_t added)
{
    if (!tdl__streams_is_asyncios(loop->state, protocol)) {
        return tdl__streams_is_served(loop->state, protocol);
    }
    *use = (uint8_t)(*use + added);
    if (*use < TDL_STREAMS_ADOPT_AT) {
        return false;
    }
    *use = 0;
    return adopt(loop, protocol);
}

static int intern_names(struct tdl_streams *s)
{
#define TDL_INTERN(name)                                                                                     \
    s->str_##name = PyUnicode_InternFromString(#name);                                                       \
    if (s->str_##name == NULL) {                                                                             \
        return -1;                                                                                           \
    }
    TDL_STREAMS_NAMES(TDL_INTERN)
#undef TDL_INTERN
    return 0;
}

int tdl__streams_exec(PyObject *module)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    struct tdl_streams *s = tdl_calloc(1, sizeof *s);
    if (s == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    st->streams = s;
    s->reader.standard = &st->standard.stream_reader;
    s->writer.standard = &st->standard.stream_writer;
    s->protocol.standard = &st->standard.stream_protocol;
    s->protocol.mixed_in = &st->standard.stream_flow;
    s->coroutine_type = tdl__import_from("types", "CoroutineType");
    s->future_type = (PyTypeObject *)tdl__import_from("_asyncio", "Future");
    if (s->future_type == NULL) {
        PyErr_Clear(); /* a Python without it: each future is asked whether it was canceled */
    }
    s->incomplete_error = tdl__import_from("asyncio.exceptions", "IncompleteReadError");
    s->overrun_error = tdl__import_from("asyncio.exceptions", "LimitOverrunError");
    return s->coroutine_type == NULL || s->incomplete_error == NULL || s->overrun_error == NULL ||
                   intern_names(s) < 0 || tdl__streams_op_type(module) < 0
               ? -1
               : tdl__streams_method_type(module);
}

int tdl__streams_traverse(struct tdl_streams *s, visitproc visit, void *arg)
{
    struct tdl_streams_kind *kinds[] = {&s->reader, &s->writer, &s->protocol};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        Py_VISIT(kinds[i]->type);
        Py_VISIT(kinds[i]->own.type);
        Py_VISIT(kinds[i]->own.shipped);
    }
    for (unsigned i = 0; i < s->free_count; i++) {
        Py_VISIT(s->op_type);
    }
    Py_VISIT(s->method_type);
    Py_VISIT(s->op_type);
    Py_VISIT(s->future_type);
    Py_VISIT(s->coroutine_type);
    Py_VISIT(s->incomplete_error);
    Py_VISIT(s->overrun_error);
    return 0;
}

void tdl__streams_clear(struct tdl_streams *s)
{
    struct tdl_streams_kind *kinds[] = {&s->reader, &s->writer, &s->protocol};
    tdl__streams_op_clear_free(s);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        Py_CLEAR(kinds[i]->own.type);
        Py_CLEAR(kinds[i]->own.shipped);
    }
    s->refused = true;
    Py_CLEAR(s->future_type);
    Py_CLEAR(s->coroutine_type);
    Py_CLEAR(s->incomplete_error);
    Py_CLEAR(s->overrun_error);
#define TDL_CLEAR_NAME(name) Py_CLEAR(s->str_##name);
    TDL_STREAMS_NAMES(TDL_CLEAR_NAME)
#undef TDL_CLEAR_NAME
}

void tdl__streams_free(struct tdl_module_state *st)
{
    tdl_free(st->streams);
    st->streams = NULL;
}
