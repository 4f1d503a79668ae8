/* Handles: callbacks that wait for their turn or their time.
 * Thread: the GIL guards them; they run on the loop's thread. */
#ifndef TDL_PYLOOP_HANDLE_H
#define TDL_PYLOOP_HANDLE_H

#include "ground/state.h"

#include <stddef.h>

#include "treadle/sched.h"
#include "treadle/timer.h"

/* Bits of a handle's link.flags. */
enum {
    TDL_HANDLE_CANCELLED = 1,
    TDL_HANDLE_TIMER = 2,
    TDL_HANDLE_DEBUG = 4,     /* the loop's debug table has an entry for this handle */
    TDL_HANDLE_SCHEDULED = 8, /* a timer handle that has not fired */
    TDL_HANDLE_THREADSAFE =
        32, /* of call_soon_threadsafe: from Python 3.14 on, cancel waits for a callback that runs */
    TDL_HANDLE_RUNNING = 64,
    TDL_HANDLE_WRAPS = 128, /* runs a handle of asyncio's own make, which has a _run() of its own */
    TDL_HANDLE_SHARED = 16, /* its context is a snapshot that others hold too: run in a copy */
};

#define TDL_HANDLE_FIELDS                                                                                    \
    PyObject_HEAD PyObject *callback;                                                                        \
    PyObject *arg;                                                                                           \
    PyObject *context;                                                                                       \
    TdlLoop *loop;                                                                                           \
    PyObject *weakrefs;

/* A callback waiting for its turn. The queue that it stands in owns one reference.
 * While its loop runs, a handle that only the queue holds is not tracked by the garbage collector: the
 * running loop is alive, and so is what it will call. It is tracked once it has run and somebody else holds
 * it, or when the loop stops. */
struct tdl_handle {
    TDL_HANDLE_FIELDS
    struct tdl_item item;
};

/* A callback waiting for its time. The heap, then the queue, own one reference. */
struct tdl_timer_handle {
    TDL_HANDLE_FIELDS
    struct tdl_timer timer;
    double when;
    PyObject *given; /* the time as it was given, if that is no float; else NULL */
};

_Static_assert(offsetof(struct tdl_timer_handle, timer.item) == offsetof(struct tdl_handle, item),
               "a timer handle is used as a handle");

/* How a handle keeps its arguments, in link.user: beside the item's place in the handle, whose last bits are
 * 0. */
enum tdl_args_kind {
    TDL_ARGS_NONE = offsetof(struct tdl_handle, item), /* no argument */
    TDL_ARGS_ONE,                                      /* arg is the only argument */
    TDL_ARGS_TUPLE,                                    /* arg is a tuple of two or more */
};

#define TDL_HANDLE(op) ((TdlHandle *)(op))

int tdl__handle_types(PyObject *module);
TdlHandle *tdl__handle_new(TdlLoop *loop, PyObject *callback, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *context);
TdlTimerHandle *tdl__timer_handle_new(TdlLoop *loop, double when, PyObject *callback, PyObject *const *args,
                                      Py_ssize_t nargs, PyObject *context);
void tdl__handle_track(TdlHandle *h);
int tdl__handle_remember(TdlHandle *h);
bool tdl__handle_cancel(TdlHandle *h);
bool tdl__handle_cancelled(const TdlHandle *h);
void tdl__handle_run(struct tdl_item *item);
void tdl__handle_clear_free(struct tdl_module_state *state);
TdlHandle *tdl__handle_of(struct tdl_item *item);

/* What handle.c, which makes and runs handles, and handle_type.c, which shows them to Python, share. */
bool tdl__handle_is_timer(const TdlHandle *h);
PyObject *tdl__handle_own_context(TdlHandle *h); /* borrowed */
int tdl__handle_call(TdlHandle *h);
PyObject *tdl__handle_replaced_run(TdlHandle *h);
void tdl__handle_forget_debug(TdlHandle *h);
int tdl__handle_traverse(PyObject *self, visitproc visit, void *arg);
int tdl__handle_clear(PyObject *self);
void tdl__handle_dealloc(PyObject *self);

#endif
