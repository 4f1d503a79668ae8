/* Items that write down when they ran: a name per item, a string of names per test. */
#ifndef TREADLE_TEST_TRACE_H
#define TREADLE_TEST_TRACE_H

#include <string.h>

#include "treadle/sched.h"

struct traced {
    struct tdl_item item;
    char name;
    struct tdl_sched *sched;
    struct traced *then; /* pushed when this one runs */
    void (*also)(struct traced *);
};

static char trace_text[256];
static size_t trace_used;

static inline void trace_add(char c)
{
    if (trace_used + 1 < sizeof trace_text) {
        trace_text[trace_used++] = c;
        trace_text[trace_used] = '\0';
    }
}

static inline void trace_reset(void)
{
    trace_used = 0;
    trace_text[0] = '\0';
}

static inline void traced_run(struct tdl_item *item)
{
    struct traced *self = TDL_CONTAINER_OF(item, struct traced, item);
    trace_add(self->name);
    if (self->then != NULL) {
        tdl_sched_push(self->sched, &self->then->item);
    }
    if (self->also != NULL) {
        self->also(self);
    }
}

/* Drops are written as the name in lower case. */
static inline void traced_drop(struct tdl_item *item)
{
    trace_add((char)(TDL_CONTAINER_OF(item, struct traced, item)->name - 'A' + 'a'));
}

static inline void traced_init(struct traced *t, char name, struct tdl_sched *s)
{
    tdl_item_init(&t->item, traced_run);
    t->name = name;
    t->sched = s;
    t->then = NULL;
    t->also = NULL;
}

/* Runs one generation and returns what ran. */
static inline const char *run_once(struct tdl_sched *s)
{
    trace_reset();
    (void)tdl_sched_freeze(s);
    (void)tdl_sched_run(s);
    return trace_text;
}

#endif
