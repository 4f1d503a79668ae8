#include "pool_internal.h"

#include "treadle/assert.h"

void tdl_job_init(struct tdl_job *job, tdl_job_fn work, tdl_job_fn release)
{
    tdl_node_init(&job->node);
    job->done = NULL;
    job->inbox = NULL;
    job->work = work;
    job->release = release;
    job->job_class = 0;
    tdl_atomic_init_u32(&job->state, TDL_JOB_IDLE);
}

enum tdl_job_state tdl_job_state(const struct tdl_job *job)
{
    return (enum tdl_job_state)tdl_load_acquire_u32(&job->state);
}

void tdl__job_set_state(struct tdl_job *job, enum tdl_job_state state)
{
    tdl_store_release_u32(&job->state, (uint32_t)state);
}

/* MO-5: the worker's side of cancel against start; only one of the two swaps can win. */
bool tdl__job_start(struct tdl_job *job)
{
    uint32_t expected = TDL_JOB_WAITING;
    return tdl_cas_acq_rel_u32(&job->state, &expected, TDL_JOB_RUNNING);
}

/* MO-5: the worker's side of abandon against finish; false means that the owner has gone and the worker
 * frees. */
bool tdl__job_finish(struct tdl_job *job)
{
    uint32_t before = tdl_exchange_acq_rel_u32(&job->state, TDL_JOB_DONE);
    TDL_ASSERT(before == TDL_JOB_RUNNING || before == TDL_JOB_ABANDONED);
    return before == TDL_JOB_RUNNING;
}

/* MO-5: the owner's side of abandon against finish. */
enum tdl_job_state tdl__job_give_up(struct tdl_job *job)
{
    return (enum tdl_job_state)tdl_exchange_acq_rel_u32(&job->state, TDL_JOB_ABANDONED);
}

/* Takes a job that no worker has popped out of its queue, or out of those that wait in a forked child for
 * their owner. */
static void take_out_locked(struct tdl_pool *pool, struct tdl_job *job, uint32_t state)
{
    if (state == TDL_JOB_IDLE) {
        tdl_node_remove(&job->node);
    } else {
        tdl__class_remove_locked(&pool->classes[job->job_class], job);
    }
}

/* Under the lock a linked job stays linked. One that is not linked may be freed by its worker as soon as the
 * owner has given it up, so that is looked at first. */
bool tdl_job_cancel(struct tdl_pool *pool, struct tdl_job *job)
{
    pthread_mutex_lock(&pool->lock);
    bool linked = tdl_node_is_linked(&job->node);
    uint32_t before = TDL_JOB_WAITING;
    bool won = tdl_cas_acq_rel_u32(&job->state, &before, TDL_JOB_CANCELED); /* MO-5 */
    TDL_ASSERT(!linked || won || before == TDL_JOB_IDLE);
    if (linked) {
        take_out_locked(pool, job, before);
    }
    pthread_mutex_unlock(&pool->lock);
    if (linked) {
        job->release(job);
    }
    return won || linked;
}

bool tdl_job_abandon(struct tdl_pool *pool, struct tdl_job *job)
{
    pthread_mutex_lock(&pool->lock);
    bool linked = tdl_node_is_linked(&job->node);
    uint32_t before = (uint32_t)tdl__job_give_up(job); /* MO-5 */
    TDL_ASSERT(linked ? before <= TDL_JOB_WAITING : before >= TDL_JOB_WAITING && before <= TDL_JOB_DONE);
    if (linked) {
        take_out_locked(pool, job, before);
    }
    pthread_mutex_unlock(&pool->lock);
    if (linked) {
        job->release(job);
    }
    return before != TDL_JOB_DONE;
}

void tdl_job_received(struct tdl_job *job)
{
    enum tdl_job_state before = tdl_job_state(job);
    TDL_ASSERT(before == TDL_JOB_DONE || before == TDL_JOB_ABANDONED);
    tdl__job_set_state(job, TDL_JOB_IDLE);
}
