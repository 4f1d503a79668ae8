/* What transports of every kind share. Thread: the GIL guards them; their items run on the loop's thread. */
#ifndef TDL_PYLOOP_BASE_H
#define TDL_PYLOOP_BASE_H

#include "loop/loop.h"

/* Slots of asyncio's _FlowControlMixin, the base of both kinds of transports. Nothing is kept in them:
 * properties of the same names lie over them, so that its inherited methods work on the fields that C
 * uses. */
enum { TDL_MIXIN_SLOTS = 4 };

int tdl__parse_write_limits(TdlLoop *loop, PyObject *args, PyObject *kwargs, size_t *high_water,
                            size_t *low_water);
int tdl__parse_water(PyObject *value, size_t *water);
int tdl__parse_flag(PyObject *value, bool *flag);

#endif
