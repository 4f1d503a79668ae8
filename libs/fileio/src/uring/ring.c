#include "ring.h"

#include "../internal.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "treadle/atomic.h"

#define COOP (IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG)

/* A polling thread that sleeps after one tick; the shortest the kernel knows. */
#define SQ_IDLE_MS 1u

/* From the newest set down to none; each line is one kernel generation. */
static const uint32_t flag_sets[] = {
    IORING_SETUP_SINGLE_ISSUER | COOP | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE |
        TDL__SETUP_NO_SQARRAY,
    IORING_SETUP_SINGLE_ISSUER | COOP | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE,
    COOP | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE,
    IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE,
    IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE,
    0,
};

static int setup(uint32_t entries, struct io_uring_params *p)
{
    return TDL_FAIL(TDL_FAIL_SYSCALL) ? -ENOMEM : tdl__sys_io_uring_setup(entries, p);
}

static int setup_by_trial(const struct tdl__ring_wish *wish, struct io_uring_params *p)
{
    uint32_t barred = wish->any_thread ? IORING_SETUP_SINGLE_ISSUER | COOP : 0;
    if (wish->sqpoll) {
        barred |= COOP;
    }
    int rc = -EINVAL;
    for (size_t i = 0; i < sizeof flag_sets / sizeof flag_sets[0]; i++) {
        for (uint32_t shrink = 0; shrink < 4; shrink++) {
            memset(p, 0, sizeof *p);
            p->flags = (flag_sets[i] & wish->flags_mask & ~barred) | (wish->sqpoll ? IORING_SETUP_SQPOLL : 0);
            p->cq_entries = p->flags & IORING_SETUP_CQSIZE ? wish->cq_entries >> shrink : 0;
            p->sq_thread_idle = SQ_IDLE_MS;
            rc = setup(wish->sq_entries >> shrink, p);
            if (rc != -ENOMEM || wish->sq_entries >> (shrink + 1) < 8) {
                break;
            }
        }
        if (rc >= 0 || rc != -EINVAL) {
            break;
        }
    }
    return rc;
}

static void *map(const struct tdl__ring *r, size_t bytes, uint64_t offset)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, (off_t)offset);
    if (at == MAP_FAILED) {
        return NULL;
    }
    /* A child that shared these pages would write into its parent's ring. */
    (void)madvise(at, bytes, MADV_DONTFORK);
    return at;
}

static int map_rings(struct tdl__ring *r, const struct io_uring_params *p)
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
    if (!(p->flags & TDL__SETUP_NO_SQARRAY)) {
        uint32_t *array = (uint32_t *)(void *)(sq + p->sq_off.array);
        for (uint32_t i = 0; i < p->sq_entries; i++) {
            array[i] = i;
        }
    }
    return 0;
}

int tdl__ring_open(struct tdl__ring *r, const struct tdl__ring_wish *wish)
{
    struct io_uring_params p;
    memset(r, 0, sizeof *r);
    r->fd = setup_by_trial(wish, &p);
    if (r->fd < 0) {
        return r->fd;
    }
    r->sq_entries = p.sq_entries;
    r->cq_entries = p.cq_entries;
    r->setup_flags = p.flags;
    r->features = p.features;
    int rc = map_rings(r, &p);
    if (rc != 0) {
        tdl__ring_close(r);
    }
    return rc;
}

void tdl__ring_close(struct tdl__ring *r)
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
    tdl__ring_forget(r);
}

void tdl__ring_forget(struct tdl__ring *r)
{
    if (r->fd >= 0) {
        (void)close(r->fd);
    }
    memset(r, 0, sizeof *r);
    r->fd = -1;
}

uint32_t tdl__ring_space(const struct tdl__ring *r)
{
    return r->sq_entries - (r->tail - tdl_load_acquire_shared_u32(r->sq_head)); /* MO-7 */
}

