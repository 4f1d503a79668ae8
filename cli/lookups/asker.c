#include "asker.h"

#include <errno.h>
#include <stdlib.h>

int asker_open(struct asker *a, long slots)
{
    const uint32_t limits[CLASSES] = {slots > 0 ? (uint32_t)slots : tdl_lookup_slots(), WORKERS};
    const struct tdl_pool_options options = {.slots = limits, .classes = CLASSES, .name = "dns"};
    int code = tdl_wake_open(&a->wake, NULL);
    if (code != 0) {
        return code;
    }
    tdl_inbox_init(&a->inbox, &a->wake, NULL);
    a->taken = NULL;
    code = tdl_pool_open(&a->pool, &options);
    if (code != 0) {
        tdl_wake_close(&a->wake);
    }
    return code;
}

void asker_close(struct asker *a)
{
    tdl_pool_close(a->pool);
    (void)tdl_inbox_close(&a->inbox);
    tdl_wake_close(&a->wake);
}

struct tdl_link *asker_next(struct asker *a)
{
    while (a->taken == NULL && (a->taken = tdl_inbox_take(&a->inbox)) == NULL) {
        tdl_wake_park_begin(&a->wake); /* MO-1: announced before the inbox is looked at */
        if (tdl_inbox_is_empty(&a->inbox)) {
            (void)tdl_wake_wait(&a->wake, UINT64_MAX);
        }
        (void)tdl_wake_park_end(&a->wake);
    }
    struct tdl_link *link = a->taken;
    a->taken = link->next;
    return link;
}

int asker_submit(struct asker *a, struct query *q)
{
    return tdl_lookup_submit(&q->lookup, a->pool, CLASS_LOOKUP, &a->inbox, &q->done);
}

/* Receives one answer; its slot in the array can ask again. */
struct query *asker_finish(struct asker *a, int *failed)
{
    struct query *q = TDL_CONTAINER_OF(asker_next(a), struct query, done);
    if (q->lookup.eai != 0) {
        *failed = tdl_lookup_status(&q->lookup);
    }
    tdl_lookup_clear(&q->lookup);
    return q;
}

/* Keeps `at_once` lookups under way until `total` are answered. */
int asker_stream(struct asker *a, ask_fn ask, size_t total, size_t at_once)
{
    struct query *queries = calloc(at_once, sizeof *queries);
    int failed = 0;
    size_t asked = 0;
    if (queries == NULL) {
        return -ENOMEM;
    }
    for (; asked < at_once && asked < total && failed == 0; asked++) {
        failed = ask(a, &queries[asked]);
    }
    for (size_t answered = 0; answered < asked && failed == 0; answered++) {
        struct query *q = asker_finish(a, &failed);
        if (asked < total && failed == 0) {
            failed = ask(a, q);
            asked++;
        }
    }
    if (failed == 0) {
        free(queries);
    }
    return failed;
}
