/* Syncs of one file that are staged together are one call, whichever of them is canceled. */
#include "scratch.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { SYNCS = 12 };

/* Stages fdatasyncs of a file, one of another and of a bad descriptor, and an fsync; then cancels the
 * first and the fourth. */
static void stage_syncs(struct tdl_fio *f, struct tdl_fop *ops, int fd, int other)
{
    for (unsigned i = 0; i < SYNCS; i++) {
        if (i == SYNCS - 1) {
            tdl_fop_fsync(&ops[i], fd);
        } else {
            tdl_fop_fdatasync(&ops[i], i == 5 ? other : i == 6 || i == 7 ? 1000003 : fd);
        }
        ck_assert_int_eq(tdl_fio_stage(f, &ops[i]), 0);
    }
    ck_assert_int_eq(tdl_fio_cancel(f, &ops[0]), 0);
    ck_assert_int_eq(tdl_fio_cancel(f, &ops[3]), 0);
}

START_TEST(syncs_of_one_file_share_a_call)
{
    struct tdl_fio f;
    if (!open_engine(&f, (struct variant){engines[_i], TDL_FIO_DEFERRED, 16, false})) {
        return;
    }
    int fd = scratch_file("f", 1000), other = scratch_file("g", 1000);
    struct tdl_fop ops[SYNCS];
    struct tdl_queue out;
    tdl_queue_init(&out);
    stage_syncs(&f, ops, fd, other);
    ck_assert_int_eq(tdl_fio_drain(&f, &out), 0);
    unsigned back = 0;
    while (tdl_queue_pop(&out) != NULL) {
        back++;
    }
    ck_assert_uint_eq(back, SYNCS);
    for (unsigned i = 0; i < SYNCS; i++) {
        ck_assert_int_eq(ops[i].result, i == 0 || i == 3 ? -ECANCELED : i == 6 || i == 7 ? -EBADF : 0);
    }
    /* Descriptors that share a place take it from each other, which costs a call and no result. */
    ck_assert_uint_ge(f.stats.joined, 5);
    ck_assert_uint_le(f.stats.submissions, SYNCS - f.stats.joined);
    stage_syncs(&f, ops, fd, other);
    close_all(&f, SYNCS);
    close(fd);
    close(other);
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
    Suite *s = suite_create("fileio join");
    TCase *t = tcase_create("join");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, syncs_of_one_file_share_a_call, 0, 4);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
