/* What a turn answers inline: until its budget is spent, shared among those who go on in
 * it, and with longer and longer pauses while reads miss. */
#include "scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

START_TEST(hits_are_answered_until_the_turn_is_spent)
{
    struct tdl_fio f;
    ck_assert_int_eq(tdl_fio_open(&f, NULL), 0);
    int fd = scratch_file("f", 100000);
    unsigned char in[4096];
    struct tdl_fop op;
    unsigned hits = 0;
    for (; hits < 1000; hits++) {
        tdl_fop_read(&op, fd, in, sizeof in, 4096 * (hits % 20));
        if (tdl_fio_try(&f, &op) == 0) {
            break;
        }
        ck_assert_int_eq(op.result, 4096);
        ck_assert_uint_eq(in[1], pattern_at(4096 * (hits % 20) + 1));
    }
    ck_assert_uint_gt(hits, 20);
    ck_assert_uint_lt(hits, 200);
    ck_assert(tdl_fio_step_is_spent(&f));
    tdl_fio_step(&f);
    ck_assert_int_eq(tdl_fio_try(&f, &op), 1);
    tdl_fop_read(&op, fd, in, sizeof in, 99000);
    ck_assert_int_eq(tdl_fio_try(&f, &op), 1);
    ck_assert_int_eq(op.result, 1000);
    tdl_fop_read(&op, 1000000, in, sizeof in, 0);
    ck_assert_int_eq(tdl_fio_try(&f, &op), 0);
    ck_assert_int_eq(run(&f, &op), -EBADF);
    tdl_fop_read_file(&op, scratch_fd, "f", in, sizeof in);
    ck_assert_int_eq(tdl_fio_try(&f, &op), 1);
    ck_assert_int_eq(op.result, 4096);
    close_empty(&f);
    close(fd);
}
END_TEST

/* How many of `count` reads that miss were tried, a turn for each. */
static unsigned misses_tried(unsigned count, size_t length)
{
    struct tdl_fio f;
    static unsigned char in[1 << 18];
    ck_assert_int_eq(tdl_fio_open(&f, NULL), 0);
    for (unsigned i = 0; i < count; i++) {
        struct tdl_fop op;
        tdl_fop_read(&op, 1000000, in, length, 1);
        tdl_fio_step(&f);
        ck_assert_int_eq(tdl_fio_try(&f, &op), 0);
    }
    unsigned tried = (unsigned)f.stats.missed;
    close_empty(&f);
    return tried;
}

START_TEST(reads_that_keep_missing_are_tried_as_rarely_as_their_hits_are_cheap)
{
    unsigned small = misses_tried(7200, 4096), large = misses_tried(7200, 1 << 18);
    ck_assert_uint_ge(small, 75);
    ck_assert_uint_le(small, 110);
    ck_assert_uint_ge(large, 7200 / 4);
}
END_TEST

static unsigned inline_hits(struct tdl_fio *f, int fd)
{
    unsigned char in[4096];
    struct tdl_fop op;
    unsigned hits = 0;
    do {
        tdl_fop_read(&op, fd, in, sizeof in, 0);
        hits++;
    } while (tdl_fio_try(f, &op) == 1);
    return hits - 1;
}

START_TEST(those_who_go_on_in_one_turn_share_its_hits)
{
    struct tdl_fio f;
    ck_assert_int_eq(tdl_fio_open(&f, NULL), 0);
    int fd = scratch_file("f", 4096);
    unsigned whole = inline_hits(&f, fd), sum = 0;
    for (unsigned callers = 1; callers <= 4; callers++) {
        tdl_fio_step(&f);
        sum = 0;
        for (unsigned left = callers; left > 0; left--) {
            tdl_fio_share(&f, left);
            unsigned hits = inline_hits(&f, fd);
            ck_assert_uint_ge(hits, whole / callers);
            ck_assert_uint_le(hits, whole);
            sum += hits;
        }
        ck_assert_uint_le(sum, callers == 1 ? whole : 2 * whole);
    }
    tdl_fio_share(&f, 1);
    ck_assert_uint_eq(inline_hits(&f, fd), 0);
    close_empty(&f);
    close(fd);
}
END_TEST

static void setup(void)
{
    scratch_make();
}

static void teardown(void)
{
    scratch_remove();
}

int main(void)
{
    Suite *s = suite_create("fileio budget");
    TCase *t = tcase_create("budget");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, hits_are_answered_until_the_turn_is_spent);
    tcase_add_test(t, reads_that_keep_missing_are_tried_as_rarely_as_their_hits_are_cheap);
    tcase_add_test(t, those_who_go_on_in_one_turn_share_its_hits);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
