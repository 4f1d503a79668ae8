/* What a caller may do wrong, or somebody else to his descriptors, gets a code: no crash, no endless wait,
 * and no descriptor of another is closed. */
#include "scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "treadle/status.h"

static ino_t number_zero(void)
{
    struct stat st;
    ck_assert_int_eq(fstat(0, &st), 0);
    return st.st_ino;
}

static void is_closed(struct tdl_fio *f)
{
    struct tdl_queue out;
    struct tdl_fop op;
    ino_t zero = number_zero();
    tdl_queue_init(&out);
    tdl_fop_nop(&op);
    ck_assert_int_eq(tdl_fio_start(f), TDL_ECLOSED);
    ck_assert_int_eq(tdl_fio_fd(f), TDL_ECLOSED);
    ck_assert_int_eq(tdl_fio_try(f, &op), 0);
    ck_assert_int_eq(tdl_fio_stage(f, &op), TDL_ECLOSED);
    ck_assert_int_eq(tdl_fio_flush(f), TDL_ECLOSED);
    ck_assert_uint_eq(tdl_fio_reap(f, &out), 0);
    ck_assert_int_eq(tdl_fio_wait(f, 0), TDL_ECLOSED);
    ck_assert_int_eq(tdl_fio_register(f, &op, sizeof op), TDL_ECLOSED);
    ck_assert_int_eq(tdl_fio_cancel(f, &op), -ENOENT);
    ck_assert(!tdl_fio_borrows(f, &op));
    ck_assert(!tdl_fio_names(f, 0));
    ck_assert_int_eq(tdl_fio_drain(f, &out), 0);
    ck_assert_ptr_null(tdl_fio_caps(f));
    ck_assert(tdl_fio_is_idle(f));
    ck_assert_int_eq(tdl_fio_close(f, &out), 0);
    ck_assert_int_eq(tdl_fio_close(f, NULL), 0);
    ck_assert_uint_eq(number_zero(), zero);
}

START_TEST(zeros_are_a_closed_context)
{
    struct tdl_fio f;
    memset(&f, 0, sizeof f);
    is_closed(&f);
}
END_TEST

