/* Python's audit events: whether anybody listens to them, and hearing of what ends or replaces the
 * process. */
#include "ground/audit.h"

#include "ground/cpython.h"

#include <string.h>

#include "treadle/hold.h"

/* Of the process, because a hook of C is, and is for good. The GIL guards it. */
static struct {
    enum { HOOK_UNSET, HOOK_SET, HOOK_REFUSED } own;
    bool others; /* once the own hook is set: whether there are more */
} hooks;

/* An argument of an event, made only if there is a hook; that it cannot be made keeps the event from all
 * hooks. */
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
    static const char *const heard[] = {
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
    for (size_t i = 0; i < sizeof heard / sizeof heard[0]; i++) {
        if (strcmp(event, heard[i]) == 0) {
            tdl_hold_send_all();
            break;
        }
    }
    return 0;
}

/* What ends the process without an event: the function object stays what it is, and calls these on its way to
 * CPython's code. Of the process, as the tables of its modules' functions are. */
enum { END_EXIT, END_ABORT, END_RAISE, ENDS };
static void (*shipped[ENDS])(void);

static PyObject *on_exit_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    tdl_hold_send_all();
    return ((PyObject * (*)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *))
                shipped[END_EXIT])(self, args, nargs, kwnames);
}

static PyObject *on_abort_call(PyObject *self, PyObject *arg)
{
    tdl_hold_send_all();
    return ((PyCFunction)shipped[END_ABORT])(self, arg);
}

static PyObject *on_raise_call(PyObject *self, PyObject *arg)
{
    tdl_hold_send_all();
    return ((PyCFunction)shipped[END_RAISE])(self, arg);
}

static const struct {
    const char *module, *name;
    int flags; /* how CPython calls it */
    void (*call)(void);
} ends[ENDS] = {
    {"posix", "_exit", METH_FASTCALL | METH_KEYWORDS, (void (*)(void))on_exit_call},
    {"posix", "abort", METH_NOARGS, (void (*)(void))on_abort_call},
    {"_signal", "raise_signal", METH_O, (void (*)(void))on_raise_call},
};

/* Whether the call of one of them is noticed from now on: not if it is another's function, or is called in
 * another way. */
static bool lead_through_here(size_t i)
{
    PyObject *module = PyImport_ImportModule(ends[i].module);
    PyObject *function = module != NULL ? PyObject_GetAttrString(module, ends[i].name) : NULL;
    PyMethodDef *def = function != NULL ? tdl__method_def(function) : NULL;
    bool known = def != NULL && def->ml_flags == ends[i].flags && strcmp(def->ml_name, ends[i].name) == 0;
    if (known && shipped[i] == NULL) {
        shipped[i] = (void (*)(void))def->ml_meth;
        def->ml_meth = (PyCFunction)ends[i].call;
    }
    Py_XDECREF(function);
    Py_XDECREF(module);
    return known;
}

/* A hook costs each audited call of the process some 20 ns, so it is set when something is to be held for the
 * first time. */
bool tdl__audit_hears_ends(void)
{
    if (hooks.own == HOOK_UNSET) {
        hooks.others = tdl__audited();
        hooks.own = HOOK_REFUSED; /* while the other hooks are asked */
        bool known = true;
        for (size_t i = 0; i < ENDS; i++) {
            known = lead_through_here(i) && known;
        }
        /* A refusal by RuntimeError is no failure for CPython, and the hook is not set then. */
        if (known && PySys_AddAuditHook(on_event, NULL) == 0) {
            (void)PySys_Audit(own_event, NULL);
        }
        PyErr_Clear();
    }
    return hooks.own == HOOK_SET;
}
