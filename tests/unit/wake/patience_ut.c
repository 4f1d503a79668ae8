/* Goal: a watch in vain costs ever less, and one that pays brings watching back.
 * Method: occasions one after the other, counted. */
#include "suite.h"

#include "treadle/patience.h"

/* How many occasions are left out before the next watch. */
static unsigned left_out(struct tdl_patience *patience)
{
    unsigned count = 0;
    while (!tdl_patience_watches(patience)) {
        count++;
    }
    return count;
}

START_TEST(a_watch_that_pays_leaves_nothing_out)
{
    struct tdl_patience patience = {0};
    for (unsigned i = 0; i < 5; i++) {
        ck_assert_uint_eq(left_out(&patience), 0);
        tdl_patience_tell(&patience, true);
    }
}
END_TEST

START_TEST(watches_in_vain_become_rare)
{
    struct tdl_patience patience = {0};
    ck_assert_uint_eq(left_out(&patience), 0);
    for (unsigned expected = 1; expected < TDL_PATIENCE_LONGEST; expected = 2 * expected + 1) {
        tdl_patience_tell(&patience, false);
        ck_assert_uint_eq(left_out(&patience), expected);
    }
    for (unsigned i = 0; i < 3; i++) {
        tdl_patience_tell(&patience, false);
        ck_assert_uint_eq(left_out(&patience), TDL_PATIENCE_LONGEST);
    }
}
END_TEST

START_TEST(one_that_pays_halves_the_next_pause)
{
    struct tdl_patience patience = {0};
    for (unsigned i = 0; i < 20; i++) {
        (void)left_out(&patience);
        tdl_patience_tell(&patience, false);
    }
    (void)left_out(&patience);
    tdl_patience_tell(&patience, true);
    ck_assert_uint_eq(left_out(&patience), 0);
    tdl_patience_tell(&patience, false);
    ck_assert_uint_eq(left_out(&patience), TDL_PATIENCE_LONGEST);
    for (unsigned i = 0; i < 10; i++) {
        tdl_patience_tell(&patience, true);
    }
    tdl_patience_tell(&patience, false);
    ck_assert_uint_eq(left_out(&patience), 1);
}
END_TEST

SUITE("wake/patience", a_watch_that_pays_leaves_nothing_out, watches_in_vain_become_rare,
      one_that_pays_halves_the_next_pause)
