#include "sched_internal.h"

#include "treadle/assert.h"

/* Merges two chains by mark; where marks are equal, `first` goes first. */
static struct tdl_link *merge_two(struct tdl_link *first, struct tdl_link *second)
{
    struct tdl_link *head = NULL;
    struct tdl_link **at = &head;

    while (first != NULL && second != NULL) {
        struct tdl_link **from = tdl__number_after(first->mark, second->mark) ? &second : &first;
        *at = *from;
        at = &(*from)->next;
        *from = (*from)->next;
    }
    *at = first != NULL ? first : second;
    return head;
}

/* Sorts a chain by mark and keeps the order of equal marks: a producer's own items never change order. */
static struct tdl_link *sort_by_mark(struct tdl_link *list)
{
    struct tdl_link *runs[64] = {NULL}; /* runs[i] is empty or holds 2^i links, all older than runs[i-1] */
    struct tdl_link *sorted = NULL;

    while (list != NULL) {
        struct tdl_link *run = list;
        size_t i = 0;
        list = list->next;
        run->next = NULL;
        for (; runs[i] != NULL; i++) {
            run = merge_two(runs[i], run);
            runs[i] = NULL;
        }
        runs[i] = run;
    }
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        if (runs[i] != NULL) {
            sorted = merge_two(runs[i], sorted);
        }
    }
    return sorted;
}

/* Makes the items queued, counts them, and says whether their marks are in order. */
static bool admit(struct tdl_sched *s, struct tdl_link *list, struct tdl_link **last)
{
    bool in_order = true;

    for (struct tdl_link *link = list; link != NULL; link = link->next) {
        TDL_ASSERT(link->state == TDL_ITEM_IDLE || link->state == TDL_ITEM_CANCELED);
        if (link->state == TDL_ITEM_IDLE) {
            link->state = TDL_ITEM_QUEUED;
        }
        if (link->next != NULL && tdl__number_after(link->mark, link->next->mark)) {
            in_order = false;
        }
        *last = link;
        s->ready_count++;
    }
    return in_order;
}

void tdl_sched_merge(struct tdl_sched *s, struct tdl_link *list)
{
    if (list == NULL) {
        return;
    }

    struct tdl_link *last = list;
    if (!admit(s, list, &last)) {
        list = sort_by_mark(list);
        for (last = list; last->next != NULL;) {
            last = last->next;
        }
    }

    if (s->ready.head == NULL || !tdl__number_after(s->ready.tail->mark, list->mark)) {
        struct tdl_queue tail = {list, last};
        tdl_queue_splice(&s->ready, &tail);
        return;
    }
    if (tdl__number_after(last->mark, s->ready.tail->mark) || last->mark == s->ready.tail->mark) {
        s->ready.tail = last;
    }
    s->ready.head = merge_two(s->ready.head, list);
    TDL_VERIFY(tdl_sched_check(s));
}
