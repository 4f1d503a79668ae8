/* Atomic words with their memory order in the name; the only place in the tree where an order stands.
 * Built on the compiler's atomics so that C11, C++17 and ThreadSanitizer all read it the same.
 *
 * Example:
 *     tdl_atomic_u32 ready = TDL_ATOMIC_INIT(0);
 *     tdl_store_release_u32(&ready, 1);
 *     uint32_t seen = tdl_load_acquire_u32(&ready);
 *     printf("%u\n", (unsigned)seen);
 *
 * MEMORY ORDER. Call sites that matter name the rule they serve, MO-1 to MO-9; each rule, with both of
 * its sides, stands in docs/concurrency.md. `seq` accesses are totally ordered among each other: a seq
 * store followed by a seq load of another word cannot pass each other, which release and acquire allow.
 */
#ifndef TREADLE_ATOMIC_H
#define TREADLE_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
#define TDL_ATOMIC_INIT(initial) {(initial)}

#define TDL__ATOMIC_DEFINE(suffix, type, value_type)                                                         \
    typedef struct type { value_type value; } type;                                                          \
    static inline void tdl_atomic_init_##suffix(type *a, value_type v)                                       \
    { __atomic_store_n(&a->value, v, __ATOMIC_RELAXED); }                                                    \
    static inline value_type tdl_load_relaxed_##suffix(const type *a)                                        \
    { return __atomic_load_n(&a->value, __ATOMIC_RELAXED); }                                                 \
    static inline value_type tdl_load_acquire_##suffix(const type *a)                                        \
    { return __atomic_load_n(&a->value, __ATOMIC_ACQUIRE); }                                                 \
    static inline value_type tdl_load_seq_##suffix(const type *a)                                            \
    { return __atomic_load_n(&a->value, __ATOMIC_SEQ_CST); }                                                 \
    static inline void tdl_store_relaxed_##suffix(type *a, value_type v)                                     \
    { __atomic_store_n(&a->value, v, __ATOMIC_RELAXED); }                                                    \
    static inline void tdl_store_release_##suffix(type *a, value_type v)                                     \
    { __atomic_store_n(&a->value, v, __ATOMIC_RELEASE); }                                                    \
    static inline void tdl_store_seq_##suffix(type *a, value_type v)                                         \
    { __atomic_store_n(&a->value, v, __ATOMIC_SEQ_CST); }                                                    \
    static inline value_type tdl_exchange_acq_rel_##suffix(type *a, value_type v)                            \
    { return __atomic_exchange_n(&a->value, v, __ATOMIC_ACQ_REL); }                                          \
    static inline value_type tdl_exchange_seq_##suffix(type *a, value_type v)                                \
    { return __atomic_exchange_n(&a->value, v, __ATOMIC_SEQ_CST); }                                          \
    static inline bool tdl_cas_acq_rel_##suffix(type *a, value_type *expected, value_type desired)           \
    { return __atomic_compare_exchange_n(&a->value, expected, desired, false,                                \
                                         __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE); }                              \
    static inline bool tdl_cas_release_##suffix(type *a, value_type *expected, value_type desired)           \
    { return __atomic_compare_exchange_n(&a->value, expected, desired, false,                                \
                                         __ATOMIC_RELEASE, __ATOMIC_RELAXED); }                              \
    static inline bool tdl_cas_relaxed_##suffix(type *a, value_type *expected, value_type desired)           \
    { return __atomic_compare_exchange_n(&a->value, expected, desired, false,                                \
                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED); }                              \
    static inline bool tdl_cas_seq_##suffix(type *a, value_type *expected, value_type desired)               \
    { return __atomic_compare_exchange_n(&a->value, expected, desired, false,                                \
                                         __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); }

#define TDL__ATOMIC_DEFINE_ARITHMETIC(suffix, type, value_type)                                              \
    static inline value_type tdl_fetch_add_relaxed_##suffix(type *a, value_type v)                           \
    { return __atomic_fetch_add(&a->value, v, __ATOMIC_RELAXED); }                                           \
    static inline value_type tdl_fetch_add_acq_rel_##suffix(type *a, value_type v)                           \
    { return __atomic_fetch_add(&a->value, v, __ATOMIC_ACQ_REL); }                                           \
    static inline value_type tdl_fetch_add_seq_##suffix(type *a, value_type v)                               \
    { return __atomic_fetch_add(&a->value, v, __ATOMIC_SEQ_CST); }                                           \
    static inline value_type tdl_fetch_sub_release_##suffix(type *a, value_type v)                           \
    { return __atomic_fetch_sub(&a->value, v, __ATOMIC_RELEASE); }                                           \
    static inline value_type tdl_fetch_sub_acq_rel_##suffix(type *a, value_type v)                           \
    { return __atomic_fetch_sub(&a->value, v, __ATOMIC_ACQ_REL); }                                           \
    static inline value_type tdl_fetch_or_acq_rel_##suffix(type *a, value_type v)                            \
    { return __atomic_fetch_or(&a->value, v, __ATOMIC_ACQ_REL); }                                            \
    static inline value_type tdl_fetch_and_acq_rel_##suffix(type *a, value_type v)                           \
    { return __atomic_fetch_and(&a->value, v, __ATOMIC_ACQ_REL); }

TDL__ATOMIC_DEFINE(u32, tdl_atomic_u32, uint32_t)
TDL__ATOMIC_DEFINE_ARITHMETIC(u32, tdl_atomic_u32, uint32_t)
TDL__ATOMIC_DEFINE(u64, tdl_atomic_u64, uint64_t)
TDL__ATOMIC_DEFINE_ARITHMETIC(u64, tdl_atomic_u64, uint64_t)
TDL__ATOMIC_DEFINE(ptr, tdl_atomic_ptr, void *)
/* clang-format on */

/* Reads a word of memory that the kernel shares and writes, with acquire order (MO-7).
 * Thread:  any, signal-safe
 * Owns:    nothing
 * Errors:  none
 * Cost:    one load */
static inline uint32_t tdl_load_acquire_shared_u32(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Reads a word of memory that the kernel shares and writes, with no order.
 * Thread:  any, signal-safe
 * Owns:    nothing
 * Errors:  none
 * Cost:    one load */
static inline uint32_t tdl_load_relaxed_shared_u32(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

/* Publishes a word of memory that the kernel shares and reads, with release order (MO-7).
 * Thread:  any, signal-safe
 * Owns:    nothing
 * Errors:  none
 * Cost:    one store */
static inline void tdl_store_release_shared_u32(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Orders every access before it against every access after it. Only for pairs whose other side is the
 * kernel (MO-6): ThreadSanitizer does not model a fence, so pairs of threads use seq accesses instead.
 * Thread:  any, signal-safe
 * Owns:    nothing
 * Errors:  none
 * Cost:    one full fence */
static inline void tdl_fence_full(void)
{
#ifdef __SANITIZE_THREAD__
    /* gcc refuses the fence under -fsanitize=thread; a locked operation is the same barrier there. */
    uint32_t word = 0;
    (void)__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Tells the processor that this is a spin loop.
 * Thread:  any, signal-safe
 * Owns:    nothing
 * Errors:  none
 * Cost:    some ten to hundred cycles */
static inline void tdl_cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

#ifdef __cplusplus
}
#endif

#endif
