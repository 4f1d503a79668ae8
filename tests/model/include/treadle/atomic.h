/* Stands in for base's atomic.h in the models: the same operations, each a step of the explorer (model.h)
 * with its order as a value. The orders are spelled here by name only. */
#ifndef TREADLE_ATOMIC_H
#define TREADLE_ATOMIC_H

#include "model.h"

#include <stdbool.h>
#include <stdint.h>

#define TDL_ATOMIC_INIT(initial)                                                                             \
    {                                                                                                        \
        (initial)                                                                                            \
    }

/* clang-format off */
#define MODEL_ATOMIC(suffix, type, value_type, TO, FROM)                                                     \
    typedef struct type { value_type value; } type;                                                          \
    static inline void tdl_atomic_init_##suffix(type *a, value_type v) { model_init(a, TO(v)); }             \
    MODEL_LOAD(suffix, type, value_type, FROM, relaxed, MODEL_RELAXED)                                       \
    MODEL_LOAD(suffix, type, value_type, FROM, acquire, MODEL_ACQUIRE)                                       \
    MODEL_LOAD(suffix, type, value_type, FROM, seq, MODEL_SEQ)                                               \
    MODEL_STORE(suffix, type, value_type, TO, relaxed, MODEL_RELAXED)                                        \
    MODEL_STORE(suffix, type, value_type, TO, release, MODEL_RELEASE)                                        \
    MODEL_STORE(suffix, type, value_type, TO, seq, MODEL_SEQ)                                                \
    MODEL_EXCHANGE(suffix, type, value_type, TO, FROM, acq_rel, MODEL_ACQ_REL)                               \
    MODEL_EXCHANGE(suffix, type, value_type, TO, FROM, seq, MODEL_SEQ)                                       \
    MODEL_CAS(suffix, type, value_type, TO, FROM, relaxed, MODEL_RELAXED)                                    \
    MODEL_CAS(suffix, type, value_type, TO, FROM, release, MODEL_RELEASE)                                    \
    MODEL_CAS(suffix, type, value_type, TO, FROM, acq_rel, MODEL_ACQ_REL)                                    \
    MODEL_CAS(suffix, type, value_type, TO, FROM, seq, MODEL_SEQ)

#define MODEL_LOAD(suffix, type, value_type, FROM, name, order)                                              \
    static inline value_type tdl_load_##name##_##suffix(const type *a)                                       \
    { return FROM(model_load(a, order)); }
#define MODEL_STORE(suffix, type, value_type, TO, name, order)                                               \
    static inline void tdl_store_##name##_##suffix(type *a, value_type v)                                    \
    { model_store(a, TO(v), order); }
#define MODEL_EXCHANGE(suffix, type, value_type, TO, FROM, name, order)                                      \
    static inline value_type tdl_exchange_##name##_##suffix(type *a, value_type v)                           \
    { return FROM(model_rmw(a, MODEL_SET, TO(v), order)); }
#define MODEL_CAS(suffix, type, value_type, TO, FROM, name, order)                                           \
    static inline bool tdl_cas_##name##_##suffix(type *a, value_type *expected, value_type desired)          \
    {                                                                                                        \
        uint64_t seen = TO(*expected);                                                                       \
        bool done = model_cas(a, &seen, TO(desired), order);                                                 \
        *expected = FROM(seen);                                                                              \
        return done;                                                                                         \
    }
#define MODEL_FETCH(suffix, type, value_type, verb, operation, name, order)                                  \
    static inline value_type tdl_fetch_##verb##_##name##_##suffix(type *a, value_type v)                     \
    { return (value_type)model_rmw(a, operation, v, order); }

#define MODEL_NUMBER_TO(v) ((uint64_t)(v))
#define MODEL_U32_FROM(v) ((uint32_t)(v))
#define MODEL_POINTER_TO(v) ((uint64_t)(uintptr_t)(v))
#define MODEL_POINTER_FROM(v) ((void *)(uintptr_t)(v))

MODEL_ATOMIC(u32, tdl_atomic_u32, uint32_t, MODEL_NUMBER_TO, MODEL_U32_FROM)
MODEL_ATOMIC(ptr, tdl_atomic_ptr, void *, MODEL_POINTER_TO, MODEL_POINTER_FROM)
MODEL_FETCH(u32, tdl_atomic_u32, uint32_t, add, MODEL_ADD, relaxed, MODEL_RELAXED)
MODEL_FETCH(u32, tdl_atomic_u32, uint32_t, add, MODEL_ADD, acq_rel, MODEL_ACQ_REL)
MODEL_FETCH(u32, tdl_atomic_u32, uint32_t, sub, MODEL_SUB, relaxed, MODEL_RELAXED)
MODEL_FETCH(u32, tdl_atomic_u32, uint32_t, sub, MODEL_SUB, release, MODEL_RELEASE)
MODEL_FETCH(u32, tdl_atomic_u32, uint32_t, or, MODEL_OR, acq_rel, MODEL_ACQ_REL)
/* clang-format on */

static inline void tdl_cpu_pause(void)
{
    model_pause();
}

#endif
