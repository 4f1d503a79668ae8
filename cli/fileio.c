/* What file operations cost on libs/fileio alone: the limit that the Python face is held against.
 *
 *     fileio --engine linux_uring --depth 64 --block 4096 hot_read
 */
#include "common/bench.h"

#include "treadle/assert.h"
#include "treadle/fileio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALL_FILES 1000u
#define SMALL_BYTES 4096u
#define SMOKE_MIB 4
#define DATA_NAME "treadle-fileio.data"

static const char *folder = ".";
static const char *engine = "auto";
static const char *mode = "adaptive";
static long depth = 64;
static long block = 4096;
static long file_mib = 256;
static long sqpoll;
static long inlined;
static long join = 1;
static long pinned;
static long keep;

enum kind { HOT, COLD, DIRECT, WRITE, WRITE_SYNC, SMALL };

/* One operation at a time per slot; the slot's buffer is aligned for O_DIRECT. */
struct slot {
    struct tdl_fop op;
    char *buffer;
    uint64_t offset;
    bool sync_next;
    char path[24];
};

struct job {
    struct tdl_fio fio;
    struct slot *slots;
    char *memory;
    size_t memory_bytes;
    uint64_t *order; /* block numbers, shuffled, each once */
    size_t blocks;
    size_t started;
    size_t ops;
    enum kind kind;
    int fd;
    int folder_fd;
    int error;
};

static int mode_by_name(const char *name)
{
    if (strcmp(name, "deferred") == 0)
        return TDL_FIO_DEFERRED;
    return strcmp(name, "immediate") == 0 ? TDL_FIO_IMMEDIATE : TDL_FIO_ADAPTIVE;
}

static int open_context(struct job *j)
{
    int id = tdl_fio_engine_by_name(engine);
    if (id < 0)
        return id;
    struct tdl_fio_options options = {
        .engine = (enum tdl_fio_engine)id,
        .mode = (enum tdl_fio_mode)mode_by_name(mode),
        .inflight_max = (uint32_t)depth,
        .sqpoll = sqpoll != 0,
        .threads_max = 8,
        .no_join = join == 0,
    };
    int code = tdl_fio_open(&j->fio, &options);
    if (code == 0)
        code = tdl_fio_start(&j->fio);
    if (code == 0 && pinned != 0)
        code = tdl_fio_register(&j->fio, j->memory, j->memory_bytes);
    if (code == 0 && sqpoll != 0 && !tdl_fio_caps(&j->fio)->sqpoll)
        code = -ENOTSUP;
    return code;
}

/* Distinct blocks in random order, the same in every run. */
static int shuffle(struct job *j)
{
    j->order = malloc(j->blocks * sizeof *j->order);
    if (j->order == NULL)
        return -ENOMEM;
    uint64_t random = 88172645463325252u;
    for (size_t i = 0; i < j->blocks; i++)
        j->order[i] = i;
    for (size_t i = j->blocks - 1; i > 0; i--) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        size_t other = (size_t)(random % (i + 1));
        uint64_t kept = j->order[i];
        j->order[i] = j->order[other];
        j->order[other] = kept;
    }
    return 0;
}

static char chunk[1 << 20];

static int warm_file(int fd, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += sizeof chunk)
        if (pread(fd, chunk, sizeof chunk, (off_t)at) < 0)
            return -errno;
    return 0;
}

static int fill_file(int fd, size_t bytes)
{
    memset(chunk, 'a', sizeof chunk);
    for (size_t at = 0; at < bytes; at += sizeof chunk)
        if (pwrite(fd, chunk, sizeof chunk, (off_t)at) != (ssize_t)sizeof chunk)
            return -errno;
    return fsync(fd) == 0 ? 0 : -errno;
}

