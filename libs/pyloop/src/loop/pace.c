/* Producers that never pause. Threads that call call_soon_threadsafe() in a loop keep the GIL from the loop
 * that works off what they post: of five threads that want it the loop gets a fifth, so its queue grows
 * without an end and all its timers are late. A producer that has posted more since the last poll than the
 * loop runs in a moment waits for the next poll, without the GIL. Nothing is refused or dropped, and nobody
 * waits for a loop that makes no progress: it may wait for what the producer holds. */
#include "loop/loop.h"

#include "treadle/clock.h"

enum {
    TDL_PACE_MIN = 4,
    TDL_PACE_FIRST = 32,                  /* before a generation was measured */
    TDL_PACE_MAX = 32 * 1024,             /* about what one thread posts between two switches of the GIL */
    TDL_PACE_MEASURE_MIN = TDL_PACE_MIN,  /* posts that make a generation worth a look at the clock */
    TDL_PACE_RUN_NS = 5 * 1000 * 1000,    /* how long a generation of posts may run */
    TDL_PACE_SLICE_NS = 10 * 1000 * 1000, /* the time in which a loop that makes progress runs something */
    TDL_PACE_SLICES = 10,
    TDL_PACE_ITEMS = 3, /* that one post leads to at most, itself included */
};

void tdl__pace_open(struct tdl_pace *p)
{
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->polled, &attr);
    (void)pthread_condattr_destroy(&attr);
    p->limit = TDL_PACE_FIRST;
    p->posts = 0;
    p->grant = 0;
    p->waiting = 0;
}

void tdl__pace_close(struct tdl_pace *p)
{
    (void)pthread_cond_destroy(&p->polled);
    (void)pthread_mutex_destroy(&p->lock);
}

/* Wait for the next poll, without the GIL, or for a slice of time. */
static void wait_slice(struct tdl_pace *p, uint32_t polls)
{
    struct timespec end = tdl_clock_timespec(tdl_clock_ns() + TDL_PACE_SLICE_NS);
    PyThreadState *save = PyEval_SaveThread();
    pthread_mutex_lock(&p->lock);
    int code = 0;
    while (p->polls == polls && code == 0) {
        code = pthread_cond_timedwait(&p->polled, &p->lock, &end);
    }
    pthread_mutex_unlock(&p->lock);
    PyEval_RestoreThread(save);
}

/* What changes whenever the loop runs something. */
static uint64_t progress(const TdlLoop *loop)
{
    return (loop->turns << 32) ^ loop->sched.frozen;
}

/* The loop stands, perhaps for long: each time that it is found so, twice as many may be posted before it is
 * looked at again. */
static void grant(struct tdl_pace *p, uint64_t stands)
{
    bool again = p->grant > 0 && p->stood == stands;
    p->grant = again ? p->grant * 2 : p->limit / 8 + 1;
    p->grant = p->grant < TDL_PACE_MAX ? p->grant : TDL_PACE_MAX;
    p->stood = stands;
    p->posts = p->limit - p->grant;
}

/* Whether this thread runs a loop itself: that one must not wait, and least of all for one that waits for
 * it. */
static bool runs_a_loop(TdlLoop *loop)
{
    PyObject *running = PyObject_CallMethod(loop->state->support, "running_loop", NULL);
    bool runs = running != Py_None;
    if (running == NULL) {
        PyErr_WriteUnraisable((PyObject *)loop);
    }
    Py_XDECREF(running);
    return runs;
}

void tdl__pace_producer(TdlLoop *loop)
{
    struct tdl_pace *p = &loop->pace;
    if (!loop->turning || PyThread_get_thread_ident() == loop->run_thread || tdl__uv_forked(&loop->poller)) {
        return;
    }
    if (runs_a_loop(loop)) {
        p->posts = p->limit / 2; /* look again after some more */
        return;
    }
    Py_INCREF(loop);           /* whoever calls may lose it without the GIL */
    uint32_t polls = p->polls; /* written with the GIL */
    p->waiting++;
    for (int i = 0; i < TDL_PACE_SLICES && loop->turning && p->polls == polls; i++) {
        uint64_t before = progress(loop);
        wait_slice(p, polls);
        if (progress(loop) == before) {
            grant(p, before);
            break;
        }
    }
    p->waiting--;
    Py_DECREF(loop);
}

/* All that was posted runs in the generation that comes: let the producers go on. */
void tdl__pace_polled(TdlLoop *loop)
{
    struct tdl_pace *p = &loop->pace;
    p->measured = p->posts >= TDL_PACE_MEASURE_MIN ? (uint32_t)p->posts : 0;
    p->generation = loop->sched.ready_count;
    p->posts = 0;
    if (p->waiting > 0) {
        pthread_mutex_lock(&p->lock);
        p->polls++;
        pthread_cond_broadcast(&p->polled);
        pthread_mutex_unlock(&p->lock);
    }
    if (p->measured > 0) {
        p->begin_ns = tdl__clock_ns();
    }
}

/* The most that the next limit may be. It grows by steps, since what posts lead to shows two generations
 * later, and only while it is used; what is not used shrinks, since the next flood need not be one of
 * callbacks as short. */
static int32_t room(const struct tdl_pace *p)
{
    if ((int64_t)p->measured * 2 < p->limit) {
        int32_t less = p->limit - p->limit / 8;
        return less > TDL_PACE_FIRST ? less : TDL_PACE_FIRST;
    }
    int32_t more = p->limit + p->limit / 2;
    return more < TDL_PACE_MAX ? more : TDL_PACE_MAX;
}

/* The generation is over: learn from it how many posts the next one may have. What posts lead to is theirs,
 * too: a coroutine has its callback, its step and its result in one generation each. Of a generation that has
 * more than that, the rest is not. */
void tdl__pace_ran(TdlLoop *loop)
{
    struct tdl_pace *p = &loop->pace;
    uint64_t spent_ns = tdl__clock_ns() - p->begin_ns;
    uint64_t shares = (uint64_t)p->measured * TDL_PACE_ITEMS;
    uint64_t items = p->generation < shares ? shares : p->generation;
    uint64_t each_ns = spent_ns * TDL_PACE_ITEMS / items + 1;
    uint64_t limit = TDL_PACE_RUN_NS / each_ns;
    int32_t most = room(p);
    limit = limit < (uint64_t)most ? limit : (uint64_t)most;
    p->limit = limit < TDL_PACE_MIN ? TDL_PACE_MIN : (int32_t)limit;
    p->measured = 0;
}
