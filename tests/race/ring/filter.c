/* Goal: a turn is left out only while nothing became ready: of what another thread writes, everything is
 * found, whenever it comes. Method: one thread takes turns on an epoll behind the filter, the other writes
 * a byte at a time, each as soon as the last one was read, a little later or much later than that. As a
 * loop does, a turn behind one that found something polls in any case: so writes come while that poll is
 * under way, and before and behind it. A lost event stands still, which the stall detector sees. */
#include "treadle/filter.h"

#include "stall.h"

#include <sys/epoll.h>

enum { SPREAD = 4096, SPREAD_SMALL = 64, SKIPPED_EXIT = 77, TURNS_TO_ARM = 100 };

static tdl_atomic_u64 progress;
static tdl_atomic_u64 written, found;
static uint64_t count;
static int ends[2];
static struct tdl_filter filter;
static uint64_t turns, skipped;
static bool busy; /* the last poll found something */

static void *write_each(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; i < count; i++) {
        while (tdl_load_acquire_u64(&found) < i) {
            tdl_cpu_pause();
        }
        for (uint64_t wait = i * 37 % (i % 2 == 0 ? SPREAD : SPREAD_SMALL); wait > 0; wait--) {
            tdl_cpu_pause();
        }
        tdl_store_release_u64(&written, i + 1);
        RACE_CHECK(write(ends[1], "x", 1) == 1);
    }
    return NULL;
}

static bool take_turn(int epoll)
{
    struct epoll_event event;
    char byte;
    turns++;
    if (!busy && tdl_filter_skips(&filter, epoll)) {
        skipped++;
        return false;
    }
    tdl_filter_before_poll(&filter);
    busy = epoll_wait(epoll, &event, 1, 0) == 1;
    tdl_filter_polled(&filter, busy);
    if (busy) {
        RACE_CHECK(read(ends[0], &byte, 1) == 1);
    }
    return busy;
}

static void show(void)
{
    fprintf(stderr, "written %llu, found %llu, filter %d, ring ready %u\n",
            (unsigned long long)tdl_load_relaxed_u64(&written),
            (unsigned long long)tdl_load_relaxed_u64(&found), (int)filter.state,
            tdl_ring_ready(&filter.ring));
}

int main(void)
{
    struct stall stall;
    struct epoll_event event = {.events = EPOLLIN};
    pthread_t writer;
    int epoll = epoll_create1(EPOLL_CLOEXEC);

    count = race_count(2000);
    RACE_CHECK(epoll >= 0 && pipe(ends) == 0);
    RACE_CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    tdl_filter_init(&filter, false);
    while (filter.state != TDL_FILTER_ARMED && turns < TURNS_TO_ARM) {
        RACE_CHECK(!take_turn(epoll));
    }
    if (filter.state != TDL_FILTER_ARMED) {
        puts("no io_uring here");
        return SKIPPED_EXIT;
    }
    stall_begin(&stall, &progress, show);
    RACE_CHECK(pthread_create(&writer, NULL, write_each, NULL) == 0);
    for (uint64_t i = 0; i < count; i++) {
        while (!take_turn(epoll)) {
        }
        tdl_store_release_u64(&found, i + 1);
        (void)tdl_fetch_add_relaxed_u64(&progress, 1);
    }
    RACE_CHECK(pthread_join(writer, NULL) == 0);
    RACE_CHECK(skipped > 0);
    stall_end(&stall);
    tdl_filter_disarm(&filter);
    tdl_filter_close(&filter);
    close(epoll);
    close(ends[0]);
    close(ends[1]);
    printf("%llu events in %llu turns, %llu without a poll\n", (unsigned long long)count,
           (unsigned long long)turns, (unsigned long long)skipped);
    return 0;
}