static int prepare_file(struct job *j, bool smoke)
{
    size_t bytes = (size_t)(smoke && file_mib > SMOKE_MIB ? SMOKE_MIB : file_mib) << 20;
    j->blocks = bytes / (size_t)block;
    int flags = O_RDWR | O_CREAT | O_CLOEXEC;
    j->fd = openat(j->folder_fd, DATA_NAME, flags, 0600);
    if (j->fd < 0)
        return -errno;
    int code = lseek(j->fd, 0, SEEK_END) == (off_t)bytes ? 0 : fill_file(j->fd, bytes);
    if (code == 0 && j->kind == DIRECT) {
        (void)close(j->fd);
        j->fd = openat(j->folder_fd, DATA_NAME, flags | O_DIRECT, 0600);
        code = j->fd < 0 ? -errno : 0;
    }
    if (code == 0)
        (void)posix_fadvise(j->fd, 0, 0, POSIX_FADV_RANDOM);
    if (code == 0 && j->kind == COLD)
        code = fsync(j->fd) == 0 ? posix_fadvise(j->fd, 0, 0, POSIX_FADV_DONTNEED) : -errno;
    if (code == 0 && j->kind == HOT)
        code = warm_file(j->fd, bytes);
    return code == 0 ? shuffle(j) : code;
}

static int prepare_small(struct job *j)
{
    char bytes[SMALL_BYTES];
    memset(bytes, 'b', sizeof bytes);
    for (unsigned i = 0; i < SMALL_FILES; i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "treadle-small-%u", i);
        int fd = openat(j->folder_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes)
            return -errno;
        (void)close(fd);
    }
    return 0;
}

static void remove_small(struct job *j)
{
    for (unsigned i = 0; i < SMALL_FILES; i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "treadle-small-%u", i);
        (void)unlinkat(j->folder_fd, name, 0);
    }
}

