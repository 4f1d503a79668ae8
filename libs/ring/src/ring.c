#include "treadle/ring.h"

#include <errno.h>
#include <linux/time_types.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "treadle/assert.h"
#include "treadle/atomic.h"
#include "treadle/clock.h"
#include "treadle/failpoint.h"

#define COOP (IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG)

/* A polling thread that sleeps after one tick; the shortest the kernel knows. */
#define SQ_IDLE_MS 1u

/* From the newest set down to none; each line is one kernel generation. */
static const uint32_t flag_sets[] = {
    IORING_SETUP_SINGLE_ISSUER | COOP | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE |
        TDL_RING_SETUP_NO_SQARRAY,
    IORING_SETUP_SINGLE_ISSUER | COOP | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE,
    COOP | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE,
    IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE,
    IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE,
    0,
};

/* So often the entries are halved for a process that may lock little memory, but not below SQ_ENTRIES_MIN. */
#define SHRINKS_MAX 4u
#define SQ_ENTRIES_MIN 8u

/* The descriptor or -errno. */
static int setup(uint32_t entries, struct io_uring_params *p)
{
    long rc = TDL_SYSCALL(ENOMEM, syscall(__NR_io_uring_setup, entries, p));
    return rc < 0 ? -errno : (int)rc;
}

/* One set of flags, with ever fewer entries while there is no memory for them. */
static int setup_flags(const struct tdl_ring_options *options, uint32_t flags, struct io_uring_params *p)
{
    int rc = -ENOMEM;
    for (uint32_t shrink = 0; shrink < SHRINKS_MAX; shrink++) {
        memset(p, 0, sizeof *p);
        p->flags = flags | (options->sqpoll ? IORING_SETUP_SQPOLL : 0);
        p->cq_entries = p->flags & IORING_SETUP_CQSIZE ? options->cq_entries >> shrink : 0;
        p->sq_thread_idle = SQ_IDLE_MS;
        rc = setup(options->sq_entries >> shrink, p);
        if (rc != -ENOMEM || options->sq_entries >> (shrink + 1) < SQ_ENTRIES_MIN) {
            break;
        }
    }
    return rc;
}

static int setup_by_trial(const struct tdl_ring_options *options, struct io_uring_params *p)
{
    if (options->flags_exact != 0) {
        return setup_flags(options, options->flags_exact, p);
    }
    uint32_t barred = options->any_thread ? IORING_SETUP_SINGLE_ISSUER | COOP : 0;
    if (options->sqpoll) {
        barred |= COOP;
    }
    if (options->cq_entries == 0) {
        barred |= IORING_SETUP_CQSIZE;
    }
    uint32_t allowed = (options->flags_mask != 0 ? options->flags_mask : UINT32_MAX) & ~barred;
    int rc = -EINVAL;
    for (size_t i = 0; i < sizeof flag_sets / sizeof flag_sets[0] && rc == -EINVAL; i++) {
        rc = setup_flags(options, flag_sets[i] & allowed, p);
    }
    return rc;
}

static void *map(const struct tdl_ring *r, size_t bytes, uint64_t offset)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, (off_t)offset);
    if (at == MAP_FAILED) {
        return NULL;
    }
    /* A child that shared these pages would write into its parent's ring. */
    (void)madvise(at, bytes, MADV_DONTFORK);
    return at;
}

static int map_rings(struct tdl_ring *r, const struct io_uring_params *p)
{
    bool single = (p->features & IORING_FEAT_SINGLE_MMAP) != 0;
    size_t sq_bytes = p->sq_off.array + p->sq_entries * sizeof(uint32_t);
    size_t cq_bytes = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    r->ring_bytes = single && cq_bytes > sq_bytes ? cq_bytes : sq_bytes;
    r->sqe_bytes = p->sq_entries * sizeof(struct io_uring_sqe);
    r->cq_bytes = single ? 0 : cq_bytes;
    r->ring_map = map(r, r->ring_bytes, IORING_OFF_SQ_RING);
    r->cq_map = single ? NULL : map(r, cq_bytes, IORING_OFF_CQ_RING);
    r->sqes = (struct io_uring_sqe *)map(r, r->sqe_bytes, IORING_OFF_SQES);
    if (r->ring_map == NULL || r->sqes == NULL || (!single && r->cq_map == NULL)) {
        return -ENOMEM;
    }
    char *sq = (char *)r->ring_map, *cq = single ? sq : (char *)r->cq_map;
    r->sq_head = (uint32_t *)(void *)(sq + p->sq_off.head);
    r->sq_tail = (uint32_t *)(void *)(sq + p->sq_off.tail);
    r->sq_flags = (uint32_t *)(void *)(sq + p->sq_off.flags);
    r->cq_head = (uint32_t *)(void *)(cq + p->cq_off.head);
    r->cq_tail = (uint32_t *)(void *)(cq + p->cq_off.tail);
    r->cqes = (struct io_uring_cqe *)(void *)(cq + p->cq_off.cqes);
    if (!(p->flags & TDL_RING_SETUP_NO_SQARRAY)) {
        uint32_t *array = (uint32_t *)(void *)(sq + p->sq_off.array);
        for (uint32_t i = 0; i < p->sq_entries; i++) {
            array[i] = i;
        }
    }
    return 0;
}

