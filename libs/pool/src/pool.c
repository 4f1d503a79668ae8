#include "pool_internal.h"

#include <stdio.h>
#include <unistd.h>

#include "treadle/alloc.h"
#include "treadle/assert.h"
#include "treadle/clock.h"
#include "treadle/status.h"

#define IDLE_NS_DEFAULT (10 * TDL_NS_PER_S)
#define FORK_GRACE_NS_DEFAULT (5 * TDL_NS_PER_MS)

/* Timed waits on the clock that nobody sets. */
void tdl__cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &clock);
    pthread_condattr_destroy(&clock);
}

static bool options_are_valid(const struct tdl_pool_options *options)
{
    if (options == NULL || options->classes < 1 || options->classes > TDL_POOL_CLASS_MAX ||
        options->slots == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < options->classes; i++) {
        if (options->slots[i] < 1 || options->slots[i] > 65536u) {
            return false;
        }
    }
    return true;
}

static size_t stack_size(size_t wanted)
{
    long least = sysconf(_SC_THREAD_STACK_MIN);
    if (wanted != 0 && least > 0 && wanted < (size_t)least) {
        return (size_t)least;
    }
    return wanted;
}

int tdl_pool_open(struct tdl_pool **out, const struct tdl_pool_options *options)
{
    if (out == NULL) {
        return TDL_EINVAL;
    }
    *out = NULL;
    if (!options_are_valid(options)) {
        return TDL_EINVAL;
    }
    struct tdl_pool *pool = tdl_calloc(1, sizeof *pool);
    if (pool == NULL) {
        return TDL_ENOMEM;
    }
    for (uint32_t i = 0; i < options->classes; i++) {
        tdl__class_init(&pool->classes[i], options->slots[i]);
        pool->thread_limit += options->slots[i];
    }
    pool->class_count = options->classes;
    pool->idle_ns = options->idle_ns != 0 ? options->idle_ns : IDLE_NS_DEFAULT;
    pool->fork_grace_ns = options->fork_grace_ns != 0 ? options->fork_grace_ns : FORK_GRACE_NS_DEFAULT;
    pool->linger_ns = options->linger_ns;
    pool->stack_bytes = stack_size(options->stack_bytes);
    (void)snprintf(pool->name, sizeof pool->name, "%s", options->name != NULL ? options->name : "tdl-pool");
    pthread_mutex_init(&pool->lock, NULL);
    tdl__cond_init(&pool->quiet);
    tdl_node_init(&pool->registered);
    tdl_node_init(&pool->workers);
    tdl_node_init(&pool->idle);
    tdl_node_init(&pool->spare);
    tdl_node_init(&pool->forked);
    tdl__registry_add(pool);
    *out = pool;
    return 0;
}

void tdl__pool_free(struct tdl_pool *pool)
{
    TDL_ASSERT(pool->closed && pool->threads == 0);
    tdl__registry_remove(pool);
    while (tdl_node_is_linked(&pool->spare)) {
        struct tdl__worker *worker = TDL_CONTAINER_OF(pool->spare.next, struct tdl__worker, all);
        tdl_node_remove(&worker->all);
        pthread_cond_destroy(&worker->wake);
        pthread_mutex_destroy(&worker->deliver);
        tdl_free(worker);
    }
    pthread_cond_destroy(&pool->quiet);
    pthread_mutex_destroy(&pool->lock);
    tdl_free(pool);
}

/* Takes a refused job out again, if no thread came for it meanwhile. */
static bool refuse_locked(struct tdl_pool *pool, struct tdl_job *job)
{
    struct tdl__class *cls = &pool->classes[job->job_class];
    if (cls->running > 0 || pool->idle_count > 0 || !tdl_node_is_linked(&job->node)) {
        return false;
    }
    tdl__class_remove_locked(cls, job);
    tdl__job_set_state(job, TDL_JOB_IDLE);
    return true;
}

int tdl_pool_submit(struct tdl_pool *pool, struct tdl_job *job, uint32_t job_class, struct tdl_inbox *inbox,
                    struct tdl_link *done)
{
    if (pool == NULL || job_class >= pool->class_count || inbox == NULL || done == NULL ||
        tdl_job_state(job) != TDL_JOB_IDLE) {
        return TDL_EINVAL;
    }
    job->job_class = job_class;
    job->inbox = inbox;
    job->done = done;
    tdl__job_set_state(job, TDL_JOB_WAITING);
    int status = 0;
    pthread_mutex_lock(&pool->lock);
    TDL_ASSERT(!pool->closed);
    tdl__class_push_locked(&pool->classes[job_class], job);
    struct tdl__wakeup wakeup = tdl__workers_dispatch_locked(pool);
    if (wakeup.start) {
        /* Under the lock, so that a failure is this caller's to report and nobody relies on it. */
        status = tdl__workers_start_locked(pool);
        if (status != 0 && !refuse_locked(pool, job)) {
            status = 0;
        }
        wakeup.start = false;
    }
    pthread_mutex_unlock(&pool->lock);
    tdl__workers_wake(pool, wakeup);
    return status;
}

