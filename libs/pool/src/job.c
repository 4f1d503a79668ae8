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

/* Unlinks a job that no worker has popped; such a job is released here, any other by the worker that holds
 * it. An idle job that is linked waits in a forked child for its owner. */
static bool take_out_locked(struct tdl_pool *pool, struct tdl_job *job, uint32_t state)
{
    if (!tdl_node_is_linked(&job->node))
        return false;
    if (state == TDL_JOB_IDLE)
        tdl_node_remove(&job->node);
    else
        tdl__class_remove_locked(&pool->classes[job->job_class], job);
    return true;
}

bool tdl_job_cancel(struct tdl_pool *pool, struct tdl_job *job)
{
    /* The lock is taken first, because a worker that loses the swap frees the job. */
    pthread_mutex_lock(&pool->lock);
    uint32_t before = TDL_JOB_WAITING;
    bool won = tdl_cas_acq_rel_u32(&job->state, &before, TDL_JOB_CANCELED); /* MO-5 */
    bool ours = (won || before == TDL_JOB_IDLE) && take_out_locked(pool, job, before);
    pthread_mutex_unlock(&pool->lock);
    if (ours)
        job->release(job);
    return won || ours;
}

bool tdl_job_abandon(struct tdl_pool *pool, struct tdl_job *job)
{
    pthread_mutex_lock(&pool->lock);
    uint32_t before = (uint32_t)tdl__job_give_up(job); /* MO-5 */
    TDL_ASSERT(before <= TDL_JOB_DONE);
    bool ours = before <= TDL_JOB_WAITING && take_out_locked(pool, job, before);
    pthread_mutex_unlock(&pool->lock);
    if (ours)
        job->release(job);
    return before != TDL_JOB_DONE;
}

void tdl_job_received(struct tdl_job *job)
{
    enum tdl_job_state before = tdl_job_state(job);
    TDL_ASSERT(before == TDL_JOB_DONE || before == TDL_JOB_ABANDONED);
    tdl__job_set_state(job, TDL_JOB_IDLE);
}
