/* What the bottom libraries cost: base, wake and core, driven by a host on a wake. */
#include "common/bench.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "treadle/assert.h"
#include "treadle/clock.h"
#include "treadle/host.h"

static long spin_us;

static struct tdl_wake_options wake_options(void)
{
    return (struct tdl_wake_options){.spin_ns = (uint64_t)spin_us * 1000U};
}

/* Two threads throw one link to and fro. */

struct player {
    struct tdl_wake wake;
    struct tdl_inbox inbox;
    struct player *other;
    size_t rounds;
    int code;
};

static struct tdl_link *catch_link(struct player *p)
{
    struct tdl_link *link;
    while ((link = tdl_inbox_take(&p->inbox)) == NULL) {
        tdl_wake_park_begin(&p->wake); /* MO-1: announced before the inbox is looked at */
        if (tdl_inbox_is_empty(&p->inbox)) {
            p->code = tdl_wake_wait(&p->wake, UINT64_MAX);
        }
        (void)tdl_wake_park_end(&p->wake);
    }
    return link;
}

static void *play(void *arg)
{
    struct player *p = arg;
    for (size_t i = 0; i < p->rounds; i++) {
        (void)tdl_inbox_post(&p->other->inbox, catch_link(p));
    }
    return NULL;
}

static int take_pingpong(const struct tdl_bench *bench, struct tdl_sample *out)
{
    struct player here = {.rounds = tdl_bench_count(bench, 50000, 50)};
    struct player there = {.rounds = here.rounds, .other = &here};
    struct tdl_link ball = {0};
    pthread_t thread;
    const struct tdl_wake_options spin = wake_options();
    here.other = &there;
    int code = tdl_wake_open(&here.wake, &spin);
    if (code != 0) {
        return code;
    }
    code = tdl_wake_open(&there.wake, &spin);
    if (code != 0) {
        goto close_here;
    }
    tdl_inbox_init(&here.inbox, &here.wake, NULL);
    tdl_inbox_init(&there.inbox, &there.wake, NULL);
    struct tdl_bench_clock begin = tdl_bench_begin();
    code = -pthread_create(&thread, NULL, play, &there);
    if (code != 0) {
        goto close_there;
    }
    (void)tdl_inbox_post(&there.inbox, &ball);
    (void)play(&here);
    (void)pthread_join(thread, NULL);
    tdl_bench_end(&begin, (double)here.rounds, out);
    (void)tdl_inbox_close(&here.inbox);
    (void)tdl_inbox_close(&there.inbox);
close_there:
    tdl_wake_close(&there.wake);
close_here:
    tdl_wake_close(&here.wake);
    return code;
}

/* Producers post items that the owner runs. */

struct counted {
    struct tdl_item item;
    struct flood *flood;
    uint32_t number;
};

struct producer {
    struct flood *flood;
    struct counted *items;
    size_t count;
    pthread_t thread;
    uint32_t last;
};

struct flood {
    struct tdl_epoll_host host;
    size_t left;
    size_t until_stop;
    bool disordered;
    struct producer *producers;
};

static void run_counted(struct tdl_item *item)
{
    struct counted *counted = TDL_CONTAINER_OF(item, struct counted, item);
    struct flood *flood = counted->flood;
    struct producer *from = &flood->producers[item->link.user];
    if (counted->number != from->last + 1) {
        flood->disordered = true;
    }
    from->last = counted->number;
    if (--flood->left == 0 || --flood->until_stop == 0) {
        flood->until_stop = SIZE_MAX;
        tdl_sched_stop(&flood->host.sched);
    }
}

static void *produce(void *arg)
{
    struct producer *p = arg;
    for (size_t i = 0; i < p->count; i++) {
        (void)tdl_epoll_host_post(&p->flood->host, &p->items[i].item);
    }
    return NULL;
}

static bool prepare(struct flood *flood, size_t producers, size_t each)
{
    flood->producers = calloc(producers, sizeof *flood->producers);
    for (size_t p = 0; flood->producers != NULL && p < producers; p++) {
        struct producer *producer = &flood->producers[p];
        producer->flood = flood;
        producer->count = each;
        producer->items = calloc(each, sizeof *producer->items);
        if (producer->items == NULL) {
            return false;
        }
        for (size_t i = 0; i < each; i++) {
            struct counted *counted = &producer->items[i];
            tdl_item_init(&counted->item, run_counted);
            counted->item.link.user = (uint16_t)p;
            counted->flood = flood;
            counted->number = (uint32_t)i + 1;
        }
    }
    flood->left = producers * each;
    return flood->producers != NULL;
}

