/* Python's audit events: whether anybody listens to them, and hearing of what ends or replaces the process. */
#include "pyloop.h"

#include <string.h>

/* Of the process, because a hook of C is, and is for good. The GIL guards it. */
static struct {
    enum { HOOK_UNSET, HOOK_SET, HOOK_REFUSED } own;
    bool others; /* once the own hook is set: whether there are more */
} hooks;

/* An argument of an event, made only if there is a hook; that it cannot be made keeps the event from all hooks. */
static PyObject *unmade_argument(void *asked)
{
    *(bool *)asked = true;
    PyErr_SetNone(PyExc_RuntimeError);
    return NULL;
}

bool tdl__audited(void)
{
    if (hooks.own == HOOK_SET) {
        return hooks.others;
    }
    bool asked = false;
    if (PySys_Audit("treadle", "O&", unmade_argument, &asked) < 0) {
        PyErr_Clear();
    }
    return asked;
}

/* Told to treadle's own hook to find out whether it was set. */
static const char own_event[] = "treadle.hook";

static int on_event(const char *event, PyObject *Py_UNUSED(args), void *Py_UNUSED(user))
{
    /* What ends or replaces the process, or starts a program that may look at what a peer has got. */
    static const char *const ends[] = {
        "os.exec",   "os.posix_spawn",      "os.system",        "os.kill",
        "os.killpg", "signal.pthread_kill", "subprocess.Popen",
    };
    if (event == own_event) {
        hooks.own = HOOK_SET;
        PyErr_SetNone(PyExc_RuntimeError); /* so that Python's hooks, which come later, are not told */
        return -1;
    }
    if (strcmp(event, "sys.addaudithook") == 0) {
        hooks.others = true;
        return 0;
    }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (strcmp(event, ends[i]) == 0) {
            tdl_hold_send_all();
            break;
        }
    }
    return 0;
}

/* A hook costs each audited call of the process some 20 ns, so it is set when something is to be held for the first time. */
bool tdl__audit_hears_ends(void)
{
    if (hooks.own == HOOK_UNSET) {
        hooks.others = tdl__audited();
        hooks.own = HOOK_REFUSED; /* while the other hooks are asked */
        /* A refusal by RuntimeError is no failure for CPython, and the hook is not set then. */
        if (PySys_AddAuditHook(on_event, NULL) == 0) {
            (void)PySys_Audit(own_event, NULL);
        }
        PyErr_Clear();
    }
    return hooks.own == HOOK_SET;
}
