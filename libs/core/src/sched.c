#include "sched_internal.h"

#include "treadle/assert.h"

_Static_assert(sizeof(struct tdl_link) == 16, "a link is two words");
_Static_assert(sizeof(struct tdl_item) == 24, "an item is three words");

void tdl_sched_init(struct tdl_sched *s)
{
    tdl_queue_init(&s->ready);
    s->ready_count = 0;
    s->frozen = 0;
    tdl_queue_init(&s->after);
    tdl_queue_init(&s->last);
    tdl_atomic_init_u32(&s->pushed, 0);
    s->armed = 0;
    s->stopping = false;
    s->running = false;
    s->timers = NULL;
    s->timer_count = 0;
    s->drop = NULL;
}

void tdl_sched_push(struct tdl_sched *s, struct tdl_item *item)
{
    TDL_ASSERT(item->link.state == TDL_ITEM_IDLE);
    /* Only the owner writes the count, so a load and a store do. No order is needed: whoever learns of this
     * push by other means reads a count that includes it, by coherence alone (MO-4). */
    uint32_t mark = tdl_load_relaxed_u32(&s->pushed) + 1;
    tdl_store_relaxed_u32(&s->pushed, mark);
    item->link.mark = mark;
    item->link.state = TDL_ITEM_QUEUED;
    tdl_queue_push(&s->ready, &item->link);
    s->ready_count++;
}

uint32_t tdl_sched_mark(const struct tdl_sched *s)
{
    return tdl_load_relaxed_u32(&s->pushed); /* MO-4 */
}

const tdl_atomic_u32 *tdl_sched_mark_source(const struct tdl_sched *s)
{
    return &s->pushed;
}

void tdl_sched_push_queue(struct tdl_sched *s, struct tdl_queue *items)
{
    struct tdl_link *link;
    while ((link = tdl_queue_pop(items)) != NULL) {
        tdl_sched_push(s, tdl_item_of(link));
    }
}

size_t tdl_sched_freeze(struct tdl_sched *s)
{
    TDL_ASSERT(!s->running);
    s->frozen = s->ready_count;
    return s->frozen;
}

/* Takes the first ready item out and makes it idle; whether it was canceled is the result. */
static bool ready_pop(struct tdl_sched *s, struct tdl_item **item)
{
    *item = tdl_item_of(tdl_queue_pop(&s->ready));
    s->ready_count--;
    bool canceled = (*item)->link.state == TDL_ITEM_CANCELED;
    TDL_ASSERT(canceled || (*item)->link.state == TDL_ITEM_QUEUED);
    (*item)->link.state = TDL_ITEM_IDLE;
    return canceled;
}

void tdl_sched_push_after(struct tdl_sched *s, struct tdl_item *item)
{
    TDL_ASSERT(s->running);
    TDL_ASSERT(item->link.state == TDL_ITEM_IDLE);
    item->link.state = TDL_ITEM_QUEUED;
    tdl_queue_push(&s->after, &item->link);
}

void tdl_sched_push_last(struct tdl_sched *s, struct tdl_item *item)
{
    TDL_ASSERT(s->running);
    TDL_ASSERT(item->link.state == TDL_ITEM_IDLE);
    item->link.state = TDL_ITEM_QUEUED;
    tdl_queue_push(&s->last, &item->link);
}

bool tdl_sched_running(const struct tdl_sched *s)
{
    return s->running;
}

bool tdl_sched_nest(struct tdl_sched *s)
{
    bool running = s->running;
    s->running = false;
    s->frozen = 0;
    return running;
}

void tdl_sched_unnest(struct tdl_sched *s, bool was_running)
{
    TDL_ASSERT(!s->running);
    s->running = was_running;
    s->frozen = 0;
}

static void run_all(struct tdl_queue *items)
{
    struct tdl_link *link;
    while ((link = tdl_queue_pop(items)) != NULL) {
        link->state = TDL_ITEM_IDLE;
        tdl_item_of(link)->run(tdl_item_of(link));
    }
}

size_t tdl_sched_run(struct tdl_sched *s)
{
    size_t ran = 0;

    TDL_ASSERT(!s->running);
    s->running = true;
    while (s->frozen > 0) {
        struct tdl_item *item;
        s->frozen--;
        if (ready_pop(s, &item)) {
            if (s->drop != NULL) {
                s->drop(item);
            }
            continue;
        }
        ran++;
        item->run(item);
        if (s->after.head != NULL) {
            run_all(&s->after);
        }
    }
    if (s->last.head != NULL) {
        run_all(&s->last);
    }
    s->running = false;
    return ran;
}

void tdl_sched_interrupt(struct tdl_sched *s)
{
    s->frozen = 0;
}

bool tdl_sched_cancel(struct tdl_sched *s, struct tdl_item *item)
{
    (void)s;
    if (item->link.state != TDL_ITEM_QUEUED) {
        return false;
    }
    item->link.state = TDL_ITEM_CANCELED;
    return true;
}

void tdl_sched_stop(struct tdl_sched *s)
{
    s->stopping = true;
}

bool tdl_sched_stopping(const struct tdl_sched *s)
{
    return s->stopping;
}

void tdl_sched_clear_stop(struct tdl_sched *s)
{
    s->stopping = false;
}

bool tdl_sched_has_ready(const struct tdl_sched *s)
{
    return s->ready.head != NULL;
}

void tdl_sched_drain(struct tdl_sched *s, void (*drop)(struct tdl_item *))
{
    TDL_ASSERT(!s->running);
    while (s->ready_count > 0 || s->timer_count > 0) {
        struct tdl_item *item;
        if (s->ready_count > 0) {
            (void)ready_pop(s, &item);
        } else {
            item = &tdl__timers_pop(s)->item;
        }
        drop(item);
    }
    s->frozen = 0;
}

void tdl_sched_visit(const struct tdl_sched *s, void (*visit)(struct tdl_item *, void *), void *arg)
{
    for (struct tdl_link *link = s->ready.head; link != NULL; link = link->next) {
        visit(tdl_item_of(link), arg);
    }
    tdl__timers_visit(s, visit, arg);
}

bool tdl_sched_check(const struct tdl_sched *s)
{
    size_t count = 0;
    const struct tdl_link *last = NULL;

    for (const struct tdl_link *link = s->ready.head; link != NULL; link = link->next) {
        if (link->state != TDL_ITEM_QUEUED && link->state != TDL_ITEM_CANCELED) {
            return false;
        }
        if (last != NULL && tdl__number_after(last->mark, link->mark)) {
            return false;
        }
        last = link;
        count++;
    }
    if (count != s->ready_count || s->frozen > s->ready_count) {
        return false;
    }
    if (last != NULL && s->ready.tail != last) {
        return false;
    }
    return tdl__timers_check(s);
}
