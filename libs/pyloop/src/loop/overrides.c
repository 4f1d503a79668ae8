/* What stands in for a loop's own methods: in a subclass, on the loop itself, or in asyncio's class behind
 * it. */
#include "loop/loop.h"

/* Asked for on hot paths; while none of these is replaced, one comparison says so. */
static bool any_hot(const struct tdl_module_state *st, PyObject *names)
{
    PyObject *const hot[] = {
        st->str_call_soon,     st->str_call_soon_threadsafe, st->str_call_later, st->str_call_at,
        st->str_create_future, st->str_create_task,          st->str_time,       st->str__run_once};
    for (size_t i = 0; i < sizeof hot / sizeof hot[0]; i++) {
        if (PyDict_Contains(names, hot[i]) != 0) {
            return true;
        }
    }
    return false;
}

/* Whether callbacks are kept by handles as asyncio shipped them. */
static bool handles_as_shipped(struct tdl_module_state *st)
{
    struct tdl_standard *s = &st->standard;
    PyObject *names = st->events_dict;
    return tdl__class_in_place(&s->timer_handle) && tdl__class_in_place(&s->handle) &&
           PyDict_GetItemString(names, "Handle") == (PyObject *)s->handle.type &&
           PyDict_GetItemString(names, "TimerHandle") == (PyObject *)s->timer_handle.type;
}

static int note(PyObject **names, PyObject *name, PyObject *value)
{
    if (*names == NULL && (*names = PyDict_New()) == NULL) {
        return -1;
    }
    return PyDict_SetItem(*names, name, value);
}

/* Whether the classes of asyncio's loop have other attributes of a name than they were shipped with; shipped
 * has one for each class that had any, in the order in which they are found. */
static bool is_patched(PyTypeObject *asyncios, PyObject *name, PyObject *shipped)
{
    PyObject *mro = asyncios->tp_mro;
    Py_ssize_t found = 0;
    if (!PyTuple_Check(shipped)) {
        return true;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *attributes = PyObject_GetAttrString((PyObject *)base, "__dict__");
        PyObject *value = attributes != NULL ? PyObject_GetItem(attributes, name) : NULL;
        Py_XDECREF(attributes);
        PyErr_Clear();
        if (value == NULL) {
            continue;
        }
        bool same = found < PyTuple_GET_SIZE(shipped) && PyTuple_GET_ITEM(shipped, found) == value;
        Py_DECREF(value);
        if (!same) {
            return true;
        }
        found++;
    }
    return found != PyTuple_GET_SIZE(shipped);
}

/* Compare one name; what asyncio's class has instead of its own comes before what treadle has in front of
 * it. */
static int compare(TdlLoop *loop, struct tdl_loop_standard *fresh, PyObject *name, PyObject *own)
{
    struct tdl_standard *s = &loop->state->standard;
    PyObject *found = PyObject_GetAttr((PyObject *)Py_TYPE(loop), name);
    PyObject *asyncios = PyObject_GetAttr(s->loop_asyncio, name);
    PyErr_Clear();
    bool patched = asyncios != NULL && is_patched((PyTypeObject *)s->loop_asyncio, name,
                                                  PyDict_GetItemWithError(s->loop_shipped, name));
    bool assigned = fresh->assigned != NULL && PyDict_Contains(fresh->assigned, name) > 0;
    int code = patched ? note(&fresh->patched, name, asyncios) : 0;
    if (code == 0 && (patched || assigned || found != own)) {
        code = note(&fresh->overridden, name, Py_None);
    }
    Py_XDECREF(found);
    Py_XDECREF(asyncios);
    return code;
}

/* While its handles are not as shipped, asyncio makes them. */
static int leave_handles(TdlLoop *loop, struct tdl_loop_standard *fresh)
{
    struct tdl_module_state *st = loop->state;
    PyObject *const names[] = {st->str_call_soon, st->str_call_soon_threadsafe, st->str_call_at};
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof names / sizeof names[0]; i++) {
        PyObject *asyncios = PyObject_GetAttr(st->standard.loop_asyncio, names[i]);
        code = asyncios != NULL ? note(&fresh->patched, names[i], asyncios) : -1;
        code = code == 0 ? note(&fresh->overridden, names[i], Py_None) : -1;
        Py_XDECREF(asyncios);
    }
    return code;
}

