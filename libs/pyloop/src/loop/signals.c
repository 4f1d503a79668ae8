/* CPython's one wakeup descriptor, to which it writes each signal, and the sleep of a loop, which a signal
 * has to end. The descriptor belongs to the program: whoever sets one finds it as it was left. The loop sets
 * its own for a sleep alone, looks whether a signal came before, and puts the other back before Python code
 * runs. Before 3.13 CPython has no function for that but the Python one, which asks the kernel twice. So
 * there a sleep begins without, and a timer's descriptor ends it after a while if nothing else did: the next
 * sleep, which may be long, has it. */
#include "loop/signals.h"

#include "loop/loop.h"

#include <sys/timerfd.h>

enum {
    TDL_SIGNALS_EVERY =
        64, /* turns without a sleep between two looks for signals: callbacks in C give Python no chance */
    TDL_GUARD_NS = 20 * 1000 * 1000, /* how long a sleep may be without the wakeup descriptor */
};

#if PY_VERSION_HEX >= 0x030D0000
static int wakeup_swap(TdlLoop *Py_UNUSED(loop), int fd)
{
    return PySignal_SetWakeupFd(fd);
}
#else
/* The function itself and no Python around it, which would give a signal's handler the chance to raise
 * here. */
static int wakeup_swap(TdlLoop *loop, int fd)
{
    PyObject *old = PyObject_CallFunction(loop->state->set_wakeup_fd, "i", fd);
    if (old == NULL) { /* whoever set it has closed it */
        PyErr_Clear();
        old = PyObject_CallFunction(loop->state->set_wakeup_fd, "i", -1);
    }
    long number = old != NULL ? PyLong_AsLong(old) : -1;
    Py_XDECREF(old);
    PyErr_Clear();
    return (int)number;
}
#endif

/* -1 if a signal's handler raised. */
static int take(TdlLoop *loop)
{
    loop->wakeup_theirs = wakeup_swap(loop, loop->poller.signal_wfd);
    loop->wakeup_taken = true;
    return PyErr_CheckSignals(); /* what came before the swap; what comes now writes to the loop's
                                  * descriptor */
}

static void arm_guard(TdlLoop *loop)
{
    const struct itimerspec spec = {.it_value = {.tv_nsec = TDL_GUARD_NS}};
    loop->poller.guard_armed = timerfd_settime(loop->poller.guard_fd, 0, &spec, NULL) == 0;
}

int tdl__signals_before_turn(TdlLoop *loop, bool idle)
{
    if (!loop->signals) {
        return 0;
    }
    int code = 0;
    if (!idle) {
        code = loop->turns % TDL_SIGNALS_EVERY == 0 ? PyErr_CheckSignals() : 0;
    } else if (TDL_WAKEUP_IS_CHEAP || loop->poller.guard_due) {
        loop->poller.guard_due = false;
        code = take(loop);
    } else if (!loop->poller.guard_armed) {
        arm_guard(loop);
        if (!loop->poller
                 .guard_armed) { /* somebody closed its number: no later wake-up would tell of a signal */
            code = take(loop);
        }
    }
    if (code < 0) { /* the swap may be a call, and one with an exception set would fail and take its place */
        PyObject *exc = PyErr_GetRaisedException();
        tdl__signals_give(loop);
        PyErr_SetRaisedException(exc);
    }
    return code;
}

void tdl__signals_hold(TdlLoop *loop)
{
    if (TDL_WAKEUP_IS_CHEAP && loop->wakeup_taken) {
        int fd = wakeup_swap(loop, loop->poller.signal_wfd);
        loop->wakeup_theirs = fd != loop->poller.signal_wfd ? fd : loop->wakeup_theirs;
    }
}

void tdl__signals_give(TdlLoop *loop)
{
    if (loop->wakeup_taken && loop->wakeup_theirs != loop->poller.signal_wfd) {
        int fd = wakeup_swap(loop, loop->wakeup_theirs);
        if (fd != loop->poller.signal_wfd) {
            (void)wakeup_swap(loop, fd); /* set meanwhile, by what ran before a poll that did not sleep */
        }
    }
    loop->wakeup_taken = false;
}
