/* Handles: callbacks that wait for their turn or their time. */
#include "loop/handle.h"

#include "ground/cpython.h"
#include "loop/loop.h"
#include "loop/snapshot.h"

enum {
    TDL_HANDLE_FREE_MAX = 2048,
    TDL_HANDLE_ENDING_MAX = 32, /* ends of handles inside each other, each of some frames of C */
};

TdlHandle *tdl__handle_of(struct tdl_item *item)
{
    return TDL_CONTAINER_OF(item, TdlHandle, item);
}

bool tdl__handle_is_timer(const TdlHandle *h)
{
    return (h->item.link.flags & TDL_HANDLE_TIMER) != 0;
}

bool tdl__handle_cancelled(const TdlHandle *h)
{
    return (h->item.link.flags & TDL_HANDLE_CANCELLED) != 0;
}

/* Store the callback and its arguments in a handle whose head is fresh. */
static int handle_fill(TdlHandle *h, TdlLoop *loop, PyObject *callback, PyObject *const *args,
                       Py_ssize_t nargs, PyObject *context)
{
    h->callback = NULL;
    h->arg = NULL;
    h->context = NULL;
    h->weakrefs = NULL;
    h->loop = (TdlLoop *)Py_NewRef((PyObject *)loop);
    h->item.link.flags = 0;
    if (context == NULL || context == Py_None) {
        bool shared;
        h->context = tdl__snapshot_take(loop, &shared);
        if (h->context == NULL) {
            return -1;
        }
        h->item.link.flags = shared ? TDL_HANDLE_SHARED : 0;
    } else {
        h->context = Py_NewRef(context);
    }
    h->item.link.user = TDL_ARGS_NONE;
    if (nargs == 1) {
        h->arg = Py_NewRef(args[0]);
        h->item.link.user = TDL_ARGS_ONE;
    } else if (nargs > 1) {
        h->arg = PyTuple_New(nargs);
        if (h->arg == NULL) {
            return -1;
        }
        for (Py_ssize_t i = 0; i < nargs; i++) {
            PyTuple_SET_ITEM(h->arg, i, Py_NewRef(args[i]));
        }
        h->item.link.user = TDL_ARGS_TUPLE;
    }
    h->callback = Py_NewRef(callback);
    return 0;
}

