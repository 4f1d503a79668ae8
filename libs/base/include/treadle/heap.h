/* An intrusive pairing heap as a template: TDL_HEAP_DEFINE writes insert, remove and pop for one node
 * type. It allocates nothing, inserts in O(1) and can remove from the middle, which is what timers that
 * are mostly canceled want.
 *
 * Example, for a struct job with fields child, sibling and prev, after
 * TDL_HEAP_DEFINE(job_heap, struct job, job_sibling, job_set_sibling, job_before) at file level:
 *     struct job first = {0}, second = {0};
 *     struct job *root = NULL;
 *     job_heap_insert(&root, &first);
 *     job_heap_insert(&root, &second);
 *     job_heap_remove(&root, root);
 *     job_heap_remove(&root, &second);
 *
 * The heap is a pointer to the root, which is its least node, NULL when empty. A node has fields `child`
 * and `prev` of its own type, and a sibling reached by GET_SIBLING(n) and SET_SIBLING(n, s), so that it may
 * lie in a field that serves something else while the node is in no heap. BEFORE(a, b) is a strict order.
 *   child    first child, NULL if none
 *   sibling  next child of the same parent, NULL for the last and for the root
 *   prev     the parent for a first child, else the sibling before; NULL for the root
 */
#ifndef TREADLE_HEAP_H
#define TREADLE_HEAP_H

#include <stddef.h>

/* clang-format off */
#define TDL_HEAP_DEFINE(name, type, GET_SIBLING, SET_SIBLING, BEFORE)                                        \
    /* Makes the later of two roots the first child of the other; returns the least. */                      \
    static inline type *name##_meld(type *a, type *b)                                                        \
    {                                                                                                        \
        if (BEFORE(b, a)) {                                                                                  \
            type *swap = a;                                                                                  \
            a = b;                                                                                           \
            b = swap;                                                                                        \
        }                                                                                                    \
        SET_SIBLING(b, a->child);                                                                            \
        if (a->child != NULL) {                                                                              \
            a->child->prev = b;                                                                              \
        }                                                                                                    \
        b->prev = a;                                                                                         \
        a->child = b;                                                                                        \
        return a;                                                                                            \
    }                                                                                                        \
    /* Joins a chain of siblings into one tree, in two passes without recursion. */                          \
    static inline type *name##_join(type *first)                                                             \
    {                                                                                                        \
        type *pairs = NULL; /* a stack through the siblings */                                               \
        while (first != NULL) {                                                                              \
            type *a = first;                                                                                 \
            type *b = GET_SIBLING(a);                                                                        \
            first = b != NULL ? GET_SIBLING(b) : NULL;                                                       \
            if (b != NULL) {                                                                                 \
                a = name##_meld(a, b);                                                                       \
            }                                                                                                \
            SET_SIBLING(a, pairs);                                                                           \
            pairs = a;                                                                                       \
        }                                                                                                    \
        type *root = NULL;                                                                                   \
        while (pairs != NULL) {                                                                              \
            type *next = GET_SIBLING(pairs);                                                                 \
            root = root == NULL ? pairs : name##_meld(root, pairs);                                          \
            pairs = next;                                                                                    \
        }                                                                                                    \
        if (root != NULL) {                                                                                  \
            root->prev = NULL;                                                                               \
            SET_SIBLING(root, NULL);                                                                         \
        }                                                                                                    \
        return root;                                                                                         \
    }                                                                                                        \
    static inline void name##_insert(type **root, type *node)                                                \
    {                                                                                                        \
        node->child = NULL;                                                                                  \
        node->prev = NULL;                                                                                   \
        SET_SIBLING(node, NULL);                                                                             \
        if (*root == NULL) {                                                                                 \
            *root = node;                                                                                    \
            return;                                                                                          \
        }                                                                                                    \
        *root = name##_meld(*root, node);                                                                    \
        (*root)->prev = NULL;                                                                                \
        SET_SIBLING(*root, NULL);                                                                            \
    }                                                                                                        \
    static inline void name##_remove(type **root, type *node)                                                \
    {                                                                                                        \
        type *sibling = GET_SIBLING(node);                                                                   \
        type *below = name##_join(node->child);                                                              \
        if (*root == node) {                                                                                 \
            *root = below;                                                                                   \
        } else {                                                                                             \
            if (node->prev->child == node) {                                                                 \
                node->prev->child = sibling;                                                                 \
            } else {                                                                                         \
                SET_SIBLING(node->prev, sibling);                                                            \
            }                                                                                                \
            if (sibling != NULL) {                                                                           \
                sibling->prev = node->prev;                                                                  \
            }                                                                                                \
            if (below != NULL) {                                                                             \
                *root = name##_meld(*root, below);                                                           \
                (*root)->prev = NULL;                                                                        \
                SET_SIBLING(*root, NULL);                                                                    \
            }                                                                                                \
        }                                                                                                    \
        node->child = NULL;                                                                                  \
        node->prev = NULL;                                                                                   \
        SET_SIBLING(node, NULL);                                                                             \
    }
/* clang-format on */

#endif
