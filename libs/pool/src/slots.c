#include "pool_internal.h"

#include "treadle/assert.h"

void tdl__class_init(struct tdl__class *cls, uint32_t slots)
{
    TDL_ASSERT(slots >= 1);
    tdl_node_init(&cls->waiting);
    cls->slots = slots;
    cls->running = 0;
    cls->waiting_count = 0;
}

void tdl__class_push_locked(struct tdl__class *cls, struct tdl_job *job)
{
    TDL_ASSERT(!tdl_node_is_linked(&job->node));
    tdl_node_insert_before(&cls->waiting, &job->node);
    cls->waiting_count++;
}

void tdl__class_remove_locked(struct tdl__class *cls, struct tdl_job *job)
{
    TDL_ASSERT(cls->waiting_count > 0);
    tdl_node_remove(&job->node);
    cls->waiting_count--;
}

static bool class_is_runnable(const struct tdl__class *cls)
{
    return cls->waiting_count > 0 && cls->running < cls->slots;
}

bool tdl__slots_runnable_locked(const struct tdl_pool *pool)
{
    for (uint32_t i = 0; i < pool->class_count; i++) {
        if (class_is_runnable(&pool->classes[i])) {
            return true;
        }
    }
    return false;
}

/* Takes the oldest job of the next class that has both a job and a slot. */
struct tdl_job *tdl__slots_take_locked(struct tdl_pool *pool)
{
    for (uint32_t i = 0; i < pool->class_count; i++) {
        uint32_t at = (pool->class_next + i) % pool->class_count;
        struct tdl__class *cls = &pool->classes[at];
        if (!class_is_runnable(cls)) {
            continue;
        }
        struct tdl_job *job = TDL_CONTAINER_OF(cls->waiting.next, struct tdl_job, node);
        tdl__class_remove_locked(cls, job);
        cls->running++;
        pool->class_next = (at + 1) % pool->class_count;
        return job;
    }
    return NULL;
}

void tdl__slots_give_locked(struct tdl_pool *pool, uint32_t job_class)
{
    struct tdl__class *cls = &pool->classes[job_class];
    TDL_ASSERT(cls->running > 0);
    cls->running--;
}
