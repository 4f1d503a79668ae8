/* Every engine gives the same results: the same cases over each mode and in-flight limit, for the engine
 * named on the command line (and "sqpoll"). The caps are asserted first, so that no variant silently runs
 * as another. */
#include "scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "treadle/status.h"

#define BLOCK 4096u
#define MANY 64u

static const uint32_t limits[] = {1, 2, 3, 128};
static const enum tdl_fio_mode modes[] = {TDL_FIO_ADAPTIVE, TDL_FIO_DEFERRED, TDL_FIO_IMMEDIATE};
#define VARIANTS 12

static struct variant wanted;
static struct tdl_fio fio;

static void open_variant(int index)
{
    struct variant v = wanted;
    v.mode = modes[index % 3];
    v.limit = limits[index / 3];
    scratch_make();
    ck_assert_int_eq(variant_open(&fio, &v), 0);
    const struct tdl_fio_caps *caps = tdl_fio_caps(&fio);
    ck_assert_int_eq(caps->engine, v.engine);
    ck_assert_int_eq(caps->mode, v.mode);
    ck_assert_uint_eq(caps->inflight_max, v.limit);
    ck_assert_int_eq(caps->sqpoll, v.sqpoll);
    ck_assert_int_eq(caps->refused_code, 0);
}

static void close_variant(void)
{
    close_empty(&fio);
    scratch_remove();
}

/* Opens the variant of the loop index, runs the body, closes and removes. */
#define CASE(name)                                                                                           \
    static void body_##name(void);                                                                           \
    START_TEST(name)                                                                                         \
    {                                                                                                        \
        open_variant(_i);                                                                                    \
        body_##name();                                                                                       \
        close_variant();                                                                                     \
    }                                                                                                        \
    END_TEST                                                                                                 \
    static void body_##name(void)

CASE(what_was_written_is_read)
{
    int fd = scratch_file("f", 0);
    char out[BLOCK], in[BLOCK];
    struct tdl_fop op;
    memset(out, 'x', sizeof out);
    tdl_fop_write(&op, fd, out, sizeof out, 100);
    ck_assert_int_eq(run(&fio, &op), BLOCK);
    tdl_fop_read(&op, fd, in, sizeof in, 100);
    ck_assert_int_eq(run(&fio, &op), BLOCK);
    ck_assert_mem_eq(in, out, sizeof in);
    close(fd);
}

CASE(reading_stops_at_the_end)
{
    int fd = scratch_file("f", 1000);
    unsigned char in[BLOCK];
    struct tdl_fop op;
    tdl_fop_read(&op, fd, in, sizeof in, 300);
    ck_assert_int_eq(run(&fio, &op), 700);
    for (size_t i = 0; i < 700; i++) {
        ck_assert_uint_eq(in[i], pattern_at(300 + i));
    }
    tdl_fop_read(&op, fd, in, sizeof in, 1000);
    ck_assert_int_eq(run(&fio, &op), 0);
    tdl_fop_read(&op, fd, in, 0, 0);
    ck_assert_int_eq(run(&fio, &op), 0);
    close(fd);
}

CASE(vectors_are_filled_in_order)
{
    int fd = scratch_file("f", 3000);
    unsigned char a[500], b[700], c[4000];
    struct iovec vector[] = {{a, sizeof a}, {b, sizeof b}, {c, sizeof c}};
    struct tdl_fop op;
    tdl_fop_readv(&op, fd, vector, 3, 10);
    ck_assert_int_eq(run(&fio, &op), 2990);
    ck_assert_uint_eq(a[0], pattern_at(10));
    ck_assert_uint_eq(b[0], pattern_at(510));
    ck_assert_uint_eq(c[0], pattern_at(1210));
    ck_assert_ptr_eq(vector[2].iov_base, c);
    tdl_fop_writev(&op, fd, vector, 2, 5000);
    ck_assert_int_eq(run(&fio, &op), 1200);
    tdl_fop_readv(&op, fd, vector, 0, 0);
    ck_assert_int_eq(run(&fio, &op), -EINVAL);
    close(fd);
}

