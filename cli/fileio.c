/* What file operations cost on libs/fileio alone: the limit that the Python face is held against.
 *
 *     fileio --engine linux_uring --depth 64 --block 4096 --case hot_read
 */
#include "treadle/fileio.h"

#include "common/bench.h"
#include "common/stop.h"
#include "files/data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "treadle/assert.h"

#define SMOKE_MIB 4
#define BUFFERS_MAX_BYTES (1UL << 30)

static const char *engine = "auto";
static const char *mode = "adaptive";
static long depth = 64;
static long block = 4096;
static long file_mib = 256;
static long sqpoll;
static long inlined;
static long join = 1;
static long pinned;

static const char *const engines[] = {"auto", "linux_uring", "linux_aio", "threads", "simulated", NULL};
static const char *const modes[] = {"adaptive", "deferred", "immediate", NULL};

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
    int error;
    bool is_open; /* the context */
};

static int mode_by_name(const char *name)
{
    if (strcmp(name, "deferred") == 0) {
        return TDL_FIO_DEFERRED;
    }
    return strcmp(name, "immediate") == 0 ? TDL_FIO_IMMEDIATE : TDL_FIO_ADAPTIVE;
}

static int open_context(struct job *j)
{
    int id = tdl_fio_engine_by_name(engine);
    if (id < 0) {
        return id;
    }
    struct tdl_fio_options options = {
        .engine = (enum tdl_fio_engine)id,
        .mode = (enum tdl_fio_mode)mode_by_name(mode),
        .inflight_max = (uint32_t)depth,
        .sqpoll = sqpoll != 0,
        .threads_max = 8,
        .no_join = join == 0,
    };
    int code = tdl_fio_open(&j->fio, &options);
    j->is_open = code == 0;
    if (code == 0) {
        code = tdl_fio_start(&j->fio);
    }
    if (code == 0 && pinned != 0) {
        code = tdl_fio_register(&j->fio, j->memory, j->memory_bytes);
    }
    if (code == 0 && sqpoll != 0 && !tdl_fio_caps(&j->fio)->sqpoll) {
        code = -ENOTSUP;
    }
    return code;
}

