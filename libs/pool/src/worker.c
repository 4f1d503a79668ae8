#include "pool_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "treadle/alloc.h"
#include "treadle/assert.h"
#include "treadle/clock.h"
#include "treadle/failpoint.h"
#include "treadle/inbox.h"
#include "treadle/status.h"

/* Reading the clock costs about as much as this many looks. */
#define LOOKS_PER_CLOCK 32

/* The idle thread that is quickest to come. */
static struct tdl__worker *choose_locked(struct tdl_pool *pool)
{
    if (pool->lingering != NULL && tdl_node_is_linked(&pool->lingering->idle)) {
        return pool->lingering;
    }
    return TDL_CONTAINER_OF(pool->idle.next, struct tdl__worker, idle);
}

static void call_locked(struct tdl__worker *worker)
{
    tdl_node_remove(&worker->idle);
    worker->pool->idle_count--;
    tdl_store_release_u32(&worker->woken, true);
}

/* Chooses who looks at the queue next. One thread at a time is on its way; once there it takes a job and
 * calls this again, so a burst costs its submitter one wake and starts no thread that the jobs don't need. */
struct tdl__wakeup tdl__workers_dispatch_locked(struct tdl_pool *pool)
{
    struct tdl__wakeup wakeup = {NULL, false};
    if (pool->waking || pool->forking || !tdl__slots_runnable_locked(pool)) {
        return wakeup;
    }
    if (tdl_node_is_linked(&pool->idle)) {
        struct tdl__worker *worker = choose_locked(pool);
        call_locked(worker);
        wakeup.signal = worker != pool->lingering ? worker : NULL;
        pool->waking = true;
    } else if (pool->threads < pool->thread_limit) {
        wakeup.start = true;
        pool->waking = true;
    }
    return wakeup;
}

void tdl__workers_wake_all_locked(struct tdl_pool *pool)
{
    while (tdl_node_is_linked(&pool->idle)) {
        struct tdl__worker *worker = TDL_CONTAINER_OF(pool->idle.next, struct tdl__worker, idle);
        call_locked(worker);
        pthread_cond_signal(&worker->wake);
    }
}

/* Watches for a call instead of sleeping: a hand-over between two running threads costs neither of them a
 * system call. */
static void linger_locked(struct tdl__worker *worker)
{
    struct tdl_pool *pool = worker->pool;
    uint64_t until_ns = tdl_clock_ns() + pool->linger_ns;
    pool->lingering = worker;
    pthread_mutex_unlock(&pool->lock);
    do {
        for (int i = 0; i < LOOKS_PER_CLOCK && !tdl_load_acquire_u32(&worker->woken); i++) {
            tdl_cpu_pause();
        }
    } while (!tdl_load_acquire_u32(&worker->woken) && tdl_clock_ns() < until_ns);
    pthread_mutex_lock(&pool->lock);
    pool->lingering = NULL;
    tdl_patience_tell(&pool->patience, tdl_load_relaxed_u32(&worker->woken));
}

/* Waits for a job; false when the thread should leave. */
static bool wait_for_job_locked(struct tdl__worker *worker)
{
    struct tdl_pool *pool = worker->pool;
    if (pool->closed) {
        return false;
    }
    uint64_t until_ns = tdl_clock_ns() + pool->idle_ns;
    struct timespec until = tdl_clock_timespec(until_ns);
    tdl_store_relaxed_u32(&worker->woken, false);
    tdl_node_insert_before(pool->idle.next, &worker->idle);
    pool->idle_count++;
    if (pool->linger_ns != 0 && pool->lingering == NULL && tdl_patience_watches(&pool->patience)) {
        linger_locked(worker);
    }
    int rc = 0;
    while (!tdl_load_relaxed_u32(&worker->woken) && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&worker->wake, &pool->lock, &until);
    }
    if (tdl_load_relaxed_u32(&worker->woken)) {
        pool->waking = false;
        return true;
    }
    tdl_node_remove(&worker->idle);
    pool->idle_count--;
    return false;
}

/* Makes the call, unless the owner took the job back, and hands the result to whoever it belongs to. */
static void perform(struct tdl__worker *worker, struct tdl_job *job)
{
    bool deliver = false;
    bool started = tdl__job_start(job);
    if (started) {
        job->work(job);
    }
    /* The lock tells a closing owner that no post is in flight; after the post the job is the owner's. */
    pthread_mutex_lock(&worker->deliver);
    if (started) {
        deliver = tdl__job_finish(job) && tdl_inbox_post(job->inbox, job->done) == 0;
    }
    worker->job = NULL;
    pthread_mutex_unlock(&worker->deliver);
    if (!deliver) {
        job->release(job);
    }
}