CASE(direct_transfers_take_any_memory)
{
    close(scratch_file("f", 4 * BLOCK));
    int fd = openat(scratch_fd, "f", O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd < 0) {
        return; /* this file system has no direct transfers */
    }
    static unsigned char in[2 * BLOCK + 1];
    struct tdl_fop op;
    tdl_fop_read(&op, fd, in + 1, 2 * BLOCK, BLOCK);
    ck_assert_int_eq(run(&fio, &op), 2 * BLOCK);
    ck_assert_uint_eq(in[1 + 77], pattern_at(BLOCK + 77));
    tdl_fop_write(&op, fd, in + 1, BLOCK, 0);
    ck_assert_int_eq(run(&fio, &op), BLOCK);
    /* What is not on a boundary of the disk stays an error, where the file system has such boundaries. */
    tdl_fop_read(&op, fd, in + 1, 100, 3);
    int64_t res = run(&fio, &op);
    ck_assert(res == -EINVAL || res == 100);
    close(fd);
}

CASE(a_position_moves_along)
{
    int fd = scratch_file("f", 1000);
    unsigned char in[400];
    struct tdl_fop op;
    ck_assert_int_eq((int)lseek(fd, 0, SEEK_SET), 0);
    for (size_t round = 0; round < 3; round++) {
        tdl_fop_read(&op, fd, in, sizeof in, TDL_FOP_POSITION);
        ck_assert_int_eq(run(&fio, &op), round < 2 ? 400 : 200);
        ck_assert_uint_eq(in[0], pattern_at(400 * round));
    }
    close(fd);
}

CASE(a_bad_descriptor_fails_alone)
{
    int fd = scratch_file("f", MANY * BLOCK);
    static unsigned char in[MANY][BLOCK];
    struct tdl_fop ops[MANY];
    struct tdl_queue out;
    tdl_queue_init(&out);
    for (unsigned i = 0; i < MANY; i++) {
        tdl_fop_read(&ops[i], i == 17 ? 1000000 : fd, in[i], BLOCK, i * BLOCK);
        ck_assert_int_eq(tdl_fio_stage(&fio, &ops[i]), 0);
    }
    ck_assert_int_eq(tdl_fio_drain(&fio, &out), 0);
    for (unsigned i = 0; i < MANY; i++) {
        ck_assert_int_eq(ops[i].result, i == 17 ? -EBADF : (int)BLOCK);
        ck_assert(i == 17 || in[i][5] == pattern_at(i * BLOCK + 5));
    }
    close(fd);
}

CASE(wrong_files_say_what_read_and_write_say)
{
    char byte = 0;
    struct tdl_fop op;
    tdl_fop_read(&op, scratch_fd, &byte, 1, 0);
    ck_assert_int_eq(run(&fio, &op), -EISDIR);
    close(scratch_file("f", 10));
    int fd = openat(scratch_fd, "f", O_RDONLY | O_CLOEXEC);
    tdl_fop_write(&op, fd, &byte, 1, 0);
    ck_assert_int_eq(run(&fio, &op), -EBADF);
    close(fd);
    fd = openat(scratch_fd, "f", O_WRONLY | O_CLOEXEC);
    tdl_fop_read(&op, fd, &byte, 1, 0);
    ck_assert_int_eq(run(&fio, &op), -EBADF);
    tdl_fop_fsync(&op, fd);
    ck_assert_int_eq(run(&fio, &op), 0);
    tdl_fop_fdatasync(&op, fd);
    ck_assert_int_eq(run(&fio, &op), 0);
    tdl_fop_fsync(&op, 1000000);
    ck_assert_int_eq(run(&fio, &op), -EBADF);
    close(fd);
}

