/* What the folders above loop/ do for each loop. module.c lists them; loop/ calls them in that order, and
 * knows none by name. Thread: with the GIL, on the loop's thread but for open, traverse, clear and
 * release. */
#ifndef TDL_PYLOOP_PART_H
#define TDL_PYLOOP_PART_H

#include "ground/state.h"

#include "treadle/patience.h"

/* Any may be NULL. */
struct tdl_part {
    int (*open)(TdlLoop *loop);         /* a loop is made: 0, or -1 with an exception */
    void (*before_poll)(TdlLoop *loop); /* the part has set loop->staged */
    /* Before a sleep of so long: whose patience says to watch for an answer first, and keeps how that ended;
     * NULL for nobody's. */
    struct tdl_patience *(*watches)(TdlLoop *loop, uint64_t timeout_ns);
    void (*after_fork)(TdlLoop *loop); /* in the child, when the loop has descriptors of its own */
    void (*close)(TdlLoop *loop);      /* before the queues are emptied */
    int (*traverse)(TdlLoop *loop, visitproc visit, void *arg);
    void (*clear)(TdlLoop *loop);   /* the loop is closed, and garbage */
    void (*release)(TdlLoop *loop); /* the last: memory */
};

/* How long a loop with nothing to do watches for an answer before it sleeps: what a lookup in a file takes,
 * and about what it costs to put a thread to sleep and wake it. */
#define TDL_WATCH_NS 20000U

/* loop.c and part.c share */
const struct tdl_part *const *tdl__parts_of(const TdlLoop *loop);
int tdl__parts_open(TdlLoop *loop);
void tdl__parts_clear(TdlLoop *loop);
void tdl__parts_close(TdlLoop *loop);
void tdl__parts_release(TdlLoop *loop);

#endif
