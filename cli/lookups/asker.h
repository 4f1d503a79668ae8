/* One side that asks for lookups: a pool, an inbox, and the wake it sleeps on. */
#ifndef TREADLE_CLI_ASKER_H
#define TREADLE_CLI_ASKER_H

#include "treadle/inbox.h"
#include "treadle/lookup.h"
#include "treadle/pool.h"
#include "treadle/wake.h"

enum { CLASS_LOOKUP, CLASS_WORK, CLASSES };

#define WORKERS 6u

struct asker {
    struct tdl_wake wake;
    struct tdl_inbox inbox;
    struct tdl_pool *pool;
    struct tdl_link *taken;
};

struct query {
    struct tdl_lookup lookup;
    struct tdl_link done;
};

typedef int (*ask_fn)(struct asker *a, struct query *q);

/* Opens pool and wake, with `slots` lookups at once or as many as the machine should have; 0 or a negative
 * code. */
int asker_open(struct asker *a, long slots);
void asker_close(struct asker *a);

/* Sends a prepared lookup on its way. */
int asker_submit(struct asker *a, struct query *q);

/* The next link that came in; waits for it. */
struct tdl_link *asker_next(struct asker *a);

/* Receives one answer; its slot in the array can ask again. */
struct query *asker_finish(struct asker *a, int *failed);

/* Keeps `at_once` lookups under way until `total` are answered. */
int asker_stream(struct asker *a, ask_fn ask, size_t total, size_t at_once);

#endif