/* Distinct blocks in random order, the same in every run. */
static int shuffle(struct job *j)
{
    j->order = malloc(j->blocks * sizeof *j->order);
    if (j->order == NULL) {
        return -ENOMEM;
    }
    uint64_t random = 88172645463325252u;
    for (size_t i = 0; i < j->blocks; i++) {
        j->order[i] = i;
    }
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

static size_t file_bytes(const struct tdl_bench *bench)
{
    size_t bytes = (size_t)file_mib << 20;
    size_t smoke_bytes = (size_t)SMOKE_MIB << 20;
    if (!bench->smoke || bytes <= smoke_bytes) {
        return bytes;
    }
    return (size_t)block > smoke_bytes ? (size_t)block : smoke_bytes;
}

static int prepare_file(struct job *j, size_t bytes)
{
    j->blocks = bytes / (size_t)block;
    int code = data_open(bytes);
    if (code != 0) {
        return code;
    }
    j->fd = data_open_again(j->kind == DIRECT ? O_DIRECT : 0);
    if (j->fd < 0) {
        return j->fd;
    }
    (void)posix_fadvise(j->fd, 0, 0, POSIX_FADV_RANDOM);
    if (j->kind == COLD) {
        code = fsync(j->fd) == 0 ? -posix_fadvise(j->fd, 0, 0, POSIX_FADV_DONTNEED) : -errno;
    }
    if (j->kind == HOT) {
        code = data_warm(j->fd, bytes);
    }
    return code == 0 ? shuffle(j) : code;
}

static int make_slots(struct job *j)
{
    size_t each = (size_t)block < SMALL_BYTES * 2 ? SMALL_BYTES * 2 : (size_t)block;
    j->slots = calloc((size_t)depth, sizeof *j->slots);
    j->memory = mmap(NULL, each * (size_t)depth, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    j->memory_bytes = each * (size_t)depth;
    if (j->slots == NULL || j->memory == MAP_FAILED) {
        return -ENOMEM;
    }
    memset(j->memory, 'c', each * (size_t)depth);
    for (size_t i = 0; i < (size_t)depth; i++) {
        j->slots[i].buffer = j->memory + i * each;
    }
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
        data_name_small(s->path, n);
        tdl_fop_read_file(&s->op, data_files.small_fd, s->path, s->buffer, SMALL_BYTES * 2);
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
    if (s->op.result != expected) {
        j->error = s->op.result < 0 ? (int)s->op.result : -EIO;
    }
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
    for (size_t i = 0; i < (size_t)depth; i++) {
        drive(j, &j->slots[i]);
    }
    while (!tdl_fio_is_idle(&j->fio)) {
        int code = tdl_fio_wait(&j->fio, UINT64_MAX);
        if (code != 0) {
            j->error = code;
        }
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
    int code = make_slots(&j);
    if (code == 0) {
        code = kind == SMALL ? data_make_small() : prepare_file(&j, file_bytes(bench));
    }
    /* A block that is read a second time comes from the cache. */
    if (kind == COLD && j.ops > j.blocks) {
        j.ops = j.blocks;
    }
    if (code == 0) {
        code = open_context(&j);
    }
    if (code == 0) {
        struct tdl_bench_clock begin = tdl_bench_begin();
        run_job(&j);
        tdl_bench_end(&begin, (double)j.started, out);
        code = j.error;
    }
    if (j.is_open) {
        (void)tdl_fio_close(&j.fio, &rest);
    }
    if (j.fd >= 0) {
        (void)close(j.fd);
    }
    if (j.memory != NULL && j.memory != MAP_FAILED) {
        (void)munmap(j.memory, j.memory_bytes);
    }
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

static const struct tdl_option options[] = {
    {.name = "folder",
     .help = "where the files are made",
     .text = &data_files.folder,
     .value_name = "FOLDER"},
    {.name = "engine", .help = "who runs the operations", .text = &engine, .choices = engines},
    {.name = "mode", .help = "when operations are submitted", .text = &mode, .choices = modes},
    {.name = "depth", .help = "operations in flight", .number = &depth, .low = 1, .high = 4096},
    {.name = "block",
     .help = "what one operation moves",
     .unit = "bytes",
     .number = &block,
     .low = 512,
     .high = 1 << 24},
    {.name = "file-mib",
     .help = "size of the data file",
     .unit = "MiB",
     .number = &file_mib,
     .low = 1,
     .high = 65536},
    {.name = "sqpoll", .help = "1: with a polling kernel thread", .number = &sqpoll, .low = 0, .high = 1},
    {.name = "keep",
     .help = "1: keep the data file for the next run",
     .number = &data_files.keep,
     .low = 0,
     .high = 1},
    {.name = "pinned", .help = "1: transfers in registered memory", .number = &pinned, .low = 0, .high = 1},
    {.name = "join", .help = "0: each sync is a call of its own", .number = &join, .low = 0, .high = 1},
    {.name = "inline",
     .help = "1: answer from the page cache at once",
     .number = &inlined,
     .low = 0,
     .high = 1},
};

static int refuse_folder(const struct tdl_bench *bench, int number)
{
    char text[128];
    (void)snprintf(text, sizeof text, "a folder in which files can be made (%s)", strerror(number));
    return tdl_options_refuse(bench->tool, "folder", text, data_files.folder);
}

static int check_folder(const struct tdl_bench *bench)
{
    struct statvfs info;
    data_files.folder_fd = open(data_files.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (data_files.folder_fd < 0) {
        return refuse_folder(bench, errno);
    }
    int fd = data_open_unnamed();
    if (fd < 0) {
        return refuse_folder(bench, errno);
    }
    bool fits = fstatvfs(fd, &info) != 0 || info.f_blocks == 0 ||
                (double)info.f_bavail * (double)info.f_frsize >= (double)file_bytes(bench);
    (void)close(fd);
    return fits ? 0 : refuse_folder(bench, ENOSPC);
}

static int check(const struct tdl_bench *bench)
{
    char got[32];
    if (sqpoll != 0 && strcmp(engine, "auto") != 0 && strcmp(engine, "linux_uring") != 0) {
        return tdl_options_refuse(bench->tool, "sqpoll", "0, or 1 with --engine auto or linux_uring", "1");
    }
    if (block > file_mib << 20) {
        (void)snprintf(got, sizeof got, "%ld", block);
        return tdl_options_refuse(bench->tool, "block", "at most the file, which --file-mib gives", got);
    }
    if ((size_t)block * (size_t)depth > BUFFERS_MAX_BYTES) {
        (void)snprintf(got, sizeof got, "%ld", depth);
        return tdl_options_refuse(bench->tool, "depth", "depth times --block at most 1 GiB", got);
    }
    return check_folder(bench);
}

int main(int argc, char **argv)
{
    struct tdl_bench bench = {
        .tool = "fileio",
        .about = "what file operations cost in C",
        .cases = cases,
        .case_count = sizeof cases / sizeof cases[0],
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .check = check,
        .cleanup = data_remove,
    };
    return tdl_bench_main(&bench, argc, argv);
}