CASE(files_are_opened_measured_and_closed)
{
    struct tdl_fop op;
    struct statx st;
    tdl_fop_open(&op, scratch_fd, "none", O_RDONLY, 0);
    ck_assert_int_eq(run(&fio, &op), -ENOENT);
    tdl_fop_open(&op, scratch_fd, "f", O_RDWR | O_CREAT, 0600);
    int fd = (int)run(&fio, &op);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
    tdl_fop_truncate(&op, fd, 12345);
    ck_assert_int_eq(run(&fio, &op), 0);
    tdl_fop_statx(&op, scratch_fd, "f", 0, STATX_SIZE, &st);
    ck_assert_int_eq(run(&fio, &op), 0);
    ck_assert_uint_eq(st.stx_size, 12345);
    tdl_fop_fallocate(&op, fd, 0, 20000, 5000);
    ck_assert_int_eq(run(&fio, &op), 0);
    tdl_fop_statx(&op, fd, "", AT_EMPTY_PATH, STATX_SIZE, &st);
    ck_assert_int_eq(run(&fio, &op), 0);
    ck_assert_uint_eq(st.stx_size, 25000);
    tdl_fop_close(&op, fd);
    ck_assert_int_eq(run(&fio, &op), 0);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    tdl_fop_close(&op, fd);
    ck_assert_int_eq(run(&fio, &op), -EBADF);
}

CASE(names_are_made_moved_and_removed)
{
    struct tdl_fop op;
    close(scratch_file("f", 1));
    tdl_fop_mkdir(&op, scratch_fd, "d", 0700);
    ck_assert_int_eq(run(&fio, &op), 0);
    tdl_fop_mkdir(&op, scratch_fd, "d", 0700);
    ck_assert_int_eq(run(&fio, &op), -EEXIST);
    tdl_fop_rename(&op, scratch_fd, "f", scratch_fd, "d/g", 0);
    ck_assert_int_eq(run(&fio, &op), 0);
    tdl_fop_unlink(&op, scratch_fd, "f", 0);
    ck_assert_int_eq(run(&fio, &op), -ENOENT);
    tdl_fop_unlink(&op, scratch_fd, "d", AT_REMOVEDIR);
    ck_assert_int_eq(run(&fio, &op), -ENOTEMPTY);
    tdl_fop_unlink(&op, scratch_fd, "d/g", 0);
    ck_assert_int_eq(run(&fio, &op), 0);
    tdl_fop_unlink(&op, scratch_fd, "d", AT_REMOVEDIR);
    ck_assert_int_eq(run(&fio, &op), 0);
}

CASE(splice_and_copy_move_bytes)
{
    struct tdl_fop op;
    int ends[2];
    unsigned char in[3000];
    int fd = scratch_file("f", 100000);
    int to = scratch_file("g", 0);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    tdl_fop_splice(&op, fd, 40, ends[1], TDL_FOP_POSITION, sizeof in, 0);
    ck_assert_int_eq(run(&fio, &op), sizeof in);
    ck_assert_int_eq((int)read(ends[0], in, sizeof in), sizeof in);
    ck_assert_uint_eq(in[7], pattern_at(47));
    tdl_fop_copy(&op, fd, 1000, to, 0, 1000000);
    ck_assert_int_eq(run(&fio, &op), 99000);
    ck_assert_int_eq((int)pread(to, in, sizeof in, 50000), sizeof in);
    ck_assert_uint_eq(in[7], pattern_at(51007));
    close(ends[0]);
    close(ends[1]);
    close(fd);
    close(to);
}

CASE(a_whole_file_is_one_operation)
{
    struct tdl_fop op;
    static unsigned char in[20000], proc[20000];
    close(scratch_file("f", 9000));
    close(scratch_file("empty", 0));
    tdl_fop_read_file(&op, scratch_fd, "f", in, sizeof in);
    ck_assert_int_eq(run(&fio, &op), 9000);
    ck_assert_uint_eq(in[8999], pattern_at(8999));
    tdl_fop_read_file(&op, scratch_fd, "f", in, 5000);
    ck_assert_int_eq(run(&fio, &op), 5000);
    tdl_fop_read_file(&op, scratch_fd, "empty", in, sizeof in);
    ck_assert_int_eq(run(&fio, &op), 0);
    tdl_fop_read_file(&op, scratch_fd, "none", in, sizeof in);
    ck_assert_int_eq(run(&fio, &op), -ENOENT);
    tdl_fop_read_file(&op, AT_FDCWD, ".", in, sizeof in);
    ck_assert_int_eq(run(&fio, &op), -EISDIR);
    /* Regular by its mode, of size 0, read in pieces: all of it must come. */
    tdl_fop_read_file(&op, AT_FDCWD, "/proc/kallsyms", in, sizeof in);
    ck_assert_int_eq(run(&fio, &op), sizeof in);
    int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
    tdl_fop_read(&op, fd, proc, sizeof proc, 0);
    ck_assert_int_eq(run(&fio, &op), sizeof proc);
    ck_assert_mem_eq(in, proc, sizeof in);
    close(fd);
}

