/* What stands in for a loop's own methods: asked before C goes around one. Thread: the GIL guards everything
 * here. */
#ifndef TDL_PYLOOP_OVERRIDES_H
#define TDL_PYLOOP_OVERRIDES_H

#include "ground/state.h"

/* What a loop knows of its own class. */
struct tdl_loop_standard {
    unsigned plain_tag;   /* the class's version while nothing is replaced that is asked for often */
    unsigned seen_tag;    /* the class's version when the two below were made */
    unsigned handle_tag;  /* of asyncio.TimerHandle, a subclass of Handle, while both are as shipped */
    PyObject *patched;    /* {name: what asyncio's class has instead of its own}, NULL if nothing */
    PyObject *overridden; /* {name: None}: these, and what a subclass or the loop itself has instead; NULL if
                             nothing */
    PyObject *assigned;   /* {name: None} set on the loop itself, NULL if none ever was */
};

/* _loop_setup(loop class, asyncio's, {name: attributes of asyncio's classes as shipped, or None}) */
PyObject *tdl__loop_setup(PyObject *module, PyObject *args);

extern PyMethodDef tdl__standard_loop_methods[];
void tdl__loop_standard_init(struct tdl_loop_standard *l);
int tdl__loop_standard_traverse(struct tdl_loop_standard *l, visitproc visit, void *arg);
void tdl__loop_standard_clear(struct tdl_loop_standard *l);
int tdl__loop_setattr(PyObject *self, PyObject *name, PyObject *value);
TDL_RARE bool tdl__loop_overridden(TdlLoop *loop, PyObject *name);
TDL_RARE PyObject *tdl__loop_patched(TdlLoop *loop, PyObject *name);
TDL_RARE bool tdl__loop_step_aside(TdlLoop *loop, PyObject *name, PyObject *const *args, Py_ssize_t nargs,
                                   PyObject *kwnames, PyObject **result);
TDL_RARE bool tdl__handles_in_place(TdlLoop *loop);

#endif
