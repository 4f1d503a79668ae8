/* Goal: what is held is what was appended, oldest connection first, and is the owner's once taken. Method:
 * holds whose limit is never reached, so that the thread has no part in it. */
#include "suite.h"

#include <string.h>

#include "treadle/hold.h"
#include "treadle/status.h"

static struct tdl_hold hold;

static void setup(void)
{
    tdl_hold_init(&hold);
    tdl_hold_set_limit(&hold, UINT64_MAX / 2);
}

static void check_taken(const struct tdl_held *held, const char *text, uint32_t count)
{
    ck_assert_uint_eq(held->len, strlen(text));
    ck_assert_int_eq(memcmp(held->data, text, held->len), 0);
    ck_assert_uint_eq(held->sent, 0);
    ck_assert_uint_eq(held->count, count);
    ck_assert_int_eq(held->error, 0);
}

START_TEST(appends_are_kept_in_order_and_counted)
{
    setup();
    struct tdl_held *held = tdl_hold_begin(&hold, -1, NULL, "head", 4);
    ck_assert_ptr_nonnull(held);
    ck_assert_int_eq(tdl_held_append(&hold, held, "", 0), 0);
    ck_assert_int_eq(tdl_held_append(&hold, held, "body", 4), 0);
    tdl_hold_take(&hold, held);
    check_taken(held, "headbody", 2);
    tdl_hold_end(&hold, held);
    tdl_hold_close(&hold);
}
END_TEST

START_TEST(a_block_grows_with_what_it_holds)
{
    static char big[100 * 1000];
    setup();
    memset(big, 'x', sizeof big);
    struct tdl_held *held = tdl_hold_begin(&hold, -1, NULL, "a", 1);
    ck_assert_int_eq(tdl_held_append(&hold, held, big, sizeof big), 0);
    tdl_hold_take(&hold, held);
    ck_assert_uint_eq(held->len, 1 + sizeof big);
    ck_assert_int_eq(held->data[0], 'a');
    ck_assert_int_eq(memcmp(held->data + 1, big, sizeof big), 0);
    tdl_hold_end(&hold, held);
    tdl_hold_close(&hold);
}
END_TEST

START_TEST(the_oldest_comes_first_and_any_may_be_taken)
{
    struct tdl_held *held[20];
    setup();
    ck_assert_ptr_null(tdl_hold_first(&hold));
    for (int i = 0; i < 20; i++) {
        held[i] = tdl_hold_begin(&hold, i, NULL, &i, sizeof i);
    }
    ck_assert_ptr_eq(tdl_hold_first(&hold), held[0]);
    tdl_hold_take(&hold, held[0]);
    tdl_hold_take(&hold, held[2]);
    ck_assert_ptr_eq(tdl_hold_first(&hold), held[1]);
    tdl_hold_end(&hold, held[0]);
    tdl_hold_end(&hold, held[2]);
    for (int i = 1; i < 20; i += i == 1 ? 2 : 1) {
        ck_assert_ptr_eq(tdl_hold_first(&hold), held[i]);
        tdl_hold_take(&hold, held[i]);
        tdl_hold_end(&hold, held[i]); /* more than are kept: the rest is freed */
    }
    ck_assert_ptr_null(tdl_hold_first(&hold));
    tdl_hold_close(&hold);
}
END_TEST

START_TEST(a_block_that_is_used_again_starts_empty)
{
    setup();
    struct tdl_held *held = tdl_hold_begin(&hold, 1, NULL, "old", 3);
    tdl_hold_take(&hold, held);
    tdl_hold_end(&hold, held);
    struct tdl_held *again = tdl_hold_begin(&hold, 2, NULL, "new!", 4);
    ck_assert_ptr_eq(again, held);
    tdl_hold_take(&hold, again);
    check_taken(again, "new!", 1);
    tdl_hold_end(&hold, again);
    tdl_hold_close(&hold);
}
END_TEST

START_TEST(closing_twice_is_harmless)
{
    setup();
    tdl_hold_close(&hold);
    tdl_hold_close(&hold);
}
END_TEST

SUITE("hold/hold", appends_are_kept_in_order_and_counted, a_block_grows_with_what_it_holds,
      the_oldest_comes_first_and_any_may_be_taken, a_block_that_is_used_again_starts_empty,
      closing_twice_is_harmless)
