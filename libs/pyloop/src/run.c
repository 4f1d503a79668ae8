/* Turn after turn, until the loop was asked to stop or something that ends the run was raised. */
#include "pyloop.h"

/* Bytes on the signal descriptor name the signals for add_signal_handler's callbacks. */
static int deliver_signals(TdlLoop *loop)
{
    loop->signal_seen = false;
    PyObject *result = PyObject_CallMethodNoArgs((PyObject *)loop, loop->state->str__signal_bytes);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

static void track_item(struct tdl_item *item, void *Py_UNUSED(arg))
{
    if (item->run == tdl__handle_run) {
        tdl__handle_track(tdl__handle_of(item));
    }
}

static int run_turns(TdlLoop *loop)
{
    do {
        tdl_turn(&loop->sched, &loop->host);
        if (PyErr_Occurred() || PyErr_CheckSignals() < 0) {
            return -1;
        }
        if (loop->signal_seen && deliver_signals(loop) < 0) {
            return -1;
        }
    } while (!tdl_sched_stopping(&loop->sched));
    return 0;
}

PyObject *tdl__loop_run(TdlLoop *loop)
{
    loop->run_thread = PyThread_get_thread_ident();
    int code = run_turns(loop);
    /* A loop that does not run may become garbage, and with it what is still queued. */
    tdl_sched_visit(&loop->sched, track_item, NULL);
    PyObject *exc = PyErr_GetRaisedException();
    Py_CLEAR(loop->snapshot);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
    return code == 0 ? Py_NewRef(Py_None) : NULL;
}
