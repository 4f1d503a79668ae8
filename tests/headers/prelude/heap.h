#include <stdbool.h>

struct job {
    struct job *child;
    struct job *sibling;
    struct job *prev;
    int key;
};

static inline struct job *job_sibling(const struct job *j)
{
    return j->sibling;
}

static inline void job_set_sibling(struct job *j, struct job *sibling)
{
    j->sibling = sibling;
}

static inline bool job_before(const struct job *a, const struct job *b)
{
    return a->key < b->key;
}

TDL_HEAP_DEFINE(job_heap, struct job, job_sibling, job_set_sibling, job_before)