void tdl__pool_release_list(struct tdl_node *jobs)
{
    while (tdl_node_is_linked(jobs)) {
        struct tdl_job *job = TDL_CONTAINER_OF(jobs->next, struct tdl_job, node);
        tdl_node_remove(&job->node);
        job->release(job);
    }
}

static bool posts_to(const struct tdl_job *job, const struct tdl_inbox *inbox)
{
    return inbox == NULL || job->inbox == inbox;
}

/* Moves the jobs of this inbox (of all, if NULL) from a list to another. */
static uint32_t sort_out_locked(struct tdl_node *from, struct tdl_node *to, const struct tdl_inbox *inbox)
{
    uint32_t moved = 0;
    for (struct tdl_node *node = from->next; node != from;) {
        struct tdl_node *next = node->next;
        struct tdl_job *job = TDL_CONTAINER_OF(node, struct tdl_job, node);
        if (posts_to(job, inbox)) {
            tdl_node_remove(node);
            tdl__job_set_state(job, TDL_JOB_CANCELED);
            tdl_node_insert_before(to, node);
            moved++;
        }
        node = next;
    }
    return moved;
}

static void detach_locked(struct tdl_pool *pool, const struct tdl_inbox *inbox, struct tdl_node *waiting)
{
    for (uint32_t i = 0; i < pool->class_count; i++) {
        struct tdl__class *cls = &pool->classes[i];
        cls->waiting_count -= sort_out_locked(&cls->waiting, waiting, inbox);
    }
    (void)sort_out_locked(&pool->forked, waiting, inbox);
    for (struct tdl_node *node = pool->workers.next; node != &pool->workers; node = node->next) {
        struct tdl__worker *worker = TDL_CONTAINER_OF(node, struct tdl__worker, all);
        pthread_mutex_lock(&worker->deliver);
        if (worker->job != NULL && posts_to(worker->job, inbox)) {
            (void)tdl__job_give_up(worker->job); /* MO-5 */
        }
        pthread_mutex_unlock(&worker->deliver);
    }
}

void tdl_pool_detach(struct tdl_pool *pool, struct tdl_inbox *inbox)
{
    struct tdl_node waiting;
    tdl_node_init(&waiting);
    TDL_ASSERT(inbox != NULL);
    pthread_mutex_lock(&pool->lock);
    detach_locked(pool, inbox, &waiting);
    pthread_mutex_unlock(&pool->lock);
    tdl__pool_release_list(&waiting);
}

void tdl_pool_close(struct tdl_pool *pool)
{
    struct tdl_node waiting;
    if (pool == NULL) {
        return;
    }
    tdl_node_init(&waiting);
    pthread_mutex_lock(&pool->lock);
    TDL_ASSERT(!pool->closed);
    detach_locked(pool, NULL, &waiting);
    pool->closed = true;
    tdl__workers_wake_all_locked(pool);
    bool last = pool->threads == 0;
    pthread_mutex_unlock(&pool->lock);
    tdl__pool_release_list(&waiting);
    if (last) {
        tdl__pool_free(pool);
    }
}

struct tdl_job *tdl_pool_take_forked(struct tdl_pool *pool)
{
    struct tdl_job *job = NULL;
    pthread_mutex_lock(&pool->lock);
    if (tdl_node_is_linked(&pool->forked)) {
        job = TDL_CONTAINER_OF(pool->forked.next, struct tdl_job, node);
        tdl_node_remove(&job->node);
    }
    pthread_mutex_unlock(&pool->lock);
    return job;
}

void tdl_pool_counts(struct tdl_pool *pool, struct tdl_pool_counts *counts)
{
    *counts = (struct tdl_pool_counts){0};
    pthread_mutex_lock(&pool->lock);
    counts->threads = pool->threads;
    counts->threads_started = pool->threads_started;
    counts->idle = pool->idle_count;
    for (uint32_t i = 0; i < pool->class_count; i++) {
        counts->running[i] = pool->classes[i].running;
        counts->waiting[i] = pool->classes[i].waiting_count;
    }
    pthread_mutex_unlock(&pool->lock);
}
