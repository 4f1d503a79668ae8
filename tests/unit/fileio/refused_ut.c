/* Where the kernel refuses an interface, the next engine takes over with the same results, and caps say
 * why. A seccomp filter in a forked child refuses io_uring_setup, or only io_uring_enter, or io_setup too. */
#include "refuse.h"
#include "scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void expect_same_results(struct tdl_fio *f)
{
    char in[64];
    struct tdl_fop op;
    int fd = scratch_file("f", 1000);
    tdl_fop_read(&op, fd, in, sizeof in, 10);
    ck_assert_int_eq(run(f, &op), sizeof in);
    ck_assert_uint_eq((unsigned char)in[3], pattern_at(13));
    tdl_fop_write(&op, fd, in, sizeof in, 990);
    ck_assert_int_eq(run(f, &op), sizeof in);
    tdl_fop_read(&op, 1000000, in, sizeof in, 10);
    ck_assert_int_eq(run(f, &op), -EBADF);
    tdl_fop_open(&op, scratch_fd, "none", O_RDONLY, 0);
    ck_assert_int_eq(run(f, &op), -ENOENT);
    close(fd);
}

static void expect_threads_instead(int error)
{
    struct tdl_fio f;
    ck_assert_int_eq(tdl_fio_open(&f, NULL), 0);
    ck_assert_int_eq(tdl_fio_start(&f), 0);
    const struct tdl_fio_caps *caps = tdl_fio_caps(&f);
    ck_assert_int_eq(caps->engine, TDL_FIO_THREADS);
    ck_assert_int_eq(caps->refused_engine, TDL_FIO_LINUX_URING);
    ck_assert_int_eq(caps->refused_code, -error);
    ck_assert(!tdl_fio_sqpoll_is_allowed());
    expect_same_results(&f);
    close_empty(&f);
}

static int start_only(enum tdl_fio_engine engine)
{
    struct tdl_fio f;
    struct tdl_fio_options options;
    memset(&options, 0, sizeof options);
    options.engine = engine;
    ck_assert_int_eq(tdl_fio_open(&f, &options), 0);
    int rc = tdl_fio_start(&f);
    if (rc == 0) {
        expect_same_results(&f);
    }
    close_empty(&f);
    return rc;
}

START_TEST(a_refused_setup_leads_to_threads)
{
    ck_assert(
        refuse_calls(_i == 0 ? EPERM : ENOSYS, SYS_io_uring_setup, SYS_io_uring_setup, SYS_io_uring_setup));
    expect_threads_instead(_i == 0 ? EPERM : ENOSYS);
    ck_assert_int_eq(start_only(TDL_FIO_LINUX_URING), _i == 0 ? -EPERM : -ENOSYS);
    ck_assert_int_eq(start_only(TDL_FIO_LINUX_AIO), 0);
}
END_TEST

START_TEST(a_refused_enter_is_found_by_a_real_operation)
{
    ck_assert(refuse_calls(EPERM, SYS_io_uring_enter, SYS_io_uring_enter, SYS_io_uring_enter));
    expect_threads_instead(EPERM);
    ck_assert_int_eq(start_only(TDL_FIO_LINUX_URING), -EPERM);
}
END_TEST

START_TEST(with_io_setup_refused_too_threads_still_serve)
{
    ck_assert(refuse_calls(EPERM, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_setup));
    expect_threads_instead(EPERM);
    ck_assert_int_eq(start_only(TDL_FIO_LINUX_AIO), -EPERM);
    ck_assert_int_eq(start_only(TDL_FIO_THREADS), 0);
}
END_TEST

START_TEST(a_refused_register_only_costs_the_chain)
{
    ck_assert(refuse_calls(EPERM, SYS_io_uring_register, SYS_io_uring_register, SYS_io_uring_register));
    ck_assert_int_eq(start_only(TDL_FIO_LINUX_URING), 0);
}
END_TEST

/* Each line of the flags' table, as a kernel of that generation would take it. */
START_TEST(older_kernels_get_fewer_flags)
{
    static const uint32_t masks[] = {
        UINT32_MAX,        ~(1u << 16), ~(1u << 16 | 1u << 12), 1u << 3 | 1u << 4 | 1u << 7,
        1u << 3 | 1u << 4, 1u << 31};
    struct tdl_fio f;
    struct tdl_fio_options options;
    memset(&options, 0, sizeof options);
    options.engine = TDL_FIO_LINUX_URING;
    options.ring_flags_mask = masks[_i];
    ck_assert_int_eq(tdl_fio_open(&f, &options), 0);
    int rc = tdl_fio_start(&f);
    ck_assert(rc == 0 || rc == -EPERM || rc == -ENOSYS);
    if (rc == 0) {
        ck_assert_uint_eq(tdl_fio_caps(&f)->ring_flags & ~masks[_i], 0);
        expect_same_results(&f);
    }
    close_empty(&f);
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
    /* A filter is for life, so each case needs a process of its own, whatever CK_FORK says. */
    Suite *s = suite_create("fileio refused");
    TCase *t = tcase_create("refused");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_refused_setup_leads_to_threads, 0, 2);
    tcase_add_test(t, a_refused_enter_is_found_by_a_real_operation);
    tcase_add_test(t, with_io_setup_refused_too_threads_still_serve);
    tcase_add_test(t, a_refused_register_only_costs_the_chain);
    tcase_add_loop_test(t, older_kernels_get_fewer_flags, 0, 6);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_set_fork_status(runner, CK_FORK);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
