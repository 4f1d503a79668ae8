/* Scheduling from Python: call_soon, call_soon_threadsafe, call_later, call_at, time. */
#include "loop/soon.h"

#include "loop/handle.h"
#include "loop/loop.h"

#include <math.h>
#include <string.h>

#include "treadle/clock.h"

/* What a scheduling call was given. */
struct soon_args {
    PyObject *when; /* call_later and call_at only */
    PyObject *callback;
    PyObject *const *args;
    Py_ssize_t nargs;
    PyObject *context;
};

static bool same_name(PyObject *key, PyObject *interned)
{
    return key == interned || PyUnicode_Compare(key, interned) == 0;
}

/* Give asyncio's TypeError for the first missing or unknown argument. */
static int missing(const char *method, const char *what, int count)
{
    PyErr_Format(PyExc_TypeError, "BaseEventLoop.%s() missing %d required positional argument%s: %s", method,
                 count, count == 1 ? "" : "s", what);
    return -1;
}

/* The arguments that may come by name too, as in asyncio's Python signatures. */
static int parse_keywords(TdlLoop *loop, const char *method, const char *when_name, struct soon_args *out,
                          PyObject *const *values, PyObject *kwnames)
{
    Py_ssize_t count = PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, i);
        if (same_name(key, loop->state->str_context)) {
            out->context = values[i];
        } else if (out->callback == NULL && PyUnicode_CompareWithASCIIString(key, "callback") == 0) {
            out->callback = values[i];
        } else if (when_name != NULL && out->when == NULL &&
                   PyUnicode_CompareWithASCIIString(key, when_name) == 0) {
            out->when = values[i];
        } else {
            PyErr_Format(PyExc_TypeError, "BaseEventLoop.%s() got an unexpected keyword argument '%U'",
                         method, key);
            return -1;
        }
    }
    return 0;
}

static int parse(TdlLoop *loop, const char *method, const char *when_name, struct soon_args *out,
                 PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *const *values = args + nargs;
    *out = (struct soon_args){0};
    if (when_name != NULL && nargs > 0) {
        out->when = args[0];
        args++;
        nargs--;
    }
    if (nargs > 0) {
        out->callback = args[0];
        out->args = args + 1;
        out->nargs = nargs - 1;
    }
    if (kwnames != NULL && parse_keywords(loop, method, when_name, out, values, kwnames) < 0) {
        return -1;
    }
    if (when_name != NULL && out->when == NULL) {
        bool both = out->callback == NULL;
        const char *later = both ? "'delay' and 'callback'" : "'delay'";
        const char *at = both ? "'when' and 'callback'" : "'when'";
        return missing(method, strcmp(when_name, "delay") == 0 ? later : at, both ? 2 : 1);
    }
    return out->callback != NULL ? 0 : missing(method, "'callback'", 1);
}

/* The context that a registration names, as asyncio's transports do from Python 3.15 on; NULL for none, with
 * an error set for any other name. */
PyObject *tdl__given_context(TdlLoop *loop, PyObject *const *values, PyObject *kwnames)
{
    for (Py_ssize_t i = 0; kwnames != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, i);
        if (PyUnicode_Compare(key, loop->state->str_context) == 0) {
            return values[i] != Py_None ? values[i] : NULL;
        }
        PyErr_Format(PyExc_TypeError, "unexpected keyword argument '%U'", key);
    }
    return NULL;
}

