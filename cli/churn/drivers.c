/* The threads that ask, and the turns of the loop that they ask. */
#include "churn.h"

#include <stdlib.h>

#include "treadle/assert.h"
#include "treadle/clock.h"

static void await_reply(struct driver *d)
{
    while (tdl_inbox_take(&d->inbox) == NULL) {
        tdl_wake_park_begin(&d->wake); /* MO-1: announced before the inbox is looked at */
        if (tdl_inbox_is_empty(&d->inbox)) {
            (void)tdl_wake_wait(&d->wake, UINT64_MAX);
        }
        (void)tdl_wake_park_end(&d->wake);
    }
}

static void think(struct driver *d)
{
    uint64_t until_ns = tdl_clock_ns() + (uint64_t)churn_options.think_us * 1000U;
    for (uint64_t now_ns; (now_ns = tdl_clock_ns()) < until_ns;) {
        tdl_wake_park_begin(&d->wake);
        (void)tdl_wake_wait(&d->wake, until_ns - now_ns);
        (void)tdl_wake_park_end(&d->wake);
    }
}

static void *drive(void *arg)
{
    struct driver *d = arg;
    for (size_t i = 0; i < d->count; i++) {
        for (long left = churn_options.queries; left > 0; left -= churn_options.per_checkout) {
            d->request.queries_left = left < churn_options.per_checkout ? left : churn_options.per_checkout;
            d->request.ends = left <= churn_options.per_checkout;
            (void)tdl_epoll_host_post(&d->churn->host, &d->request.item);
            await_reply(d);
        }
        if (churn_options.think_us > 0) {
            think(d);
        }
    }
    (void)tdl_epoll_host_post(&d->churn->host, &d->farewell);
    return NULL;
}

static void run_farewell(struct tdl_item *item)
{
    struct driver *d = TDL_CONTAINER_OF(item, struct driver, farewell);
    if (--d->churn->running == 0) {
        tdl_sched_stop(&d->churn->host.sched);
    }
}

int churn_open_drivers(struct churn *churn)
{
    churn->drivers = calloc((size_t)churn_options.threads, sizeof *churn->drivers);
    TDL_ASSERT(churn->drivers != NULL);
    for (long i = 0; i < churn_options.threads; i++) {
        struct driver *d = &churn->drivers[i];
        int code = tdl_wake_open(&d->wake, NULL);
        if (code != 0) {
            while (i-- > 0) {
                tdl_wake_close(&churn->drivers[i].wake);
            }
            free(churn->drivers);
            return code;
        }
        tdl_inbox_init(&d->inbox, &d->wake, NULL);
        tdl_item_init(&d->request.item, churn_run_request);
        tdl_item_init(&d->farewell, run_farewell);
        d->churn = churn;
        d->request.driver = d;
    }
    return 0;
}

void churn_close_drivers(struct churn *churn)
{
    for (long i = 0; i < churn_options.threads; i++) {
        (void)tdl_inbox_close(&churn->drivers[i].inbox);
        tdl_wake_close(&churn->drivers[i].wake);
    }
    free(churn->drivers);
}

/* Watches the wake as long as it spins; true when something was posted. */
static bool spin(struct tdl_epoll_host *h)
{
    tdl_wake_park_begin(&h->wake); /* MO-1: announced before the inbox is looked at */
    bool posted = !tdl_inbox_is_empty(&h->inbox) || tdl_wake_spin(&h->wake);
    (void)tdl_wake_park_end(&h->wake);
    return posted;
}

/* Works off what the turn scheduled and what is posted meanwhile, until both are quiet; only then is
 * polled. */
static void settle(struct tdl_epoll_host *h)
{
    while (!tdl_sched_stopping(&h->sched)) {
        struct tdl_link *posted = tdl_inbox_take(&h->inbox);
        if (posted != NULL) {
            tdl_sched_merge(&h->sched, posted);
        }
        if (!tdl_sched_has_ready(&h->sched) && (churn_options.spin_us == 0 || !spin(h))) {
            return;
        }
        (void)tdl_sched_freeze(&h->sched);
        (void)tdl_sched_run(&h->sched);
    }
}

void churn_run_turns(struct tdl_epoll_host *h)
{
    bool quiescent = churn_options.turn[0] == 'q';
    do {
        (void)tdl_turn(&h->sched, &h->host);
        if (quiescent) {
            settle(h);
        }
    } while (!tdl_sched_stopping(&h->sched));
    tdl_sched_clear_stop(&h->sched);
}

/* Lets each driver make `each` requests. */
void churn_run_drivers(struct churn *churn, size_t each)
{
    churn->running = churn_options.threads;
    for (long i = 0; i < churn_options.threads; i++) {
        churn->drivers[i].count = each;
        /* Without all of its drivers the count would never be reached. */
        TDL_ASSERT(pthread_create(&churn->drivers[i].thread, NULL, drive, &churn->drivers[i]) == 0);
    }
    churn_run_turns(&churn->host);
    for (long i = 0; i < churn_options.threads; i++) {
        (void)pthread_join(churn->drivers[i].thread, NULL);
    }
}
