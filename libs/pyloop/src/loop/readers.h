/* add_reader and its kin. Thread: with the GIL. */
#ifndef TDL_PYLOOP_READERS_H
#define TDL_PYLOOP_READERS_H

#include "ground/state.h"

struct tdl_watch;

extern PyMethodDef tdl__reader_methods[];
void tdl__watch_retire(struct tdl_watch *w, int event);
int tdl__has_transports(TdlLoop *loop);

#endif
