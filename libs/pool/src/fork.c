#include "pool_internal.h"

#include <errno.h>

#include "treadle/alloc.h"
#include "treadle/assert.h"
#include "treadle/clock.h"

/* Every pool with memory in this process. It is per process because fork handlers are, and can't be
 * unregistered. */
static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    struct tdl_node pools;
    size_t alive;
} registry = {PTHREAD_ONCE_INIT, PTHREAD_MUTEX_INITIALIZER, {NULL, NULL}, 0};

/* When the newest call in flight has had its time; a call older than that sleeps, and sleepers hold no lock
 * of libc. */
static uint64_t grace_end_locked(const struct tdl_pool *pool)
{
    uint64_t end_ns = 0;
    for (const struct tdl_node *node = pool->workers.next; node != &pool->workers; node = node->next) {
        const struct tdl__worker *worker = TDL_CONTAINER_OF(node, struct tdl__worker, all);
        if (worker->started_ns != 0 && worker->started_ns + pool->fork_grace_ns > end_ns) {
            end_ns = worker->started_ns + pool->fork_grace_ns;
        }
    }
    return end_ns;
}

/* A child that is forked while a thread holds a lock inside libc could never look up a name, so new jobs are
 * held back and those in flight get a moment to come out. */
static void quieten_locked(struct tdl_pool *pool)
{
    pool->forking = true;
    for (;;) {
        uint64_t end_ns = grace_end_locked(pool);
        if (tdl_clock_ns() >= end_ns) {
            return;
        }
        struct timespec end = tdl_clock_timespec(end_ns);
        (void)pthread_cond_timedwait(&pool->quiet, &pool->lock, &end);
    }
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&registry.lock);
    for (struct tdl_node *node = registry.pools.next; node != &registry.pools; node = node->next) {
        struct tdl_pool *pool = TDL_CONTAINER_OF(node, struct tdl_pool, registered);
        pthread_mutex_lock(&pool->lock);
        quieten_locked(pool);
        /* No post is in flight while these are held, so the child finds its inboxes whole. */
        for (struct tdl_node *at = pool->workers.next; at != &pool->workers; at = at->next) {
            pthread_mutex_lock(&TDL_CONTAINER_OF(at, struct tdl__worker, all)->deliver);
        }
    }
}

static void unlock_delivers_locked(struct tdl_pool *pool)
{
    for (struct tdl_node *at = pool->workers.next; at != &pool->workers; at = at->next) {
        pthread_mutex_unlock(&TDL_CONTAINER_OF(at, struct tdl__worker, all)->deliver);
    }
}

static void fork_parent(void)
{
    for (struct tdl_node *node = registry.pools.next; node != &registry.pools; node = node->next) {
        struct tdl_pool *pool = TDL_CONTAINER_OF(node, struct tdl_pool, registered);
        unlock_delivers_locked(pool);
        pool->forking = false;
        /* Threads that came to the queue while the fork went on have gone idle. */
        struct tdl__wakeup wakeup = tdl__workers_dispatch_locked(pool);
        if (wakeup.start) {
            (void)tdl__workers_start_locked(pool);
        } else if (wakeup.signal != NULL) {
            pthread_cond_signal(&wakeup.signal->wake);
        }
        pthread_mutex_unlock(&pool->lock);
    }
    pthread_mutex_unlock(&registry.lock);
}

/* Keeps what a vanished thread was doing; given-up jobs have no owner, so they go to `orphans`. */
static void bury_worker_locked(struct tdl_pool *pool, struct tdl__worker *worker, struct tdl_node *orphans)
{
    struct tdl_job *job = worker->job;
    if (job != NULL) {
        enum tdl_job_state state = tdl_job_state(job);
        bool owned = state == TDL_JOB_WAITING || state == TDL_JOB_RUNNING;
        tdl_node_insert_before(owned ? &pool->forked : orphans, &job->node);
    }
    pthread_mutex_destroy(&worker->deliver);
    tdl_node_remove(&worker->all);
    tdl_free(worker);
}

static void start_anew_locked(struct tdl_pool *pool, struct tdl_node *orphans)
{
    struct tdl_node *lists[] = {&pool->workers, &pool->spare};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        while (tdl_node_is_linked(lists[i])) {
            bury_worker_locked(pool, TDL_CONTAINER_OF(lists[i]->next, struct tdl__worker, all), orphans);
        }
    }
    for (uint32_t i = 0; i < pool->class_count; i++) {
        struct tdl__class *cls = &pool->classes[i];
        while (tdl_node_is_linked(&cls->waiting)) {
            struct tdl_node *node = cls->waiting.next;
            tdl_node_remove(node);
            tdl_node_insert_before(&pool->forked, node);
        }
        cls->running = 0;
        cls->waiting_count = 0;
    }
    for (struct tdl_node *node = pool->forked.next; node != &pool->forked; node = node->next) {
        tdl__job_set_state(TDL_CONTAINER_OF(node, struct tdl_job, node), TDL_JOB_IDLE);
    }
    tdl_node_init(&pool->idle);
    pool->lingering = NULL;
    pool->idle_count = 0;
    pool->threads = 0;
    pool->threads_started = 0;
    pool->waking = false;
    pool->forking = false;
    tdl__cond_init(&pool->quiet);
}

static void fork_child(void)
{
    struct tdl_node orphans;
    tdl_node_init(&orphans);
    for (struct tdl_node *node = registry.pools.next; node != &registry.pools;) {
        struct tdl_pool *pool = TDL_CONTAINER_OF(node, struct tdl_pool, registered);
        node = node->next;
        unlock_delivers_locked(pool);
        start_anew_locked(pool, &orphans);
        pthread_mutex_unlock(&pool->lock);
        if (pool->closed) {
            tdl_node_remove(&pool->registered);
            registry.alive--;
            pthread_mutex_destroy(&pool->lock);
            tdl_free(pool);
        }
    }
    pthread_mutex_unlock(&registry.lock);
    tdl__pool_release_list(&orphans);
}

static void registry_init(void)
{
    tdl_node_init(&registry.pools);
    int rc = pthread_atfork(fork_prepare, fork_parent, fork_child);
    TDL_ASSERT(rc == 0);
}

void tdl__registry_add(struct tdl_pool *pool)
{
    pthread_once(&registry.once, registry_init);
    pthread_mutex_lock(&registry.lock);
    tdl_node_insert_before(&registry.pools, &pool->registered);
    registry.alive++;
    pthread_mutex_unlock(&registry.lock);
}

void tdl__registry_remove(struct tdl_pool *pool)
{
    pthread_mutex_lock(&registry.lock);
    tdl_node_remove(&pool->registered);
    registry.alive--;
    pthread_mutex_unlock(&registry.lock);
}

size_t tdl_pool_alive(void)
{
    pthread_mutex_lock(&registry.lock);
    size_t alive = registry.alive;
    pthread_mutex_unlock(&registry.lock);
    return alive;
}