int tdl_ring_open(struct tdl_ring *r, const struct tdl_ring_options *options)
{
    struct io_uring_params p;
    memset(r, 0, sizeof *r);
    r->fd = setup_by_trial(options, &p);
    if (r->fd < 0) {
        return r->fd;
    }
    r->sq_entries = p.sq_entries;
    r->cq_entries = p.cq_entries;
    r->setup_flags = p.flags;
    r->features = p.features;
    int rc = map_rings(r, &p);
    if (rc != 0) {
        tdl_ring_close(r);
    }
    return rc;
}

void tdl_ring_close(struct tdl_ring *r)
{
    if (r->ring_map != NULL) {
        (void)munmap(r->ring_map, r->ring_bytes);
    }
    if (r->cq_map != NULL) {
        (void)munmap(r->cq_map, r->cq_bytes);
    }
    if (r->sqes != NULL) {
        (void)munmap(r->sqes, r->sqe_bytes);
    }
    tdl_ring_forget(r);
}

void tdl_ring_forget(struct tdl_ring *r)
{
    if (r->fd >= 0) {
        (void)close(r->fd);
    }
    memset(r, 0, sizeof *r);
    r->fd = -1;
}

uint32_t tdl_ring_space(const struct tdl_ring *r)
{
    return r->sq_entries - (r->tail - tdl_load_acquire_shared_u32(r->sq_head)); /* MO-7 */
}

struct io_uring_sqe *tdl_ring_sqe(struct tdl_ring *r)
{
    struct io_uring_sqe *sqe = &r->sqes[r->tail & (r->sq_entries - 1)];
    TDL_ASSERT(tdl_ring_space(r) > 0);
    r->tail++;
    memset(sqe, 0, sizeof *sqe);
    return sqe;
}

uint32_t tdl_ring_publish(struct tdl_ring *r)
{
    tdl_store_release_shared_u32(r->sq_tail, r->tail); /* MO-7 */
    return r->tail - tdl_load_acquire_shared_u32(r->sq_head);
}

uint32_t tdl_ring_retract(struct tdl_ring *r)
{
    uint32_t head = tdl_load_acquire_shared_u32(r->sq_head); /* MO-7 */
    uint32_t left = r->tail - head;
    r->tail = head;
    tdl_store_release_shared_u32(r->sq_tail, head);
    return left;
}

bool tdl_ring_sleeps(const struct tdl_ring *r)
{
    tdl_fence_full(); /* MO-6: the tail must be visible before the flag is read */
    return (tdl_load_relaxed_shared_u32(r->sq_flags) & IORING_SQ_NEED_WAKEUP) != 0;
}

/* Its own function, so that a stack trace tells what is waited for. */
__attribute__((noinline)) int tdl_ring_enter(const struct tdl_ring *r, uint32_t submit, uint32_t wait,
                                             uint32_t flags, uint64_t timeout_ns)
{
    struct __kernel_timespec limit;
    struct io_uring_getevents_arg arg;
    const void *given = NULL;
    if (timeout_ns != UINT64_MAX && (r->features & IORING_FEAT_EXT_ARG) != 0) {
        limit.tv_sec = (int64_t)(timeout_ns / TDL_NS_PER_S);
        limit.tv_nsec = (long long)(timeout_ns % TDL_NS_PER_S);
        arg = (struct io_uring_getevents_arg){.ts = (uint64_t)(uintptr_t)&limit};
        flags |= IORING_ENTER_EXT_ARG;
        given = &arg;
    }
    long rc = TDL_SYSCALL(ENOMEM, syscall(__NR_io_uring_enter, r->fd, submit, wait, flags, given,
                                          given != NULL ? sizeof arg : 0));
    return rc < 0 ? -errno : (int)rc;
}

int tdl_ring_register(const struct tdl_ring *r, uint32_t code, const void *arg, uint32_t count)
{
    long rc = syscall(__NR_io_uring_register, r->fd, code, arg, count);
    return rc < 0 ? -errno : (int)rc;
}

bool tdl_ring_holds_back(const struct tdl_ring *r)
{
    /* Both flags are hints that stay set until the kernel was entered, so a relaxed read only delays by
     * one turn. */
    return (tdl_load_relaxed_shared_u32(r->sq_flags) & (IORING_SQ_CQ_OVERFLOW | IORING_SQ_TASKRUN)) != 0;
}

/* A filter may allow the setup and refuse the entering; only a real completion proves the ring. */
static int prove(struct tdl_ring *r)
{
    tdl_sqe_fill(tdl_ring_sqe(r), IORING_OP_NOP, -1, NULL, 0, 0);
    uint32_t count = tdl_ring_publish(r);
    bool polled = (r->setup_flags & IORING_SETUP_SQPOLL) != 0;
    int rc;
    do {
        rc = tdl_ring_enter(r, count, 1, IORING_ENTER_GETEVENTS | (polled ? IORING_ENTER_SQ_WAKEUP : 0u),
                            UINT64_MAX);
    } while (rc == -EINTR);
    if (rc < 0) {
        return rc;
    }
    if (tdl_ring_ready(r) == 0) {
        return -EIO;
    }
    tdl_ring_seen(r, 1);
    return 0;
}

int tdl_ring_open_proven(struct tdl_ring *r, const struct tdl_ring_options *options)
{
    int rc = tdl_ring_open(r, options);
    if (rc != 0) {
        return rc;
    }
    rc = prove(r);
    if (rc != 0) {
        tdl_ring_close(r);
    }
    return rc;
}
