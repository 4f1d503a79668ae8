/* The polling thread: its queue is never full, and it may be kept for owners who are busy. */
#include "scratch.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* The limit's stress: a polling thread publishes its head late, so a ring sized too tightly reports itself
 * full. */
START_TEST(a_polling_thread_never_meets_a_full_queue)
{
    static const uint32_t limits[] = {2, 3, 5};
    enum { OPS = 12 };
    struct tdl_fio f;
    if (!open_engine(&f, (struct variant){TDL_FIO_LINUX_URING, TDL_FIO_DEFERRED, limits[_i], true})) {
        return;
    }
    int fd = scratch_file("f", 100000);
    static unsigned char in[OPS][16];
    struct tdl_fop ops[OPS];
    for (unsigned round = 0; round < scaled(1000); round++) {
        struct tdl_queue out;
        tdl_queue_init(&out);
        for (unsigned i = 0; i < OPS; i++) {
            tdl_fop_read(&ops[i], fd, in[i], 16, round + i * 1000);
            ck_assert_int_eq(tdl_fio_stage(&f, &ops[i]), 0);
        }
        ck_assert_int_eq(tdl_fio_drain(&f, &out), 0);
        for (unsigned i = 0; i < OPS; i++) {
            ck_assert_int_eq(ops[i].result, 16);
        }
    }
    ck_assert_uint_gt(f.stats.polled, 0);
    close_empty(&f);
    close(fd);
}
END_TEST

/* A first batch meets an owner of whom nothing is known yet, so it goes the plain way. */
START_TEST(a_polling_thread_may_be_kept_for_busy_owners)
{
    struct tdl_fio f;
    struct variant v = {TDL_FIO_LINUX_URING, TDL_FIO_DEFERRED, 16, true};
    struct tdl_fio_options options = variant_options(&v);
    options.sqpoll_when_busy = true;
    ck_assert_int_eq(tdl_fio_open(&f, &options), 0);
    if (tdl_fio_start(&f) != 0 || !tdl_fio_caps(&f)->sqpoll) {
        return;
    }
    int fd = scratch_file("f", 1000);
    unsigned char in[16][8];
    struct tdl_fop ops[16];
    struct tdl_queue out;
    tdl_queue_init(&out);
    for (unsigned i = 0; i < 16; i++) {
        tdl_fop_read(&ops[i], fd, in[i], 8, i * 8);
        ck_assert_int_eq(tdl_fio_stage(&f, &ops[i]), 0);
    }
    ck_assert_int_eq(tdl_fio_drain(&f, &out), 0);
    for (unsigned i = 0; i < 16; i++) {
        ck_assert_uint_eq(in[i][3], pattern_at(i * 8 + 3));
    }
    ck_assert_uint_eq(f.stats.polled, 0);
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
    Suite *s = suite_create("fileio poller");
    TCase *t = tcase_create("poller");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_polling_thread_never_meets_a_full_queue, 0, 3);
    tcase_add_test(t, a_polling_thread_may_be_kept_for_busy_owners);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