static void discard(struct flood *flood, size_t producers)
{
    for (size_t p = 0; flood->producers != NULL && p < producers; p++) {
        free(flood->producers[p].items);
    }
    free(flood->producers);
}

/* Runs the host until all items ran, with a restart after every `stride` of them (0: none). */
static int run_flood(struct flood *flood, size_t producers, size_t stride, struct tdl_sample *out)
{
    double all = (double)flood->left;
    size_t started = 0;
    int code = 0;
    struct tdl_bench_clock begin = tdl_bench_begin();
    for (; started < producers && code == 0; started++) {
        code = -pthread_create(&flood->producers[started].thread, NULL, produce, &flood->producers[started]);
    }
    /* Without all of its producers the count would never be reached. */
    TDL_ASSERT(code == 0);
    while (flood->left > 0) {
        flood->until_stop = stride == 0 ? SIZE_MAX : stride;
        tdl_epoll_host_run(&flood->host);
    }
    for (size_t p = 0; p < started; p++) {
        (void)pthread_join(flood->producers[p].thread, NULL);
    }
    tdl_bench_end(&begin, all, out);
    if (flood->disordered) {
        out->error = "items of one producer ran out of order";
    }
    return flood->disordered ? -EILSEQ : 0;
}

static int take_flood(size_t producers, size_t each, size_t stride, struct tdl_sample *out)
{
    struct flood flood = {.left = 0};
    const struct tdl_wake_options spin = wake_options();
    int code = tdl_epoll_host_open(&flood.host, &spin);
    if (code != 0) {
        return code;
    }
    code = prepare(&flood, producers, each) ? run_flood(&flood, producers, stride, out) : -ENOMEM;
    tdl_epoll_host_close(&flood.host);
    discard(&flood, producers);
    return code;
}

static int take_flood_1(const struct tdl_bench *bench, struct tdl_sample *out)
{
    return take_flood(1, tdl_bench_count(bench, 1000000, 1000), 0, out);
}

static int take_flood_4(const struct tdl_bench *bench, struct tdl_sample *out)
{
    return take_flood(4, tdl_bench_count(bench, 250000, 1000), 0, out);
}

static int take_flood_16(const struct tdl_bench *bench, struct tdl_sample *out)
{
    return take_flood(16, tdl_bench_count(bench, 62500, 500), 0, out);
}

static int take_restart(const struct tdl_bench *bench, struct tdl_sample *out)
{
    return take_flood(4, tdl_bench_count(bench, 100000, 500), 7, out);
}

/* One thread: a chain of turns, a burst in one turn. */

struct chain {
    struct tdl_item item;
    struct tdl_epoll_host host;
    size_t left;
};

static void run_link(struct tdl_item *item)
{
    struct chain *chain = TDL_CONTAINER_OF(item, struct chain, item);
    if (--chain->left > 0) {
        tdl_sched_push(&chain->host.sched, item);
    } else {
        tdl_sched_stop(&chain->host.sched);
    }
}

static int take_chain(const struct tdl_bench *bench, struct tdl_sample *out)
{
    struct chain chain = {.left = tdl_bench_count(bench, 5000000, 1000)};
    double all = (double)chain.left;
    int code = tdl_epoll_host_open(&chain.host, NULL);
    if (code != 0) {
        return code;
    }
    tdl_item_init(&chain.item, run_link);
    struct tdl_bench_clock begin = tdl_bench_begin();
    tdl_sched_push(&chain.host.sched, &chain.item);
    tdl_epoll_host_run(&chain.host);
    tdl_bench_end(&begin, all, out);
    tdl_epoll_host_close(&chain.host);
    return 0;
}

#define BURST 10000

static void run_nothing(struct tdl_item *item)
{
    (void)item;
}

static int take_burst(const struct tdl_bench *bench, struct tdl_sample *out)
{
    size_t rounds = tdl_bench_count(bench, 500, 1);
    struct tdl_epoll_host host;
    struct tdl_item *items = calloc(BURST, sizeof *items);
    int code = items == NULL ? -ENOMEM : tdl_epoll_host_open(&host, NULL);
    if (code != 0) {
        goto free_items;
    }
    for (size_t i = 0; i < BURST; i++) {
        tdl_item_init(&items[i], run_nothing);
    }
    struct tdl_bench_clock begin = tdl_bench_begin();
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < BURST; i++) {
            tdl_sched_push(&host.sched, &items[i]);
        }
        (void)tdl_turn(&host.sched, &host.host);
    }
    tdl_bench_end(&begin, (double)(rounds * BURST), out);
    tdl_epoll_host_close(&host);
free_items:
    free(items);
    return code;
}

