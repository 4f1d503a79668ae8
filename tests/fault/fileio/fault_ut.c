/* Every system call and every allocation of a small workload fails once: each operation still comes back
 * exactly once, with its result or a negative code, what succeeded holds the right bytes, and closing
 * leaves nothing behind. */
#include "scratch.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "treadle/failpoint.h"

#define OPS 24u
#define PASSES_MAX 400u

static const struct variant variants[] = {
    {TDL_FIO_AUTO, TDL_FIO_DEFERRED, 8, false},        {TDL_FIO_LINUX_URING, TDL_FIO_ADAPTIVE, 8, false},
    {TDL_FIO_LINUX_URING, TDL_FIO_DEFERRED, 64, true}, {TDL_FIO_LINUX_AIO, TDL_FIO_DEFERRED, 8, false},
    {TDL_FIO_THREADS, TDL_FIO_IMMEDIATE, 8, false},    {TDL_FIO_SIMULATED, TDL_FIO_DEFERRED, 8, false},
};
#define VARIANTS 6

static struct tdl_fop ops[OPS];
static unsigned char in[OPS][300];
static struct iovec vectors[OPS][2];

static void prepare(int fd, unsigned i)
{
    if (i % 6 == 4) {
        tdl_fop_read_file(&ops[i], scratch_fd, "f", in[i], 300);
    } else if (i % 6 == 5) {
        vectors[i][0] = (struct iovec){in[i], 100};
        vectors[i][1] = (struct iovec){in[i] + 100, 200};
        tdl_fop_readv(&ops[i], fd, vectors[i], 2, 0);
    } else {
        tdl_fop_read(&ops[i], fd, in[i], 300, 0);
    }
}

/* Runs the workload; every operation that was taken must come back, right or with a code. */
static void workload(const struct variant *v, int fd)
{
    struct tdl_fio f;
    struct tdl_queue out;
    struct tdl_fio_options options = variant_options(v);
    unsigned taken = 0, back = 0;
    tdl_queue_init(&out);
    ck_assert_int_eq(tdl_fio_open(&f, &options), 0);
    memset(in, 0, sizeof in);
    for (unsigned i = 0; i < OPS; i++) {
        prepare(fd, i);
        taken += tdl_fio_stage(&f, &ops[i]) == 0;
    }
    (void)tdl_fio_drain(&f, &out);
    ck_assert_int_eq(tdl_fio_close(&f, &out), 0);
    for (struct tdl_link *link; (link = tdl_queue_pop(&out)) != NULL; back++) {
        const struct tdl_fop *op = tdl_fop_of(link);
        size_t i = (size_t)(op - ops);
        ck_assert_int_le(op->result, 300);
        ck_assert(op->result != 0);
        for (int64_t at = 0; at < op->result; at++) {
            ck_assert_uint_eq(in[i][at], pattern_at((size_t)at));
        }
    }
    ck_assert_uint_eq(back, taken);
}

static void fail_each(enum tdl_failpoint kind, int index)
{
    const struct variant *v = &variants[index];
    struct tdl_fio probe;
    scratch_make();
    int fd = scratch_file("f", 1000);
    if (variant_open(&probe, v) == 0) {
        close_empty(&probe);
        uint64_t nth = 1, passes = 1;
        for (; nth <= passes && nth <= PASSES_MAX; nth++) {
            tdl_failpoint_set(kind, nth);
            workload(v, fd);
            passes = tdl_failpoint_count(kind);
        }
        tdl_failpoint_set(kind, 0);
        ck_assert_uint_gt(nth, 1);
    }
    close(fd);
    scratch_remove();
}

START_TEST(each_system_call_fails_once)
{
    fail_each(TDL_FAIL_SYSCALL, _i);
}
END_TEST

START_TEST(each_allocation_fails_once)
{
    fail_each(TDL_FAIL_ALLOC, _i);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fileio faults");
    TCase *t = tcase_create("nth failure");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, each_system_call_fails_once, 0, VARIANTS);
    tcase_add_loop_test(t, each_allocation_fails_once, 0, VARIANTS);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