/* Debug mode: the wrong thread and things that are not callable are told at once. */
static int debug_checks(TdlLoop *loop, PyObject *callback, const char *method, bool threadsafe)
{
    if (!threadsafe) {
        PyObject *result = PyObject_CallMethodNoArgs((PyObject *)loop, loop->state->str__check_thread);
        if (result == NULL) {
            return -1;
        }
        Py_DECREF(result);
    }
    PyObject *name = PyUnicode_FromString(method);
    if (name == NULL) {
        return -1;
    }
    PyObject *result =
        PyObject_CallMethodObjArgs((PyObject *)loop, loop->state->str__check_callback, callback, name, NULL);
    Py_DECREF(name);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

static inline PyObject *soon(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                             const char *method, bool threadsafe)
{
    TdlLoop *loop = TDL_LOOP(self);
    struct soon_args a;
    if (kwnames == NULL && nargs > 0) {
        a = (struct soon_args){.callback = args[0], .args = args + 1, .nargs = nargs - 1};
    } else if (parse(loop, method, NULL, &a, args, nargs, kwnames) < 0) {
        return NULL;
    }
    if (tdl__check_closed(loop) < 0 ||
        (loop->debug && debug_checks(loop, a.callback, method, threadsafe) < 0)) {
        return NULL;
    }
    TdlHandle *h = tdl__handle_new(loop, a.callback, a.args, a.nargs, a.context);
    if (h == NULL) {
        return NULL;
    }
    if (loop->debug && tdl__handle_remember(h) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    tdl_sched_push(&loop->sched, &h->item);
    if (threadsafe) {
        h->item.link.flags |= TDL_HANDLE_THREADSAFE;
        tdl__loop_wake(loop);
        if (++loop->pace.posts > loop->pace.limit) {
            Py_INCREF(h); /* the caller's, before the queue lets go of its own */
            tdl__pace_producer(loop);
            return (PyObject *)h;
        }
    }
    return Py_NewRef((PyObject *)h); /* the queue keeps the other reference */
}

/* Where something was replaced: what asyncio's class has by now, or the loop's own. */
TDL_RARE static PyObject *soon_replaced(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                        PyObject *kwnames, bool threadsafe)
{
    struct tdl_module_state *st = TDL_LOOP(self)->state;
    PyObject *name = threadsafe ? st->str_call_soon_threadsafe : st->str_call_soon;
    PyObject *result;
    if (tdl__loop_step_aside(TDL_LOOP(self), name, args, nargs, kwnames, &result)) {
        return result;
    }
    return soon(self, args, nargs, kwnames, threadsafe ? "call_soon_threadsafe" : "call_soon", threadsafe);
}

static PyObject *loop_call_soon(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (!tdl__loop_is_plain(TDL_LOOP(self))) {
        return soon_replaced(self, args, nargs, kwnames, false);
    }
    return soon(self, args, nargs, kwnames, "call_soon", false);
}

static PyObject *loop_call_soon_threadsafe(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                           PyObject *kwnames)
{
    if (!tdl__loop_is_plain(TDL_LOOP(self))) {
        return soon_replaced(self, args, nargs, kwnames, true);
    }
    return soon(self, args, nargs, kwnames, "call_soon_threadsafe", true);
}

int tdl__call_soon(TdlLoop *loop, PyObject *callback, PyObject *arg, PyObject *context)
{
    TdlHandle *h = tdl__handle_new(loop, callback, &arg, arg != NULL ? 1 : 0, context);
    if (h == NULL) {
        return -1;
    }
    tdl_sched_push(&loop->sched, &h->item);
    return 0;
}

uint64_t tdl__when_to_ns(double when)
{
    const double far_s = 4e9; /* a century away is never */
    if (when >= far_s) {
        return TDL_CLOCK_BIAS + (uint64_t)(far_s * (double)TDL_NS_PER_S);
    }
    if (when <= -far_s) {
        when = -far_s;
    }
    return (uint64_t)((int64_t)TDL_CLOCK_BIAS + (int64_t)ceil(when * (double)TDL_NS_PER_S));
}

static PyObject *schedule_at(TdlLoop *loop, double when, const struct soon_args *a, const char *method)
{
    if (tdl__check_closed(loop) < 0 || (loop->debug && debug_checks(loop, a->callback, method, false) < 0)) {
        return NULL;
    }
    if (isnan(when)) {
        PyErr_SetString(PyExc_ValueError, "Invalid delay: NaN (not a number)");
        return NULL;
    }
    TdlTimerHandle *h = tdl__timer_handle_new(loop, when, a->callback, a->args, a->nargs, a->context);
    if (h == NULL) {
        return NULL;
    }
    if (loop->debug && tdl__handle_remember((TdlHandle *)h) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    h->timer.item.link.flags |= TDL_HANDLE_SCHEDULED;
    tdl_timer_arm(&loop->sched, &h->timer, tdl__when_to_ns(when));
    return Py_NewRef((PyObject *)h); /* the heap keeps the other reference */
}

static double clock_s(void)
{
    return (double)(int64_t)(tdl__clock_ns() - TDL_CLOCK_BIAS) / (double)TDL_NS_PER_S;
}

static PyObject *loop_time(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlLoop *loop = TDL_LOOP(self);
    PyObject *result;
    if (!tdl__loop_is_plain(loop) &&
        tdl__loop_step_aside(loop, loop->state->str_time, NULL, 0, NULL, &result)) {
        return result;
    }
    return PyFloat_FromDouble(clock_s());
}

static PyObject *schedule_given(TdlLoop *loop, PyObject *given, const struct soon_args *a)
{
    double when = PyFloat_AsDouble(given);
    PyObject *h = when == -1.0 && PyErr_Occurred() ? NULL : schedule_at(loop, when, a, "call_at");
    if (h != NULL && !PyFloat_CheckExact(given)) {
        ((TdlTimerHandle *)h)->given = Py_NewRef(given);
    }
    return h;
}

/* At now + delay as asyncio computes it, for a delay that is no plain number. */
static PyObject *schedule_later(TdlLoop *loop, PyObject *delay, const struct soon_args *a)
{
    PyObject *now = PyFloat_FromDouble(clock_s());
    PyObject *sum = now != NULL ? PyNumber_Add(now, delay) : NULL;
    PyObject *handle = sum != NULL ? schedule_given(loop, sum, a) : NULL;
    Py_XDECREF(now);
    Py_XDECREF(sum);
    return handle;
}

/* asyncio's call_at() leaves its timers in a heap of its own: arm them. Takes over the reference to what it
 * returned. */
TDL_RARE static PyObject *scheduled_by_asyncio(TdlLoop *loop, PyObject *returned)
{
    PyObject *result = PyObject_CallMethodNoArgs((PyObject *)loop, loop->state->str__take_scheduled);
    if (result == NULL) {
        Py_CLEAR(returned);
    }
    Py_XDECREF(result);
    return returned;
}

static inline bool timers_are_plain(const TdlLoop *loop)
{
    return tdl__loop_is_plain(loop) && tdl__handles_are_plain(loop);
}

/* asyncio's own call_later(), which asks for self.time() and self.call_at(), or what stands there instead. */
TDL_RARE static PyObject *call_later_by_asyncio(TdlLoop *loop, PyObject *const *args, Py_ssize_t nargs,
                                                PyObject *kwnames)
{
    PyObject *function = PyObject_GetAttr(loop->state->standard.loop_asyncio, loop->state->str_call_later);
    PyObject *bound = function != NULL ? PyMethod_New(function, (PyObject *)loop) : NULL;
    PyObject *result = bound != NULL ? PyObject_Vectorcall(bound, args, (size_t)nargs, kwnames) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(bound);
    return result;
}

/* Whether call_later() leaves the time or the timer to somebody else, who has given result. */
TDL_RARE static bool later_replaced(TdlLoop *loop, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                                    PyObject **result)
{
    const struct tdl_module_state *st = loop->state;
    if (tdl__loop_step_aside(loop, st->str_call_later, args, nargs, kwnames, result)) {
        return true;
    }
    if (tdl__loop_overridden(loop, st->str_time) || tdl__loop_overridden(loop, st->str_call_at)) {
        *result = call_later_by_asyncio(loop, args, nargs, kwnames);
        return true;
    }
    return false;
}

static PyObject *loop_call_later(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    TdlLoop *loop = TDL_LOOP(self);
    struct soon_args a;
    PyObject *result;
    if (!timers_are_plain(loop) && later_replaced(loop, args, nargs, kwnames, &result)) {
        return result;
    }
    if (parse(loop, "call_later", "delay", &a, args, nargs, kwnames) < 0) {
        return NULL;
    }
    if (a.when == Py_None) {
        PyErr_SetString(PyExc_TypeError, "delay must not be None");
        return NULL;
    }
    if (PyFloat_CheckExact(a.when)) {
        return schedule_at(loop, clock_s() + PyFloat_AS_DOUBLE(a.when), &a, "call_at");
    }
    return schedule_later(loop, a.when, &a);
}

static PyObject *loop_call_at(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    TdlLoop *loop = TDL_LOOP(self);
    struct soon_args a;
    PyObject *result;
    if (!timers_are_plain(loop) &&
        tdl__loop_step_aside(loop, loop->state->str_call_at, args, nargs, kwnames, &result)) {
        return result != NULL ? scheduled_by_asyncio(loop, result) : NULL;
    }
    if (parse(loop, "call_at", "when", &a, args, nargs, kwnames) < 0) {
        return NULL;
    }
    if (a.when == Py_None) {
        PyErr_SetString(PyExc_TypeError, "when cannot be None");
        return NULL;
    }
    return schedule_given(loop, a.when, &a);
}

/* _push_handle(callback, handle), _push_timer(when, callback, handle): run what asyncio made, in its turn or
 * at its time. */
static PyObject *loop_push_handle(PyObject *self, PyObject *args)
{
    PyObject *callback, *handle;
    if (!PyArg_ParseTuple(args, "OO", &callback, &handle)) {
        return NULL;
    }
    TdlHandle *h = tdl__handle_new(TDL_LOOP(self), callback, &handle, 1, NULL);
    if (h == NULL) {
        return NULL;
    }
    h->item.link.flags |= TDL_HANDLE_WRAPS;
    tdl_sched_push(&TDL_LOOP(self)->sched, &h->item);
    Py_RETURN_NONE;
}

static PyObject *loop_push_timer(PyObject *self, PyObject *args)
{
    struct soon_args a = {.nargs = 1};
    double when;
    PyObject *handle;
    if (!PyArg_ParseTuple(args, "dOO", &when, &a.callback, &handle)) {
        return NULL;
    }
    a.args = &handle;
    PyObject *h = schedule_at(TDL_LOOP(self), when, &a, "call_at");
    if (h != NULL) {
        TDL_HANDLE(h)->item.link.flags |= TDL_HANDLE_WRAPS;
    }
    return h;
}

#define TDL_KEYWORD_METHOD(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS

PyMethodDef tdl__soon_methods[] = {
    {"call_soon", TDL_KEYWORD_METHOD(loop_call_soon),
     PyDoc_STR(
         "call_soon($self, /, callback, *args, context=None)\n--\n\n"
         "Call callback(*args) in the next turn, after what was scheduled before; return its Handle.\n\n"
         "context: the contextvars.Context to call it in, else a copy of the current one.\n"
         "Raises RuntimeError on a closed loop.")},
    {"call_soon_threadsafe", TDL_KEYWORD_METHOD(loop_call_soon_threadsafe),
     PyDoc_STR("call_soon_threadsafe($self, /, callback, *args, context=None)\n--\n\n"
               "As call_soon, from any thread or signal handler; wakes the loop if it sleeps.\n\n"
               "Raises RuntimeError on a closed loop.")},
    {"call_later", TDL_KEYWORD_METHOD(loop_call_later),
     PyDoc_STR("call_later($self, /, delay, callback, *args, context=None)\n--\n\n"
               "Call callback(*args) after delay seconds; return its TimerHandle.\n\n"
               "Raises TypeError for a delay of None, ValueError for NaN, RuntimeError on a closed loop.")},
    {"call_at", TDL_KEYWORD_METHOD(loop_call_at),
     PyDoc_STR("call_at($self, /, when, callback, *args, context=None)\n--\n\n"
               "Call callback(*args) at when, in seconds on time()'s clock; return its TimerHandle.\n\n"
               "Raises TypeError for None, ValueError for NaN, RuntimeError on a closed loop.")},
    {"_push_handle", loop_push_handle, METH_VARARGS, NULL},
    {"_push_timer", loop_push_timer, METH_VARARGS, NULL},
    {"time", loop_time, METH_NOARGS,
     PyDoc_STR("time($self, /)\n--\n\nReturn the loop's clock, in seconds: time.monotonic().")},
    {NULL, NULL, 0, NULL},
};
