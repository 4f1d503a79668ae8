#include "retire.h"

#include "../internal.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The grace periods of several contexts pass at the same time. */
#define THREADS_MAX 4u

/* Stays in the list until it is destroyed, so that a process that ends meanwhile has lost nothing. */
struct retired {
    struct retired *next;
    unsigned long context;
    bool taken; /* by a thread */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t destroyed;
    struct retired *first;
    unsigned threads;
} retirement = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0};

static pthread_once_t watches_forks = PTHREAD_ONCE_INIT;

static void destroy(unsigned long context)
{
    (void)syscall(SYS_io_destroy, context);
}

static struct retired *take_locked(void)
{
    struct retired *one = retirement.first;
    while (one != NULL && one->taken) {
        one = one->next;
    }
    if (one != NULL) {
        one->taken = true;
    }
    return one;
}

static void forget_locked(struct retired *one)
{
    struct retired **at = &retirement.first;
    while (*at != one) {
        at = &(*at)->next;
    }
    *at = one->next;
    tdl_free(one);
}

static void *destroy_all(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&retirement.lock);
    for (struct retired *one; (one = take_locked()) != NULL;) {
        pthread_mutex_unlock(&retirement.lock);
        destroy(one->context);
        pthread_mutex_lock(&retirement.lock);
        forget_locked(one);
        pthread_cond_broadcast(&retirement.destroyed);
    }
    retirement.threads--;
    pthread_cond_broadcast(&retirement.destroyed);
    pthread_mutex_unlock(&retirement.lock);
    return NULL;
}

static void before_fork(void)
{
    pthread_mutex_lock(&retirement.lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&retirement.lock);
}

/* The threads are the parent's and so are the contexts, which a child does not have. */
static void after_fork_in_child(void)
{
    pthread_cond_init(&retirement.destroyed, NULL);
    while (retirement.first != NULL) {
        forget_locked(retirement.first);
    }
    retirement.threads = 0;
    pthread_mutex_unlock(&retirement.lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* Signals are for the threads of the program. */
static int start_thread(void)
{
    sigset_t all, before;
    pthread_attr_t detached;
    pthread_t thread;
    sigfillset(&all);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = TDL_FAIL(TDL_FAIL_THREAD) ? EAGAIN : pthread_create(&thread, &detached, destroy_all, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return rc;
}

static void push_locked(struct retired *one)
{
    one->next = retirement.first;
    retirement.first = one;
}

void tdl__aio_retire(unsigned long context)
{
    struct retired *one = (struct retired *)tdl_malloc(sizeof *one);
    if (one == NULL) {
        destroy(context);
        return;
    }
    one->context = context;
    one->taken = false;
    pthread_once(&watches_forks, watch_forks);
    pthread_mutex_lock(&retirement.lock);
    push_locked(one);
    bool alone = false;
    if (retirement.threads < THREADS_MAX) {
        retirement.threads++;
        if (start_thread() != 0) {
            retirement.threads--;
            alone = retirement.threads == 0;
            if (alone) {
                retirement.first = one->next;
            }
        }
    }
    pthread_mutex_unlock(&retirement.lock);
    if (alone) {
        destroy(context);
        tdl_free(one);
    }
}

bool tdl__aio_wait_for_room(void)
{
    pthread_once(&watches_forks, watch_forks);
    pthread_mutex_lock(&retirement.lock);
    bool waits = retirement.threads > 0;
    if (waits) {
        pthread_cond_wait(&retirement.destroyed, &retirement.lock);
    }
    pthread_mutex_unlock(&retirement.lock);
    return waits;
}
