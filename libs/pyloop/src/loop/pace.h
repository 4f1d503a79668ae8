/* The pace of threads that post to a loop. Thread: the GIL guards what has no lock of its own. */
#ifndef TDL_PYLOOP_PACE_H
#define TDL_PYLOOP_PACE_H

#include "ground/state.h"

#include <pthread.h>

/* How far producers on other threads may run ahead of the loop (pace.c). */
struct tdl_pace {
    int32_t
        posts; /* call_soon_threadsafe() since the last poll, less what was granted to a loop that stands */
    int32_t limit;     /* so many, then a producer waits for the next poll */
    int32_t grant;     /* the last that was */
    uint32_t waiting;  /* producers that do */
    uint32_t polls;    /* ends of their waits; written with the GIL and the lock */
    uint64_t stood;    /* where the loop was then */
    uint32_t measured; /* posts of the generation that is timed, or 0 */
    size_t generation; /* its items */
    uint64_t begin_ns;
    pthread_mutex_t lock;
    pthread_cond_t polled;
};

void tdl__pace_open(struct tdl_pace *p);
void tdl__pace_close(struct tdl_pace *p);
void tdl__pace_producer(TdlLoop *loop);
void tdl__pace_polled(TdlLoop *loop);
void tdl__pace_ran(TdlLoop *loop);

#endif