struct io_uring_sqe *tdl__ring_sqe(struct tdl__ring *r)
{
    struct io_uring_sqe *sqe = &r->sqes[r->tail & (r->sq_entries - 1)];
    TDL_ASSERT(tdl__ring_space(r) > 0);
    r->tail++;
    memset(sqe, 0, sizeof *sqe);
    return sqe;
}

uint32_t tdl__ring_publish(struct tdl__ring *r)
{
    tdl_store_release_shared_u32(r->sq_tail, r->tail); /* MO-7 */
    return r->tail - tdl_load_acquire_shared_u32(r->sq_head);
}

uint32_t tdl__ring_retract(struct tdl__ring *r)
{
    uint32_t head = tdl_load_acquire_shared_u32(r->sq_head); /* MO-7 */
    uint32_t left = r->tail - head;
    r->tail = head;
    tdl_store_release_shared_u32(r->sq_tail, head);
    return left;
}

bool tdl__ring_sleeps(const struct tdl__ring *r)
{
    tdl_fence_full(); /* MO-6: the tail must be visible before the flag is read */
    return (tdl_load_relaxed_shared_u32(r->sq_flags) & IORING_SQ_NEED_WAKEUP) != 0;
}

__attribute__((noinline)) int tdl__ring_enter(struct tdl__ring *r, uint32_t submit, uint32_t wait,
                                              uint32_t flags, uint64_t timeout_ns)
{
    if (TDL_FAIL(TDL_FAIL_SYSCALL)) {
        return -ENOMEM;
    }
    if (timeout_ns == UINT64_MAX || !(r->features & IORING_FEAT_EXT_ARG)) {
        return tdl__sys_io_uring_enter(r->fd, submit, wait, flags, NULL, 0);
    }
    struct __kernel_timespec limit = {.tv_sec = (int64_t)(timeout_ns / TDL_NS_PER_S),
                                      .tv_nsec = (long long)(timeout_ns % TDL_NS_PER_S)};
    struct io_uring_getevents_arg arg = {.ts = (uint64_t)(uintptr_t)&limit};
    return tdl__sys_io_uring_enter(r->fd, submit, wait, flags | IORING_ENTER_EXT_ARG, &arg, sizeof arg);
}

uint32_t tdl__ring_ready(const struct tdl__ring *r)
{
    return tdl_load_acquire_shared_u32(r->cq_tail) - *r->cq_head; /* MO-7 */
}

void tdl__ring_seen(struct tdl__ring *r, uint32_t count)
{
    tdl_store_release_shared_u32(r->cq_head, *r->cq_head + count); /* MO-7 */
}

bool tdl__ring_holds_back(const struct tdl__ring *r)
{
    /* Both flags are hints that stay set until the kernel was entered, so a relaxed read only delays by one turn. */
    return (tdl_load_relaxed_shared_u32(r->sq_flags) & (IORING_SQ_CQ_OVERFLOW | IORING_SQ_TASKRUN)) != 0;
}

/* A filter may allow the setup and refuse the entering; only a real completion proves the ring. */
static int prove(struct tdl__ring *r)
{
    tdl__sqe_fill(tdl__ring_sqe(r), IORING_OP_NOP, -1, NULL, 0, 0);
    uint32_t count = tdl__ring_publish(r);
    bool polled = (r->setup_flags & IORING_SETUP_SQPOLL) != 0;
    int rc;
    do {
        rc = tdl__ring_enter(r, count, 1, IORING_ENTER_GETEVENTS | (polled ? IORING_ENTER_SQ_WAKEUP : 0u),
                             UINT64_MAX);
    } while (rc == -EINTR);
    if (rc < 0) {
        return rc;
    }
    if (tdl__ring_ready(r) == 0) {
        return -EIO;
    }
    tdl__ring_seen(r, 1);
    return 0;
}

int tdl__ring_open_proven(struct tdl__ring *r, const struct tdl__ring_wish *wish)
{
    int rc = tdl__ring_open(r, wish);
    if (rc != 0) {
        return rc;
    }
    rc = prove(r);
    if (rc != 0) {
        tdl__ring_close(r);
    }
    return rc;
}