/* Timers: armed and canceled among others, and those that expire. */

#define TIMERS 1000

static int take_timer_cancel(const struct tdl_bench *bench, struct tdl_sample *out)
{
    size_t rounds = tdl_bench_count(bench, 5000, 5);
    struct tdl_sched sched;
    struct tdl_timer *timers = calloc(TIMERS, sizeof *timers);
    if (timers == NULL) {
        return -ENOMEM;
    }
    tdl_sched_init(&sched);
    for (size_t i = 0; i < TIMERS; i++) {
        tdl_timer_init(&timers[i], run_nothing);
    }
    uint64_t deadline_ns = tdl_clock_ns();
    struct tdl_bench_clock begin = tdl_bench_begin();
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < TIMERS; i++) {
            TDL_ASSERT(tdl_timer_arm(&sched, &timers[i], deadline_ns++) == 0);
        }
        for (size_t i = 0; i < TIMERS; i++) {
            TDL_ASSERT(tdl_timer_disarm(&sched, &timers[i]));
        }
    }
    tdl_bench_end(&begin, (double)(rounds * TIMERS), out);
    free(timers);
    return 0;
}

struct alarm {
    struct tdl_timer timer;
    struct alarms *all;
};

struct alarms {
    struct tdl_epoll_host host;
    struct alarm one[TIMERS];
    size_t left;
    size_t early;
};

static void run_alarm(struct tdl_item *item)
{
    struct alarm *alarm = TDL_CONTAINER_OF(item, struct alarm, timer.item);
    struct alarms *all = alarm->all;
    if (tdl_clock_ns() < alarm->timer.deadline_ns) {
        all->early++;
    }
    if (--all->left == 0) {
        tdl_sched_stop(&all->host.sched);
    }
}

static void expire_all(struct alarms *all)
{
    uint64_t now_ns = tdl_clock_ns();
    all->left = TIMERS;
    for (size_t i = 0; i < TIMERS; i++) {
        uint64_t deadline_ns = now_ns + 1000000U * (1 + i % 5);
        TDL_ASSERT(tdl_timer_arm(&all->host.sched, &all->one[i].timer, deadline_ns) == 0);
    }
    tdl_epoll_host_run(&all->host);
}

static int take_timer_expire(const struct tdl_bench *bench, struct tdl_sample *out)
{
    size_t rounds = tdl_bench_count(bench, 50, 1);
    struct alarms *all = calloc(1, sizeof *all);
    int code = all == NULL ? -ENOMEM : tdl_epoll_host_open(&all->host, NULL);
    if (code != 0) {
        goto free_all;
    }
    for (size_t i = 0; i < TIMERS; i++) {
        tdl_timer_init(&all->one[i].timer, run_alarm);
        all->one[i].all = all;
    }
    struct tdl_bench_clock begin = tdl_bench_begin();
    for (size_t round = 0; round < rounds; round++) {
        expire_all(all);
    }
    tdl_bench_end(&begin, (double)(rounds * TIMERS), out);
    if (all->early > 0) {
        out->error = "a timer ran before its deadline";
        code = -EILSEQ;
    }
    tdl_epoll_host_close(&all->host);
free_all:
    free(all);
    return code;
}

static const struct tdl_bench_case cases[] = {
    {"wake_pingpong", "wake ping-pong between two threads", NULL, take_pingpong},
    {"inbox_flood_1", "inbox flood from 1 producer", NULL, take_flood_1},
    {"inbox_flood_4", "inbox flood from 4 producers", NULL, take_flood_4},
    {"inbox_flood_16", "inbox flood from 16 producers", NULL, take_flood_16},
    {"chain", "self-rescheduling chain, one turn each", NULL, take_chain},
    {"burst", "burst of 10,000 in one turn", NULL, take_burst},
    {"timer_cancel", "timer armed and canceled among 1,000", NULL, take_timer_cancel},
    {"timer_expire", "timer that expires", NULL, take_timer_expire},
    {"restart_order", "remote items over restarts, order checked", NULL, take_restart},
};

static const struct tdl_option options[] = {
    {.name = "spin-us",
     .help = "how long a wake watches its word before it sleeps, in the cases with threads",
     .unit = "us",
     .number = &spin_us,
     .low = 0,
     .high = 1000000},
};

int main(int argc, char **argv)
{
    struct tdl_bench bench = {
        .tool = "micro",
        .about = "what treadle's wake, inbox, scheduler and timers cost",
        .cases = cases,
        .case_count = sizeof cases / sizeof *cases,
        .options = options,
        .option_count = sizeof options / sizeof *options,
    };
    return tdl_bench_main(&bench, argc, argv);
}
