/* Goal: a close waits for the posters in flight: afterwards nothing of the inbox's surroundings is
 * touched, and each post was given back or refused (MO-3). Method: many short rounds in which posters run
 * into a close; the wake and the mark are on the heap and freed right after it, for AddressSanitizer and
 * ThreadSanitizer to see a late touch, and overwritten for a run without them. */
#include "stall.h"

#include <string.h>

#include "treadle/inbox.h"
#include "treadle/status.h"

enum { POSTERS = 3, LINKS = 8 };

struct surroundings {
    struct tdl_wake wake;
    tdl_atomic_u32 mark;
};

static struct tdl_inbox inbox;
static tdl_atomic_u64 progress;
static pthread_barrier_t barrier;
static uint64_t rounds;

struct poster {
    pthread_t thread;
    struct tdl_link links[LINKS];
    unsigned accepted;
};

static struct poster posters[POSTERS];

static void *post_until_closed(void *arg)
{
    struct poster *self = arg;
    for (uint64_t round = 0; round < rounds; round++) {
        (void)pthread_barrier_wait(&barrier);
        self->accepted = 0;
        while (self->accepted < LINKS && tdl_inbox_post(&inbox, &self->links[self->accepted]) == 0) {
            self->accepted++;
        }
        RACE_CHECK(self->accepted == LINKS ||
                   tdl_inbox_post(&inbox, &self->links[self->accepted]) == TDL_ECLOSED);
        (void)pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static unsigned count_links(const struct tdl_link *list)
{
    unsigned count = 0;
    for (; list != NULL; list = list->next) {
        RACE_CHECK(list->mark == 5);
        count++;
    }
    return count;
}

static void close_against_posters(uint64_t round)
{
    struct surroundings *around = malloc(sizeof *around);
    unsigned taken = 0, accepted = 0;

    RACE_CHECK(around != NULL && tdl_wake_open(&around->wake, NULL) == 0);
    tdl_atomic_init_u32(&around->mark, 5);
    tdl_inbox_init(&inbox, &around->wake, &around->mark);
    (void)pthread_barrier_wait(&barrier);
    for (uint64_t delay = round % 64; delay > 0; delay--) {
        tdl_cpu_pause();
    }
    if (round % 2 != 0) {
        tdl_wake_park_begin(&around->wake);
        taken += count_links(tdl_inbox_take(&inbox));
    }
    taken += count_links(tdl_inbox_close(&inbox));
    (void)tdl_wake_park_end(&around->wake);
    tdl_wake_close(&around->wake);
    memset(around, 0xEE, sizeof *around);
    free(around);
    (void)pthread_barrier_wait(&barrier);
    for (int i = 0; i < POSTERS; i++) {
        accepted += posters[i].accepted;
    }
    RACE_CHECK(taken == accepted);
    RACE_CHECK(tdl_inbox_is_empty(&inbox));
    (void)tdl_fetch_add_relaxed_u64(&progress, 1);
}

int main(void)
{
    struct stall stall;

    rounds = race_count(20000);
    RACE_CHECK(pthread_barrier_init(&barrier, NULL, POSTERS + 1) == 0);
    stall_begin(&stall, &progress, NULL);
    for (int i = 0; i < POSTERS; i++) {
        RACE_CHECK(pthread_create(&posters[i].thread, NULL, post_until_closed, &posters[i]) == 0);
    }
    for (uint64_t round = 0; round < rounds; round++) {
        close_against_posters(round);
    }
    for (int i = 0; i < POSTERS; i++) {
        RACE_CHECK(pthread_join(posters[i].thread, NULL) == 0);
    }
    stall_end(&stall);
    (void)pthread_barrier_destroy(&barrier);
    return 0;
}