static int make_slots(struct job *j)
{
    size_t each = (size_t)block < SMALL_BYTES * 2 ? SMALL_BYTES * 2 : (size_t)block;
    j->slots = calloc((size_t)depth, sizeof *j->slots);
    j->memory = mmap(NULL, each * (size_t)depth, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    j->memory_bytes = each * (size_t)depth;
    if (j->slots == NULL || j->memory == MAP_FAILED)
        return -ENOMEM;
    memset(j->memory, 'c', each * (size_t)depth);
    for (size_t i = 0; i < (size_t)depth; i++)
        j->slots[i].buffer = j->memory + i * each;
    return 0;
}

static void prepare_next(struct job *j, struct slot *s)
{
    if (s->sync_next) {
        s->sync_next = false;
        tdl_fop_fdatasync(&s->op, j->fd);
        return;
    }
    size_t n = j->started++;
    if (j->kind == SMALL) {
        (void)snprintf(s->path, sizeof s->path, "treadle-small-%u", (unsigned)(n % SMALL_FILES));
        tdl_fop_read_file(&s->op, j->folder_fd, s->path, s->buffer, SMALL_BYTES * 2);
        return;
    }
    s->offset = j->order[n % j->blocks] * (uint64_t)block;
    if (j->kind == WRITE || j->kind == WRITE_SYNC) {
        s->sync_next = j->kind == WRITE_SYNC;
        tdl_fop_write(&s->op, j->fd, s->buffer, (size_t)block, s->offset);
    } else {
        tdl_fop_read(&s->op, j->fd, s->buffer, (size_t)block, s->offset);
    }
}

static bool has_next(const struct job *j, const struct slot *s)
{
    return s->sync_next || j->started < j->ops;
}

static void check_result(struct job *j, const struct slot *s)
{
    int64_t expected = s->op.code == TDL_FOP_FDATASYNC ? 0 : j->kind == SMALL ? (int64_t)SMALL_BYTES : block;
    if (s->op.result != expected)
        j->error = s->op.result < 0 ? (int)s->op.result : -EIO;
}

/* Answers that the cache gives at once go round here; the rest is staged. */
static void drive(struct job *j, struct slot *s)
{
    while (j->error == 0 && has_next(j, s)) {
        prepare_next(j, s);
        if (inlined == 0 || tdl_fio_try(&j->fio, &s->op) == 0) {
            j->error = tdl_fio_stage(&j->fio, &s->op);
            return;
        }
        tdl_fio_step(&j->fio);
        check_result(j, s);
    }
}

static void run_job(struct job *j)
{
    struct tdl_queue out;
    tdl_queue_init(&out);
    for (size_t i = 0; i < (size_t)depth; i++)
        drive(j, &j->slots[i]);
    while (!tdl_fio_is_idle(&j->fio)) {
        int code = tdl_fio_wait(&j->fio, UINT64_MAX);
        if (code != 0)
            j->error = code;
        (void)tdl_fio_reap(&j->fio, &out);
        for (struct tdl_link *link; (link = tdl_queue_pop(&out)) != NULL;) {
            struct slot *s = TDL_CONTAINER_OF(tdl_fop_of(link), struct slot, op);
            check_result(j, s);
            drive(j, s);
        }
    }
}

static int measure(const struct tdl_bench *bench, struct tdl_sample *out, enum kind kind, size_t full)
{
    struct job j = {.kind = kind, .fd = -1, .ops = tdl_bench_count(bench, full, (size_t)depth)};
    struct tdl_queue rest;
    tdl_queue_init(&rest);
    j.folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (j.folder_fd < 0)
        return -errno;
    int code = make_slots(&j);
    if (code == 0)
        code = kind == SMALL ? prepare_small(&j) : prepare_file(&j, bench->smoke);
    /* A block that is read a second time comes from the cache. */
    if (kind == COLD && j.ops > j.blocks)
        j.ops = j.blocks;
    if (code == 0)
        code = open_context(&j);
    if (code == 0) {
        struct tdl_bench_clock begin = tdl_bench_begin();
        run_job(&j);
        tdl_bench_end(&begin, (double)j.started, out);
        code = j.error;
    }
    (void)tdl_fio_close(&j.fio, &rest);
    if (kind == SMALL)
        remove_small(&j);
    if (j.fd >= 0)
        (void)close(j.fd);
    (void)close(j.folder_fd);
    if (j.memory != NULL && j.memory != MAP_FAILED)
        (void)munmap(j.memory, j.memory_bytes);
    free(j.order);
    free(j.slots);
    return code;
}

static int take_hot(const struct tdl_bench *b, struct tdl_sample *out)
{
    return measure(b, out, HOT, 100000);
}
static int take_cold(const struct tdl_bench *b, struct tdl_sample *out)
{
    return measure(b, out, COLD, 16000);
}
static int take_direct(const struct tdl_bench *b, struct tdl_sample *out)
{
    return measure(b, out, DIRECT, 8000);
}
static int take_write(const struct tdl_bench *b, struct tdl_sample *out)
{
    return measure(b, out, WRITE, 20000);
}
static int take_sync(const struct tdl_bench *b, struct tdl_sample *out)
{
    return measure(b, out, WRITE_SYNC, 2000);
}
static int take_small(const struct tdl_bench *b, struct tdl_sample *out)
{
    return measure(b, out, SMALL, 10000);
}

static const struct tdl_bench_case cases[] = {
    {"hot_read", "random reads from the page cache", NULL, take_hot},
    {"cold_read", "random reads after the cache was dropped", NULL, take_cold},
    {"direct_read", "random reads with O_DIRECT", NULL, take_direct},
    {"write", "random writes into the page cache", NULL, take_write},
    {"write_sync", "random writes, each followed by fdatasync", NULL, take_sync},
    {"small_files", "4 KiB files opened, read and closed", NULL, take_small},
};

static const struct tdl_bench_option options[] = {
    {"folder", "where the files are made (.)", NULL, 0, 0, &folder},
    {"engine", "auto, linux_uring, linux_aio, threads or simulated (auto)", NULL, 0, 0, &engine},
    {"mode", "adaptive, deferred or immediate (adaptive)", NULL, 0, 0, &mode},
    {"depth", "operations in flight (64)", &depth, 1, 4096, NULL},
    {"block", "bytes of one operation (4096)", &block, 512, 1 << 24, NULL},
    {"file-mib", "size of the file (256)", &file_mib, 1, 65536, NULL},
    {"sqpoll", "1: with a polling kernel thread (0)", &sqpoll, 0, 1, NULL},
    {"keep", "1: leave the file there for the next run (0)", &keep, 0, 1, NULL},
    {"pinned", "1: transfers in registered memory (0)", &pinned, 0, 1, NULL},
    {"join", "0: each sync is a call of its own (1)", &join, 0, 1, NULL},
    {"inline", "1: answer from the page cache at once (0)", &inlined, 0, 1, NULL},
};

int main(int argc, char **argv)
{
    struct tdl_bench bench = {
        .tool = "fileio",
        .about = "what file operations cost in C",
        .cases = cases,
        .case_count = sizeof cases / sizeof cases[0],
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    int code = tdl_bench_main(&bench, argc, argv);
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd >= 0 && keep == 0)
        (void)unlinkat(folder_fd, DATA_NAME, 0);
    return code;
}
