/* What a program in another language needs to call the shared library without a C compiler: how large the
 * structs are that it embeds, and where their public fields lie. Types and fields go by the names in the
 * headers.
 *
 * Example:
 *     size_t size = tdl_ffi_size("tdl_fop");
 *     size_t result_at = tdl_ffi_offset("tdl_fop.result");
 *     printf("%d\n", size > 0 && result_at < size);
 *
 * Everything that the headers define inline is in the shared library as a symbol too, except the atomics
 * and the heap.
 */
#ifndef TREADLE_FFI_H
#define TREADLE_FFI_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the size of a struct, e.g. "tdl_item"; an owner of one may reserve more, never less.
 * Thread:  any
 * Owns:    nothing
 * Errors:  0 for a name that is no struct to embed, for NULL, and for one of a library that was left out
 * Cost:    O(structs) */
size_t tdl_ffi_size(const char *type);

/* Returns the alignment that a struct asks for, a power of two.
 * Thread:  any
 * Owns:    nothing
 * Errors:  0 as tdl_ffi_size
 * Cost:    O(structs) */
size_t tdl_ffi_align(const char *type);

/* Returns where a public field begins, e.g. "tdl_fop.result".
 * Thread:  any
 * Owns:    nothing
 * Errors:  SIZE_MAX for a name that is no public field, and for NULL
 * Cost:    O(fields) */
size_t tdl_ffi_offset(const char *field);

#ifdef __cplusplus
}
#endif

#endif
