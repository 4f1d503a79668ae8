/* A pool of threads that make blocking calls, in classes with a limit each.
 *
 * A class has slots: that many of its jobs run at once, the others wait in order, and jobs of other
 * classes never wait for them. Threads start when a job needs one, at most one for each slot, and leave
 * when idle.
 *
 * Example:
 *     struct tdl_pool *pool;
 *     const uint32_t slots[] = {6, 4};
 *     struct tdl_pool_options options = {.slots = slots, .classes = 2, .name = "dns"};
 *     if (tdl_pool_open(&pool, &options) == 0)
 *         tdl_pool_close(pool);
 *
 * STATES
 *   OPEN     takes jobs
 *   CLOSED   tdl_pool_close was called; the memory lives until the last worker has left libc
 *   FORKED   an open pool in a forked child: takes jobs, and keeps the older ones for tdl_pool_take_forked */
#ifndef TREADLE_POOL_H
#define TREADLE_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "treadle/job.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TDL_POOL_CLASS_MAX 4u

struct tdl_pool_options {
    const uint32_t *slots; /* the limit of each class, at least 1 */
    uint32_t classes;      /* 1 to TDL_POOL_CLASS_MAX */
    const char *name;      /* threads are named "<name>-<n>"; NULL is "tdl-pool"; 10 bytes are used */
    uint64_t idle_ns;      /* an idle thread leaves after this time; 0 is 10 s */
    uint64_t linger_ns; /* how long one idle thread watches for a job before it sleeps, as long as that pays;
                           0 is not at all */
    size_t stack_bytes; /* 0 is the system's default */
    uint64_t fork_grace_ns; /* how long a fork waits for calls in flight, which may hold locks inside libc; 0
                               is 5 ms */
};

struct tdl_pool_counts {
    uint32_t threads;         /* alive now */
    uint32_t threads_started; /* since open, or since the fork */
    uint32_t idle;
    uint32_t running[TDL_POOL_CLASS_MAX];
    uint32_t waiting[TDL_POOL_CLASS_MAX];
};

/* Makes a pool without threads.
 * Thread:  any
 * Owns:    *pool is the caller's until tdl_pool_close
 * Errors:  TDL_EINVAL for a bad option, TDL_ENOMEM; *pool is NULL then
 * Cost:    one allocation; the first call in a process registers fork handlers */
int tdl_pool_open(struct tdl_pool **pool, const struct tdl_pool_options *options);

/* Gives a job to the pool; when it is done, its link is posted to the inbox.
 * Thread:  any
 * Owns:    the job is the pool's until the link is received, or until release is called; inbox and done must
 *          stay valid until the link was received, or until detach or close returned
 * Errors:  TDL_EAGAIN when no thread could be started and none of its class would come back; the job is IDLE
 *          then. TDL_EINVAL without a pool, an inbox or a link, for a class that the pool does not have, and
 *          for a job that is not IDLE, which stays as it is
 * Cost:    O(1), the pool's lock; wakes or starts a thread if none is on its way */
int tdl_pool_submit(struct tdl_pool *pool, struct tdl_job *job, uint32_t job_class, struct tdl_inbox *inbox,
                    struct tdl_link *done);

/* Cancels and abandons every job that would post to this inbox; on return no worker touches it any more.
 * Thread:  owner of the inbox
 * Owns:    release is called for each waiting job before this returns, and for each executing one by its
 *          worker; links that were posted before stay in the inbox
 * Errors:  none
 * Cost:    O(waiting + threads); may wait for a post in progress, never for a job */
void tdl_pool_detach(struct tdl_pool *pool, struct tdl_inbox *inbox);

/* Closes the pool at once, whatever its threads are doing.
 * Thread:  any, when no other call on the pool is being made or will be
 * Owns:    as tdl_pool_detach for every inbox; the pool is gone for the caller, and its memory is freed by
 *          the last worker
 * Errors:  none; NULL, as a failed open leaves it, is nothing to close
 * Cost:    O(waiting + threads) */
void tdl_pool_close(struct tdl_pool *pool);

/* In a forked child, takes back one job that was waiting or executing when the process forked; NULL when
 * there is none left.
 * Thread:  any, in the child
 * Owns:    the job is the caller's and IDLE: it may be submitted again or freed; nothing of it was posted in
 *          the child
 * Errors:  none
 * Cost:    O(1) */
struct tdl_job *tdl_pool_take_forked(struct tdl_pool *pool);

/* Reads the counts; they are of one moment, and old when they are returned.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(classes), the pool's lock */
void tdl_pool_counts(struct tdl_pool *pool, struct tdl_pool_counts *counts);

/* Tells how many pools have memory in this process, closed ones with a worker in libc included.
 * Thread:  any
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1), the registry's lock */
size_t tdl_pool_alive(void);

#ifdef __cplusplus
}
#endif

#endif