static void leave_locked(struct tdl__worker *worker)
{
    struct tdl_pool *pool = worker->pool;
    tdl_node_remove(&worker->all);
    tdl_node_insert_before(&pool->spare, &worker->all);
    pool->threads--;
    bool last = pool->closed && pool->threads == 0;
    pthread_mutex_unlock(&pool->lock);
    if (last) {
        tdl__pool_free(pool);
    }
}

static void *worker_main(void *arg)
{
    struct tdl__worker *worker = arg;
    struct tdl_pool *pool = worker->pool;
    char name[16];
    (void)snprintf(name, sizeof name, "%s-%u", pool->name, worker->number % 1000u);
    (void)pthread_setname_np(pthread_self(), name);
    pthread_mutex_lock(&pool->lock);
    pool->waking = false;
    for (;;) {
        struct tdl_job *job = pool->forking ? NULL : tdl__slots_take_locked(pool);
        if (job == NULL) {
            if (wait_for_job_locked(worker)) {
                continue;
            }
            break;
        }
        uint32_t job_class = job->job_class;
        worker->job = job;
        worker->started_ns = tdl_clock_ns();
        struct tdl__wakeup wakeup = tdl__workers_dispatch_locked(pool);
        pthread_mutex_unlock(&pool->lock);
        tdl__workers_wake(pool, wakeup);
        perform(worker, job);
        pthread_mutex_lock(&pool->lock);
        worker->started_ns = 0;
        tdl__slots_give_locked(pool, job_class);
        if (pool->forking) {
            pthread_cond_signal(&pool->quiet);
        }
    }
    leave_locked(worker);
    return NULL;
}

static struct tdl__worker *worker_get_locked(struct tdl_pool *pool)
{
    struct tdl__worker *worker;
    if (tdl_node_is_linked(&pool->spare)) {
        worker = TDL_CONTAINER_OF(pool->spare.next, struct tdl__worker, all);
        tdl_node_remove(&worker->all);
    } else {
        worker = tdl_calloc(1, sizeof *worker);
        if (worker == NULL) {
            return NULL;
        }
        tdl__cond_init(&worker->wake);
        pthread_mutex_init(&worker->deliver, NULL);
        tdl_node_init(&worker->all);
        tdl_node_init(&worker->idle);
        worker->pool = pool;
    }
    tdl_store_relaxed_u32(&worker->woken, false);
    worker->job = NULL;
    return worker;
}

/* Signals are blocked around the start, so that the thread never runs a handler of the process. */
static int create_thread(struct tdl_pool *pool, struct tdl__worker *worker)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    if (TDL_FAIL(TDL_FAIL_THREAD)) {
        return EAGAIN;
    }
    if (pthread_attr_init(&attr) != 0) {
        return ENOMEM;
    }
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pool->stack_bytes != 0) {
        pthread_attr_setstacksize(&attr, pool->stack_bytes);
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, &attr, worker_main, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

int tdl__workers_start_locked(struct tdl_pool *pool)
{
    struct tdl__worker *worker = worker_get_locked(pool);
    if (worker == NULL) {
        pool->waking = false;
        return TDL_ENOMEM;
    }
    worker->number = pool->threads_started++;
    tdl_node_insert_before(&pool->workers, &worker->all);
    pool->threads++;
    int rc = create_thread(pool, worker);
    if (rc != 0) {
        tdl_node_remove(&worker->all);
        tdl_node_insert_before(&pool->spare, &worker->all);
        pool->threads--;
        pool->threads_started--;
        pool->waking = false;
        return TDL_EAGAIN;
    }
    return 0;
}

void tdl__workers_wake(struct tdl_pool *pool, struct tdl__wakeup wakeup)
{
    if (wakeup.signal != NULL) {
        pthread_cond_signal(&wakeup.signal->wake);
    }
    if (wakeup.start) {
        pthread_mutex_lock(&pool->lock);
        /* A failed start is tried again by the next thread that ends a job. */
        if (pool->closed || pool->threads >= pool->thread_limit) {
            pool->waking = false;
        } else {
            (void)tdl__workers_start_locked(pool);
        }
        pthread_mutex_unlock(&pool->lock);
    }
}
