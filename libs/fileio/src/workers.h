/* Blocking calls on pool threads: the whole threads engine, and for the other engines what their kernel
 * interface lacks. */
#ifndef TREADLE_FILEIO_WORKERS_H
#define TREADLE_FILEIO_WORKERS_H

#include "internal.h"

/* Staged to a worker; without a worker the operation finishes with the reason. */
void tdl__workers_submit(struct tdl_fio *f, struct tdl_fop *op);

/* Completes what workers have done, then parks again, so that the next result makes the descriptor
 * readable. */
void tdl__workers_reap(struct tdl_fio *f);

/* Drops a job that has not started. A running one makes no further call and waits no more, but a call that
 * it is in goes on to its end; except an open, which may wait for ever for the other end of a FIFO: it is
 * abandoned. */
void tdl__workers_cancel(struct tdl_fio *f, struct tdl_fop *op);

/* Starts the pool and the wake; 0 or a negative code. */
int tdl__workers_start(struct tdl_fio *f);

/* The descriptor that workers make readable; -1 before the first use. */
int tdl__workers_fd(const struct tdl_fio *f);

/* Operations that workers hold. */
uint32_t tdl__workers_running(const struct tdl_fio *f);

/* Whether a canceled operation's worker may still look up its descriptors by their numbers, and so do harm
 * where they are another's by then. */
bool tdl__workers_borrow(const struct tdl_fop *op);

void tdl__workers_close(struct tdl_fio *f);

/* In a forked child: the threads are the parent's. */
void tdl__workers_forget(struct tdl_fio *f);

#endif
