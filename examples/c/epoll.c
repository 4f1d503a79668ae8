/* A loop of one's own on epoll: core says what runs when, wake lets another thread in. Three ticks of a
 * timer, and a message from a thread for each.
 *
 *     cc epoll.c $(pkg-config --cflags --libs treadle-core treadle-wake)
 */
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <treadle/inbox.h>
#include <treadle/turn.h>

struct loop {
    struct tdl_host host; /* first: what a host function gets is the loop */
    struct tdl_sched sched;
    struct tdl_wake wake;
    struct tdl_inbox inbox;
    int epoll;
};

static struct loop loop;

static uint64_t now_ns(struct tdl_host *host)
{
    struct timespec now;
    (void)host;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static struct tdl_link *take(struct tdl_host *host)
{
    return tdl_inbox_take(&((struct loop *)host)->inbox);
}

static void before_poll(struct tdl_host *host)
{
    (void)host; /* staged file operations would be flushed here */
}

static void wait_for_events(struct tdl_host *host, uint64_t timeout_ns, struct tdl_queue *io)
{
    struct loop *l = (struct loop *)host;
    struct epoll_event event;
    (void)io; /* the items of descriptors that are ready would go here */
    tdl_wake_park_begin(&l->wake);
    if (!tdl_inbox_is_empty(&l->inbox)) { /* looked at after the park was announced: no wake is lost */
        timeout_ns = 0;
    }
    (void)epoll_wait(l->epoll, &event, 1,
                     timeout_ns == UINT64_MAX ? -1 : (int)((timeout_ns + 999999) / 1000000));
    (void)tdl_wake_park_end(&l->wake);
}

static struct tdl_item messages[3];
static struct tdl_timer timer;
static int ticks, received;

static void stop_when_done(void)
{
    if (ticks == 3 && received == 3) {
        tdl_sched_stop(&loop.sched);
    }
}

static void receive(struct tdl_item *item)
{
    printf("message %d\n", (int)(item - messages));
    received++;
    stop_when_done();
}

static void *send_messages(void *unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++) {
        (void)tdl_inbox_post(&loop.inbox, &messages[i].link);
    }
    return NULL;
}

static void tick(struct tdl_item *item)
{
    printf("tick %d\n", ++ticks);
    if (ticks < 3) {
        (void)tdl_timer_arm(&loop.sched, (struct tdl_timer *)item, now_ns(&loop.host) + 1000000);
    }
    stop_when_done();
}

int main(void)
{
    struct epoll_event readable = {.events = EPOLLIN};
    pthread_t thread;

    loop.host = (struct tdl_host){now_ns, take, before_poll, wait_for_events};
    tdl_sched_init(&loop.sched);
    if (tdl_wake_open(&loop.wake, NULL) != 0 || (loop.epoll = epoll_create1(EPOLL_CLOEXEC)) < 0) {
        return 1;
    }
    epoll_ctl(loop.epoll, EPOLL_CTL_ADD, tdl_wake_fd(&loop.wake), &readable);
    tdl_inbox_init(&loop.inbox, &loop.wake, tdl_sched_mark_source(&loop.sched));
    for (int i = 0; i < 3; i++) {
        tdl_item_init(&messages[i], receive);
    }
    tdl_timer_init(&timer, tick);
    (void)tdl_timer_arm(&loop.sched, &timer, now_ns(&loop.host) + 1000000);
    if (pthread_create(&thread, NULL, send_messages, NULL) != 0) {
        return 1;
    }
    while (!tdl_sched_stopping(&loop.sched)) {
        tdl_turn(&loop.sched, &loop.host);
    }
    pthread_join(thread, NULL);
    (void)tdl_inbox_close(&loop.inbox);
    tdl_wake_close(&loop.wake);
    close(loop.epoll);
    return 0;
}
