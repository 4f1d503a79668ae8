/* Goal: the queue is first in, first out under every operation, and the ring forgets nothing. Method: small
 * literal sequences, compared with the order pushed. */
#include "suite.h"

#include "treadle/list.h"

static struct tdl_link links[8];

static void number_links(void)
{
    for (uint16_t i = 0; i < 8; i++) {
        links[i].user = i;
    }
}

static void check_chain(const struct tdl_link *chain, const int *expected, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ck_assert_ptr_nonnull(chain);
        ck_assert_int_eq(chain->user, expected[i]);
        chain = chain->next;
    }
    ck_assert_ptr_null(chain);
}

START_TEST(a_link_is_sixteen_bytes)
{
    ck_assert_uint_eq(sizeof(struct tdl_link), 16);
}
END_TEST

START_TEST(a_queue_pops_in_the_order_pushed)
{
    struct tdl_queue q;
    number_links();
    tdl_queue_init(&q);
    ck_assert(tdl_queue_is_empty(&q));
    ck_assert_ptr_null(tdl_queue_pop(&q));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            tdl_queue_push(&q, &links[i]);
        }
        for (int i = 0; i < 4; i++) {
            ck_assert_ptr_eq(tdl_queue_pop(&q), &links[i]);
        }
        ck_assert(tdl_queue_is_empty(&q));
    }
}
END_TEST

START_TEST(push_front_goes_before_everything_also_when_empty)
{
    struct tdl_queue q;
    number_links();
    tdl_queue_init(&q);
    tdl_queue_push_front(&q, &links[1]);
    tdl_queue_push(&q, &links[2]);
    tdl_queue_push_front(&q, &links[0]);
    tdl_queue_push(&q, &links[3]);
    check_chain(tdl_queue_take(&q), (int[]){0, 1, 2, 3}, 4);
    ck_assert(tdl_queue_is_empty(&q));
}
END_TEST

START_TEST(splice_moves_all_in_order_and_empties_the_source)
{
    struct tdl_queue a, b;
    number_links();
    tdl_queue_init(&a);
    tdl_queue_init(&b);
    tdl_queue_splice(&a, &b);
    ck_assert(tdl_queue_is_empty(&a));
    tdl_queue_push(&b, &links[0]);
    tdl_queue_push(&b, &links[1]);
    tdl_queue_splice(&a, &b);
    ck_assert(tdl_queue_is_empty(&b));
    tdl_queue_push(&b, &links[2]);
    tdl_queue_splice(&a, &b);
    tdl_queue_push(&a, &links[3]);
    tdl_queue_splice(&a, &b);
    check_chain(tdl_queue_take(&a), (int[]){0, 1, 2, 3}, 4);
}
END_TEST

START_TEST(a_ring_keeps_order_and_lets_go_of_the_middle)
{
    struct tdl_node anchor, nodes[3];
    tdl_node_init(&anchor);
    ck_assert(!tdl_node_is_linked(&anchor));
    for (int i = 0; i < 3; i++) {
        tdl_node_init(&nodes[i]);
        tdl_node_insert_before(&anchor, &nodes[i]);
    }
    ck_assert_ptr_eq(anchor.next, &nodes[0]);
    ck_assert_ptr_eq(anchor.prev, &nodes[2]);
    tdl_node_remove(&nodes[1]);
    ck_assert(!tdl_node_is_linked(&nodes[1]));
    ck_assert_ptr_eq(nodes[0].next, &nodes[2]);
    ck_assert_ptr_eq(nodes[2].prev, &nodes[0]);
    tdl_node_remove(&nodes[1]);
    tdl_node_remove(&nodes[0]);
    tdl_node_remove(&nodes[2]);
    ck_assert(!tdl_node_is_linked(&anchor));
}
END_TEST

START_TEST(container_of_finds_the_struct_around_a_field)
{
    struct holder {
        int before;
        struct tdl_link link;
    } holder;
    ck_assert_ptr_eq(TDL_CONTAINER_OF(&holder.link, struct holder, link), &holder);
}
END_TEST

SUITE("base/list", a_link_is_sixteen_bytes, a_queue_pops_in_the_order_pushed,
      push_front_goes_before_everything_also_when_empty, splice_moves_all_in_order_and_empties_the_source,
      a_ring_keeps_order_and_lets_go_of_the_middle, container_of_finds_the_struct_around_a_field)
