#include <stdint.h>
#include <string.h>

#include "treadle/ffi.h"
#include "treadle/list.h"

#ifdef TDL_FFI_CORE
#include "treadle/turn.h"
#endif
#ifdef TDL_FFI_WAKE
#include "treadle/inbox.h"
#include "treadle/patience.h"
#endif
#ifdef TDL_FFI_HOST
#include "treadle/host.h"
#endif
#ifdef TDL_FFI_HOLD
#include "treadle/hold.h"
#endif
#ifdef TDL_FFI_RING
#include "treadle/filter.h"
#endif
#ifdef TDL_FFI_POOL
#include "treadle/pool.h"
#endif
#ifdef TDL_FFI_RESOLVE
#include "treadle/lookup.h"
#include "treadle/numeric.h"
#endif
#ifdef TDL_FFI_FILEIO
#include "treadle/fileio.h"
#endif

struct type {
    const char *name;
    size_t size;
    size_t align;
};

struct field {
    const char *name;
    size_t offset;
};

#define TYPE(type)                                                                                           \
    {                                                                                                        \
#type, sizeof(struct type), _Alignof(struct type)                                                    \
    }
#define FIELD(type, field)                                                                                   \
    {                                                                                                        \
#type "." #field, offsetof(struct type, field)                                                       \
    }

static const struct type types[] = {
    TYPE(tdl_link),       TYPE(tdl_queue),        TYPE(tdl_node),
#ifdef TDL_FFI_CORE
    TYPE(tdl_item),       TYPE(tdl_timer),        TYPE(tdl_sched),       TYPE(tdl_host),
#endif
#ifdef TDL_FFI_WAKE
    TYPE(tdl_wake),       TYPE(tdl_wake_options), TYPE(tdl_inbox),       TYPE(tdl_patience),
#endif
#ifdef TDL_FFI_HOST
    TYPE(tdl_epoll_host), TYPE(tdl_epoll_watch),
#endif
#ifdef TDL_FFI_HOLD
    TYPE(tdl_hold),       TYPE(tdl_held),
#endif
#ifdef TDL_FFI_RING
    TYPE(tdl_ring),       TYPE(tdl_ring_options), TYPE(tdl_filter),
#endif
#ifdef TDL_FFI_POOL
    TYPE(tdl_job),        TYPE(tdl_pool_options), TYPE(tdl_pool_counts),
#endif
#ifdef TDL_FFI_RESOLVE
    TYPE(tdl_lookup),     TYPE(tdl_numeric),      TYPE(tdl_numeric_row),
#endif
#ifdef TDL_FFI_FILEIO
    TYPE(tdl_fop),        TYPE(tdl_fio),          TYPE(tdl_fio_options), TYPE(tdl_fio_simulation),
    TYPE(tdl_fio_caps),   TYPE(tdl_fio_stats),
#endif
};

