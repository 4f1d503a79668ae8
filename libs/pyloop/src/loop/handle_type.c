/* What Python sees of a handle: its methods, attributes and comparisons, and what debug mode keeps beside
 * it. */
#include "loop/handle.h"
#include "loop/loop.h"

#include <sched.h>

static PyObject *debug_key(const TdlHandle *h)
{
    return PyLong_FromVoidPtr((void *)(uintptr_t)h);
}

/* Forget what debug mode kept of a handle. */
void tdl__handle_forget_debug(TdlHandle *h)
{
    PyObject *exc = PyErr_GetRaisedException();
    PyObject *key = debug_key(h);
    if (key == NULL || h->loop->debug_info == NULL || PyDict_DelItem(h->loop->debug_info, key) < 0) {
        PyErr_Clear();
    }
    Py_XDECREF(key);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

/* The handle's [traceback, repr] in debug mode, made when missing; borrowed. */
static PyObject *debug_entry(TdlHandle *h, bool make)
{
    TdlLoop *loop = h->loop;
    if (!make && (h->item.link.flags & TDL_HANDLE_DEBUG) == 0) {
        return NULL;
    }
    if (loop->debug_info == NULL) {
        loop->debug_info = PyDict_New();
        if (loop->debug_info == NULL) {
            return NULL;
        }
    }
    PyObject *key = debug_key(h);
    if (key == NULL) {
        return NULL;
    }
    PyObject *entry = PyDict_GetItemWithError(loop->debug_info, key);
    if (entry == NULL && make && !PyErr_Occurred()) {
        PyObject *fresh = Py_BuildValue("[OO]", Py_None, Py_None);
        if (fresh != NULL && PyDict_SetItem(loop->debug_info, key, fresh) == 0) {
            entry = fresh;
            h->item.link.flags |= TDL_HANDLE_DEBUG;
        }
        Py_XDECREF(fresh);
    }
    Py_DECREF(key);
    return entry;
}

int tdl__handle_remember(TdlHandle *h)
{
    PyObject *stack = PyObject_CallMethodNoArgs(h->loop->state->support, h->loop->state->str__source_stack);
    if (stack == NULL) {
        return -1;
    }
    PyObject *entry = debug_entry(h, true);
    if (entry == NULL) {
        Py_DECREF(stack);
        return -1;
    }
    return PyList_SetItem(entry, 0, stack);
}

static PyObject *debug_get(TdlHandle *h, Py_ssize_t index)
{
    PyObject *entry = debug_entry(h, false);
    if (entry == NULL) {
        if (PyErr_Occurred()) {
            return NULL;
        }
        Py_RETURN_NONE;
    }
    return Py_NewRef(PyList_GET_ITEM(entry, index));
}

/* As asyncio's _ThreadSafeHandle: once cancel or cancelled returns in another thread, the callback does not
 * run. */
static void wait_while_running(TdlHandle *h)
{
    if (h->loop->state->asyncio_threadsafe_handle == NULL ||
        PyThread_get_thread_ident() == h->loop->run_thread) {
        return;
    }
    while (h->item.link.flags & TDL_HANDLE_RUNNING) {
        Py_BEGIN_ALLOW_THREADS sched_yield();
        Py_END_ALLOW_THREADS
    }
}

static PyObject *handle_cancel(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlHandle *h = TDL_HANDLE(self);
    wait_while_running(h);
    if (h->loop->debug && !tdl__handle_cancelled(h)) {
        h->item.link.flags |=
            TDL_HANDLE_CANCELLED; /* asyncio's text says "cancelled" and keeps the callback */
        PyObject *text = PyObject_Repr(self);
        h->item.link.flags &= (uint8_t)~TDL_HANDLE_CANCELLED;
        PyObject *entry = text != NULL ? debug_entry(h, true) : NULL;
        if (entry == NULL) {
            Py_XDECREF(text);
            return NULL;
        }
        PyList_SetItem(entry, 1, text);
    }
    if (tdl__handle_cancel(h)) {
        tdl__handle_track(h);
        Py_DECREF(h); /* the heap's reference; the caller holds another */
    }
    Py_RETURN_NONE;
}

static PyObject *handle_cancelled(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    wait_while_running(TDL_HANDLE(self));
    wait_while_running(TDL_HANDLE(self));
    return PyBool_FromLong(tdl__handle_cancelled(TDL_HANDLE(self)));
}

static PyObject *handle_get_context(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (TDL_HANDLE(self)->context == NULL) {
        Py_RETURN_NONE; /* the collector took it apart */
    }
    return Py_XNewRef(tdl__handle_own_context(TDL_HANDLE(self)));
}

static PyObject *handle_run_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlHandle *h = TDL_HANDLE(self);
    PyObject *run = tdl__handles_are_plain(h->loop) ? NULL : tdl__handle_replaced_run(h);
    if (run != NULL) {
        PyObject *result = PyObject_CallOneArg(run, self);
        Py_DECREF(run);
        return result;
    }
    if (h->callback == NULL) {
        PyErr_SetString(PyExc_TypeError, "'NoneType' object is not callable");
        tdl__callback_failed(h->loop, h);
    } else if (tdl__handle_call(h) < 0) {
        tdl__callback_failed(h->loop, h);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *handle_when(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    const TdlTimerHandle *h = (TdlTimerHandle *)self;
    return h->given != NULL ? Py_NewRef(h->given) : PyFloat_FromDouble(h->when);
}

static PyObject *handle_repr(PyObject *self)
{
    struct tdl_module_state *st = TDL_HANDLE(self)->loop->state;
    return PyObject_CallMethod(st->support, "handle_repr", "O", self);
}

static PyObject *get_callback(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *callback = TDL_HANDLE(self)->callback;
    return Py_NewRef(callback != NULL ? callback : Py_None);
}

static PyObject *get_args(PyObject *self, void *Py_UNUSED(closure))
{
    TdlHandle *h = TDL_HANDLE(self);
    if (h->callback == NULL) {
        Py_RETURN_NONE;
    }
    if (h->item.link.user == TDL_ARGS_NONE) {
        return PyTuple_New(0);
    }
    return h->item.link.user == TDL_ARGS_ONE ? PyTuple_Pack(1, h->arg) : Py_NewRef(h->arg);
}

static PyObject *get_cancelled(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(tdl__handle_cancelled(TDL_HANDLE(self)));
}

static PyObject *get_loop(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef((PyObject *)TDL_HANDLE(self)->loop);
}

static PyObject *get_context(PyObject *self, void *Py_UNUSED(closure))
{
    return handle_get_context(self, NULL);
}

static PyObject *get_source_traceback(PyObject *self, void *Py_UNUSED(closure))
{
    return debug_get(TDL_HANDLE(self), 0);
}

static PyObject *get_repr(PyObject *self, void *Py_UNUSED(closure))
{
    return debug_get(TDL_HANDLE(self), 1);
}

static PyObject *get_scheduled(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong((TDL_HANDLE(self)->item.link.flags & TDL_HANDLE_SCHEDULED) != 0);
}

static PyObject *get_when(PyObject *self, void *Py_UNUSED(closure))
{
    return handle_when(self, NULL);
}

/* isinstance(handle, asyncio.Handle) holds through __class__: deriving from the Python class would double the
 * size. */
static PyObject *get_class(PyObject *self, void *Py_UNUSED(closure))
{
    struct tdl_module_state *st = tdl__state_of_type(Py_TYPE(self));
    if ((TDL_HANDLE(self)->item.link.flags & TDL_HANDLE_THREADSAFE) &&
        st->asyncio_threadsafe_handle != NULL) {
        return Py_NewRef(st->asyncio_threadsafe_handle);
    }
    return Py_NewRef(tdl__handle_is_timer(TDL_HANDLE(self)) ? st->asyncio_timer_handle : st->asyncio_handle);
}

static bool same_args(TdlHandle *a, TdlHandle *b, int *error)
{
    PyObject *left = get_args((PyObject *)a, NULL);
    PyObject *right = get_args((PyObject *)b, NULL);
    int same = left != NULL && right != NULL ? PyObject_RichCompareBool(left, right, Py_EQ) : -1;
    Py_XDECREF(left);
    Py_XDECREF(right);
    *error = same < 0;
    return same == 1;
}

static PyObject *timer_richcompare(PyObject *self, PyObject *other, int op)
{
    if (Py_TYPE(other) != Py_TYPE(self)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    double a = ((TdlTimerHandle *)self)->when;
    double b = ((TdlTimerHandle *)other)->when;
    if (op == Py_LT) {
        return PyBool_FromLong(a < b);
    }
    if (op == Py_GT) {
        return PyBool_FromLong(a > b);
    }
    TdlHandle *x = TDL_HANDLE(self);
    TdlHandle *y = TDL_HANDLE(other);
    int error = 0;
    bool equal = self == other;
    if (!equal && a == b && tdl__handle_cancelled(x) == tdl__handle_cancelled(y)) {
        PyObject *cx = get_callback(self, NULL); /* kept: what compares may cancel */
        PyObject *cy = get_callback(other, NULL);
        int same = PyObject_RichCompareBool(cx, cy, Py_EQ);
        Py_DECREF(cx);
        Py_DECREF(cy);
        error = same < 0;
        equal = same == 1 && same_args(x, y, &error);
    }
    if (error) {
        return NULL;
    }
    switch (op) {
    case Py_EQ:
        return PyBool_FromLong(equal);
    case Py_NE:
        return PyBool_FromLong(!equal);
    case Py_LE:
        return PyBool_FromLong(a < b || equal);
    default:
        return PyBool_FromLong(a > b || equal);
    }
}

static Py_hash_t timer_hash(PyObject *self)
{
    PyObject *when = handle_when(self, NULL);
    Py_hash_t hash = when != NULL ? PyObject_Hash(when) : -1;
    Py_XDECREF(when);
    return hash;
}

static PyMethodDef handle_methods[] = {
    {"cancel", handle_cancel, METH_NOARGS,
     PyDoc_STR("cancel($self, /)\n--\n\nKeep the callback from being called.")},
    {"cancelled", handle_cancelled, METH_NOARGS,
     PyDoc_STR("cancelled($self, /)\n--\n\nReturn True if the callback was cancelled.")},
    {"get_context", handle_get_context, METH_NOARGS,
     PyDoc_STR("get_context($self, /)\n--\n\nReturn the contextvars.Context that the callback runs in.")},
    {"_run", handle_run_method, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef timer_handle_methods[] = {
    {"cancel", handle_cancel, METH_NOARGS,
     PyDoc_STR("cancel($self, /)\n--\n\nKeep the callback from being called.")},
    {"cancelled", handle_cancelled, METH_NOARGS,
     PyDoc_STR("cancelled($self, /)\n--\n\nReturn True if the callback was cancelled.")},
    {"get_context", handle_get_context, METH_NOARGS,
     PyDoc_STR("get_context($self, /)\n--\n\nReturn the contextvars.Context that the callback runs in.")},
    {"when", handle_when, METH_NOARGS,
     PyDoc_STR("when($self, /)\n--\n\nReturn the time of the call, in seconds on loop.time()'s clock.")},
    {"_run", handle_run_method, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef handle_getset[] = {
    {"_callback", get_callback, NULL, NULL, NULL},
    {"_args", get_args, NULL, NULL, NULL},
    {"_cancelled", get_cancelled, NULL, NULL, NULL},
    {"_loop", get_loop, NULL, NULL, NULL},
    {"_context", get_context, NULL, NULL, NULL},
    {"_source_traceback", get_source_traceback, NULL, NULL, NULL},
    {"_repr", get_repr, NULL, NULL, NULL},
    {"__class__", get_class, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyGetSetDef timer_handle_getset[] = {
    {"_callback", get_callback, NULL, NULL, NULL},
    {"_args", get_args, NULL, NULL, NULL},
    {"_cancelled", get_cancelled, NULL, NULL, NULL},
    {"_loop", get_loop, NULL, NULL, NULL},
    {"_context", get_context, NULL, NULL, NULL},
    {"_source_traceback", get_source_traceback, NULL, NULL, NULL},
    {"_repr", get_repr, NULL, NULL, NULL},
    {"_scheduled", get_scheduled, NULL, NULL, NULL},
    {"_when", get_when, NULL, NULL, NULL},
    {"__class__", get_class, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef handle_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TdlHandle, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot handle_slots[] = {
    {Py_tp_doc, TDL_DOC("A callback that the loop will call, as asyncio.Handle.")},
    {Py_tp_dealloc, tdl__handle_dealloc},
    {Py_tp_traverse, tdl__handle_traverse},
    {Py_tp_clear, tdl__handle_clear},
    {Py_tp_repr, handle_repr},
    {Py_tp_methods, handle_methods},
    {Py_tp_getset, handle_getset},
    {Py_tp_members, handle_members},
    {0, NULL},
};

static PyType_Slot timer_handle_slots[] = {
    {Py_tp_doc, TDL_DOC("A callback that the loop will call at a given time, as asyncio.TimerHandle.")},
    {Py_tp_dealloc, tdl__handle_dealloc},
    {Py_tp_traverse, tdl__handle_traverse},
    {Py_tp_clear, tdl__handle_clear},
    {Py_tp_repr, handle_repr},
    {Py_tp_richcompare, timer_richcompare},
    {Py_tp_hash, timer_hash},
    {Py_tp_methods, timer_handle_methods},
    {Py_tp_getset, timer_handle_getset},
    {Py_tp_members, handle_members},
    {0, NULL},
};

static PyType_Spec handle_spec = {
    .name = "treadle.Handle",
    .basicsize = sizeof(TdlHandle),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = handle_slots,
};

static PyType_Spec timer_handle_spec = {
    .name = "treadle.TimerHandle",
    .basicsize = sizeof(TdlTimerHandle),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = timer_handle_slots,
};

int tdl__handle_types(PyObject *module)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    st->handle_type = tdl__add_type(module, &handle_spec, NULL);
    st->timer_handle_type = tdl__add_type(module, &timer_handle_spec, NULL);
    return st->handle_type != NULL && st->timer_handle_type != NULL ? 0 : -1;
}
