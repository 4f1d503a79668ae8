#include "sched_internal.h"

#include "treadle/assert.h"
#include "treadle/heap.h"
#include "treadle/status.h"

_Static_assert(sizeof(struct tdl_timer) == 48, "a timer is six words");
_Static_assert(offsetof(struct tdl_timer, item) == 0 && offsetof(struct tdl_item, link) == 0,
               "a timer's sibling pointer is its link's");

static inline struct tdl_timer *timer_sibling(const struct tdl_timer *t)
{
    return (struct tdl_timer *)(void *)t->item.link.next;
}

static inline void timer_set_sibling(struct tdl_timer *t, struct tdl_timer *sibling)
{
    t->item.link.next = (struct tdl_link *)(void *)sibling;
}

static inline bool timer_before(const struct tdl_timer *a, const struct tdl_timer *b)
{
    if (a->deadline_ns != b->deadline_ns) {
        return a->deadline_ns < b->deadline_ns;
    }
    return tdl__number_after(b->item.link.mark, a->item.link.mark);
}

TDL_HEAP_DEFINE(timer_heap, struct tdl_timer, timer_sibling, timer_set_sibling, timer_before)

void tdl_timer_init(struct tdl_timer *t, void (*run)(struct tdl_item *))
{
    tdl_item_init(&t->item, run);
    t->child = NULL;
    t->prev = NULL;
    t->deadline_ns = 0;
}

int tdl_timer_arm(struct tdl_sched *s, struct tdl_timer *t, uint64_t deadline_ns)
{
    if (t->item.link.state == TDL_ITEM_ARMED) {
        (void)tdl_timer_disarm(s, t);
    }
    if (t->item.link.state != TDL_ITEM_IDLE) {
        return TDL_ESTATE;
    }
    t->deadline_ns = deadline_ns;
    t->item.link.mark = ++s->armed;
    t->item.link.state = TDL_ITEM_ARMED;
    timer_heap_insert(&s->timers, t);
    s->timer_count++;
    return TDL_OK;
}

bool tdl_timer_disarm(struct tdl_sched *s, struct tdl_timer *t)
{
    if (t->item.link.state != TDL_ITEM_ARMED) {
        return false;
    }
    TDL_ASSERT(s->timer_count > 0);
    timer_heap_remove(&s->timers, t);
    s->timer_count--;
    t->item.link.state = TDL_ITEM_IDLE;
    return true;
}

struct tdl_timer *tdl__timers_pop(struct tdl_sched *s)
{
    struct tdl_timer *t = s->timers;
    if (t != NULL) {
        (void)tdl_timer_disarm(s, t);
    }
    return t;
}

size_t tdl_sched_expire(struct tdl_sched *s, uint64_t now_ns)
{
    size_t due = 0;

    while (s->timers != NULL && s->timers->deadline_ns <= now_ns) {
        tdl_sched_push(s, &tdl__timers_pop(s)->item);
        due++;
    }
    return due;
}

uint64_t tdl_sched_timeout(const struct tdl_sched *s, uint64_t now_ns)
{
    if (s->timers == NULL) {
        return UINT64_MAX;
    }
    return s->timers->deadline_ns > now_ns ? s->timers->deadline_ns - now_ns : 0;
}

bool tdl_sched_has_timers(const struct tdl_sched *s)
{
    return s->timers != NULL;
}

/* The node after t in a walk of the whole heap, parents first, by the links alone. */
static struct tdl_timer *timer_walk(struct tdl_timer *t)
{
    if (t->child != NULL) {
        return t->child;
    }
    while (t != NULL && timer_sibling(t) == NULL) {
        while (t->prev != NULL && t->prev->child != t) {
            t = t->prev;
        }
        t = t->prev;
    }
    return t != NULL ? timer_sibling(t) : NULL;
}

/* Whether each child of t points back to where it hangs and is not due before t. */
static bool timer_children_check(const struct tdl_timer *t)
{
    const struct tdl_timer *prev = t;

    for (const struct tdl_timer *child = t->child; child != NULL; child = timer_sibling(child)) {
        if (child->prev != prev || timer_before(child, t)) {
            return false;
        }
        prev = child;
    }
    return true;
}

void tdl__timers_visit(const struct tdl_sched *s, void (*visit)(struct tdl_item *, void *), void *arg)
{
    for (struct tdl_timer *t = s->timers; t != NULL; t = timer_walk(t)) {
        visit(&t->item, arg);
    }
}

bool tdl__timers_check(const struct tdl_sched *s)
{
    size_t count = 0;

    for (struct tdl_timer *t = s->timers; t != NULL; t = timer_walk(t)) {
        if (t->item.link.state != TDL_ITEM_ARMED || !timer_children_check(t)) {
            return false;
        }
        count++;
    }
    return count == s->timer_count;
}
