/* Goal: what the shared library says of a struct is what a C compiler sees in the headers. Method: ask for
 * structs of every library, at least one of each, and compare; ask for what there is not. */
#include "suite.h"

#include <stddef.h>
#include <stdint.h>

#include "treadle/ffi.h"
#include "treadle/fileio.h"
#include "treadle/filter.h"
#include "treadle/hold.h"
#include "treadle/host.h"
#include "treadle/inbox.h"
#include "treadle/lookup.h"
#include "treadle/numeric.h"
#include "treadle/patience.h"
#include "treadle/pool.h"
#include "treadle/turn.h"

#define CHECK_TYPE(type)                                                                                     \
    do {                                                                                                     \
        ck_assert_uint_eq(tdl_ffi_size(#type), sizeof(struct type));                                         \
        ck_assert_uint_eq(tdl_ffi_align(#type), _Alignof(struct type));                                      \
    } while (0)
#define CHECK_FIELD(type, field)                                                                             \
    ck_assert_uint_eq(tdl_ffi_offset(#type "." #field), offsetof(struct type, field))

START_TEST(structs_have_the_size_and_alignment_of_the_headers)
{
    CHECK_TYPE(tdl_link);
    CHECK_TYPE(tdl_queue);
    CHECK_TYPE(tdl_node);
    CHECK_TYPE(tdl_item);
    CHECK_TYPE(tdl_timer);
    CHECK_TYPE(tdl_sched);
    CHECK_TYPE(tdl_host);
    CHECK_TYPE(tdl_wake);
    CHECK_TYPE(tdl_wake_options);
    CHECK_TYPE(tdl_inbox);
    CHECK_TYPE(tdl_patience);
    CHECK_TYPE(tdl_epoll_host);
    CHECK_TYPE(tdl_epoll_watch);
    CHECK_TYPE(tdl_hold);
    CHECK_TYPE(tdl_held);
    CHECK_TYPE(tdl_ring);
    CHECK_TYPE(tdl_ring_options);
    CHECK_TYPE(tdl_filter);
    CHECK_TYPE(tdl_job);
    CHECK_TYPE(tdl_pool_options);
    CHECK_TYPE(tdl_pool_counts);
    CHECK_TYPE(tdl_lookup);
    CHECK_TYPE(tdl_numeric);
    CHECK_TYPE(tdl_fop);
    CHECK_TYPE(tdl_fio);
    CHECK_TYPE(tdl_fio_options);
    CHECK_TYPE(tdl_fio_caps);
    CHECK_TYPE(tdl_fio_stats);
}
END_TEST

START_TEST(fields_lie_where_the_headers_say)
{
    CHECK_FIELD(tdl_link, next);
    CHECK_FIELD(tdl_item, run);
    CHECK_FIELD(tdl_timer, deadline_ns);
    CHECK_FIELD(tdl_host, poll);
    CHECK_FIELD(tdl_wake_options, edge);
    CHECK_FIELD(tdl_epoll_watch, ready);
    CHECK_FIELD(tdl_held, owner);
    CHECK_FIELD(tdl_ring, fd);
    CHECK_FIELD(tdl_ring_options, cq_entries);
    CHECK_FIELD(tdl_pool_options, fork_grace_ns);
    CHECK_FIELD(tdl_pool_counts, waiting);
    CHECK_FIELD(tdl_lookup, service_name);
    CHECK_FIELD(tdl_numeric, address);
    CHECK_FIELD(tdl_fop, result);
    CHECK_FIELD(tdl_fop, user);
    CHECK_FIELD(tdl_fio_options, simulation);
    CHECK_FIELD(tdl_fio_caps, single_syscall);
    CHECK_FIELD(tdl_fio, stats);
    CHECK_FIELD(tdl_fio_stats, handed_over);
}
END_TEST

START_TEST(what_there_is_not_has_no_size_and_no_place)
{
    static const char *const unknown[] = {NULL,       "",        "tdl_", "tdl_nosuch", "tdl_fop.result",
                                          " tdl_fop", "tdl_fop "};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        ck_assert_uint_eq(tdl_ffi_size(unknown[i]), 0);
        ck_assert_uint_eq(tdl_ffi_align(unknown[i]), 0);
    }
    static const char *const nowhere[] = {NULL, "", ".", "tdl_fop", "tdl_fop.", "tdl_fop.nosuch", ".result"};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        ck_assert_uint_eq(tdl_ffi_offset(nowhere[i]), SIZE_MAX);
    }
}
END_TEST

SUITE("ffi/layout", structs_have_the_size_and_alignment_of_the_headers, fields_lie_where_the_headers_say,
      what_there_is_not_has_no_size_and_no_place)
