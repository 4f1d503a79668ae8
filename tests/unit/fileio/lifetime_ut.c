/* What a context does at its edges: fork with operations in flight, closing twice, closing while others
 * are waited for. Method: each engine, pipes that nobody writes to, and children. */
#include "scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "treadle/pool.h"
#include "treadle/status.h"

/* ThreadSanitizer starts no thread in the child of a process that had some, and the allocator of gcc 12's
 * AddressSanitizer may be locked by a thread that the child does not have. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define FORK_FORBIDS_THREADS true
#else
#define FORK_FORBIDS_THREADS false
#endif

/* What the child of a fork finds: its parent's operation comes back canceled, and a context of its own
 * works. */
static int child_finds_a_fresh_context(struct tdl_fio *f, struct tdl_fop *pending, int fd)
{
    struct tdl_queue out;
    tdl_queue_init(&out);
    if (tdl_fio_reap(f, &out) != 1 || tdl_queue_pop(&out) != &pending->link ||
        pending->result != -ECANCELED) {
        return 1;
    }
    unsigned char in[100];
    struct tdl_fop op;
    tdl_fop_read(&op, fd, in, sizeof in, 50);
    if (tdl_fio_stage(f, &op) != 0 || tdl_fio_drain(f, &out) != 0) {
        return 2;
    }
    if (op.result != (int64_t)sizeof in || in[9] != pattern_at(59)) {
        return 3;
    }
    return tdl_fio_close(f, &out) == 0 ? 0 : 4;
}

START_TEST(a_forked_child_gets_a_context_of_its_own)
{
    struct tdl_fio f;
    if ((FORK_FORBIDS_THREADS && engines[_i] == TDL_FIO_THREADS) ||
        !open_engine(&f, (struct variant){engines[_i], TDL_FIO_IMMEDIATE, 8, false})) {
        return;
    }
    int fd = scratch_file("f", 1000);
    int ends[2];
    char byte = 0;
    struct tdl_fop pending;
    struct tdl_queue out;
    tdl_queue_init(&out);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    tdl_fop_read(&pending, ends[0], &byte, 1, TDL_FOP_POSITION);
    ck_assert_int_eq(tdl_fio_stage(&f, &pending), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        _exit(child_finds_a_fresh_context(&f, &pending, fd));
    }
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    /* The child's end took nothing from the parent. */
    ck_assert_int_eq((int)write(ends[1], "z", 1), 1);
    ck_assert_int_eq(tdl_fio_drain(&f, &out), 0);
    ck_assert_int_eq(pending.result, 1);
    ck_assert_int_eq(byte, 'z');
    close_empty(&f);
    close(fd);
}
END_TEST

START_TEST(closing_twice_does_nothing)
{
    struct tdl_fio f;
    ck_assert_int_eq(tdl_fio_open(&f, NULL), 0);
    close_empty(&f);
    close_empty(&f);
    ck_assert_int_eq(tdl_fio_start(&f), TDL_ECLOSED);
}
END_TEST

/* An engine with workers that can be watched. */
static struct tdl_pool *pool;

static bool open_with_pool(struct tdl_fio *f, enum tdl_fio_engine engine)
{
    static const uint32_t slots[] = {4};
    struct tdl_pool_options pool_options = {.slots = slots, .classes = 1};
    struct variant v = {engine, TDL_FIO_IMMEDIATE, 8, false};
    struct tdl_fio_options options = variant_options(&v);
    ck_assert_int_eq(tdl_pool_open(&pool, &pool_options), 0);
    options.pool = pool;
    ck_assert_int_eq(tdl_fio_open(f, &options), 0);
    return tdl_fio_start(f) == 0;
}

/* Until the workers have begun what they were given; the kernel's engines have it at once. */
static void wait_until_begun(void)
{
    struct tdl_pool_counts counts;
    do {
        tdl_pool_counts(pool, &counts);
    } while (counts.waiting[0] > 0);
}

START_TEST(closing_does_not_wait_for_a_pipe)
{
    struct tdl_fio f;
    int ends[2];
    char byte = 0;
    struct tdl_fop op;
    struct tdl_queue out;
    tdl_queue_init(&out);
    if (!open_with_pool(&f, engines[_i])) {
        return;
    }
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    tdl_fop_read(&op, ends[0], &byte, 1, TDL_FOP_POSITION);
    ck_assert_int_eq(tdl_fio_stage(&f, &op), 0);
    wait_until_begun();
    ck_assert_int_eq(tdl_fio_close(&f, &out), 0);
    ck_assert_ptr_eq(tdl_queue_pop(&out), &op.link);
    ck_assert_int_eq(op.result, -ECANCELED);
    close(ends[0]);
    close(ends[1]);
    tdl_pool_close(pool);
}
END_TEST