/* A link's `next` too: what take returns is a chain of it. */
static const struct field fields[] = {
    FIELD(tdl_link, next),
    FIELD(tdl_link, mark),
    FIELD(tdl_link, user),
#ifdef TDL_FFI_CORE
    FIELD(tdl_item, link),
    FIELD(tdl_item, run),
    FIELD(tdl_timer, item),
    FIELD(tdl_timer, deadline_ns),
    FIELD(tdl_sched, drop),
    FIELD(tdl_host, now_ns),
    FIELD(tdl_host, take),
    FIELD(tdl_host, before_poll),
    FIELD(tdl_host, poll),
#endif
#ifdef TDL_FFI_WAKE
    FIELD(tdl_wake_options, spin_ns),
    FIELD(tdl_wake_options, edge),
#endif
#ifdef TDL_FFI_HOST
    FIELD(tdl_epoll_host, sched),
    FIELD(tdl_epoll_watch, item),
    FIELD(tdl_epoll_watch, ready),
#endif
#ifdef TDL_FFI_HOLD
    FIELD(tdl_held, data),
    FIELD(tdl_held, len),
    FIELD(tdl_held, sent),
    FIELD(tdl_held, count),
    FIELD(tdl_held, error),
    FIELD(tdl_held, owner),
#endif
#ifdef TDL_FFI_RING
    FIELD(tdl_ring, features),
    FIELD(tdl_ring, fd),
    FIELD(tdl_ring_options, sq_entries),
    FIELD(tdl_ring_options, cq_entries),
    FIELD(tdl_ring_options, flags_mask),
    FIELD(tdl_ring_options, flags_exact),
    FIELD(tdl_ring_options, sqpoll),
    FIELD(tdl_ring_options, any_thread),
    FIELD(tdl_filter, state),
    FIELD(tdl_filter, error),
#endif
#ifdef TDL_FFI_POOL
    FIELD(tdl_pool_options, slots),
    FIELD(tdl_pool_options, classes),
    FIELD(tdl_pool_options, name),
    FIELD(tdl_pool_options, idle_ns),
    FIELD(tdl_pool_options, linger_ns),
    FIELD(tdl_pool_options, stack_bytes),
    FIELD(tdl_pool_options, fork_grace_ns),
    FIELD(tdl_pool_counts, threads),
    FIELD(tdl_pool_counts, threads_started),
    FIELD(tdl_pool_counts, idle),
    FIELD(tdl_pool_counts, running),
    FIELD(tdl_pool_counts, waiting),
#endif
#ifdef TDL_FFI_RESOLVE
    FIELD(tdl_lookup, job),
    FIELD(tdl_lookup, eai),
    FIELD(tdl_lookup, system_errno),
    FIELD(tdl_lookup, rows),
    FIELD(tdl_lookup, host_name),
    FIELD(tdl_lookup, service_name),
    FIELD(tdl_numeric, count),
    FIELD(tdl_numeric, rows),
    FIELD(tdl_numeric, canonical),
    FIELD(tdl_numeric, length),
    FIELD(tdl_numeric, address),
    FIELD(tdl_numeric_row, socktype),
    FIELD(tdl_numeric_row, protocol),
#endif
#ifdef TDL_FFI_FILEIO
    FIELD(tdl_fop, link),
    FIELD(tdl_fop, result),
    FIELD(tdl_fop, user),
    FIELD(tdl_fio_options, engine),
    FIELD(tdl_fio_options, mode),
    FIELD(tdl_fio_options, inflight_max),
    FIELD(tdl_fio_options, threads_max),
    FIELD(tdl_fio_options, step_ns),
    FIELD(tdl_fio_options, sqpoll),
    FIELD(tdl_fio_options, sqpoll_when_busy),
    FIELD(tdl_fio_options, any_thread),
    FIELD(tdl_fio_options, no_inline),
    FIELD(tdl_fio_options, no_join),
    FIELD(tdl_fio_options, ring_flags_mask),
    FIELD(tdl_fio_options, chunk_max),
    FIELD(tdl_fio_options, pool),
    FIELD(tdl_fio_options, provide),
    FIELD(tdl_fio_options, simulation),
    FIELD(tdl_fio_simulation, seed),
    FIELD(tdl_fio_simulation, fault_permille),
    FIELD(tdl_fio_simulation, short_permille),
    FIELD(tdl_fio_simulation, delay_max),
    FIELD(tdl_fio_caps, engine),
    FIELD(tdl_fio_caps, mode),
    FIELD(tdl_fio_caps, refused_engine),
    FIELD(tdl_fio_caps, refused_code),
    FIELD(tdl_fio_caps, inflight_max),
    FIELD(tdl_fio_caps, ring_flags),
    FIELD(tdl_fio_caps, sq_entries),
    FIELD(tdl_fio_caps, cq_entries),
    FIELD(tdl_fio_caps, kernel_ops),
    FIELD(tdl_fio_caps, sqpoll),
    FIELD(tdl_fio_caps, single_syscall),
    FIELD(tdl_fio, stats),
    FIELD(tdl_fio_stats, submissions),
    FIELD(tdl_fio_stats, submit_calls),
    FIELD(tdl_fio_stats, other_calls),
    FIELD(tdl_fio_stats, completed),
    FIELD(tdl_fio_stats, inlined),
    FIELD(tdl_fio_stats, missed),
    FIELD(tdl_fio_stats, polled),
    FIELD(tdl_fio_stats, canceled),
    FIELD(tdl_fio_stats, joined),
    FIELD(tdl_fio_stats, handed_over),
#endif
};

static const struct type *find_type(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, name) == 0) {
            return &types[i];
        }
    }
    return NULL;
}

size_t tdl_ffi_size(const char *type)
{
    const struct type *found = find_type(type);
    return found != NULL ? found->size : 0;
}

size_t tdl_ffi_align(const char *type)
{
    const struct type *found = find_type(type);
    return found != NULL ? found->align : 0;
}

size_t tdl_ffi_offset(const char *field)
{
    for (size_t i = 0; field != NULL && i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(fields[i].name, field) == 0) {
            return fields[i].offset;
        }
    }
    return SIZE_MAX;
}
