/* Switches of a loop for measurements and tests, and what it tells of itself. */
#include "loop/handle.h"
#include "loop/loop.h"
#include "loop/registry.h"
#include "loop/snapshot.h"

PyObject *tdl__loop_gate_off(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlLoop *loop = TDL_LOOP(self);
    tdl_filter_close(&loop->poller.filter);
    tdl_filter_init(&loop->poller.filter, true);
    Py_RETURN_NONE;
}

/* For measurements only: another turn than one generation per poll. */
PyObject *tdl__loop_shape_turns(PyObject *self, PyObject *quiescent)
{
    int shape = PyObject_IsTrue(quiescent);
    if (shape < 0) {
        return NULL;
    }
    TDL_LOOP(self)->quiescent = shape != 0;
    Py_RETURN_NONE;
}

/* Python has checked the ranges. */
PyObject *tdl__loop_set_spin(PyObject *self, PyObject *value)
{
    unsigned long spin_us = PyLong_AsUnsignedLong(value);
    if (spin_us == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    TdlLoop *loop = TDL_LOOP(self);
    loop->spin_ns = (uint64_t)spin_us * 1000U;
    tdl_wake_set_spin(&loop->poller.wake, loop->spin_ns);
    Py_RETURN_NONE;
}

/* For tests: whether every transport holds its small writes until the step's end, learnt or not, and how long
 * at most. */
PyObject *tdl__loop_shape_holds(PyObject *self, PyObject *args)
{
    int all;
    unsigned long long limit_ns;
    if (!PyArg_ParseTuple(args, "pK:_shape_holds", &all, &limit_ns)) {
        return NULL;
    }
    TDL_LOOP(self)->gather_all = all != 0;
    tdl_hold_set_limit(&TDL_LOOP(self)->hold, limit_ns);
    Py_RETURN_NONE;
}

PyObject *tdl__loop_native_info(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlLoop *loop = TDL_LOOP(self);
    return Py_BuildValue("{s:s,s:i,s:K,s:K,s:K,s:K}", "gate", tdl_filter_name(&loop->poller.filter),
                         "gate_errno", loop->poller.filter.error, "turns", (unsigned long long)loop->turns,
                         "polls", (unsigned long long)loop->polls, "skipped", (unsigned long long)loop->skips,
                         "spin_us", (unsigned long long)(loop->spin_ns / 1000U));
}
