/* Goal: each operation does what its name says on one thread; order is what tests/race and tests/model are
 * for. Method: literal values. */
#include "suite.h"

#include "treadle/atomic.h"

START_TEST(loads_and_stores_of_every_order_carry_the_value)
{
    tdl_atomic_u32 word = TDL_ATOMIC_INIT(7);
    ck_assert_uint_eq(tdl_load_relaxed_u32(&word), 7);
    tdl_store_relaxed_u32(&word, 8);
    ck_assert_uint_eq(tdl_load_acquire_u32(&word), 8);
    tdl_store_release_u32(&word, 9);
    ck_assert_uint_eq(tdl_load_seq_u32(&word), 9);
    tdl_store_seq_u32(&word, 10);
    ck_assert_uint_eq(tdl_load_seq_u32(&word), 10);
}
END_TEST

START_TEST(exchange_and_addition_return_the_old_value)
{
    tdl_atomic_u64 word = TDL_ATOMIC_INIT(1);
    ck_assert_uint_eq(tdl_exchange_seq_u64(&word, 5), 1);
    ck_assert_uint_eq(tdl_exchange_acq_rel_u64(&word, 6), 5);
    ck_assert_uint_eq(tdl_fetch_add_relaxed_u64(&word, 2), 6);
    ck_assert_uint_eq(tdl_fetch_add_acq_rel_u64(&word, 2), 8);
    ck_assert_uint_eq(tdl_fetch_sub_release_u64(&word, 9), 10);
    ck_assert_uint_eq(tdl_fetch_or_acq_rel_u64(&word, 6), 1);
    ck_assert_uint_eq(tdl_fetch_and_acq_rel_u64(&word, 5), 7);
    ck_assert_uint_eq(tdl_load_relaxed_u64(&word), 5);
}
END_TEST

START_TEST(a_failed_cas_changes_nothing_and_tells_what_it_saw)
{
    int a = 0, b = 0;
    tdl_atomic_ptr word = TDL_ATOMIC_INIT(&a);
    void *expected = &b;
    ck_assert(!tdl_cas_seq_ptr(&word, &expected, &b));
    ck_assert_ptr_eq(expected, &a);
    ck_assert(tdl_cas_acq_rel_ptr(&word, &expected, &b));
    ck_assert_ptr_eq(tdl_load_acquire_ptr(&word), &b);
}
END_TEST

START_TEST(words_shared_with_the_kernel_and_the_fence_work_on_plain_memory)
{
    uint32_t word = 3;
    tdl_store_release_shared_u32(&word, 4);
    tdl_fence_full();
    tdl_cpu_pause();
    ck_assert_uint_eq(tdl_load_acquire_shared_u32(&word), 4);
    ck_assert_uint_eq(tdl_load_relaxed_shared_u32(&word), 4);
}
END_TEST

SUITE("base/atomic", loads_and_stores_of_every_order_carry_the_value,
      exchange_and_addition_return_the_old_value, a_failed_cas_changes_nothing_and_tells_what_it_saw,
      words_shared_with_the_kernel_and_the_fence_work_on_plain_memory)
