/* Goal: an inbox under several producers loses nothing, keeps each producer's order and wakes its owner
 * every time (MO-1). Method: the owner parks whenever it finds nothing; producers post 100,000 links in
 * all, and wait for the owner now and then, so that it is found parked, awake and in between. */
#include "stall.h"

#include "treadle/inbox.h"

enum { PRODUCERS = 4, WINDOW = 16 };

struct note {
    struct tdl_link link;
    uint32_t producer;
    uint64_t number;
};

struct producer {
    pthread_t thread;
    struct note notes[WINDOW];
    tdl_atomic_u64 taken; /* notes of this producer the owner is done with */
    uint32_t index;
};

static struct tdl_wake wake;
static struct tdl_inbox inbox;
static struct producer producers[PRODUCERS];
static tdl_atomic_u64 progress;
static uint64_t each;

static void show(void)
{
    fprintf(stderr, "owner: state %u, owed %u, inbox %s\n", tdl_load_relaxed_u32(&wake.state), wake.owed,
            tdl_inbox_is_empty(&inbox) ? "empty" : "full");
    for (int i = 0; i < PRODUCERS; i++) {
        fprintf(stderr, "producer %d: %llu taken\n", i,
                (unsigned long long)tdl_load_relaxed_u64(&producers[i].taken));
    }
}

static void *produce(void *arg)
{
    struct producer *self = arg;
    for (uint64_t i = 0; i < each; i++) {
        struct note *note = &self->notes[i % WINDOW];
        /* Every window has another size, down to waiting for each note. */
        uint64_t window = 1 + (i / 1000) % WINDOW;
        while (tdl_load_acquire_u64(&self->taken) + window <= i) {
            (void)sched_yield();
        }
        note->producer = self->index;
        note->number = i;
        RACE_CHECK(tdl_inbox_post(&inbox, &note->link) == 0);
    }
    return NULL;
}

static void consume(void)
{
    struct tdl_link *link = tdl_inbox_take(&inbox);

    while (link != NULL) {
        struct note *note = TDL_CONTAINER_OF(link, struct note, link);
        struct producer *producer = &producers[note->producer];
        link = link->next;
        RACE_CHECK(note->number == tdl_load_relaxed_u64(&producer->taken));
        tdl_store_release_u64(&producer->taken, note->number + 1);
        (void)tdl_fetch_add_relaxed_u64(&progress, 1);
    }
}

int main(void)
{
    struct stall stall;

    each = race_count(100000) / PRODUCERS;
    RACE_CHECK(tdl_wake_open(&wake, NULL) == 0);
    tdl_inbox_init(&inbox, &wake, NULL);
    stall_begin(&stall, &progress, show);
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        producers[i].index = i;
        RACE_CHECK(pthread_create(&producers[i].thread, NULL, produce, &producers[i]) == 0);
    }
    while (tdl_load_relaxed_u64(&progress) < each * PRODUCERS) {
        consume();
        tdl_wake_park_begin(&wake);
        if (tdl_inbox_is_empty(&inbox) && tdl_load_relaxed_u64(&progress) < each * PRODUCERS) {
            (void)tdl_wake_wait(&wake, UINT64_MAX);
        }
        (void)tdl_wake_park_end(&wake);
    }
    for (int i = 0; i < PRODUCERS; i++) {
        RACE_CHECK(pthread_join(producers[i].thread, NULL) == 0);
    }
    stall_end(&stall);
    RACE_CHECK(tdl_inbox_close(&inbox) == NULL);
    tdl_wake_close(&wake);
    return 0;
}
