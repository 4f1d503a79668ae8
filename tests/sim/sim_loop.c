/* Goal: whatever mix of local and remote items, I/O, timers, cancels, interrupts, stops and restarts a
 * loop sees, it runs them in the order asyncio would. Method: a seed decides everything; a plain list that
 * is appended to the moment something becomes ready is the reference, which holds because the simulated
 * threads take turns.
 *
 * sim_loop [--seed N] [--runs N] [--steps N]: without --seed the seeds are 1, 2, ...; the seed is printed
 * first. */
#include "sim_host.h"

#include <string.h>

enum { ACTORS = 64, TIMERS = 32, REFERENCE = 4096 };

enum kind { LOCAL, REMOTE, IO, TIMER };

struct actor {
    struct tdl_timer timer; /* its item serves the other kinds too */
    enum kind kind;
    bool waiting;  /* pushed, posted, ready or armed */
    bool in_inbox; /* posted and perhaps not yet merged: the owner cannot cancel it */
    bool expired;  /* a timer that is due: in the reference */
    uint64_t armed;
};

struct entry {
    struct actor *actor;
    bool canceled;
};

static struct sim {
    struct sim_host host;
    struct actor actors[ACTORS];
    struct entry reference[REFERENCE];
    size_t first, last, generation; /* the reference's ready queue, and what is left of its generation */
    bool in_poll, taken, begun;     /* where in the turn it is: begun with the first item run or dropped */
    uint64_t random, armings, ran, steps;
} sim;

static uint32_t random_below(uint32_t limit)
{
    sim.random ^= sim.random << 13;
    sim.random ^= sim.random >> 7;
    sim.random ^= sim.random << 17;
    return (uint32_t)((sim.random >> 20) % limit);
}

static void reference_add(struct actor *actor)
{
    if (sim.last == REFERENCE) {
        sim.last -= sim.first;
        memmove(sim.reference, sim.reference + sim.first, sim.last * sizeof sim.reference[0]);
        sim.first = 0;
    }
    SIM_CHECK(sim.last < REFERENCE);
    sim.reference[sim.last].actor = actor;
    sim.reference[sim.last++].canceled = false;
}

/* The next of the reference must be this actor. */
static void reference_take(struct actor *actor, bool canceled)
{
    if (!sim.begun) {
        sim.begun = true;
        sim.generation = sim.last - sim.first;
    }
    SIM_CHECK(sim.first < sim.last && sim.generation > 0);
    struct entry *entry = &sim.reference[sim.first++];
    SIM_CHECK(entry->actor == actor);
    SIM_CHECK(entry->canceled == canceled);
    sim.generation--;
    actor->waiting = false;
    actor->expired = false;
}

static struct actor *idle_actor(void)
{
    struct actor *actor = &sim.actors[random_below(ACTORS)];
    return actor->waiting ? NULL : actor;
}

static void start(struct actor *actor, enum kind kind)
{
    actor->kind = kind;
    actor->waiting = true;
    if (kind != TIMER) {
        reference_add(actor);
    }
}

static void post_one(void)
{
    struct actor *actor = idle_actor();
    if (actor == NULL) {
        return;
    }
    start(actor, REMOTE);
    actor->in_inbox = true;
    SIM_CHECK(tdl_inbox_post(&sim.host.inbox, &actor->timer.item.link) == 0);
}

static void push_one(void)
{
    struct actor *actor = idle_actor();
    if (actor == NULL) {
        return;
    }
    start(actor, LOCAL);
    tdl_sched_push(&sim.host.sched, &actor->timer.item);
}

static void arm_one(void)
{
    struct actor *actor = &sim.actors[random_below(TIMERS)];
    bool moves = actor->waiting && actor->kind == TIMER && actor->timer.item.link.state == TDL_ITEM_ARMED;
    if (actor->waiting && !moves) {
        return;
    }
    start(actor, TIMER);
    actor->armed = ++sim.armings;
    SIM_CHECK(tdl_timer_arm(&sim.host.sched, &actor->timer, sim.host.now_ns + random_below(50)) == 0);
}

static void cancel_one(void)
{
    struct actor *actor = &sim.actors[random_below(ACTORS)];
    if (tdl_timer_disarm(&sim.host.sched, &actor->timer)) {
        SIM_CHECK(actor->kind == TIMER);
        actor->waiting = false;
        return;
    }
    if (!actor->waiting || actor->in_inbox || !tdl_sched_cancel(&sim.host.sched, &actor->timer.item)) {
        return;
    }
    for (size_t i = sim.first; i < sim.last; i++) {
        if (sim.reference[i].actor == actor) {
            sim.reference[i].canceled = true;
        }
    }
}

static void act(void)
{
    switch (random_below(12)) {
    case 0:
    case 1:
    case 2:
        push_one();
        break;
    case 3:
    case 4:
        post_one();
        break;
    case 5:
    case 6:
        arm_one();
        break;
    case 7:
        cancel_one();
        break;
    case 8:
        if (random_below(8) == 0) {
            tdl_sched_stop(&sim.host.sched);
        }
        break;
    case 9:
        if (random_below(4) == 0) {
            tdl_sched_interrupt(&sim.host.sched);
            sim.generation = 0;
        }
        break;
    default:
        break;
    }
}

