/* A job: one blocking call that a pool thread makes for an owner who must not block.
 *
 * The owner embeds the job, submits it, and later receives its `done` link from the inbox it named; or it
 * cancels or abandons the job and forgets it, and `release` is called once, by whichever side is last.
 *
 * Example:
 *     struct tdl_job job;
 *     tdl_job_fn work = NULL, release = NULL;
 *     tdl_job_init(&job, work, release);
 *     bool waits = tdl_job_state(&job) == TDL_JOB_WAITING;
 *     (void)waits;
 *
 * STATES (one atomic word, MO-5)
 *   IDLE       the owner's: never submitted, or given back after a fork
 *   WAITING    in the queue of its class; the owner may cancel
 *   RUNNING    a worker makes the call; the owner may abandon
 *   DONE       the result is complete and its link is in the inbox, or about to be; the owner's once received
 *   CANCELED   taken back before it started: `work` is never called; the pool calls `release`
 *   ABANDONED  given up: the pool calls `release`, on the worker if the call is still being made
 * Legal: IDLE to WAITING; WAITING to RUNNING, CANCELED or ABANDONED; RUNNING to DONE or ABANDONED; DONE to
 * IDLE. */
#ifndef TREADLE_JOB_H
#define TREADLE_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "treadle/atomic.h"
#include "treadle/list.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tdl_pool;
struct tdl_inbox;
struct tdl_job;

typedef void (*tdl_job_fn)(struct tdl_job *job);

enum tdl_job_state {
    TDL_JOB_IDLE = 0,
    TDL_JOB_WAITING = 1,
    TDL_JOB_RUNNING = 2,
    TDL_JOB_DONE = 3,
    TDL_JOB_CANCELED = 4,
    TDL_JOB_ABANDONED = 5
};

struct tdl_job {
    struct tdl_node node;    /* private: place in the queue of its class, or in the list kept over a fork */
    struct tdl_link *done;   /* private: what the inbox receives */
    struct tdl_inbox *inbox; /* private */
    tdl_job_fn work;         /* private */
    tdl_job_fn release;      /* private */
    tdl_atomic_u32 state;    /* private: enum tdl_job_state */
    uint32_t job_class;      /* private */
};

/* Prepares a job to be submitted.
 * Thread:  owner
 * Owns:    the caller keeps the job until its done link arrives, or until release is called; work runs on a
 *          pool thread and must not touch what the owner frees before then; release runs on either side and
 *          frees the job
 * Errors:  none
 * Cost:    O(1) */
void tdl_job_init(struct tdl_job *job, tdl_job_fn work, tdl_job_fn release);

/* Takes a job back before it starts; true means that work was not and will not be called.
 * Thread:  owner
 * Owns:    after true the job is the pool's, which calls release once, before this returns or soon on a
 *          worker; after false nothing has changed
 * Errors:  false when the job has started, is done, or was never submitted
 * Cost:    O(1), one compare-and-swap and the pool's lock */
bool tdl_job_cancel(struct tdl_pool *pool, struct tdl_job *job);

/* Gives a job up, whatever it is doing; true means that nothing will be posted.
 * Thread:  owner
 * Owns:    after true the job is the pool's, which calls release once, on the worker if the call is being
 *          made; after false the done link is in the inbox or about to be, and the owner receives and frees
 *          it as usual
 * Errors:  false when the job was done before
 * Cost:    O(1), one exchange, and the pool's lock if it was waiting */
bool tdl_job_abandon(struct tdl_pool *pool, struct tdl_job *job);

/* Marks a received job as the owner's, so that it can be submitted again.
 * Thread:  owner, after the done link was received
 * Owns:    the job is the owner's
 * Errors:  none; asserts that the job was done
 * Cost:    O(1) */
void tdl_job_received(struct tdl_job *job);

/* Tells the state a job is in.
 * Thread:  any; from another thread than the owner it may be old when read
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
enum tdl_job_state tdl_job_state(const struct tdl_job *job);

#ifdef __cplusplus
}
#endif

#endif