CASE(a_canceled_one_that_was_not_submitted_never_runs)
{
    int fd = scratch_file("f", 10);
    struct tdl_fop first, second;
    struct tdl_queue out;
    char byte = 0;
    tdl_queue_init(&out);
    uint64_t before = fio.stats.submissions;
    tdl_fop_fsync(&first, fd);
    tdl_fop_write(&second, fd, &byte, 1, 5);
    ck_assert_int_eq(tdl_fio_stage(&fio, &first), 0);
    ck_assert_int_eq(tdl_fio_stage(&fio, &second), 0);
    bool early = tdl_fop_state(&second) == TDL_FOP_STAGED || tdl_fop_state(&second) == TDL_FOP_WAITING;
    ck_assert_int_eq(tdl_fio_cancel(&fio, &second), 0);
    ck_assert_int_eq(tdl_fio_drain(&fio, &out), 0);
    ck_assert_int_eq(first.result, 0);
    if (early) {
        unsigned char now = 0;
        ck_assert_int_eq(second.result, -ECANCELED);
        ck_assert_int_eq((int)pread(fd, &now, 1, 5), 1);
        ck_assert_uint_eq(now, pattern_at(5));
        ck_assert_uint_eq(fio.stats.submissions - before, 1);
    } else {
        ck_assert(second.result == 1 || second.result == -ECANCELED);
    }
    ck_assert_int_eq(tdl_fio_cancel(&fio, &second), -ENOENT);
    close(fd);
}

CASE(a_canceled_one_in_flight_comes_back_once)
{
    int ends[2];
    char byte = 0;
    struct tdl_fop op;
    struct tdl_queue out;
    if (wanted.engine == TDL_FIO_SIMULATED) {
        return;
    }
    tdl_queue_init(&out);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    tdl_fop_read(&op, ends[0], &byte, 1, TDL_FOP_POSITION);
    ck_assert_int_eq(tdl_fio_stage(&fio, &op), 0);
    ck_assert_int_ge(tdl_fio_flush(&fio), 0);
    ck_assert_int_eq(tdl_fio_wait(&fio, 1000000), -ETIMEDOUT);
    ck_assert_int_eq(tdl_fio_cancel(&fio, &op), 0);
    if (wanted.engine != TDL_FIO_LINUX_URING) {
        ck_assert_int_eq((int)write(ends[1], "a", 1), 1);
    }
    ck_assert_int_eq(tdl_fio_drain(&fio, &out), 0);
    /* A worker that had not begun gives it up, one that had must finish; the ring always gives it up. */
    ck_assert(op.result == -ECANCELED || (op.result == 1 && wanted.engine != TDL_FIO_LINUX_URING));
    close(ends[0]);
    close(ends[1]);
}

CASE(more_than_the_limit_wait_their_turn)
{
    enum { OPS = 500 };
    int fd = scratch_file("f", 100000);
    static struct tdl_fop ops[OPS];
    static unsigned char in[OPS][64];
    struct tdl_queue out;
    tdl_queue_init(&out);
    for (unsigned i = 0; i < OPS; i++) {
        tdl_fop_read(&ops[i], fd, in[i], 64, i * 100);
        ck_assert_int_eq(tdl_fio_stage(&fio, &ops[i]), 0);
        ck_assert_uint_le(fio.inflight_count + fio.staged_count, fio.inflight_max);
    }
    ck_assert_int_eq(tdl_fio_drain(&fio, &out), 0);
    unsigned count = 0;
    while (tdl_queue_pop(&out) != NULL) {
        count++;
    }
    ck_assert_uint_eq(count, OPS);
    for (unsigned i = 0; i < OPS; i++) {
        ck_assert_int_eq(ops[i].result, 64);
        ck_assert_uint_eq(in[i][63], pattern_at(i * 100 + 63));
    }
    close(fd);
}

