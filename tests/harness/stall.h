/* Fails a test in which nothing moves: a thread watches a counter and ends the process when it stands still
 * for STALL_S seconds, after it has printed what the test shows of its state. Also how race tests are sized:
 * race_count() is the count given, or TDL_TEST_COUNT, divided by TDL_TEST_SCALE (sanitizer runs). */
#ifndef TREADLE_TEST_STALL_H
#define TREADLE_TEST_STALL_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "treadle/atomic.h"

#define STALL_S 5

struct stall {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
    const tdl_atomic_u64 *progress;
    void (*show)(void); /* prints the state words to stderr; may be NULL */
};

static inline void *stall_watch(void *arg)
{
    struct stall *stall = arg;
    uint64_t last = tdl_load_relaxed_u64(stall->progress);

    (void)pthread_mutex_lock(&stall->lock);
    while (!stall->done) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += STALL_S;
        while (!stall->done &&
               pthread_cond_clockwait(&stall->ended, &stall->lock, CLOCK_MONOTONIC, &until) == 0) {
        }
        uint64_t seen = tdl_load_relaxed_u64(stall->progress);
        if (!stall->done && seen == last) {
            fprintf(stderr, "stalled: no progress in %d s after %llu steps\n", STALL_S,
                    (unsigned long long)seen);
            if (stall->show != NULL) {
                stall->show();
            }
            _exit(1);
        }
        last = seen;
    }
    (void)pthread_mutex_unlock(&stall->lock);
    return NULL;
}

static inline void stall_begin(struct stall *stall, const tdl_atomic_u64 *progress, void (*show)(void))
{
    (void)pthread_mutex_init(&stall->lock, NULL);
    (void)pthread_cond_init(&stall->ended, NULL);
    stall->done = false;
    stall->progress = progress;
    stall->show = show;
    if (pthread_create(&stall->thread, NULL, stall_watch, stall) != 0) {
        abort();
    }
}

static inline void stall_end(struct stall *stall)
{
    (void)pthread_mutex_lock(&stall->lock);
    stall->done = true;
    (void)pthread_cond_signal(&stall->ended);
    (void)pthread_mutex_unlock(&stall->lock);
    (void)pthread_join(stall->thread, NULL);
}

static inline uint64_t race_count(uint64_t count)
{
    const char *given = getenv("TDL_TEST_COUNT");
    const char *scale = getenv("TDL_TEST_SCALE");
    uint64_t divisor = scale != NULL ? strtoull(scale, NULL, 10) : 1;

    if (given != NULL) {
        count = strtoull(given, NULL, 10);
    }
    return divisor > 1 && count > divisor ? count / divisor : count;
}

/* Ends the test with a message unless the condition holds; for any thread, unlike check's assertions. */
#define RACE_CHECK(condition)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

#endif
