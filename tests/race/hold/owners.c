/* Goal: several owners and the thread lose no byte, send none twice and keep each connection's order,
 * whoever sends; a wake of the sleeping thread is never lost. Method: each owner writes numbers to its own
 * socket pair in steps that end at once, or wait for the bytes to arrive, or go on for up to three
 * milliseconds; another thread opens, closes and flushes all. */
#include "stall.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "treadle/clock.h"
#include "treadle/hold.h"

enum { OWNERS = 3, CONNECTIONS = 2 };

struct connection {
    int ours, theirs;
    uint32_t written, arrived;
    struct tdl_held *held;
};

struct owner {
    pthread_t thread;
    struct tdl_hold hold;
    struct connection connections[CONNECTIONS];
    uint64_t steps;
};

static struct owner owners[OWNERS];
static tdl_atomic_u64 progress;
static tdl_atomic_u32 done;
static uint64_t each;

/* Nobody but one side sends at a time, so what arrives is in order. */
static void read_some(struct connection *c, bool wait)
{
    uint32_t numbers[64];
    struct pollfd readable = {c->theirs, POLLIN, 0};
    if (wait) {
        RACE_CHECK(poll(&readable, 1, -1) == 1);
    }
    ssize_t n = recv(c->theirs, numbers, sizeof numbers, MSG_DONTWAIT);
    RACE_CHECK(n >= 0 || errno == EAGAIN);
    RACE_CHECK(n < 0 || n % (ssize_t)sizeof numbers[0] == 0);
    for (ssize_t i = 0; i < n / (ssize_t)sizeof numbers[0]; i++) {
        RACE_CHECK(numbers[i] == c->arrived++);
    }
}

static void send_now(struct connection *c, const void *data, size_t len)
{
    RACE_CHECK(send(c->ours, data, len, MSG_NOSIGNAL) == (ssize_t)len);
}

static void let_go(struct owner *o, struct connection *c)
{
    struct tdl_held *held = c->held;
    c->held = NULL;
    tdl_hold_take(&o->hold, held);
    RACE_CHECK(held->error == 0);
    if (held->sent < held->len) {
        send_now(c, held->data + held->sent, held->len - held->sent);
    }
    tdl_hold_end(&o->hold, held);
}

static void write_number(struct owner *o, struct connection *c)
{
    uint32_t number = c->written++;
    if (c->held == NULL) {
        const int *ours = c->written % 2 == 0 ? &c->ours : NULL;
        c->held = tdl_hold_begin(&o->hold, c->ours, ours, &number, sizeof number);
        if (c->held != NULL) {
            c->held->owner = c;
            return;
        }
    }
    if (c->held != NULL && tdl_held_append(&o->hold, c->held, &number, sizeof number) == 0) {
        return;
    }
    if (c->held != NULL) {
        let_go(o, c);
    }
    send_now(c, &number, sizeof number);
}

static void go_on(uint64_t ns)
{
    uint64_t end = tdl_clock_ns() + ns;
    while (tdl_clock_ns() < end) {
        tdl_cpu_pause();
    }
}

static void step(struct owner *o, uint64_t i)
{
    for (int k = 0; k < CONNECTIONS; k++) {
        for (uint64_t writes = 0; writes <= i % 3; writes++) {
            write_number(o, &o->connections[k]);
        }
    }
    if (i % 16 == 0) {
        go_on((i / 16 % 4) * 1000000u);
    }
    if (i % 32 == 1) {
        /* The step goes on until the thread has sent. */
        for (int k = 0; k < CONNECTIONS; k++) {
            while (o->connections[k].arrived < o->connections[k].written) {
                read_some(&o->connections[k], true);
            }
        }
    }
    struct tdl_held *held;
    while ((held = tdl_hold_first(&o->hold)) != NULL) {
        let_go(o, held->owner);
    }
    tdl_hold_over(&o->hold);
    for (int k = 0; k < CONNECTIONS; k++) {
        read_some(&o->connections[k], false);
    }
    if (i % 64 == 2) {
        go_on(3000000u); /* meanwhile the thread falls asleep */
    }
}

static void *own(void *arg)
{
    struct owner *o = arg;
    for (uint64_t i = 0; i < each; i++) {
        step(o, i);
        (void)tdl_fetch_add_relaxed_u64(&progress, 1);
    }
    (void)tdl_fetch_add_seq_u32(&done, 1);
    return NULL;
}

static void show(void)
{
    for (int i = 0; i < OWNERS; i++) {
        fprintf(stderr, "owner %d: late %d\n", i, tdl_hold_is_late(&owners[i].hold));
    }
}

int main(void)
{
    struct stall stall;

    each = race_count(6000) / OWNERS;
    stall_begin(&stall, &progress, show);
    for (int i = 0; i < OWNERS; i++) {
        tdl_hold_init(&owners[i].hold);
        for (int k = 0; k < CONNECTIONS; k++) {
            int pair[2];
            RACE_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
            owners[i].connections[k].ours = pair[0];
            owners[i].connections[k].theirs = pair[1];
        }
        RACE_CHECK(pthread_create(&owners[i].thread, NULL, own, &owners[i]) == 0);
    }
    while (tdl_load_seq_u32(&done) < OWNERS) {
        struct tdl_hold other;
        tdl_hold_init(&other);
        go_on(2000000u);
        tdl_hold_send_all();
        tdl_hold_close(&other);
    }
    for (int i = 0; i < OWNERS; i++) {
        RACE_CHECK(pthread_join(owners[i].thread, NULL) == 0);
        tdl_hold_close(&owners[i].hold);
        for (int k = 0; k < CONNECTIONS; k++) {
            struct connection *c = &owners[i].connections[k];
            while (c->arrived < c->written) {
                read_some(c, true);
            }
            close(c->ours);
            close(c->theirs);
        }
    }
    stall_end(&stall);
    return 0;
}
