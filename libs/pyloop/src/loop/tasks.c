/* Futures and tasks of a loop: of asyncio's classes, whichever these are. */
#include "loop/handle.h"
#include "loop/loop.h"
#include "loop/registry.h"
#include "loop/snapshot.h"

/* What asyncio's own code would find under the name now: debuggers and tests replace the classes, while one
 * is called too. */
static PyObject *find_class(PyObject *module_dict, PyObject *name)
{
    PyObject *found = PyDict_GetItemWithError(module_dict, name);
    if (found == NULL && !PyErr_Occurred()) {
        PyErr_SetObject(PyExc_NameError, name);
    }
    return Py_XNewRef(found);
}

/* What asyncio's create_future() makes. */
static PyObject *future_new(TdlLoop *loop)
{
    struct tdl_module_state *st = loop->state;
    PyObject *type = find_class(st->futures_dict, st->str_Future);
    PyObject *stack[1] = {(PyObject *)loop};
    PyObject *future = type != NULL ? PyObject_Vectorcall(type, stack, 0, st->loop_kwname) : NULL;
    Py_XDECREF(type);
    return future;
}

/* What loop.create_future() gives. */
PyObject *tdl__future_new(TdlLoop *loop)
{
    if (!tdl__loop_is_plain(loop) && tdl__loop_overridden(loop, loop->state->str_create_future)) {
        return PyObject_CallMethodNoArgs((PyObject *)loop, loop->state->str_create_future);
    }
    return future_new(loop);
}

PyObject *tdl__loop_create_future(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlLoop *loop = TDL_LOOP(self);
    PyObject *result;
    if (!tdl__loop_is_plain(loop) &&
        tdl__loop_step_aside(loop, loop->state->str_create_future, NULL, 0, NULL, &result)) {
        return result;
    }
    return future_new(loop);
}

/* A task without a factory; the keywords that say nothing are left out. */
static PyObject *task_new(PyObject *self, PyObject *coro, PyObject *name, PyObject *context)
{
    struct tdl_module_state *st = TDL_LOOP(self)->state;
    PyObject *type = find_class(st->tasks_dict, st->str_Task);
    PyObject *stack[5] = {NULL, coro, self, name, context};
    PyObject *kwnames = name == Py_None && context == Py_None ? st->loop_kwname : st->task_kwnames;
    PyObject *task = type != NULL
                         ? PyObject_Vectorcall(type, stack + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames)
                         : NULL;
    Py_XDECREF(type);
    return task;
}

/* create_task(coro, *, name=None, context=None); any other shape is asyncio's own to answer. */
PyObject *tdl__loop_create_task(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    TdlLoop *loop = TDL_LOOP(self);
    struct tdl_module_state *st = loop->state;
    PyObject *name = Py_None;
    PyObject *context = Py_None;
    PyObject *result;
    if (!tdl__loop_is_plain(loop) &&
        tdl__loop_step_aside(loop, st->str_create_task, args, nargs, kwnames, &result)) {
        return result;
    }
    bool plain = nargs == 1 && loop->task_factory == Py_None && !loop->closed;
    for (Py_ssize_t i = 0; plain && kwnames != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, i);
        if (key == st->str_name) {
            name = args[nargs + i];
        } else if (key == st->str_context) {
            context = args[nargs + i];
        } else {
            plain = false;
        }
    }
    if (plain) {
        return task_new(self, args[0], name, context);
    }
    PyObject *slow = PyObject_GetAttr(self, st->str__create_task_slow);
    PyObject *task = slow != NULL ? PyObject_Vectorcall(slow, args, (size_t)nargs, kwnames) : NULL;
    Py_XDECREF(slow);
    return task;
}
