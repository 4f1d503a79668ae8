/* Goal: no wake is lost between a park and a notify of real threads (MO-1), and none writes the descriptor
 * twice (MO-2). Method: a ball goes to and fro between two threads that park after every throw, so that
 * each throw meets the other somewhere in its park; 100,000 throws, without spinning and with, and on an
 * edge-triggered poller. */
#include "stall.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "treadle/inbox.h"
#include "treadle/wake.h"

struct player {
    struct tdl_wake wake;
    struct tdl_inbox inbox;
    struct player *other;
    uint64_t throws;
    int epoll; /* edge-triggered, or -1: sleep in the wake */
};

static struct player players[2];
static tdl_atomic_u64 progress;

static void show(void)
{
    for (int i = 0; i < 2; i++) {
        fprintf(stderr, "player %d: state %u, owed %u, inbox %s, gate %x\n", i,
                tdl_load_relaxed_u32(&players[i].wake.state), players[i].wake.owed,
                tdl_inbox_is_empty(&players[i].inbox) ? "empty" : "full",
                tdl_load_relaxed_u32(&players[i].inbox.gate));
    }
}

static void sleep_until_woken(struct player *self)
{
    struct epoll_event event;
    if (self->epoll < 0) {
        (void)tdl_wake_wait(&self->wake, UINT64_MAX);
    } else {
        (void)epoll_wait(self->epoll, &event, 1, -1);
    }
}

static struct tdl_link *catch_ball(struct player *self)
{
    struct tdl_link *ball;

    while ((ball = tdl_inbox_take(&self->inbox)) == NULL) {
        tdl_wake_park_begin(&self->wake);
        if (tdl_inbox_is_empty(&self->inbox)) {
            sleep_until_woken(self);
        }
        (void)tdl_wake_park_end(&self->wake);
        RACE_CHECK(self->wake.owed <= 1);
    }
    RACE_CHECK(ball->next == NULL);
    return ball;
}

static void *play(void *arg)
{
    struct player *self = arg;
    for (uint64_t i = 0; i < self->throws; i++) {
        struct tdl_link *ball = catch_ball(self);
        (void)tdl_fetch_add_relaxed_u64(&progress, 1);
        RACE_CHECK(tdl_inbox_post(&self->other->inbox, ball) == 0);
    }
    return NULL;
}

static void open_wake(struct player *self, uint64_t spin_ns, bool edge)
{
    struct tdl_wake_options options = {.spin_ns = spin_ns, .edge = edge};
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    RACE_CHECK(tdl_wake_open(&self->wake, &options) == 0);
    self->epoll = edge ? epoll_create1(EPOLL_CLOEXEC) : -1;
    RACE_CHECK(!edge || epoll_ctl(self->epoll, EPOLL_CTL_ADD, tdl_wake_fd(&self->wake), &event) == 0);
}

static void match(uint64_t throws, uint64_t spin_ns, bool edge)
{
    struct tdl_link ball = {0};
    struct stall stall;
    pthread_t threads[2];

    for (int i = 0; i < 2; i++) {
        open_wake(&players[i], spin_ns, edge);
        tdl_inbox_init(&players[i].inbox, &players[i].wake, NULL);
        players[i].other = &players[1 - i];
        players[i].throws = throws / 2;
    }
    stall_begin(&stall, &progress, show);
    RACE_CHECK(tdl_inbox_post(&players[0].inbox, &ball) == 0);
    for (int i = 0; i < 2; i++) {
        RACE_CHECK(pthread_create(&threads[i], NULL, play, &players[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        RACE_CHECK(pthread_join(threads[i], NULL) == 0);
    }
    stall_end(&stall);
    RACE_CHECK(tdl_inbox_close(&players[0].inbox) == &ball);
    RACE_CHECK(tdl_inbox_close(&players[1].inbox) == NULL);
    for (int i = 0; i < 2; i++) {
        if (edge) {
            close(players[i].epoll);
        }
        tdl_wake_close(&players[i].wake);
    }
}

int main(void)
{
    match(race_count(100000), 0, false);
    match(race_count(100000), 20000, false);
    match(race_count(100000), 0, true);
    return 0;
}
