/* Goal: allocation behaves as libc's, and fails where a failpoint says. Method: small blocks, and sizes that
 * cannot exist. */
#include "suite.h"

#include <stdint.h>

#include "treadle/alloc.h"
#include "treadle/failpoint.h"

START_TEST(calloc_clears_and_realloc_keeps)
{
    unsigned char *block = tdl_calloc(4, 4);
    ck_assert_ptr_nonnull(block);
    for (int i = 0; i < 16; i++) {
        ck_assert_int_eq(block[i], 0);
    }
    block[15] = 9;
    unsigned char *larger = tdl_realloc(block, 4096);
    ck_assert_ptr_nonnull(larger);
    ck_assert_int_eq(larger[15], 9);
    tdl_free(larger);
    tdl_free(NULL);
}
END_TEST

START_TEST(a_product_that_overflows_is_refused)
{
    volatile size_t huge = SIZE_MAX / 2;
    ck_assert_ptr_null(tdl_calloc(huge, 3));
}
END_TEST

START_TEST(each_call_passes_the_failpoint)
{
#ifdef TDL_FAILPOINTS
    tdl_failpoint_set(TDL_FAIL_ALLOC, 1);
    ck_assert_ptr_null(tdl_malloc(1));
    tdl_failpoint_set(TDL_FAIL_ALLOC, 1);
    ck_assert_ptr_null(tdl_calloc(1, 1));
    void *block = tdl_malloc(1);
    ck_assert_ptr_nonnull(block);
    tdl_failpoint_set(TDL_FAIL_ALLOC, 1);
    ck_assert_ptr_null(tdl_realloc(block, 2));
    tdl_free(block);
    tdl_failpoint_set(TDL_FAIL_ALLOC, 0);
#endif
}
END_TEST

SUITE("base/alloc", calloc_clears_and_realloc_keeps, a_product_that_overflows_is_refused,
      each_call_passes_the_failpoint)
