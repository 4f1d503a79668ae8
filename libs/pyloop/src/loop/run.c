/* Turn after turn, until the loop was asked to stop or something that ends the run was raised. */
#include "loop/handle.h"
#include "loop/loop.h"
#include "loop/signals.h"
#include "loop/snapshot.h"

/* Bytes on the signal descriptor name the signals for add_signal_handler's callbacks. */
static int deliver_signals(TdlLoop *loop)
{
    loop->poller.signal_seen = false;
    PyObject *theirs = PyLong_FromLong(loop->wakeup_theirs);
    PyObject *result =
        theirs != NULL ? PyObject_CallMethodOneArg((PyObject *)loop, loop->state->str__signal_bytes, theirs)
                       : NULL;
    Py_XDECREF(theirs);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

static void track_item(struct tdl_item *item, void *Py_UNUSED(arg))
{
    if (item->run == tdl__handle_run) {
        tdl__handle_track(tdl__handle_of(item));
    }
}

/* Watch for what other threads schedule, which takes the GIL; true if something came. */
static bool spin(TdlLoop *loop)
{
    tdl_wake_park_begin(&loop->poller.wake); /* MO-1: announced before the inbox is looked at */
    loop->poller.parked = true;
    PyThreadState *save = PyEval_SaveThread();
    bool posted = !tdl_inbox_is_empty(&loop->inbox) || tdl_wake_spin(&loop->poller.wake);
    PyEval_RestoreThread(save);
    loop->poller.parked = false;
    return tdl_wake_park_end(&loop->poller.wake) || posted;
}

/* Work off what the turn scheduled, and what arrives meanwhile, before anything is polled again: the shape
 * that perf/bench/pool_churn.py shows to be worse for a pool behind threads than one generation per poll. */
static void settle(TdlLoop *loop)
{
    while (!tdl_sched_stopping(&loop->sched) && !PyErr_Occurred() && PyErr_CheckSignals() == 0) {
        struct tdl_link *posted = tdl_inbox_take(&loop->inbox);
        if (posted != NULL) {
            tdl_sched_merge(&loop->sched, posted);
        }
        if (!tdl_sched_has_ready(&loop->sched) && (loop->spin_ns == 0 || !spin(loop))) {
            return;
        }
        (void)tdl_sched_freeze(&loop->sched);
        (void)tdl_sched_run(&loop->sched);
    }
}

/* What a turn leaves to be done behind it: a signal handler to run, an exception of the clock. */
TDL_RARE static int turn_left_more(TdlLoop *loop)
{
    PyObject *error = loop->clock_error;
    if (error != NULL) {
        loop->clock_error = NULL;
        PyErr_SetRaisedException(error);
        return -1;
    }
    return PyErr_CheckSignals() < 0 || deliver_signals(loop) < 0 ? -1 : 0;
}

static inline int run_turn(TdlLoop *loop)
{
    if (tdl__uv_check_fork(&loop->poller) < 0) {
        return -1;
    }
    bool idle = !tdl_sched_has_ready(&loop->sched) && !tdl_sched_stopping(&loop->sched);
    if (loop->spin_ns != 0 && idle) {
        (void)spin(loop);
    }
    if (tdl__signals_before_turn(loop, idle) < 0) {
        return -1;
    }
    tdl_turn(&loop->sched, &loop->host);
    if (loop->quiescent) {
        settle(loop);
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    /* Every signal of a sleep has written to the loop's descriptor, and its handler waits to be run. */
    return loop->poller.signal_seen ? turn_left_more(loop) : 0;
}

/* Call the _run_once() that somebody put in the place of the loop's; 1 if nobody did. */
TDL_RARE static int run_turn_by_method(TdlLoop *loop)
{
    if (!tdl__loop_overridden(loop, loop->state->str__run_once)) {
        return 1;
    }
    PyObject *result = PyObject_CallMethodNoArgs((PyObject *)loop, loop->state->str__run_once);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

/* One copy, into which the compiler then puts the turn itself. */
__attribute__((noinline, noclone)) static int run_turns(TdlLoop *loop, bool one)
{
    do {
        int code = tdl__loop_is_plain(loop) || one ? 1 : run_turn_by_method(loop);
        if (code < 0 || (code > 0 && run_turn(loop) < 0)) {
            return -1;
        }
    } while (!one && !tdl_sched_stopping(&loop->sched));
    return 0;
}

/* Behind the last turn: a loop that does not run may become garbage, and with it what is still queued. */
static void turns_ended(TdlLoop *loop)
{
    tdl_sched_visit(&loop->sched, track_item, NULL);
    PyObject *exc = PyErr_GetRaisedException();
    tdl__snapshot_forget(loop);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

/* Whether a turn is being made, by whomever: one does not begin in another, and nothing is taken from under
 * it. */
bool tdl__loop_in_turn(const TdlLoop *loop)
{
    return tdl_sched_running(&loop->sched) || loop->poller.in_uv;
}

/* _run_once(): one turn, for who runs the turns by himself. */
PyObject *tdl__loop_run_once(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlLoop *loop = TDL_LOOP(self);
    if (tdl__check_closed(loop) < 0) {
        return NULL;
    }
    if (tdl__loop_in_turn(loop)) {
        PyErr_SetString(PyExc_RuntimeError, "This event loop is already running");
        return NULL;
    }
    loop->run_thread = PyThread_get_thread_ident();
    int code = run_turns(loop, true);
    if (!loop->turning) {
        turns_ended(loop);
    }
    return code == 0 ? Py_NewRef(Py_None) : NULL;
}

/* _run_nested(): one turn inside of a callback, for who lets a loop run inside of itself. libuv calls nobody,
 * so no poll is under way then. */
PyObject *tdl__loop_run_nested(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlLoop *loop = TDL_LOOP(self);
    if (tdl__check_closed(loop) < 0) {
        return NULL;
    }
    unsigned long thread = PyThread_get_thread_ident();
    if (loop->poller.in_uv || (tdl_sched_running(&loop->sched) && loop->run_thread != thread)) {
        PyErr_SetString(PyExc_RuntimeError, "This event loop is already running");
        return NULL;
    }
    loop->run_thread = thread;
    loop->hold_item.run(&loop->hold_item); /* nobody waits for the end of a step whose inside may sleep */
    bool was_running = tdl_sched_nest(&loop->sched);
    int code = run_turn(loop);
    tdl_sched_unnest(&loop->sched, was_running);
    if (!loop->turning && !was_running) {
        turns_ended(loop);
    }
    return code == 0 ? Py_NewRef(Py_None) : NULL;
}

PyObject *tdl__loop_run(TdlLoop *loop, bool main_thread)
{
    if (tdl__check_closed(loop) < 0) {
        return NULL;
    }
    if (loop->turning || tdl__loop_in_turn(loop)) {
        PyErr_SetString(PyExc_RuntimeError, "This event loop is already running");
        return NULL;
    }
    loop->run_thread = PyThread_get_thread_ident();
    loop->turning = true;
    loop->signals = main_thread && PyInterpreterState_Get() == PyInterpreterState_Main();
    int code = run_turns(loop, false);
    loop->turning = false;
    turns_ended(loop);
    return code == 0 ? Py_NewRef(Py_None) : NULL;
}
