/* Whoever outlives a cancel does no harm: operations are canceled at every stage of their way, their
 * descriptors are closed as soon as the context says that it borrows them no more, and the numbers go at
 * once to victims, which must stay as they are. */
#include "scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_BYTES 65536u
#define VICTIM "this is the victim's own text"

static const struct variant variants[] = {
    {TDL_FIO_LINUX_URING, TDL_FIO_DEFERRED, 64, false}, {TDL_FIO_LINUX_URING, TDL_FIO_DEFERRED, 64, true},
    {TDL_FIO_LINUX_AIO, TDL_FIO_DEFERRED, 64, false},   {TDL_FIO_THREADS, TDL_FIO_DEFERRED, 64, false},
    {TDL_FIO_SIMULATED, TDL_FIO_DEFERRED, 64, false},
};
#define VARIANTS 5

static struct tdl_fio fio;

static bool open_variant(int index)
{
    return variant_open(&fio, &variants[index]) == 0;
}

/* A file and a connection that hold a text; what comes out of them, or what they are after a while, is
 * compared with it. */
struct victims {
    int file;
    int near; /* the connection's end that gets the number, with the text to be read */
    int far;
};

static void make_victims(struct victims *v)
{
    int pair[2];
    v->file = openat(scratch_fd, "victim", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(v->file, 0);
    ck_assert_int_eq((int)write(v->file, VICTIM, sizeof VICTIM), (int)sizeof VICTIM);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    v->near = pair[0];
    v->far = pair[1];
    ck_assert_int_eq((int)write(v->far, VICTIM, sizeof VICTIM), (int)sizeof VICTIM);
}

static void victims_are_well(const struct victims *v)
{
    char text[2 * sizeof VICTIM];
    struct stat st;
    ck_assert_int_eq(fstat(v->file, &st), 0);
    ck_assert_int_eq((int)st.st_size, (int)sizeof VICTIM);
    ck_assert_int_eq((int)pread(v->file, text, sizeof text, 0), (int)sizeof VICTIM);
    ck_assert_str_eq(text, VICTIM);
    ck_assert_int_eq((int)recv(v->near, text, sizeof text, MSG_DONTWAIT), (int)sizeof VICTIM);
    ck_assert_str_eq(text, VICTIM);
    ck_assert_int_eq((int)recv(v->far, text, sizeof text, MSG_DONTWAIT), -1);
    ck_assert_int_eq(errno, EAGAIN);
    close(v->file);
    close(v->near);
    close(v->far);
}

enum kind {
    READS_A_FILE,
    READS_A_PIPE,
    READS_BY_POSITION,
    WRITES_A_FILE,
    WRITES_A_PIPE,
    TRUNCATES,
    ALLOCATES,
    SPLICES,
    COPIES,
    COPIES_BY_BUFFER,
    SYNCS,
    KINDS,
};

/* What the operation works on; `given` is the descriptor whose number goes to a victim, and `to_file`
 * which one. */
struct work {
    struct tdl_fop op;
    int file;
    int other;
    int pipe[2];
    int *given;
    bool to_file;
};

static char bytes[FILE_BYTES];

static void make_work(struct work *w)
{
    w->file = scratch_file("own", FILE_BYTES);
    w->other = openat(scratch_fd, "other", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(w->other, 0);
    ck_assert_int_eq(pipe2(w->pipe, O_CLOEXEC), 0);
}

static void prepare(struct work *w, enum kind kind)
{
    w->given = &w->file;
    w->to_file = kind != READS_A_PIPE && kind != READS_BY_POSITION && kind != SPLICES;
    switch (kind) {
    case READS_A_PIPE:
        tdl_fop_read(&w->op, w->pipe[0], bytes, sizeof bytes, TDL_FOP_POSITION);
        w->given = &w->pipe[0];
        break;
    case READS_BY_POSITION:
        tdl_fop_read(&w->op, w->file, bytes, sizeof bytes, TDL_FOP_POSITION);
        break;
    case WRITES_A_FILE:
        tdl_fop_write(&w->op, w->file, bytes, sizeof bytes, 0);
        break;
    case WRITES_A_PIPE:
        tdl_fop_write(&w->op, w->pipe[1], bytes, sizeof bytes, TDL_FOP_POSITION);
        w->given = &w->pipe[1];
        break;
    case TRUNCATES:
        tdl_fop_truncate(&w->op, w->file, 3);
        break;
    case ALLOCATES:
        tdl_fop_fallocate(&w->op, w->file, 0, 0, 100000);
        break;
    case SPLICES:
        ck_assert_int_eq((int)write(w->pipe[1], "own", 3), 3);
        tdl_fop_splice(&w->op, w->pipe[0], TDL_FOP_POSITION, w->other, 0, 100, 0);
        w->given = &w->pipe[0];
        break;
    case COPIES:
    case COPIES_BY_BUFFER:
        if (kind == COPIES_BY_BUFFER) {
            ck_assert_int_eq(fcntl(w->other, F_SETFL, O_APPEND), 0); /* what copy_file_range refuses */
        }
        tdl_fop_copy(&w->op, w->file, 0, w->other, 0, FILE_BYTES);
        w->given = &w->other;
        break;
    case SYNCS:
        tdl_fop_fsync(&w->op, w->file);
        break;
    default:
        tdl_fop_read(&w->op, w->file, bytes, sizeof bytes, 0);
        break;
    }
}

static void end_work(struct work *w)
{
    struct tdl_queue out;
    tdl_queue_init(&out);
    ck_assert_int_eq(tdl_fio_drain(&fio, &out), 0);
    close(w->file);
    close(w->other);
    close(w->pipe[0]);
    close(w->pipe[1]);
}

/* How far an operation is when it is canceled. */
enum moment {
    STAGED,
    SUBMITTED,
    A_LITTLE_LATER,
    MOMENTS,
};

static void reach(enum moment moment, unsigned round)
{
    if (moment == STAGED) {
        return;
    }
    ck_assert_int_ge(tdl_fio_flush(&fio), 0);
    for (volatile unsigned i = 0; moment == A_LITTLE_LATER && i < round % 64 * 100; i++) {
    }
}

static void cancel_and_part(struct tdl_fop *op)
{
    struct tdl_queue out;
    tdl_queue_init(&out);
    (void)tdl_fio_cancel(&fio, op);
    while (tdl_fio_borrows(&fio, op)) {
        struct pollfd one = {.fd = tdl_fio_fd(&fio), .events = POLLIN, .revents = 0};
        (void)poll(&one, 1, 1);
        (void)tdl_fio_reap(&fio, &out);
    }
}

START_TEST(a_number_that_went_to_another_is_left_alone)
{
    enum kind kind = (enum kind)(_i % KINDS);
    if (!open_variant(_i / KINDS)) {
        return;
    }
    if (variants[_i / KINDS].engine == TDL_FIO_SIMULATED && (kind == READS_A_PIPE || kind == WRITES_A_PIPE)) {
        close_empty(&fio);
        return; /* it calls from this thread, and would wait for itself */
    }
    unsigned rounds = scaled(300);
    for (unsigned round = 0; round < rounds; round++) {
        struct work w;
        struct victims v;
        make_work(&w);
        make_victims(&v);
        prepare(&w, kind);
        ck_assert_int_eq(tdl_fio_stage(&fio, &w.op), 0);
        reach((enum moment)(round % MOMENTS), round / MOMENTS);
        cancel_and_part(&w.op);
        int victim = w.to_file ? v.file : v.near;
        ck_assert_int_eq(dup3(victim, *w.given, O_CLOEXEC), *w.given);
        end_work(&w);
        victims_are_well(&v);
    }
    close_empty(&fio);
}
END_TEST

/* Each read is followed by the close of its descriptor, and the number is in other hands at once. */
START_TEST(a_close_goes_behind_what_was_begun)
{
    enum { READS = 16, AT_ONCE = 8 };
    static unsigned char in[READS][FILE_BYTES];
    if (!open_variant(_i)) {
        return;
    }
    unsigned rounds = scaled(100);
    for (unsigned round = 0; round < rounds; round++) {
        struct tdl_fop reads[READS], closing, sync;
        struct tdl_queue out;
        tdl_queue_init(&out);
        int fd = scratch_file("own", FILE_BYTES);
        int victim = openat(scratch_fd, "victim", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        ck_assert_int_eq((int)write(victim, VICTIM, sizeof VICTIM), (int)sizeof VICTIM);
        memset(in, 0, sizeof in);
        for (unsigned i = 0; i < READS; i++) {
            tdl_fop_read(&reads[i], fd, in[i], FILE_BYTES, 0);
            ck_assert_int_eq(tdl_fio_stage(&fio, &reads[i]), 0);
            if (i == AT_ONCE) {
                ck_assert_int_ge(tdl_fio_flush(&fio), 0);
            }
        }
        tdl_fop_fsync(&sync, fd);
        ck_assert_int_eq(tdl_fio_stage(&fio, &sync), 0);
        tdl_fop_close(&closing, fd);
        ck_assert_int_eq(tdl_fio_stage(&fio, &closing), 0);
        ck_assert(tdl_fio_names(&fio, fd));
        while (tdl_fop_state(&closing) != TDL_FOP_IDLE) {
            ck_assert_int_ge(tdl_fio_flush(&fio), 0);
            (void)tdl_fio_wait(&fio, UINT64_MAX);
            (void)tdl_fio_reap(&fio, &out);
        }
        ck_assert_int_eq(closing.result, 0);
        ck_assert(!tdl_fio_names(&fio, fd));
        ck_assert_int_eq(dup3(victim, fd, O_CLOEXEC), fd);
        ck_assert_int_eq(tdl_fio_drain(&fio, &out), 0);
        for (unsigned i = 0; i < READS; i++) {
            ck_assert_int_eq(reads[i].result, FILE_BYTES);
            ck_assert_uint_eq(in[i][1000], pattern_at(1000));
        }
        ck_assert_int_eq(sync.result, 0);
        close(victim);
        close(fd);
    }
    close_empty(&fio);
}
END_TEST

START_TEST(a_close_ends_what_waits_for_another_program)
{
    if (variants[_i].engine == TDL_FIO_SIMULATED || !open_variant(_i)) {
        return;
    }
    struct tdl_fop reading, closing;
    struct tdl_queue out;
    char byte;
    int ends[2];
    tdl_queue_init(&out);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    tdl_fop_read(&reading, ends[0], &byte, 1, TDL_FOP_POSITION);
    ck_assert_int_eq(tdl_fio_stage(&fio, &reading), 0);
    ck_assert_int_eq(tdl_fio_flush(&fio), 1);
    tdl_fop_close(&closing, ends[0]);
    ck_assert_int_eq(tdl_fio_stage(&fio, &closing), 0);
    while (tdl_fop_state(&closing) != TDL_FOP_IDLE) {
        ck_assert_int_ge(tdl_fio_flush(&fio), 0);
        (void)tdl_fio_wait(&fio, UINT64_MAX);
        (void)tdl_fio_reap(&fio, &out);
    }
    ck_assert_int_eq(closing.result, 0);
    (void)tdl_fio_cancel(&fio, &reading); /* a ring's read has the pipe for itself */
    ck_assert_int_eq(tdl_fio_drain(&fio, &out), 0);
    ck_assert_int_eq(reading.result, -ECANCELED);
    close(ends[1]);
    close_empty(&fio);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fileio victims");
    TCase *t = tcase_create("numbers");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, scratch_make, scratch_remove);
    tcase_add_loop_test(t, a_number_that_went_to_another_is_left_alone, 0, VARIANTS * KINDS);
    tcase_add_loop_test(t, a_close_goes_behind_what_was_begun, 0, VARIANTS);
    tcase_add_loop_test(t, a_close_ends_what_waits_for_another_program, 0, VARIANTS);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
