/* What handle.c, which makes and runs handles, and handle_type.c, which shows them to Python, share.
 * Thread: the GIL guards handles; they run on the loop's thread. */
#ifndef TDL_PYLOOP_HANDLE_H
#define TDL_PYLOOP_HANDLE_H

#include "pyloop.h"

bool tdl__handle_is_timer(const TdlHandle *h);
PyObject *tdl__handle_own_context(TdlHandle *h); /* borrowed */
int tdl__handle_call(TdlHandle *h);
PyObject *tdl__handle_replaced_run(TdlHandle *h);
void tdl__handle_forget_debug(TdlHandle *h);
int tdl__handle_traverse(PyObject *self, visitproc visit, void *arg);
int tdl__handle_clear(PyObject *self);
void tdl__handle_dealloc(PyObject *self);

#endif