static void run_actor(struct tdl_item *item)
{
    struct actor *self = TDL_CONTAINER_OF(item, struct actor, timer.item);
    reference_take(self, false);
    sim.ran++;
    for (uint32_t acts = random_below(4); acts > 0; acts--) {
        act();
    }
}

static void drop_actor(struct tdl_item *item)
{
    reference_take(TDL_CONTAINER_OF(item, struct actor, timer.item), true);
}

static void find_ready(struct sim_host *host)
{
    struct actor *actor = idle_actor();
    if (actor == NULL) {
        return;
    }
    start(actor, IO);
    tdl_queue_push(&host->io, &actor->timer.item.link);
}

/* What other threads post, what the poll finds, and time. */
static void others(struct sim_host *host, bool parked)
{
    for (uint32_t posts = random_below(3); posts > 0; posts--) {
        post_one();
    }
    host->now_ns += random_below(5);
    /* Something must end a park that has no timer. */
    if (parked && !tdl_sched_has_timers(&host->sched)) {
        while (tdl_inbox_is_empty(&host->inbox)) {
            post_one();
        }
    }
    /* As on asyncio, what is posted during the poll goes before what the poll found. */
    if (sim.in_poll) {
        for (uint32_t events = random_below(3); events > 0; events--) {
            find_ready(host);
        }
    }
}

static struct actor *next_due(void)
{
    struct actor *best = NULL;
    for (int i = 0; i < TIMERS; i++) {
        struct actor *actor = &sim.actors[i];
        if (actor->timer.item.link.state != TDL_ITEM_ARMED || actor->expired ||
            actor->timer.deadline_ns > sim.host.now_ns) {
            continue;
        }
        if (best == NULL || actor->timer.deadline_ns < best->timer.deadline_ns ||
            (actor->timer.deadline_ns == best->timer.deadline_ns && actor->armed < best->armed)) {
            best = actor;
        }
    }
    return best;
}

/* The turn's last look at the clock: what is due by it joins the reference. */
static uint64_t read_clock(struct tdl_host *host)
{
    if (sim.taken) {
        for (struct actor *due; (due = next_due()) != NULL;) {
            due->expired = true;
            reference_add(due);
        }
    }
    return sim_now_ns(host);
}

static struct tdl_link *take(struct tdl_host *host)
{
    /* Behind the I/O items, since those are queued by now. */
    if (random_below(4) == 0) {
        post_one();
    }
    for (int i = 0; i < ACTORS; i++) {
        sim.actors[i].in_inbox = false;
    }
    sim.taken = true;
    return sim_take(host);
}

static void before_poll(struct tdl_host *host)
{
    sim.in_poll = false;
    sim_before_poll(host);
    sim.in_poll = true;
}

static void turn(void)
{
    sim.taken = false;
    sim.begun = false;
    size_t ran = tdl_turn(&sim.host.sched, &sim.host.host);
    SIM_CHECK(sim.taken);
    SIM_CHECK(sim.begun ? sim.generation == 0 : sim.first == sim.last && ran == 0);
    SIM_CHECK(tdl_sched_check(&sim.host.sched));
}

static void drop_rest(struct tdl_item *item)
{
    TDL_CONTAINER_OF(item, struct actor, timer.item)->waiting = false;
}

static void simulate(uint64_t seed, uint64_t steps)
{
    memset(&sim, 0, sizeof sim);
    sim.random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    sim_open(&sim.host);
    sim.host.others = others;
    sim.host.host.now_ns = read_clock;
    sim.host.host.take = take;
    sim.host.host.before_poll = before_poll;
    sim.host.sched.drop = drop_actor;
    for (int i = 0; i < ACTORS; i++) {
        tdl_timer_init(&sim.actors[i].timer, run_actor);
    }
    /* Half of the seeds cross the wrap of the marks. */
    if (seed % 2 == 0) {
        tdl_store_relaxed_u32(&sim.host.sched.pushed, UINT32_MAX - random_below(100));
    }
    while (sim.steps++ < steps) {
        turn();
        if (tdl_sched_stopping(&sim.host.sched)) {
            tdl_sched_clear_stop(&sim.host.sched);
            for (uint32_t acts = random_below(5); acts > 0; acts--) {
                act();
            }
        }
    }
    tdl_sched_merge(&sim.host.sched, tdl_inbox_take(&sim.host.inbox));
    tdl_sched_drain(&sim.host.sched, drop_rest);
    for (int i = 0; i < ACTORS; i++) {
        SIM_CHECK(!sim.actors[i].waiting);
    }
    sim_close(&sim.host);
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, runs = 200, steps = 500;

    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seed") == 0) {
            seed = value;
            runs = 1;
        } else if (strcmp(argv[i], "--runs") == 0) {
            runs = value;
        } else if (strcmp(argv[i], "--steps") == 0) {
            steps = value;
        }
    }
    for (uint64_t run = 0; run < runs; run++) {
        fprintf(stderr, "seed %llu\n", (unsigned long long)(seed + run));
        simulate(seed + run, steps);
    }
    fprintf(stderr, "%llu items in the last run\n", (unsigned long long)sim.ran);
    return 0;
}
