/* Enumerates every interleaving of a few small programs: a state is a plain struct, a step is one atomic
 * action of one program. Visited states are remembered, so the search ends; a state in which nobody can step
 * but somebody has not ended is a deadlock. */
#ifndef TREADLE_TESTS_EXPLORE_H
#define TREADLE_TESTS_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPLORE_BUCKETS 65536u

/* Provided by the model: steps one program in place; false when it can't step now. */
static bool model_step(struct model *model, unsigned program);
static bool model_ended(const struct model *model, unsigned program);
/* NULL, or what is wrong with this state. */
static const char *model_wrong(const struct model *model, bool all_ended);

struct explore_seen {
    struct model model;
    struct explore_seen *next;
};

static struct explore_seen *explore_table[EXPLORE_BUCKETS];
static size_t explore_states;

static bool explore_is_new(const struct model *model)
{
    const unsigned char *bytes = (const unsigned char *)model;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < sizeof *model; i++) {
        hash = (hash ^ bytes[i]) * 16777619u;
    }
    struct explore_seen **bucket = &explore_table[hash % EXPLORE_BUCKETS];
    for (struct explore_seen *seen = *bucket; seen != NULL; seen = seen->next) {
        if (memcmp(&seen->model, model, sizeof *model) == 0) {
            return false;
        }
    }
    struct explore_seen *seen = malloc(sizeof *seen);
    if (seen == NULL) {
        abort();
    }
    seen->model = *model;
    seen->next = *bucket;
    *bucket = seen;
    explore_states++;
    return true;
}

static bool explore_from(const struct model *model, unsigned programs)
{
    bool moved = false;
    bool all_ended = true;
    if (!explore_is_new(model)) {
        return true;
    }
    for (unsigned program = 0; program < programs; program++) {
        struct model next = *model;
        all_ended = all_ended && model_ended(model, program);
        if (model_ended(model, program) || !model_step(&next, program)) {
            continue;
        }
        moved = true;
        const char *wrong = model_wrong(&next, false);
        if (wrong != NULL) {
            printf("program %u reached: %s\n", program, wrong);
            return false;
        }
        if (!explore_from(&next, programs)) {
            return false;
        }
    }
    if (!moved && !all_ended) {
        printf("deadlock\n");
        return false;
    }
    const char *wrong = all_ended ? model_wrong(model, true) : NULL;
    if (wrong != NULL) {
        printf("at the end: %s\n", wrong);
    }
    return wrong == NULL;
}

static inline void explore_forget(void)
{
    for (size_t i = 0; i < EXPLORE_BUCKETS; i++) {
        while (explore_table[i] != NULL) {
            struct explore_seen *seen = explore_table[i];
            explore_table[i] = seen->next;
            free(seen);
        }
    }
}

#endif
