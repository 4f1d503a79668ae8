/* What the files of the pool share.
 *
 * Lock order: registry, pool, worker's deliver lock. `_locked` functions want the pool's lock. No lock is
 * held while work or release is called. */
#ifndef TREADLE_POOL_INTERNAL_H
#define TREADLE_POOL_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "treadle/patience.h"
#include "treadle/pool.h"

struct tdl__class {
    struct tdl_node waiting; /* jobs in the order of their submission */
    uint32_t slots;
    uint32_t running; /* jobs popped and not yet finished; the slots in use */
    uint32_t waiting_count;
};

struct tdl__worker {
    struct tdl_node all;  /* in pool->workers while the thread lives, else in pool->spare */
    struct tdl_node idle; /* in pool->idle while it waits for a job */
    struct tdl_pool *pool;
    pthread_cond_t wake;  /* with the pool's lock */
    tdl_atomic_u32 woken; /* written under the pool's lock; a thread that lingers watches it without */
    uint32_t number;
    pthread_mutex_t deliver; /* held from the last state change of a job until its link was posted */
    struct tdl_job *job;     /* set under the pool's lock, cleared under deliver */
    uint64_t started_ns;     /* when the job was taken, 0 between jobs */
};

struct tdl_pool {
    struct tdl_node registered; /* under the registry's lock */
    pthread_mutex_t lock;
    pthread_cond_t quiet; /* signaled while forking, each time a job ends */
    struct tdl__class classes[TDL_POOL_CLASS_MAX];
    uint32_t class_count;
    uint32_t class_next;   /* where the search for a job starts, so that no class starves another */
    uint32_t thread_limit; /* sum of the slots: so a job with a slot always has a thread */
    uint32_t threads;
    uint32_t threads_started;
    uint32_t idle_count;
    bool waking; /* a thread is on its way to the queue; it wakes the next one itself */
    bool closed;
    bool forking;
    struct tdl_node workers;
    struct tdl__worker
        *lingering; /* the one idle thread that watches instead of sleeping, and needs no signal */
    struct tdl_patience patience;
    uint64_t linger_ns;
    struct tdl_node idle;   /* most recently idle first, so that the others time out */
    struct tdl_node spare;  /* kept until the pool is freed, since a signal may still be on its way to them */
    struct tdl_node forked; /* jobs from before the fork */
    uint64_t idle_ns;
    uint64_t fork_grace_ns;
    size_t stack_bytes;
    char name[11];
};

/* What is to be done after the lock was let go: start a thread or signal one. */
struct tdl__wakeup {
    struct tdl__worker *signal;
    bool start;
};

/* slots.c */
void tdl__class_init(struct tdl__class *cls, uint32_t slots);
void tdl__class_push_locked(struct tdl__class *cls, struct tdl_job *job);
void tdl__class_remove_locked(struct tdl__class *cls, struct tdl_job *job);
bool tdl__slots_runnable_locked(const struct tdl_pool *pool);
struct tdl_job *tdl__slots_take_locked(struct tdl_pool *pool);
void tdl__slots_give_locked(struct tdl_pool *pool, uint32_t job_class);

/* worker.c */
struct tdl__wakeup tdl__workers_dispatch_locked(struct tdl_pool *pool);
int tdl__workers_start_locked(struct tdl_pool *pool);
void tdl__workers_wake(struct tdl_pool *pool, struct tdl__wakeup wakeup);
void tdl__workers_wake_all_locked(struct tdl_pool *pool);

/* fork.c */
void tdl__registry_add(struct tdl_pool *pool);
void tdl__registry_remove(struct tdl_pool *pool);

/* pool.c */
void tdl__pool_free(struct tdl_pool *pool);
void tdl__pool_release_list(struct tdl_node *jobs);
void tdl__cond_init(pthread_cond_t *cond);

/* job.c */
bool tdl__job_start(struct tdl_job *job);
bool tdl__job_finish(struct tdl_job *job);
void tdl__job_set_state(struct tdl_job *job, enum tdl_job_state state);
enum tdl_job_state tdl__job_give_up(struct tdl_job *job);

#endif
