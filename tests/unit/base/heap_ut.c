/* Goal: the heap gives nodes back in order whatever is inserted and removed in between. Method: every
 * permutation of small sets, and a long pseudo-random mix checked against a plain array. */
#include "suite.h"

#include <stdbool.h>
#include <stdint.h>

#include "treadle/heap.h"

struct node {
    struct node *child;
    struct node *sibling;
    struct node *prev;
    uint32_t key;
    bool in_heap;
};

static inline struct node *node_sibling(const struct node *n)
{
    return n->sibling;
}

static inline void node_set_sibling(struct node *n, struct node *sibling)
{
    n->sibling = sibling;
}

static inline bool node_before(const struct node *a, const struct node *b)
{
    return a->key < b->key;
}

TDL_HEAP_DEFINE(heap, struct node, node_sibling, node_set_sibling, node_before)

static uint32_t random_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (uint32_t)(*state >> 33);
}

START_TEST(one_node_goes_in_and_out)
{
    struct node *root = NULL, a = {.key = 1};
    heap_insert(&root, &a);
    ck_assert_ptr_eq(root, &a);
    heap_remove(&root, &a);
    ck_assert_ptr_null(root);
    ck_assert_ptr_null(a.child);
    ck_assert_ptr_null(a.prev);
    ck_assert_ptr_null(a.sibling);
}
END_TEST

static void check_permutation(const unsigned *order, unsigned count, unsigned removed)
{
    struct node nodes[6] = {{0}};
    struct node *root = NULL;

    for (unsigned i = 0; i < count; i++) {
        nodes[order[i]].key = order[i];
        heap_insert(&root, &nodes[order[i]]);
    }
    heap_remove(&root, &nodes[removed]);
    for (unsigned key = 0; key < count; key++) {
        if (key == removed) {
            continue;
        }
        ck_assert_ptr_nonnull(root);
        ck_assert_uint_eq(root->key, key);
        heap_remove(&root, root);
    }
    ck_assert_ptr_null(root);
}

static void permute(unsigned *order, unsigned fixed, unsigned count)
{
    if (fixed == count) {
        for (unsigned removed = 0; removed < count; removed++) {
            check_permutation(order, count, removed);
        }
        return;
    }
    for (unsigned i = fixed; i < count; i++) {
        unsigned swap = order[fixed];
        order[fixed] = order[i];
        order[i] = swap;
        permute(order, fixed + 1, count);
        order[i] = order[fixed];
        order[fixed] = swap;
    }
}

START_TEST(every_order_of_insertion_with_every_removal_pops_sorted)
{
    unsigned order[6] = {0, 1, 2, 3, 4, 5};
    for (unsigned count = 1; count <= 6; count++) {
        permute(order, 0, count);
    }
}
END_TEST

enum { NODES = 256, STEPS = 50000 };
static struct node pool[NODES];

static const struct node *least_of_pool(void)
{
    const struct node *least = NULL;
    for (unsigned i = 0; i < NODES; i++) {
        if (pool[i].in_heap && (least == NULL || pool[i].key < least->key)) {
            least = &pool[i];
        }
    }
    return least;
}

START_TEST(a_long_mix_of_insert_and_remove_always_has_the_least_at_the_root)
{
    uint64_t seed = 42;
    struct node *root = NULL;
    for (unsigned step = 0; step < STEPS; step++) {
        struct node *node = &pool[random_next(&seed) % NODES];
        if (node->in_heap) {
            heap_remove(&root, node);
        } else {
            /* Keys are unique, so that there is one least. */
            node->key = (random_next(&seed) % 1024) * NODES + (unsigned)(node - pool);
            heap_insert(&root, node);
        }
        node->in_heap = !node->in_heap;
        if (step % 16 == 0) {
            ck_assert_ptr_eq(root, least_of_pool());
        }
    }
}
END_TEST

SUITE("base/heap", one_node_goes_in_and_out, every_order_of_insertion_with_every_removal_pops_sorted,
      a_long_mix_of_insert_and_remove_always_has_the_least_at_the_root)
