/* The allocation calls of every lib below Python: libc's, through the failpoints.
 *
 * Example:
 *     int *numbers = (int *)tdl_calloc(4, sizeof *numbers);
 *     if (numbers != NULL)
 *         tdl_free(numbers);
 */
#ifndef TREADLE_ALLOC_H
#define TREADLE_ALLOC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates `size` bytes, not cleared.
 * Thread:  any
 * Owns:    the caller frees it with tdl_free
 * Errors:  NULL when there is no memory
 * Cost:    one allocation */
void *tdl_malloc(size_t size);

/* Allocates `count` times `size` bytes, cleared; a product that overflows fails.
 * Thread:  any
 * Owns:    the caller frees it with tdl_free
 * Errors:  NULL when there is no memory
 * Cost:    one allocation */
void *tdl_calloc(size_t count, size_t size);

/* Changes the size of a block; `block` may be NULL.
 * Thread:  any
 * Owns:    the block is replaced by the one returned
 * Errors:  NULL when there is no memory; the old block stays valid
 * Cost:    one allocation */
void *tdl_realloc(void *block, size_t size);

/* Frees a block; NULL is allowed.
 * Thread:  any
 * Owns:    the block is gone
 * Errors:  none
 * Cost:    one free */
void tdl_free(void *block);

#ifdef __cplusplus
}
#endif

#endif