CASE(a_batch_costs_one_system_call)
{
    int fd = scratch_file("f", MANY * BLOCK);
    static unsigned char in[MANY][BLOCK];
    static struct tdl_fop ops[MANY];
    struct tdl_queue out;
    tdl_queue_init(&out);
    const struct tdl_fio_caps *caps = tdl_fio_caps(&fio);
    unsigned count = caps->inflight_max < MANY ? caps->inflight_max : MANY;
    if (!caps->single_syscall || caps->mode != TDL_FIO_DEFERRED) {
        count = 0;
    }
    for (unsigned i = 0; i < count; i++) {
        tdl_fop_read(&ops[i], fd, in[i], BLOCK, i * BLOCK);
        ck_assert_int_eq(tdl_fio_stage(&fio, &ops[i]), 0);
    }
    uint64_t before = fio.stats.submit_calls;
    ck_assert_int_eq(tdl_fio_flush(&fio), (int)count);
    ck_assert_uint_le(fio.stats.submit_calls - before, count > 0 ? 1 : 0);
    /* A polling thread that is awake takes the batch without any. */
    ck_assert(caps->sqpoll || fio.stats.submit_calls - before == (count > 0 ? 1 : 0));
    ck_assert_int_eq(tdl_fio_drain(&fio, &out), 0);
    close(fd);
}

CASE(the_descriptor_shows_results)
{
    int fd = scratch_file("f", BLOCK);
    unsigned char in[BLOCK];
    struct tdl_fop op;
    struct tdl_queue out;
    tdl_queue_init(&out);
    struct pollfd shown = {.fd = tdl_fio_fd(&fio), .events = POLLIN, .revents = 0};
    ck_assert_int_ge(shown.fd, 0);
    ck_assert_int_eq(poll(&shown, 1, 0), 0);
    for (unsigned round = 0; round < 3; round++) {
        tdl_fop_read(&op, fd, in, BLOCK, 0);
        ck_assert_int_eq(tdl_fio_stage(&fio, &op), 0);
        ck_assert_int_ge(tdl_fio_flush(&fio), 0);
        while (tdl_fop_state(&op) != TDL_FOP_IDLE) {
            ck_assert_int_eq(poll(&shown, 1, 10000), 1);
            (void)tdl_fio_reap(&fio, &out);
        }
        ck_assert_int_eq(op.result, BLOCK);
        ck_assert_int_eq(poll(&shown, 1, 0), 0);
    }
    close(fd);
}

CASE(workers_results_show_too)
{
    int from = scratch_file("f", BLOCK), to = scratch_file("g", 0);
    struct tdl_fop op;
    struct tdl_queue out;
    tdl_queue_init(&out);
    struct pollfd shown = {.fd = tdl_fio_fd(&fio), .events = POLLIN, .revents = 0};
    for (unsigned round = 0; round < 3; round++) {
        tdl_fop_copy(&op, from, 0, to, 0, BLOCK);
        ck_assert_int_eq(tdl_fio_stage(&fio, &op), 0);
        ck_assert_int_ge(tdl_fio_flush(&fio), 0);
        while (tdl_fop_state(&op) != TDL_FOP_IDLE) {
            ck_assert_int_eq(poll(&shown, 1, 10000), 1);
            (void)tdl_fio_reap(&fio, &out);
        }
        ck_assert_int_eq(op.result, BLOCK);
    }
    close(from);
    close(to);
}