TDL_RARE static void compare_all(TdlLoop *loop)
{
    struct tdl_module_state *st = loop->state;
    struct tdl_loop_standard *l = &loop->standard;
    struct tdl_loop_standard fresh = {.assigned = l->assigned};
    PyObject *exc = PyErr_GetRaisedException();
    Py_ssize_t at = 0;
    PyObject *name, *own;
    int code = 0;
    while (code == 0 && st->standard.loop_own != NULL &&
           PyDict_Next(st->standard.loop_own, &at, &name, &own)) {
        code = compare(loop, &fresh, name, own);
    }
    bool handles = handles_as_shipped(st);
    if (code == 0 && !handles) {
        code = leave_handles(loop, &fresh);
    }
    PyErr_Clear(); /* out of memory: nothing is known, so it is asked again */
    l->seen_tag = code == 0 ? tdl__type_tag_kept(Py_TYPE(loop)) : TDL_NO_TAG;
    l->plain_tag = fresh.overridden == NULL || !any_hot(st, fresh.overridden) ? l->seen_tag : TDL_NO_TAG;
    l->handle_tag = handles ? st->standard.timer_handle.tag : TDL_NO_TAG;
    Py_XSETREF(l->patched, fresh.patched);
    Py_XSETREF(l->overridden, fresh.overridden);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

/* Asked again when the handles' version changed; what depends on it in the loop is compared anew. */
bool tdl__handles_in_place(TdlLoop *loop)
{
    bool handles = handles_as_shipped(loop->state);
    if (handles == (loop->standard.handle_tag == TDL_NO_TAG)) {
        compare_all(loop);
    }
    loop->standard.handle_tag = handles ? loop->state->standard.timer_handle.tag : TDL_NO_TAG;
    return handles;
}

static inline void refresh(TdlLoop *loop)
{
    if (tdl__type_tag(Py_TYPE(loop)) != loop->standard.seen_tag) {
        compare_all(loop);
    } else if (!tdl__handles_are_plain(loop)) {
        (void)tdl__handles_in_place(loop);
    }
}

/* Whether a call of loop.NAME by Python would reach something else than treadle's own, so that C may not go
 * around it. */
bool tdl__loop_overridden(TdlLoop *loop, PyObject *name)
{
    refresh(loop);
    return loop->standard.overridden != NULL && PyDict_Contains(loop->standard.overridden, name) != 0;
}

/* What asyncio's class has under the name instead of its own; borrowed, NULL if it has its own. */
PyObject *tdl__loop_patched(TdlLoop *loop, PyObject *name)
{
    refresh(loop);
    PyObject *patched = loop->standard.patched;
    return patched != NULL ? PyDict_GetItemWithError(patched, name) : NULL;
}

/* As an attribute of the loop: a function becomes a method, a mock stays what it is. */
static PyObject *as_method(PyObject *function, TdlLoop *loop)
{
    descrgetfunc get = Py_TYPE(function)->tp_descr_get;
    return get != NULL ? get(function, (PyObject *)loop, (PyObject *)Py_TYPE(loop)) : Py_NewRef(function);
}

/* Call what asyncio's class has under the name instead of its own; false if it has its own. */
bool tdl__loop_step_aside(TdlLoop *loop, PyObject *name, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames, PyObject **result)
{
    PyObject *function = tdl__loop_patched(loop, name);
    if (function == NULL) {
        return false;
    }
    PyObject *bound = as_method(function, loop);
    *result = bound != NULL ? PyObject_Vectorcall(bound, args, (size_t)nargs, kwnames) : NULL;
    Py_XDECREF(bound);
    return true;
}

/* setattr(loop, name, value): a method that is set on the loop itself is found before the class's. */
int tdl__loop_setattr(PyObject *self, PyObject *name, PyObject *value)
{
    TdlLoop *loop = TDL_LOOP(self);
    struct tdl_loop_standard *l = &loop->standard;
    PyObject *own = loop->state->standard.loop_own;
    int code = PyObject_GenericSetAttr(self, name, value);
    if (code < 0 || own == NULL || PyDict_Contains(own, name) <= 0) {
        return code;
    }
    l->seen_tag = l->plain_tag = TDL_NO_TAG;
    if (value != NULL) {
        return note(&l->assigned, name, Py_None);
    }
    if (l->assigned != NULL && PyDict_Contains(l->assigned, name) > 0) {
        return PyDict_DelItem(l->assigned, name);
    }
    return 0;
}

/* _patched(name): what asyncio's class has under the name if that is not its own, as a method of this loop;
 * else None. */
static PyObject *loop_patched(PyObject *self, PyObject *name)
{
    PyObject *function = tdl__loop_patched(TDL_LOOP(self), name);
    return function != NULL ? as_method(function, TDL_LOOP(self)) : Py_NewRef(Py_None);
}

/* _overridden(names): whether one of a tuple of them is not treadle's own. */
static PyObject *loop_overridden(PyObject *self, PyObject *names)
{
    TdlLoop *loop = TDL_LOOP(self);
    refresh(loop);
    if (loop->standard.overridden == NULL) {
        Py_RETURN_FALSE;
    }
    bool any = false;
    for (Py_ssize_t i = 0; PyTuple_Check(names) && !any && i < PyTuple_GET_SIZE(names); i++) {
        any = PyDict_Contains(loop->standard.overridden, PyTuple_GET_ITEM(names, i)) != 0;
    }
    return PyBool_FromLong(any);
}

static PyObject *loop_sockets_in_place(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(tdl__sockets_in_place(&TDL_LOOP(self)->state->standard));
}

static PyObject *loop_socket_is_plain(PyObject *self, PyObject *sock)
{
    return PyBool_FromLong(tdl__socket_is_plain(&TDL_LOOP(self)->state->standard, sock));
}

PyMethodDef tdl__standard_loop_methods[] = {
    {"_patched", loop_patched, METH_O, NULL},
    {"_overridden", loop_overridden, METH_O, NULL},
    {"_sockets_in_place", loop_sockets_in_place, METH_NOARGS, NULL},
    {"_socket_is_plain", loop_socket_is_plain, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

void tdl__loop_standard_init(struct tdl_loop_standard *l)
{
    *l =
        (struct tdl_loop_standard){.plain_tag = TDL_NO_TAG, .seen_tag = TDL_NO_TAG, .handle_tag = TDL_NO_TAG};
}

int tdl__loop_standard_traverse(struct tdl_loop_standard *l, visitproc visit, void *arg)
{
    Py_VISIT(l->patched);
    return 0;
}

void tdl__loop_standard_clear(struct tdl_loop_standard *l)
{
    Py_CLEAR(l->patched);
    Py_CLEAR(l->overridden);
    Py_CLEAR(l->assigned);
}

PyObject *tdl__loop_setup(PyObject *module, PyObject *args)
{
    struct tdl_standard *s = &tdl__state_of_module(module)->standard;
    PyObject *loop_class, *asyncios, *shipped, *name, *value;
    Py_ssize_t at = 0;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyType_Type, &loop_class, &PyType_Type, &asyncios, &PyDict_Type,
                          &shipped)) {
        return NULL;
    }
    PyObject *own = PyDict_New();
    while (own != NULL && PyDict_Next(shipped, &at, &name, &value)) {
        PyObject *attribute = PyObject_GetAttr(loop_class, name);
        if (attribute == NULL || PyDict_SetItem(own, name, attribute) < 0) {
            Py_CLEAR(own);
        }
        Py_XDECREF(attribute);
    }
    if (own == NULL) {
        return NULL;
    }
    PyObject *chain = PyDict_GetItemString(shipped, "run_in_executor");
    PyObject *run = chain != NULL && PyTuple_Check(chain) ? PyTuple_GET_ITEM(chain, 0) : NULL;
    if (run != NULL && PyFunction_Check(run)) {
        Py_XSETREF(s->run_in_executor.function, Py_NewRef(run));
        Py_XSETREF(s->run_in_executor.code, Py_NewRef(PyFunction_GET_CODE(run)));
    }
    Py_XSETREF(s->loop_class, Py_NewRef(loop_class));
    Py_XSETREF(s->loop_own, own);
    Py_XSETREF(s->loop_shipped, Py_NewRef(shipped));
    Py_XSETREF(s->loop_asyncio, Py_NewRef(asyncios));
    return Py_NewRef(Py_None);
}
