/* An inbox with its wake and a waiting owner, and jobs that stay inside work until their gate is opened. */
#ifndef TREADLE_TESTS_POST_BOX_H
#define TREADLE_TESTS_POST_BOX_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "treadle/assert.h"
#include "treadle/inbox.h"
#include "treadle/pool.h"
#include "treadle/wake.h"

struct post_box {
    struct tdl_wake wake;
    struct tdl_inbox inbox;
    struct tdl_link *taken;
};

static inline void post_box_open(struct post_box *box)
{
    TDL_ASSERT(tdl_wake_open(&box->wake, NULL) == 0);
    tdl_inbox_init(&box->inbox, &box->wake, NULL);
    box->taken = NULL;
}

static inline void post_box_close(struct post_box *box)
{
    (void)tdl_inbox_close(&box->inbox);
    tdl_wake_close(&box->wake);
}

/* The next link, or NULL if nothing is there now. */
static inline struct tdl_link *post_box_poll(struct post_box *box)
{
    if (box->taken == NULL) {
        box->taken = tdl_inbox_take(&box->inbox);
    }
    struct tdl_link *link = box->taken;
    if (link != NULL) {
        box->taken = link->next;
    }
    return link;
}

/* The next link; sleeps until there is one. */
static inline struct tdl_link *post_box_wait(struct post_box *box)
{
    for (;;) {
        struct tdl_link *link = post_box_poll(box);
        if (link != NULL) {
            return link;
        }
        tdl_wake_park_begin(&box->wake);
        if (tdl_inbox_is_empty(&box->inbox)) {
            (void)tdl_wake_wait(&box->wake, UINT64_MAX);
        }
        (void)tdl_wake_park_end(&box->wake);
    }
}

/* What many jobs wait for inside work, and what they report. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_open;
    unsigned inside;
    unsigned inside_most;
    unsigned worked;
    unsigned released;
    pthread_t released_on;
};

static inline void gate_init(struct gate *gate, bool is_open)
{
    *gate = (struct gate){.is_open = is_open};
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
}

static inline void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->is_open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

static inline void gate_wait_inside(struct gate *gate, unsigned count)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->inside < count) {
        pthread_cond_wait(&gate->changed, &gate->lock);
    }
    pthread_mutex_unlock(&gate->lock);
}

static inline void gate_wait_released(struct gate *gate, unsigned count)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->released < count) {
        pthread_cond_wait(&gate->changed, &gate->lock);
    }
    pthread_mutex_unlock(&gate->lock);
}

static inline unsigned gate_worked(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    unsigned worked = gate->worked;
    pthread_mutex_unlock(&gate->lock);
    return worked;
}

struct gated_job {
    struct tdl_job job;
    struct tdl_link done;
    struct gate *gate;
    unsigned number;
    unsigned order; /* which of all to start, from 1 */
};

static inline void gated_job_work(struct tdl_job *job)
{
    struct gated_job *gated = TDL_CONTAINER_OF(job, struct gated_job, job);
    struct gate *gate = gated->gate;
    pthread_mutex_lock(&gate->lock);
    gated->order = ++gate->worked;
    if (++gate->inside > gate->inside_most) {
        gate->inside_most = gate->inside;
    }
    pthread_cond_broadcast(&gate->changed);
    while (!gate->is_open) {
        pthread_cond_wait(&gate->changed, &gate->lock);
    }
    gate->inside--;
    pthread_mutex_unlock(&gate->lock);
}

static inline void gated_job_release(struct tdl_job *job)
{
    struct gated_job *gated = TDL_CONTAINER_OF(job, struct gated_job, job);
    struct gate *gate = gated->gate;
    free(gated);
    pthread_mutex_lock(&gate->lock);
    gate->released++;
    gate->released_on = pthread_self();
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

static inline struct gated_job *gated_job_new(struct gate *gate, unsigned number)
{
    struct gated_job *gated = calloc(1, sizeof *gated);
    TDL_ASSERT(gated != NULL);
    tdl_job_init(&gated->job, gated_job_work, gated_job_release);
    gated->gate = gate;
    gated->number = number;
    return gated;
}

static inline struct gated_job *gated_job_of(struct tdl_link *done)
{
    return TDL_CONTAINER_OF(done, struct gated_job, done);
}

static inline struct tdl_pool *pool_of(uint32_t first, uint32_t second)
{
    const uint32_t slots[] = {first, second};
    struct tdl_pool_options options = {.slots = slots, .classes = second > 0 ? 2u : 1u};
    struct tdl_pool *pool = NULL;
    TDL_ASSERT(tdl_pool_open(&pool, &options) == 0);
    return pool;
}

/* Every test ends with no pool left; the last worker frees it a moment after it was let go. */
static inline void wait_no_pool_alive(void)
{
    while (tdl_pool_alive() != 0) {
        sched_yield();
    }
}

#endif
