/* A host on core and wake whose clock is a number and whose other threads are a hook: whoever embeds it
 * decides what is posted while the loop polls. Waiting costs no time; the clock jumps to the deadline. */
#ifndef TREADLE_TEST_SIM_HOST_H
#define TREADLE_TEST_SIM_HOST_H

#include <stdio.h>
#include <stdlib.h>

#include "treadle/inbox.h"
#include "treadle/status.h"
#include "treadle/turn.h"

struct sim_host {
    struct tdl_host host;
    struct tdl_sched sched;
    struct tdl_wake wake;
    struct tdl_inbox inbox;
    uint64_t now_ns;
    struct tdl_queue io;                                /* what the next poll finds ready */
    void (*others)(struct sim_host *self, bool parked); /* other threads' time to act; may be NULL */
};

#define SIM_CHECK(condition)                                                                                 \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static inline struct sim_host *sim_host_of(struct tdl_host *host)
{
    return TDL_CONTAINER_OF(host, struct sim_host, host);
}

static inline uint64_t sim_now_ns(struct tdl_host *host)
{
    return sim_host_of(host)->now_ns;
}

static inline struct tdl_link *sim_take(struct tdl_host *host)
{
    return tdl_inbox_take(&sim_host_of(host)->inbox);
}

static inline void sim_before_poll(struct tdl_host *host)
{
    struct sim_host *self = sim_host_of(host);
    if (self->others != NULL) {
        self->others(self, false);
    }
}

static inline void sim_poll(struct tdl_host *host, uint64_t timeout_ns, struct tdl_queue *io)
{
    struct sim_host *self = sim_host_of(host);

    if (timeout_ns > 0 && tdl_queue_is_empty(&self->io)) {
        if (!tdl_inbox_is_empty(&self->inbox)) {
            return;
        }
        tdl_wake_park_begin(&self->wake);
        if (self->others != NULL) {
            self->others(self, true);
        }
        bool posted = !tdl_inbox_is_empty(&self->inbox), ready = !tdl_queue_is_empty(&self->io);
        SIM_CHECK(tdl_wake_wait(&self->wake, 0) == (posted ? TDL_OK : TDL_ETIMEDOUT));
        /* For ever with nobody to wake it would be a hang. */
        SIM_CHECK(posted || ready || timeout_ns != UINT64_MAX);
        SIM_CHECK(tdl_wake_park_end(&self->wake) == posted);
        SIM_CHECK(self->wake.owed == 0);
        if (!posted && !ready) {
            self->now_ns += timeout_ns;
        }
    } else if (self->others != NULL) {
        self->others(self, false);
    }
    tdl_queue_splice(io, &self->io);
}

static inline void sim_open(struct sim_host *self)
{
    struct tdl_host host = {sim_now_ns, sim_take, sim_before_poll, sim_poll};

    self->host = host;
    self->now_ns = 1000;
    self->others = NULL;
    tdl_queue_init(&self->io);
    tdl_sched_init(&self->sched);
    SIM_CHECK(tdl_wake_open(&self->wake, NULL) == 0);
    tdl_inbox_init(&self->inbox, &self->wake, tdl_sched_mark_source(&self->sched));
}

static inline void sim_close(struct sim_host *self)
{
    SIM_CHECK(tdl_inbox_close(&self->inbox) == NULL);
    tdl_wake_close(&self->wake);
}

static inline void sim_run_until_stopped(struct sim_host *self)
{
    tdl_sched_clear_stop(&self->sched);
    do {
        (void)tdl_turn(&self->sched, &self->host);
    } while (!tdl_sched_stopping(&self->sched));
}

#endif
