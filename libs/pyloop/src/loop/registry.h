/* asyncio's registry of tasks. Thread: with the GIL. */
#ifndef TDL_PYLOOP_REGISTRY_H
#define TDL_PYLOOP_REGISTRY_H

#include "ground/state.h"

/* Before the first loop, asyncio's registry of tasks gets an add() in C; one that it does not know is left
 * alone. */
void tdl__registry_quicken(struct tdl_module_state *st);

#endif
