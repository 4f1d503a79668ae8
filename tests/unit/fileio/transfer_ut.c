/* Transfers beyond one call: in small pieces, of more than the kernel moves at once, into
 * memory that is pinned or made late. */
#include "scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

START_TEST(pinned_memory_is_used_where_it_helps)
{
    enum { LENGTH = 1 << 16 };
    static unsigned char outside[100];
    struct tdl_fio f;
    if (!open_engine(&f, (struct variant){engines[_i], TDL_FIO_ADAPTIVE, 16, false})) {
        return;
    }
    unsigned char *in = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(in, MAP_FAILED);
    int rc = tdl_fio_register(&f, in, LENGTH);
    ck_assert(engines[_i] == TDL_FIO_LINUX_URING ? rc == 0 || rc == -ENOMEM : rc == -ENOTSUP);
    ck_assert_int_eq(tdl_fio_register(&f, in, LENGTH), rc == 0 ? -EBUSY : rc);
    int fd = scratch_file("f", 3 * LENGTH);
    struct tdl_fop op;
    tdl_fop_read(&op, fd, in + 10, LENGTH - 10, 500);
    ck_assert_int_eq(run(&f, &op), LENGTH - 10);
    ck_assert_uint_eq(in[LENGTH - 1], pattern_at(500 + LENGTH - 11));
    tdl_fop_read(&op, fd, outside, sizeof outside, 7);
    ck_assert_int_eq(run(&f, &op), sizeof outside);
    ck_assert_uint_eq(outside[99], pattern_at(106));
    tdl_fop_write(&op, fd, in + 20, 50, 3 * LENGTH);
    ck_assert_int_eq(run(&f, &op), 50);
    ck_assert_int_eq((int)pread(fd, outside, 50, 3 * LENGTH), 50);
    ck_assert_uint_eq(outside[49], in[69]);
    close_empty(&f);
    munmap(in, LENGTH);
    close(fd);
}
END_TEST

START_TEST(small_chunks_add_up)
{
    struct tdl_fio f;
    struct variant v = {engines[_i], TDL_FIO_ADAPTIVE, 4, false};
    struct tdl_fio_options options = variant_options(&v);
    options.chunk_max = 1000;
    ck_assert_int_eq(tdl_fio_open(&f, &options), 0);
    if (tdl_fio_start(&f) != 0) {
        return;
    }
    int fd = scratch_file("f", 20500);
    static unsigned char in[30000];
    struct tdl_fop op;
    tdl_fop_read(&op, fd, in, sizeof in, 0);
    ck_assert_int_eq(run(&f, &op), 20500);
    for (size_t i = 0; i < 20500; i++) {
        ck_assert_uint_eq(in[i], pattern_at(i));
    }
    tdl_fop_write(&op, fd, in, 20500, 30000);
    ck_assert_int_eq(run(&f, &op), 20500);
    close_empty(&f);
    close(fd);
}
END_TEST

/* More than the kernel moves in one call, plain and as vectors, from a sparse file into untouched memory. */
START_TEST(more_than_two_gibibytes_move_in_one_operation)
{
    struct tdl_fio f;
    const size_t length = (size_t)0x80000000u + 5;
    if (scaled(10) < 10 || !open_engine(&f, (struct variant){engines[0], TDL_FIO_ADAPTIVE, 4, false})) {
        return;
    }
    int fd = scratch_file("f", 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)length), 0);
    ck_assert_int_eq((int)pwrite(fd, "end", 3, (off_t)length - 3), 3);
    char *in =
        mmap(NULL, length + 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(in, MAP_FAILED);
    struct tdl_fop op;
    if (_i % 2 == 0) {
        tdl_fop_read(&op, fd, in, length + 10, 0);
        ck_assert_int_eq(run(&f, &op), (int64_t)length);
    } else {
        struct iovec vector[] = {{in, 0x40000000u}, {in + 0x40000000u, length + 10 - 0x40000000u}};
        tdl_fop_readv(&op, fd, vector, 2, 0);
        ck_assert_int_eq(run(&f, &op), (int64_t)length);
    }
    ck_assert_mem_eq(in + length - 3, "end", 3);
    munmap(in, length + 10);
    close_empty(&f);
    close(fd);
}
END_TEST

#define LATE 12

static unsigned char late_bytes[LATE][100];
static unsigned late_made;

/* The sixth buffer is not to be had. */
static int make_late(struct tdl_fop *op)
{
    if (late_made == 5) {
        late_made++;
        return -ENOMEM;
    }
    op->at.buffer = late_bytes[late_made++];
    return 0;
}

START_TEST(a_buffer_is_made_when_it_is_about_to_be_filled)
{
    struct variant v = {engines[_i], TDL_FIO_DEFERRED, 4, false};
    struct tdl_fio_options options = variant_options(&v);
    options.provide = make_late;
    struct tdl_fio f;
    if (tdl_fio_open(&f, &options) != 0 || tdl_fio_start(&f) != 0) {
        return;
    }
    int fd = scratch_file("f", 10000);
    struct tdl_fop ops[LATE];
    struct tdl_queue out;
    tdl_queue_init(&out);
    late_made = 0;
    for (unsigned i = 0; i < LATE; i++) {
        tdl_fop_read(&ops[i], fd, NULL, sizeof late_bytes[i], i * 10);
        ck_assert_int_eq(tdl_fio_stage(&f, &ops[i]), 0);
    }
    ck_assert_int_eq(tdl_fio_cancel(&f, &ops[1]), 0);
    ck_assert_uint_eq(late_made, 0);
    ck_assert_int_eq(tdl_fio_flush(&f), 3);
    ck_assert_uint_eq(late_made, 3);
    ck_assert_int_eq(tdl_fio_drain(&f, &out), 0);
    ck_assert_uint_eq(late_made, LATE - 1);
    unsigned refused = 0;
    for (unsigned i = 0; i < LATE; i++) {
        refused += ops[i].result == -ENOMEM;
        if (ops[i].result != -ENOMEM && i != 1) {
            ck_assert_uint_eq(*(unsigned char *)ops[i].at.buffer, pattern_at(i * 10));
        }
    }
    ck_assert_uint_eq(refused, 1);
    ck_assert_int_eq(ops[1].result, -ECANCELED);
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
    Suite *s = suite_create("fileio transfer");
    TCase *t = tcase_create("transfer");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, pinned_memory_is_used_where_it_helps, 0, 4);
    tcase_add_loop_test(t, small_chunks_add_up, 0, 4);
    tcase_add_loop_test(t, more_than_two_gibibytes_move_in_one_operation, 0, 2);
    tcase_add_loop_test(t, a_buffer_is_made_when_it_is_about_to_be_filled, 0, 4);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
