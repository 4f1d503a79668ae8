/* Goal: remote items posted before a run, between two runs and while a run ends run in their producer's
 * order, once each, across restarts; and an item whose poster knew of a local push runs behind it (MO-4).
 * Method: a loop that stops and starts again all the time while producers post numbered items without a
 * pause. */
#include "stall.h"

#include "treadle/inbox.h"
#include "treadle/turn.h"

enum { PRODUCERS = 2, STOP_EVERY = 7 };

struct numbered {
    struct tdl_item item;
    uint32_t producer;
    uint64_t number;
    uint64_t told; /* local pushes the poster knew of */
};

struct loop {
    struct tdl_host host;
    struct tdl_sched sched;
    struct tdl_wake wake;
    struct tdl_inbox inbox;
};

static struct loop loop;
static struct numbered *items[PRODUCERS];
static uint64_t next_number[PRODUCERS];
static tdl_atomic_u64 progress, pushed_count;
static uint64_t each, ran_local;
static struct tdl_item local;

static void show(void)
{
    fprintf(stderr, "wake %u, owed %u, ready %zu, inbox %s\n", tdl_load_relaxed_u32(&loop.wake.state),
            loop.wake.owed, loop.sched.ready_count, tdl_inbox_is_empty(&loop.inbox) ? "empty" : "full");
}

static uint64_t host_now(struct tdl_host *host)
{
    (void)host;
    return 0;
}

static struct tdl_link *host_take(struct tdl_host *host)
{
    (void)host;
    return tdl_inbox_take(&loop.inbox);
}

static void host_before_poll(struct tdl_host *host)
{
    (void)host;
}

static void host_poll(struct tdl_host *host, uint64_t timeout_ns, struct tdl_queue *io)
{
    (void)host;
    (void)io;
    if (timeout_ns == 0) {
        return;
    }
    tdl_wake_park_begin(&loop.wake);
    if (tdl_inbox_is_empty(&loop.inbox)) {
        (void)tdl_wake_wait(&loop.wake, timeout_ns);
    }
    (void)tdl_wake_park_end(&loop.wake);
}

static void run_numbered(struct tdl_item *item)
{
    struct numbered *self = TDL_CONTAINER_OF(item, struct numbered, item);
    RACE_CHECK(self->number == next_number[self->producer]);
    next_number[self->producer]++;
    RACE_CHECK(self->told <= ran_local);
    (void)tdl_fetch_add_relaxed_u64(&progress, 1);
    if (self->number % STOP_EVERY == 0) {
        tdl_sched_stop(&loop.sched);
    }
    if (local.link.state == TDL_ITEM_IDLE) {
        tdl_sched_push(&loop.sched, &local);
        (void)tdl_fetch_add_acq_rel_u64(&pushed_count, 1);
    }
}

static void run_local(struct tdl_item *item)
{
    (void)item;
    ran_local++;
}

static void *produce(void *arg)
{
    struct numbered *mine = arg;
    for (uint64_t i = 0; i < each; i++) {
        mine[i].told = tdl_load_acquire_u64(&pushed_count);
        RACE_CHECK(tdl_inbox_post(&loop.inbox, &mine[i].item.link) == 0);
        if (i % 64 == 0) {
            (void)sched_yield();
        }
    }
    return NULL;
}

static void run_until_stopped(void)
{
    tdl_sched_clear_stop(&loop.sched);
    do {
        (void)tdl_turn(&loop.sched, &loop.host);
    } while (!tdl_sched_stopping(&loop.sched));
}

int main(void)
{
    struct stall stall;
    pthread_t threads[PRODUCERS];
    struct tdl_host host = {host_now, host_take, host_before_poll, host_poll};

    /* The last number of each producer is a multiple of STOP_EVERY, so that the last run ends. */
    each = race_count(100000) / PRODUCERS / STOP_EVERY * STOP_EVERY + 1;
    loop.host = host;
    tdl_sched_init(&loop.sched);
    RACE_CHECK(tdl_wake_open(&loop.wake, NULL) == 0);
    tdl_inbox_init(&loop.inbox, &loop.wake, tdl_sched_mark_source(&loop.sched));
    tdl_item_init(&local, run_local);
    for (uint32_t p = 0; p < PRODUCERS; p++) {
        items[p] = calloc(each, sizeof *items[p]);
        RACE_CHECK(items[p] != NULL);
        for (uint64_t i = 0; i < each; i++) {
            tdl_item_init(&items[p][i].item, run_numbered);
            items[p][i].producer = p;
            items[p][i].number = i;
        }
        RACE_CHECK(pthread_create(&threads[p], NULL, produce, items[p]) == 0);
    }
    stall_begin(&stall, &progress, show);
    while (tdl_load_relaxed_u64(&progress) < each * PRODUCERS) {
        run_until_stopped();
    }
    for (uint32_t p = 0; p < PRODUCERS; p++) {
        RACE_CHECK(pthread_join(threads[p], NULL) == 0);
        free(items[p]);
    }
    stall_end(&stall);
    RACE_CHECK(tdl_inbox_close(&loop.inbox) == NULL);
    tdl_wake_close(&loop.wake);
    return 0;
}
