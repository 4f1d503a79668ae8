/* CPython's wakeup descriptor and the sleep of a loop. Thread: with the GIL, on the loop's thread. */
#ifndef TDL_PYLOOP_SIGNALS_H
#define TDL_PYLOOP_SIGNALS_H

#include "ground/state.h"

/* The wakeup descriptor is taken before a turn that may sleep (-1 if a signal's handler raised), held when
 * the sleep begins, and given back before anything else runs */
int tdl__signals_before_turn(TdlLoop *loop, bool idle);
void tdl__signals_hold(TdlLoop *loop);
void tdl__signals_give(TdlLoop *loop);

#endif
