/* Intrusive lists: a FIFO queue of 16-byte links, which is the node of every queue in treadle, and a
 * doubly linked ring for what must leave from the middle. Neither allocates.
 *
 * Example:
 *     struct tdl_queue queue;
 *     struct tdl_link first = {0}, second = {0};
 *     tdl_queue_init(&queue);
 *     tdl_queue_push(&queue, &first);
 *     tdl_queue_push(&queue, &second);
 *     while (!tdl_queue_is_empty(&queue))
 *         (void)tdl_queue_pop(&queue);
 */
#ifndef TREADLE_LIST_H
#define TREADLE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls too small for a jump are compiled into who calls them; the shared library has them as symbols
 * besides. */
#ifndef TDL_INLINE
#define TDL_INLINE static inline
#endif

/* The struct of `type` whose field `member` is at `ptr`. */
#define TDL_CONTAINER_OF(ptr, type, member) ((type *)((uintptr_t)(ptr)-offsetof(type, member)))

/* A node of one queue at a time; `mark` and `state` belong to the lib that queues it, `flags` and `user`
 * to the caller, unless that lib says otherwise. */
struct tdl_link {
    struct tdl_link *next;
    uint32_t mark;
    uint8_t state;
    uint8_t flags;
    uint16_t user;
};

/* First in, first out; `tail` is meaningful only while `head` is not NULL. */
struct tdl_queue {
    struct tdl_link *head;
    struct tdl_link *tail;
};

/* Makes the queue empty.
 * Thread:  owner
 * Owns:    the caller keeps the queue; links that were in it are simply forgotten
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE void tdl_queue_init(struct tdl_queue *q)
{
    q->head = NULL;
    q->tail = NULL;
}

/* Says whether the queue has no link.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE bool tdl_queue_is_empty(const struct tdl_queue *q)
{
    return q->head == NULL;
}

/* Puts the link at the end.
 * Thread:  owner
 * Owns:    the caller keeps the link valid until it is popped or taken
 * Errors:  none; a link that is in a queue already corrupts both
 * Cost:    O(1) */
TDL_INLINE void tdl_queue_push(struct tdl_queue *q, struct tdl_link *link)
{
    link->next = NULL;
    if (q->head == NULL) {
        q->head = link;
    } else {
        q->tail->next = link;
    }
    q->tail = link;
}

/* Puts the link at the front.
 * Thread:  owner
 * Owns:    the caller keeps the link valid until it is popped or taken
 * Errors:  none; a link that is in a queue already corrupts both
 * Cost:    O(1) */
TDL_INLINE void tdl_queue_push_front(struct tdl_queue *q, struct tdl_link *link)
{
    if (q->head == NULL) {
        q->tail = link;
    }
    link->next = q->head;
    q->head = link;
}

/* Takes the first link out, NULL if there is none; its `next` keeps its old value.
 * Thread:  owner
 * Owns:    the link is the caller's again
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE struct tdl_link *tdl_queue_pop(struct tdl_queue *q)
{
    struct tdl_link *link = q->head;
    if (link != NULL) {
        q->head = link->next;
    }
    return link;
}

/* Moves everything of `src` behind `dst`, in order; `src` is empty afterwards.
 * Thread:  owner of both
 * Owns:    as push
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE void tdl_queue_splice(struct tdl_queue *dst, struct tdl_queue *src)
{
    if (src->head == NULL) {
        return;
    }
    if (dst->head == NULL) {
        dst->head = src->head;
    } else {
        dst->tail->next = src->head;
    }
    dst->tail = src->tail;
    tdl_queue_init(src);
}

/* Takes everything out as a chain by `next`, oldest first; the queue is empty afterwards.
 * Thread:  owner
 * Owns:    the links are the caller's again
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE struct tdl_link *tdl_queue_take(struct tdl_queue *q)
{
    struct tdl_link *head = q->head;
    tdl_queue_init(q);
    return head;
}

/* A node of a ring; a ring's anchor is a node too. */
struct tdl_node {
    struct tdl_node *next;
    struct tdl_node *prev;
};

/* Makes the node a ring of its own: an empty anchor, or a node that is in no ring.
 * Thread:  owner
 * Owns:    the caller keeps the node
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE void tdl_node_init(struct tdl_node *node)
{
    node->next = node;
    node->prev = node;
}

/* Says whether the node is in a ring with others (for an anchor: whether the ring is not empty).
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE bool tdl_node_is_linked(const struct tdl_node *node)
{
    return node->next != node;
}

/* Puts the node before `at`; before the anchor is the end of the ring.
 * Thread:  owner
 * Owns:    the caller keeps the node valid until it is removed
 * Errors:  none; a node that is in a ring already corrupts both
 * Cost:    O(1) */
TDL_INLINE void tdl_node_insert_before(struct tdl_node *at, struct tdl_node *node)
{
    node->next = at;
    node->prev = at->prev;
    at->prev->next = node;
    at->prev = node;
}

/* Takes the node out of its ring; harmless for a node that is in none.
 * Thread:  owner
 * Owns:    the node is the caller's again
 * Errors:  none
 * Cost:    O(1) */
TDL_INLINE void tdl_node_remove(struct tdl_node *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    tdl_node_init(node);
}

#ifdef __cplusplus
}
#endif

#endif