START_TEST(closing_does_not_wait_for_a_full_pipe)
{
    enum { MUCH = 1 << 20 };
    struct tdl_fio f;
    int ends[2];
    struct tdl_fop op;
    struct tdl_queue out;
    tdl_queue_init(&out);
    if (!open_with_pool(&f, engines[_i])) {
        return;
    }
    char *bytes = calloc(1, MUCH);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    tdl_fop_write(&op, ends[1], bytes, MUCH, TDL_FOP_POSITION);
    ck_assert_int_eq(tdl_fio_stage(&f, &op), 0);
    wait_until_begun();
    ck_assert_int_eq(tdl_fio_close(&f, &out), 0);
    ck_assert_ptr_eq(tdl_queue_pop(&out), &op.link);
    ck_assert(op.result == -ECANCELED || (op.result > 0 && op.result < MUCH));
    close(ends[0]);
    close(ends[1]);
    free(bytes);
    tdl_pool_close(pool);
}
END_TEST

/* Neither an open nor a whole file: their FIFO has no writer, and never will. */
START_TEST(closing_does_not_wait_for_a_fifo)
{
    struct tdl_fio f;
    char in[10];
    struct tdl_fop open_op, whole;
    struct tdl_queue out;
    tdl_queue_init(&out);
    ck_assert_int_eq(mkfifoat(scratch_fd, "fifo", 0600), 0);
    if (!open_with_pool(&f, engines[_i])) {
        return;
    }
    tdl_fop_open(&open_op, scratch_fd, "fifo", O_RDONLY, 0);
    tdl_fop_read_file(&whole, scratch_fd, "fifo", in, sizeof in);
    ck_assert_int_eq(tdl_fio_stage(&f, &open_op), 0);
    ck_assert_int_eq(tdl_fio_stage(&f, &whole), 0);
    wait_until_begun();
    ck_assert_int_eq(tdl_fio_close(&f, &out), 0);
    ck_assert_int_eq(whole.result, -ECANCELED);
    /* A ring tries the open with O_NONBLOCK first, which needs no writer. */
    ck_assert(open_op.result == -ECANCELED || (open_op.result >= 0 && engines[_i] == TDL_FIO_LINUX_URING));
    if (open_op.result >= 0) {
        close((int)open_op.result);
    }
    /* Lets a worker that was abandoned go, so that it does not outlive the test. */
    int writer = openat(scratch_fd, "fifo", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (writer >= 0) {
        close(writer);
    }
    tdl_pool_close(pool);
}
END_TEST

/* A worker has opened it, and nobody has reaped it yet. */
START_TEST(an_open_that_is_done_may_be_canceled_twice)
{
    struct tdl_fio f;
    struct tdl_fop op;
    struct tdl_queue out;
    tdl_queue_init(&out);
    if (!open_with_pool(&f, engines[_i])) {
        return;
    }
    tdl_fop_open(&op, scratch_fd, "made", O_RDWR | O_CREAT, 0600);
    ck_assert_int_eq(tdl_fio_stage(&f, &op), 0);
    ck_assert_int_eq(tdl_fio_wait(&f, UINT64_MAX), 0);
    (void)tdl_fio_cancel(&f, &op);
    (void)tdl_fio_cancel(&f, &op);
    ck_assert_int_eq(tdl_fio_close(&f, &out), 0);
    ck_assert_ptr_eq(tdl_queue_pop(&out), &op.link);
    ck_assert(op.result >= 0 || op.result == -ECANCELED);
    if (op.result >= 0) {
        close((int)op.result);
    }
    tdl_pool_close(pool);
}
END_TEST

/* A chain whose read waits (nothing was written), or whose probe for the end does. */
START_TEST(a_chain_is_canceled_where_it_waits)
{
    struct tdl_fio f;
    char in[10];
    struct tdl_fop whole;
    struct tdl_queue out;
    tdl_queue_init(&out);
    if (!open_engine(&f, (struct variant){TDL_FIO_LINUX_URING, TDL_FIO_IMMEDIATE, 8, false})) {
        return;
    }
    ck_assert_int_eq(mkfifoat(scratch_fd, "fifo", 0600), 0);
    int end = openat(scratch_fd, "fifo", O_RDWR | O_CLOEXEC);
    if (_i == 1) {
        ck_assert_int_eq((int)write(end, "abc", 3), 3);
    }
    tdl_fop_read_file(&whole, scratch_fd, "fifo", in, sizeof in);
    ck_assert_int_eq(tdl_fio_stage(&f, &whole), 0);
    ck_assert_uint_eq(tdl_fio_reap(&f, &out), 0);
    ck_assert_int_eq(tdl_fio_cancel(&f, &whole), 0);
    ck_assert_int_eq(tdl_fio_drain(&f, &out), 0);
    ck_assert_ptr_eq(tdl_queue_pop(&out), &whole.link);
    ck_assert_int_eq(whole.result, -ECANCELED);
    close_empty(&f);
    close(end);
}
END_TEST

/* A byte that is written afterwards would be taken by any read that the kernel or a worker still held. */
START_TEST(closing_with_a_thousand_in_flight_takes_every_buffer_back)
{
    enum { OPS = 1000 };
    struct tdl_fio f;
    struct variant v = {engines[_i % 3], TDL_FIO_DEFERRED, OPS, _i == 3};
    if (!open_engine(&f, v)) {
        return;
    }
    static struct tdl_fop ops[OPS];
    static char in[OPS];
    struct tdl_queue out;
    tdl_queue_init(&out);
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    memset(in, 0, sizeof in);
    for (unsigned i = 0; i < OPS; i++) {
        tdl_fop_read(&ops[i], ends[0], &in[i], 1, TDL_FOP_POSITION);
        ck_assert_int_eq(tdl_fio_stage(&f, &ops[i]), 0);
    }
    ck_assert_int_eq(tdl_fio_flush(&f), OPS);
    ck_assert_uint_eq(f.inflight_count, OPS);
    ck_assert_int_eq(tdl_fio_close(&f, &out), 0);
    unsigned back = 0;
    for (struct tdl_link *link; (link = tdl_queue_pop(&out)) != NULL; back++) {
        ck_assert_int_eq(tdl_fop_of(link)->result, -ECANCELED);
    }
    ck_assert_uint_eq(back, OPS);
    char written[OPS], read_back[OPS];
    memset(written, 'w', sizeof written);
    ck_assert_int_eq((int)write(ends[1], written, OPS), OPS);
    ck_assert_int_eq((int)read(ends[0], read_back, OPS), OPS);
    for (unsigned i = 0; i < OPS; i++) {
        ck_assert_int_eq(in[i], 0);
    }
    close(ends[0]);
    close(ends[1]);
}
END_TEST

/* The refusal of its memory is found while closing, when nothing may be submitted again. */
START_TEST(closing_ends_a_direct_read_that_was_refused)
{
    struct tdl_fio f;
    if (!open_engine(&f, (struct variant){engines[_i], TDL_FIO_DEFERRED, 8, false})) {
        return;
    }
    close(scratch_file("f", 8192));
    int fd = openat(scratch_fd, "f", O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd >= 0) {
        static unsigned char in[4096 + 4];
        struct tdl_fop op;
        tdl_fop_read(&op, fd, in + 1, 4096, 0);
        ck_assert_int_eq(tdl_fio_stage(&f, &op), 0);
        ck_assert_int_eq(tdl_fio_flush(&f), 1);
        close_all(&f, 1);
        ck_assert(op.result == -ECANCELED || op.result == 4096);
        close(fd);
    } else {
        close_empty(&f);
    }
}
END_TEST

/* A seed decides the order and the faults; the same seed decides them again. */
START_TEST(a_seed_repeats_its_run)
{
    enum { OPS = 40 };
    int64_t results[2][OPS];
    unsigned order[2][OPS];
    for (unsigned pass = 0; pass < 2; pass++) {
        struct tdl_fio f;
        struct variant v = {TDL_FIO_SIMULATED, TDL_FIO_DEFERRED, 16, false};
        struct tdl_fio_options options = variant_options(&v);
        options.simulation.seed = (uint64_t)_i;
        options.simulation.fault_permille = 300;
        ck_assert_int_eq(tdl_fio_open(&f, &options), 0);
        int fd = scratch_file("f", 10000);
        struct tdl_fop ops[OPS];
        static unsigned char in[OPS][100];
        struct tdl_queue out;
        tdl_queue_init(&out);
        for (unsigned i = 0; i < OPS; i++) {
            tdl_fop_read(&ops[i], fd, in[i], 100, i * 10);
            ck_assert_int_eq(tdl_fio_stage(&f, &ops[i]), 0);
        }
        ck_assert_int_eq(tdl_fio_drain(&f, &out), 0);
        unsigned at = 0;
        for (struct tdl_link *link; (link = tdl_queue_pop(&out)) != NULL; at++) {
            order[pass][at] = (unsigned)(tdl_fop_of(link) - ops);
        }
        for (unsigned i = 0; i < OPS; i++) {
            results[pass][i] = ops[i].result;
        }
        ck_assert_uint_eq(at, OPS);
        close_empty(&f);
        close(fd);
    }
    ck_assert_mem_eq(results[0], results[1], sizeof results[0]);
    ck_assert_mem_eq(order[0], order[1], sizeof order[0]);
}
END_TEST

START_TEST(contradicting_options_are_refused)
{
    struct tdl_fio f;
    struct tdl_fio_options options;
    memset(&options, 0, sizeof options);
    options.engine = TDL_FIO_THREADS;
    options.sqpoll = true;
    ck_assert_int_eq(tdl_fio_open(&f, &options), -EINVAL);
    options.sqpoll = false;
    options.inflight_max = 1u << 20;
    ck_assert_int_eq(tdl_fio_open(&f, &options), -EINVAL);
    ck_assert_int_eq(tdl_fio_engine_by_name("threads"), TDL_FIO_THREADS);
    ck_assert_int_eq(tdl_fio_engine_by_name("tapes"), -EINVAL);
    ck_assert_str_eq(tdl_fio_engine_name(99), "unknown");
    ck_assert_str_eq(tdl_fop_name(TDL_FOP_READ_FILE), "read_file");
    ck_assert_str_eq(tdl_fop_name(99), "unknown");
}
END_TEST

START_TEST(what_is_put_back_is_returned_first)
{
    struct tdl_fio f;
    struct tdl_fop ops[3];
    struct tdl_queue out;
    struct variant v = {TDL_FIO_SIMULATED, TDL_FIO_DEFERRED, 8, false};
    tdl_queue_init(&out);
    ck_assert(open_engine(&f, v));
    for (unsigned i = 0; i < 2; i++) {
        tdl_fop_nop(&ops[i]);
        ck_assert_int_eq(tdl_fio_stage(&f, &ops[i]), 0);
        ck_assert_int_eq(tdl_fio_drain(&f, &out), 0);
    }
    ck_assert_ptr_eq(tdl_queue_pop(&out), &ops[0].link);
    tdl_fio_put_back(&f, &out);
    ck_assert(tdl_queue_is_empty(&out));
    ck_assert(tdl_fio_has_finished(&f));
    tdl_fop_nop(&ops[2]);
    ck_assert_int_eq(tdl_fio_stage(&f, &ops[2]), 0);
    ck_assert_int_eq(tdl_fio_drain(&f, &out), 0);
    ck_assert_ptr_eq(tdl_queue_pop(&out), &ops[1].link);
    ck_assert_ptr_eq(tdl_queue_pop(&out), &ops[2].link);
    ck_assert_int_eq(tdl_fio_close(&f, NULL), 0);
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
    Suite *s = suite_create("fileio lifetimes");
    TCase *t = tcase_create("lifetimes");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_forked_child_gets_a_context_of_its_own, 0, 3);
    tcase_add_test(t, closing_twice_does_nothing);
    tcase_add_loop_test(t, closing_does_not_wait_for_a_pipe, 0, 3);
    tcase_add_loop_test(t, closing_does_not_wait_for_a_full_pipe, 0, 3);
    tcase_add_loop_test(t, closing_does_not_wait_for_a_fifo, 0, 3);
    tcase_add_loop_test(t, an_open_that_is_done_may_be_canceled_twice, 0, 3);
    tcase_add_loop_test(t, closing_with_a_thousand_in_flight_takes_every_buffer_back, 0, 4);
    tcase_add_loop_test(t, a_chain_is_canceled_where_it_waits, 0, 2);
    tcase_add_loop_test(t, closing_ends_a_direct_read_that_was_refused, 0, 4);
    tcase_add_loop_test(t, a_seed_repeats_its_run, 1, 6);
    tcase_add_test(t, contradicting_options_are_refused);
    tcase_add_test(t, what_is_put_back_is_returned_first);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
