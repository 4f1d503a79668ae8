#include "scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int scratch_fd = -1;
static char scratch_path[64];

void scratch_make(void)
{
    memcpy(scratch_path, "treadle-fileio-XXXXXX", sizeof "treadle-fileio-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(scratch_path));
    scratch_fd = open(scratch_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(scratch_fd, 0);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st;
    (void)kind;
    (void)walk;
    return remove(path);
}

void scratch_remove(void)
{
    close(scratch_fd);
    (void)nftw(scratch_path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

unsigned char pattern_at(size_t offset)
{
    return (unsigned char)((offset * 7 + offset / 251) & 0xff);
}

int scratch_file(const char *name, size_t length)
{
    int fd = openat(scratch_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    unsigned char *bytes = malloc(length + 1);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < length; i++) {
        bytes[i] = pattern_at(i);
    }
    ck_assert_int_eq((int)pwrite(fd, bytes, length, 0), (int)length);
    free(bytes);
    return fd;
}

struct tdl_fio_options variant_options(const struct variant *v)
{
    struct tdl_fio_options options;
    memset(&options, 0, sizeof options);
    options.engine = v->engine;
    options.mode = v->mode;
    options.inflight_max = v->limit;
    options.sqpoll = v->sqpoll;
    options.simulation.seed = 20261130;
    options.simulation.delay_max = 3;
    options.simulation.short_permille = 200;
    return options;
}

int variant_open(struct tdl_fio *f, const struct variant *v)
{
    struct tdl_fio_options options = variant_options(v);
    int rc = tdl_fio_open(f, &options);
    if (rc == 0) {
        rc = tdl_fio_start(f);
    }
    if (rc == 0 && v->sqpoll && !tdl_fio_caps(f)->sqpoll) {
        rc = -EPERM;
    }
    return rc;
}

int64_t run(struct tdl_fio *f, struct tdl_fop *op)
{
    struct tdl_queue out;
    tdl_queue_init(&out);
    ck_assert_int_eq(tdl_fio_stage(f, op), 0);
    ck_assert_int_eq(tdl_fio_drain(f, &out), 0);
    ck_assert_ptr_eq(tdl_queue_pop(&out), &op->link);
    ck_assert(tdl_queue_is_empty(&out));
    ck_assert_int_eq(tdl_fop_state(op), TDL_FOP_IDLE);
    return op->result;
}

void close_empty(struct tdl_fio *f)
{
    struct tdl_queue out;
    tdl_queue_init(&out);
    ck_assert_int_eq(tdl_fio_close(f, &out), 0);
    ck_assert(tdl_queue_is_empty(&out));
    ck_assert(tdl_fio_is_idle(f));
}

const enum tdl_fio_engine engines[4] = {TDL_FIO_LINUX_URING, TDL_FIO_LINUX_AIO, TDL_FIO_THREADS,
                                        TDL_FIO_SIMULATED};

unsigned scaled(unsigned count)
{
    const char *scale = getenv("TDL_TEST_SCALE");
    unsigned divisor = scale != NULL ? (unsigned)strtoul(scale, NULL, 10) : 1;
    return divisor > 1 ? count / divisor : count;
}

bool open_engine(struct tdl_fio *f, struct variant v)
{
    return variant_open(f, &v) == 0;
}

void close_all(struct tdl_fio *f, unsigned count)
{
    struct tdl_queue out;
    tdl_queue_init(&out);
    ck_assert_int_eq(tdl_fio_close(f, &out), 0);
    for (; count > 0; count--) {
        ck_assert_ptr_nonnull(tdl_queue_pop(&out));
    }
    ck_assert(tdl_queue_is_empty(&out));
}
