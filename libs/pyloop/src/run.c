/* Turn after turn, until the loop was asked to stop or something that ends the run was raised. */
#include "pyloop.h"

/* Bytes on the signal descriptor name the signals for add_signal_handler's callbacks. */
static int deliver_signals(TdlLoop *loop) {
    loop->signal_seen = false;
    PyObject *result = PyObject_CallMethodNoArgs((PyObject *)loop, loop->state->str__signal_bytes);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

PyObject *tdl__loop_run(TdlLoop *loop) {
    do {
        tdl_turn(&loop->sched, &loop->host);
        if (PyErr_Occurred() || PyErr_CheckSignals() < 0) {
            return NULL;
        }
        if (loop->signal_seen && deliver_signals(loop) < 0) {
            return NULL;
        }
    } while (!tdl_sched_stopping(&loop->sched));
    Py_RETURN_NONE;
}