START_TEST(unknown_options_leave_a_closed_context)
{
    struct tdl_fio f;
    const struct tdl_fio_options cases[] = {
        {.engine = TDL_FIO_ENGINES},
        {.engine = (enum tdl_fio_engine)77},
        {.mode = TDL_FIO_MODES},
        {.mode = (enum tdl_fio_mode)99},
        {.inflight_max = 1u << 20},
        {.threads_max = 1u << 20},
        {.engine = TDL_FIO_THREADS, .sqpoll = true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq(tdl_fio_open(&f, &cases[i]), -EINVAL);
        is_closed(&f);
    }
    ck_assert_int_eq(tdl_fio_engine_by_name(NULL), -EINVAL);
}
END_TEST

START_TEST(what_is_staged_already_is_not_staged_again)
{
    struct tdl_fio f;
    struct tdl_fop op, bad;
    struct tdl_fio_options options = {.engine = engines[_i], .mode = TDL_FIO_DEFERRED};
    ck_assert_int_eq(tdl_fio_open(&f, &options), 0);
    tdl_fop_nop(&op);
    tdl_fop_nop(&bad);
    bad.code = TDL_FOP_CODES;
    int rc = tdl_fio_stage(&f, &op);
    if (rc == 0) {
        ck_assert_int_eq(tdl_fio_stage(&f, &op), -EINVAL);
        ck_assert_int_eq(tdl_fio_stage(&f, &bad), -EINVAL);
        struct tdl_queue out;
        tdl_queue_init(&out);
        ck_assert_int_eq(tdl_fio_drain(&f, &out), 0);
        ck_assert_ptr_eq(tdl_queue_pop(&out), &op.link);
    }
    ck_assert_int_eq(tdl_fio_close(&f, NULL), 0);
}
END_TEST

START_TEST(a_negative_offset_is_invalid_unless_it_means_the_position)
{
    struct tdl_fio f;
    struct tdl_fop op;
    char byte = 'x';
    struct tdl_fio_options options = {.engine = engines[_i]};
    ck_assert_int_eq(tdl_fio_open(&f, &options), 0);
    if (tdl_fio_start(&f) == 0) {
        int fd = scratch_file("f", 10);
        static const uint64_t offsets[] = {(uint64_t)-2, (uint64_t)INT64_MIN, (uint64_t)-100};
        for (size_t i = 0; i < 3; i++) {
            tdl_fop_read(&op, fd, &byte, 1, offsets[i]);
            ck_assert_int_eq(tdl_fio_try(&f, &op), 0);
            ck_assert_int_eq(run(&f, &op), -EINVAL);
            tdl_fop_write(&op, fd, &byte, 1, offsets[i]);
            ck_assert_int_eq(run(&f, &op), -EINVAL);
        }
        tdl_fop_read(&op, fd, &byte, 1, TDL_FOP_POSITION);
        ck_assert_int_eq(run(&f, &op), 1);
        close(fd);
    }
    ck_assert_int_eq(tdl_fio_close(&f, NULL), 0);
}
END_TEST

/* As os.closerange() does: all but the standard ones, with operations in every state. */
START_TEST(a_context_whose_descriptors_are_taken_closes_with_a_code)
{
    static char bytes[8][4096]; /* static: the kernel may keep them */
    static struct tdl_fop reads[8], waits;
    struct tdl_fio f;
    struct tdl_fio_options options = {.engine = engines[_i], .mode = TDL_FIO_DEFERRED};
    int ends[2];
    ck_assert_int_eq(tdl_fio_open(&f, &options), 0);
    if (tdl_fio_start(&f) != 0) {
        return;
    }
    int fd = scratch_file("f", 4096);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    for (int i = 0; i < 8; i++) {
        tdl_fop_read(&reads[i], fd, bytes[i], 4096, 0);
        ck_assert_int_eq(tdl_fio_stage(&f, &reads[i]), 0);
    }
    if (engines[_i] != TDL_FIO_SIMULATED) {
        tdl_fop_read(&waits, ends[0], bytes[0], 1, TDL_FOP_POSITION);
        ck_assert_int_eq(tdl_fio_stage(&f, &waits), 0);
    }
    ck_assert_int_ge(tdl_fio_flush(&f), 8);
    ck_assert_int_eq((int)syscall(SYS_close_range, 3u, ~0u, 0u), 0);
    int other = open("/dev/null", O_RDONLY | O_CLOEXEC); /* somebody has one of the numbers */
    struct tdl_queue out;
    tdl_queue_init(&out);
    int rc = tdl_fio_close(&f, &out);
    ck_assert(rc == 0 || rc == TDL_EBADF);
    int count = 0;
    while (tdl_queue_pop(&out) != NULL) {
        count++;
    }
    ck_assert_int_eq(count, engines[_i] != TDL_FIO_SIMULATED ? 9 : 8);
    ck_assert_int_eq(tdl_fio_start(&f), TDL_ECLOSED);
    (void)close(other);
}
END_TEST

/* Each of them costs the kernel a grace period, which nobody here waits for; and there is room for all. */
START_TEST(many_contexts_of_the_kernel_come_and_go)
{
    for (int i = 0; i < 200; i++) {
        struct tdl_fio f;
        struct tdl_fio_options options = {.engine = TDL_FIO_LINUX_AIO, .inflight_max = 2048};
        ck_assert_int_eq(tdl_fio_open(&f, &options), 0);
        ck_assert_int_eq(tdl_fio_start(&f), 0);
        close_empty(&f);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fileio traps");
    TCase *t = tcase_create("codes");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, scratch_make, scratch_remove);
    tcase_add_test(t, zeros_are_a_closed_context);
    tcase_add_test(t, unknown_options_leave_a_closed_context);
    tcase_add_loop_test(t, what_is_staged_already_is_not_staged_again, 0, 4);
    tcase_add_loop_test(t, a_negative_offset_is_invalid_unless_it_means_the_position, 0, 4);
    SRunner *runner = srunner_create(s);
    /* In a process of its own, since Check keeps a file open; the sanitizers run without. */
    if (srunner_fork_status(runner) == CK_FORK) {
        tcase_add_loop_test(t, a_context_whose_descriptors_are_taken_closes_with_a_code, 0, 4);
    }
    tcase_add_test(t, many_contexts_of_the_kernel_come_and_go);
    suite_add_tcase(s, t);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