TdlHandle *tdl__handle_new(TdlLoop *loop, PyObject *callback, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *context)
{
    struct tdl_module_state *st = loop->state;
    TdlHandle *h = st->handle_free;
    if (h != NULL) {
        st->handle_free = (TdlHandle *)(void *)h->loop;
        st->handle_free_count--;
        tdl__object_anew((PyObject *)h);
    } else {
        h = PyObject_GC_New(TdlHandle, st->handle_type);
        if (h == NULL) {
            return NULL;
        }
    }
    h->item = (struct tdl_item){.run = tdl__handle_run};
    if (handle_fill(h, loop, callback, args, nargs, context) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    if (loop->thread_id == Py_None) {
        PyObject_GC_Track(h);
    }
    return h;
}

TdlTimerHandle *tdl__timer_handle_new(TdlLoop *loop, double when, PyObject *callback, PyObject *const *args,
                                      Py_ssize_t nargs, PyObject *context)
{
    struct tdl_module_state *st = loop->state;
    TdlTimerHandle *h = st->timer_free;
    if (h != NULL) {
        st->timer_free = (TdlTimerHandle *)(void *)h->loop;
        st->timer_free_count--;
        tdl__object_anew((PyObject *)h);
    } else {
        h = PyObject_GC_New(TdlTimerHandle, st->timer_handle_type);
        if (h == NULL) {
            return NULL;
        }
    }
    tdl_timer_init(&h->timer, tdl__handle_run);
    h->when = when;
    h->given = NULL;
    if (handle_fill((TdlHandle *)h, loop, callback, args, nargs, context) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    h->timer.item.link.flags |= TDL_HANDLE_TIMER;
    if (loop->thread_id == Py_None) {
        PyObject_GC_Track(h);
    }
    return h;
}

int tdl__handle_traverse(PyObject *self, visitproc visit, void *arg)
{
    TdlHandle *h = TDL_HANDLE(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(h->callback);
    Py_VISIT(h->arg);
    Py_VISIT(h->context);
    Py_VISIT(h->loop);
    if (tdl__handle_is_timer(h)) {
        Py_VISIT(((TdlTimerHandle *)self)->given);
    }
    return 0;
}

int tdl__handle_clear(PyObject *self)
{
    TdlHandle *h = TDL_HANDLE(self);
    h->item.link.flags |= TDL_HANDLE_CANCELLED; /* there is nothing left to call */
    Py_CLEAR(h->callback);
    Py_CLEAR(h->arg);
    Py_CLEAR(h->context);
    return 0;
}

/* Let go of all that the handle holds, and keep or free its memory. */
static void handle_end(struct tdl_module_state *st, TdlHandle *h)
{
    PyTypeObject *type = Py_TYPE(h);
    if (h->item.link.flags & TDL_HANDLE_DEBUG) {
        tdl__handle_forget_debug(h);
    }
    (void)tdl__handle_clear((PyObject *)h);
    Py_CLEAR(h->loop);
    if (type == st->timer_handle_type) {
        Py_CLEAR(((TdlTimerHandle *)h)->given);
    }
    if (type == st->timer_handle_type && st->timer_free_count < TDL_HANDLE_FREE_MAX) {
        h->loop = (TdlLoop *)(void *)st->timer_free;
        st->timer_free = (TdlTimerHandle *)h;
        st->timer_free_count++;
    } else if (type == st->handle_type && st->handle_free_count < TDL_HANDLE_FREE_MAX) {
        h->loop = (TdlLoop *)(void *)st->handle_free;
        st->handle_free = h;
        st->handle_free_count++;
    } else {
        PyObject_GC_Del(h);
        Py_DECREF(type);
    }
}

/* What a handle holds may hold another handle, and so on for ever: from some depth on a handle waits until
 * the outermost has ended. CPython's own trashcan does the same at several times the cost. */
void tdl__handle_dealloc(PyObject *self)
{
    TdlHandle *h = TDL_HANDLE(self);
    struct tdl_module_state *st = h->loop->state;
    PyObject_GC_UnTrack(self);
    if (h->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    if (st->ending_depth == TDL_HANDLE_ENDING_MAX) {
        h->weakrefs = (PyObject *)st->ending;
        st->ending = h;
        return;
    }
    PyTypeObject *type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(self)); /* it keeps the state */
    st->ending_depth++;
    handle_end(st, h);
    while (st->ending != NULL && st->ending_depth == 1) {
        TdlHandle *next = st->ending;
        st->ending = (TdlHandle *)(void *)next->weakrefs;
        handle_end(st, next);
    }
    st->ending_depth--;
    Py_DECREF(type);
}

static void free_kept(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

void tdl__handle_clear_free(struct tdl_module_state *st)
{
    while (st->handle_free != NULL) {
        TdlHandle *h = st->handle_free;
        st->handle_free = (TdlHandle *)(void *)h->loop;
        free_kept((PyObject *)h);
    }
    while (st->timer_free != NULL) {
        TdlTimerHandle *h = st->timer_free;
        st->timer_free = (TdlTimerHandle *)(void *)h->loop;
        free_kept((PyObject *)h);
    }
    st->handle_free_count = 0;
    st->timer_free_count = 0;
}

void tdl__handle_track(TdlHandle *h)
{
    if (!PyObject_GC_IsTracked((PyObject *)h)) {
        PyObject_GC_Track(h);
    }
}

/* Give the handle's run or its holder a context that nobody else has; borrowed. */
PyObject *tdl__handle_own_context(TdlHandle *h)
{
    if (h->item.link.flags & TDL_HANDLE_SHARED) {
        PyObject *copy = tdl__snapshot_private(h->loop, h->context);
        if (copy == NULL) {
            return NULL;
        }
        h->item.link.flags &= (uint8_t)~TDL_HANDLE_SHARED;
        Py_SETREF(h->context, copy);
    }
    return h->context;
}

/* Call the callback in its context; the result is dropped. */
int tdl__handle_call(TdlHandle *h)
{
    PyObject *context = tdl__handle_own_context(h);
    if (context == NULL || PyContext_Enter(context) < 0) {
        return -1;
    }
    Py_INCREF(context);
    PyObject *callback = Py_NewRef(h->callback);
    PyObject *arg = Py_XNewRef(h->arg);
    PyObject *result;
    if (h->item.link.user == TDL_ARGS_ONE) {
        PyObject *stack[2] = {NULL, arg};
        result = PyObject_Vectorcall(callback, stack + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    } else if (h->item.link.user == TDL_ARGS_NONE) {
        result = PyObject_CallNoArgs(callback);
    } else {
        result =
            PyObject_Vectorcall(callback, &PyTuple_GET_ITEM(arg, 0), (size_t)PyTuple_GET_SIZE(arg), NULL);
    }
    Py_XDECREF(arg);
    Py_DECREF(callback);
    int code = PyContext_Exit(context);
    Py_DECREF(context);
    if (result == NULL) {
        return -1;
    }
    Py_DECREF(result);
    return code;
}

/* Handle._run as somebody replaced it, on asyncio's class; new, or NULL without an exception if nobody
 * did. */
PyObject *tdl__handle_replaced_run(TdlHandle *h)
{
    struct tdl_module_state *st = h->loop->state;
    if (tdl__handles_in_place(h->loop)) {
        return NULL;
    }
    const struct tdl_class *base = &st->standard.handle;
    PyObject *found = PyObject_GetAttr(
        tdl__handle_is_timer(h) ? st->asyncio_timer_handle : st->asyncio_handle, st->str__run);
    PyErr_Clear();
    if (found != NULL && base->type != NULL &&
        PyDict_GetItemWithError(base->shipped, st->str__run) == found) {
        Py_CLEAR(found);
    }
    return found;
}

/* Call it; false if there is none. */
TDL_RARE static bool run_replaced(TdlHandle *h)
{
    TdlLoop *loop = h->loop;
    bool own = loop->debug || (h->item.link.flags & TDL_HANDLE_WRAPS) != 0;
    PyObject *run = own ? NULL : tdl__handle_replaced_run(h); /* debug mode calls the handle's own _run() */
    if (run == NULL) {
        return false;
    }
    PyObject *result = PyObject_CallOneArg(run, (PyObject *)h);
    Py_DECREF(run);
    if (result == NULL) {
        tdl_sched_interrupt(&loop->sched); /* it ends the run, as on asyncio */
    }
    Py_XDECREF(result);
    return true;
}

void tdl__handle_run(struct tdl_item *item)
{
    TdlHandle *h = tdl__handle_of(item);
    TdlLoop *loop = h->loop;
    h->item.link.flags &= (uint8_t)~TDL_HANDLE_SCHEDULED;
    if (h->item.link.flags & TDL_HANDLE_THREADSAFE) {
        h->item.link.flags |= TDL_HANDLE_RUNNING;
    }
    if (loop->closed || (h->item.link.flags & TDL_HANDLE_CANCELLED) != 0) {
        ;
    } else if (!tdl__handles_are_plain(loop) && run_replaced(h)) {
        ;
    } else if (loop->debug) {
        PyObject *result =
            PyObject_CallMethodOneArg((PyObject *)loop, loop->state->str__run_debug, (PyObject *)h);
        if (result == NULL) {
            tdl_sched_interrupt(&loop->sched);
        }
        Py_XDECREF(result);
    } else if (tdl__handle_call(h) < 0) {
        tdl__callback_failed(loop, h);
    }
    h->item.link.flags &= (uint8_t)~TDL_HANDLE_RUNNING;
    if (Py_REFCNT(h) > 1) {
        tdl__handle_track(h);
    } else if (tdl__cpython.context_vars) {
        tdl__snapshot_give_back(loop, h);
    }
    Py_DECREF(h);
}

bool tdl__handle_cancel(TdlHandle *h)
{
    if (h->item.link.flags & TDL_HANDLE_CANCELLED) {
        return false;
    }
    h->item.link.flags |= TDL_HANDLE_CANCELLED;
    PyObject *callback = h->callback;
    PyObject *arg = h->arg;
    h->callback = NULL;
    h->arg = NULL;
    h->item.link.user = TDL_ARGS_NONE;
    bool disarmed = false;
    if (tdl__handle_is_timer(h)) {
        h->item.link.flags &= (uint8_t)~TDL_HANDLE_SCHEDULED;
        disarmed = tdl_timer_disarm(&h->loop->sched, &((TdlTimerHandle *)h)->timer);
    }
    Py_XDECREF(callback);
    Py_XDECREF(arg);
    return disarmed;
}