CASE(closing_gives_everything_back)
{
    enum { OPS = 1000 };
    int fd = scratch_file("f", 1 << 20);
    static struct tdl_fop ops[OPS];
    static unsigned char in[OPS][512];
    struct tdl_queue out;
    tdl_queue_init(&out);
    for (unsigned i = 0; i < OPS; i++) {
        tdl_fop_read(&ops[i], fd, in[i], 512, i * 1000);
        ck_assert_int_eq(tdl_fio_stage(&fio, &ops[i]), 0);
    }
    ck_assert_int_ge(tdl_fio_flush(&fio), 0);
    ck_assert_int_eq(tdl_fio_close(&fio, &out), 0);
    unsigned count = 0;
    for (struct tdl_link *link; (link = tdl_queue_pop(&out)) != NULL; count++) {
        ck_assert(tdl_fop_of(link)->result == 512 || tdl_fop_of(link)->result == -ECANCELED);
    }
    ck_assert_uint_eq(count, OPS);
    ck_assert_int_eq(tdl_fio_stage(&fio, &ops[0]), TDL_ECLOSED);
    close(fd);
}

CASE(waiting_for_nothing_is_refused)
{
    ck_assert_int_eq(tdl_fio_wait(&fio, UINT64_MAX), -EDEADLK);
}

static Suite *suite(void)
{
    Suite *s = suite_create("fileio conformance");
    TCase *t = tcase_create("every mode and limit");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, what_was_written_is_read, 0, VARIANTS);
    tcase_add_loop_test(t, reading_stops_at_the_end, 0, VARIANTS);
    tcase_add_loop_test(t, vectors_are_filled_in_order, 0, VARIANTS);
    tcase_add_loop_test(t, direct_transfers_take_any_memory, 0, VARIANTS);
    tcase_add_loop_test(t, a_position_moves_along, 0, VARIANTS);
    tcase_add_loop_test(t, a_bad_descriptor_fails_alone, 0, VARIANTS);
    tcase_add_loop_test(t, wrong_files_say_what_read_and_write_say, 0, VARIANTS);
    tcase_add_loop_test(t, files_are_opened_measured_and_closed, 0, VARIANTS);
    tcase_add_loop_test(t, names_are_made_moved_and_removed, 0, VARIANTS);
    tcase_add_loop_test(t, splice_and_copy_move_bytes, 0, VARIANTS);
    tcase_add_loop_test(t, a_whole_file_is_one_operation, 0, VARIANTS);
    tcase_add_loop_test(t, a_canceled_one_that_was_not_submitted_never_runs, 0, VARIANTS);
    tcase_add_loop_test(t, a_canceled_one_in_flight_comes_back_once, 0, VARIANTS);
    tcase_add_loop_test(t, more_than_the_limit_wait_their_turn, 0, VARIANTS);
    tcase_add_loop_test(t, a_batch_costs_one_system_call, 0, VARIANTS);
    tcase_add_loop_test(t, the_descriptor_shows_results, 0, VARIANTS);
    tcase_add_loop_test(t, workers_results_show_too, 0, VARIANTS);
    tcase_add_loop_test(t, closing_gives_everything_back, 0, VARIANTS);
    tcase_add_loop_test(t, waiting_for_nothing_is_refused, 0, VARIANTS);
    suite_add_tcase(s, t);
    return s;
}

int main(int argc, char **argv)
{
    int engine = argc > 1 ? tdl_fio_engine_by_name(argv[1]) : TDL_FIO_LINUX_URING;
    if (engine < 0) {
        return EXIT_FAILURE;
    }
    wanted.engine = (enum tdl_fio_engine)engine;
    wanted.sqpoll = argc > 2 && strcmp(argv[2], "sqpoll") == 0;
    wanted.limit = 1;
    int rc = variant_open(&fio, &wanted);
    if (rc != 0) {
        printf("skipped: %s%s is not to be had here: %s\n", argv[1], wanted.sqpoll ? " with sqpoll" : "",
               tdl_status_name(rc));
        return 77;
    }
    struct tdl_queue none;
    tdl_queue_init(&none);
    (void)tdl_fio_close(&fio, &none);
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
