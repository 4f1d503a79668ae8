/* A poll of libuv's descriptor on a small io_uring: readiness is seen in shared memory, at a nanosecond a
 * look. The ring runs its task work cooperatively and says so by a flag: with default flags it was measured
 * up to 142 turns late. Figures and traps: docs/turn.md. */
#include "poll/gate.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "treadle/assert.h"
#include "treadle/atomic.h"

#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#endif
#ifndef IORING_SETUP_TASKRUN_FLAG
#define IORING_SETUP_TASKRUN_FLAG (1U << 9)
#endif
#ifndef IORING_SQ_TASKRUN
#define IORING_SQ_TASKRUN (1U << 2)
#endif
#ifndef IORING_SQ_CQ_OVERFLOW
#define IORING_SQ_CQ_OVERFLOW (1U << 1)
#endif
#ifndef IORING_POLL_ADD_MULTI
#define IORING_POLL_ADD_MULTI (1U << 0)
#endif

enum {
    TDL_GATE_ENTRIES = 8,
    TDL_GATE_EMPTY_POLLS_MIN = 4, /* a short spin is over before the ring would pay */
    TDL_GATE_TAG_POLL = 1,
    TDL_GATE_TAG_REMOVE = 0,
};

static int ring_enter(int fd, unsigned submit, unsigned flags)
{
    int code;
    do {
        code = (int)syscall(__NR_io_uring_enter, fd, submit, 0, flags, NULL, 0);
    } while (code < 0 && errno == EINTR);
    return code;
}

static void gate_unmap(struct tdl_gate *gate)
{
    if (gate->sqes != NULL) {
        munmap(gate->sqes, gate->sqes_map_len);
    }
    if (gate->ring_map != NULL) {
        munmap(gate->ring_map, gate->ring_map_len);
    }
    if (gate->ring_fd >= 0) {
        close(gate->ring_fd);
    }
    gate->sqes = NULL;
    gate->ring_map = NULL;
    gate->ring_fd = -1;
}

static void gate_refuse(struct tdl_gate *gate, int error)
{
    gate_unmap(gate);
    gate->state = TDL_GATE_REFUSED;
    gate->error = error;
}

static uint32_t *ring_word(const struct tdl_gate *gate, uint32_t offset)
{
    return (uint32_t *)(void *)((char *)gate->ring_map + offset);
}

static void gate_open(struct tdl_gate *gate)
{
    struct io_uring_params params;
    memset(&params, 0, sizeof params);
    params.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    gate->ring_fd = (int)syscall(__NR_io_uring_setup, TDL_GATE_ENTRIES, &params);
    if (gate->ring_fd < 0) {
        gate_refuse(gate, errno);
        return;
    }
    if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0) {
        gate_refuse(gate, ENOSYS);
        return;
    }
    uint64_t sq_len = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
    uint64_t cq_len = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    gate->ring_map_len = sq_len > cq_len ? sq_len : cq_len;
    gate->sqes_map_len = params.sq_entries * sizeof(struct io_uring_sqe);
    void *ring = mmap(NULL, gate->ring_map_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                      gate->ring_fd, IORING_OFF_SQ_RING);
    gate->ring_map = ring != MAP_FAILED ? ring : NULL;
    void *sqes = mmap(NULL, gate->sqes_map_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                      gate->ring_fd, IORING_OFF_SQES);
    gate->sqes = sqes != MAP_FAILED ? sqes : NULL;
    if (gate->ring_map == NULL || gate->sqes == NULL) {
        gate_refuse(gate, ENOMEM);
        return;
    }
    gate->sq_head = ring_word(gate, params.sq_off.head);
    gate->sq_tail = ring_word(gate, params.sq_off.tail);
    gate->sq_flags = ring_word(gate, params.sq_off.flags);
    gate->sq_array = ring_word(gate, params.sq_off.array);
    gate->cq_head = ring_word(gate, params.cq_off.head);
    gate->cq_tail = ring_word(gate, params.cq_off.tail);
    gate->cqes = (char *)gate->ring_map + params.cq_off.cqes;
    gate->sq_mask = params.sq_entries - 1;
    gate->cq_mask = params.cq_entries - 1;
    gate->state = TDL_GATE_IDLE;
}

/* Put one entry into the submission queue and hand it to the kernel. */
static int gate_submit(struct tdl_gate *gate, const struct io_uring_sqe *sqe)
{
    uint32_t tail = tdl_load_relaxed_shared_u32(gate->sq_tail); /* only this thread writes it */
    uint32_t index = tail & gate->sq_mask;
    ((struct io_uring_sqe *)gate->sqes)[index] = *sqe;
    gate->sq_array[index] = index;
    tdl_store_release_shared_u32(gate->sq_tail, tail + 1); /* MO-7 */
    return ring_enter(gate->ring_fd, 1, 0) == 1 ? 0 : -1;
}

static void gate_arm(struct tdl_gate *gate, int fd)
{
    if (gate->state == TDL_GATE_NEW) {
        gate_open(gate);
        if (gate->state != TDL_GATE_IDLE) {
            return;
        }
    }
    gate->generation++;
    struct io_uring_sqe sqe;
    memset(&sqe, 0, sizeof sqe);
    sqe.opcode = IORING_OP_POLL_ADD;
    sqe.fd = fd;
    sqe.len = IORING_POLL_ADD_MULTI;
    sqe.poll32_events = POLLIN;
    sqe.user_data = ((uint64_t)gate->generation << 8) | TDL_GATE_TAG_POLL;
    if (gate_submit(gate, &sqe) < 0) {
        gate_refuse(gate, errno);
        return;
    }
    gate->state = TDL_GATE_ARMED;
}

/* Take what the kernel posted; false when the poll that counts has ended. */
static bool gate_drain(struct tdl_gate *gate)
{
    bool alive = gate->state == TDL_GATE_ARMED;
    uint32_t head = tdl_load_relaxed_shared_u32(gate->cq_head);
    uint32_t tail = tdl_load_acquire_shared_u32(gate->cq_tail); /* MO-7 */
    while (head != tail) {
        const struct io_uring_cqe *cqe = &((struct io_uring_cqe *)gate->cqes)[head & gate->cq_mask];
        bool current = cqe->user_data == (((uint64_t)gate->generation << 8) | TDL_GATE_TAG_POLL);
        if (current && (cqe->flags & IORING_CQE_F_MORE) == 0) {
            alive = false;
        }
        head++;
    }
    tdl_store_release_shared_u32(gate->cq_head, head); /* MO-7 */
    return alive;
}

void tdl__gate_init(struct tdl_gate *gate, bool off)
{
    memset(gate, 0, sizeof *gate);
    gate->ring_fd = -1;
    gate->state = off ? TDL_GATE_OFF : TDL_GATE_NEW;
}

bool tdl__gate_quiet(struct tdl_gate *gate, int fd)
{
    if (gate->state != TDL_GATE_ARMED) {
        if (gate->state == TDL_GATE_OFF || gate->state == TDL_GATE_REFUSED ||
            gate->empty_polls < TDL_GATE_EMPTY_POLLS_MIN) {
            return false;
        }
        gate_arm(gate, fd);
        return false; /* this turn still polls: it covers what came before the arming */
    }
    /* MO-7: an event is in the tail, or task work that will write it is announced in the flags. */
    if (tdl_load_acquire_shared_u32(gate->cq_tail) != *gate->cq_head) {
        return false;
    }
    return (tdl_load_acquire_shared_u32(gate->sq_flags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) == 0;
}

void tdl__gate_before_poll(struct tdl_gate *gate)
{
    if (gate->state != TDL_GATE_ARMED) {
        return;
    }
    if (tdl_load_acquire_shared_u32(gate->sq_flags) & IORING_SQ_CQ_OVERFLOW) {
        (void)ring_enter(gate->ring_fd, 0, IORING_ENTER_GETEVENTS);
    }
    if (!gate_drain(gate)) {
        gate->state = TDL_GATE_IDLE;
    }
}

void tdl__gate_polled(struct tdl_gate *gate, bool handled)
{
    gate->empty_polls = handled ? 0 : gate->empty_polls + 1;
}

void tdl__gate_disarm(struct tdl_gate *gate)
{
    gate->empty_polls = 0;
    if (gate->state != TDL_GATE_ARMED) {
        return;
    }
    struct io_uring_sqe sqe;
    memset(&sqe, 0, sizeof sqe);
    sqe.opcode = IORING_OP_POLL_REMOVE;
    sqe.fd = -1;
    sqe.addr = ((uint64_t)gate->generation << 8) | TDL_GATE_TAG_POLL;
    sqe.user_data = TDL_GATE_TAG_REMOVE;
    gate->state = TDL_GATE_IDLE;
    if (gate_submit(gate, &sqe) < 0) {
        gate_refuse(gate, errno);
        return;
    }
    (void)gate_drain(gate);
}

void tdl__gate_close(struct tdl_gate *gate)
{
    gate_unmap(gate);
    gate->empty_polls = 0;
    if (gate->state != TDL_GATE_OFF && gate->state != TDL_GATE_REFUSED) {
        gate->state = TDL_GATE_NEW;
    }
}

const char *tdl__gate_name(const struct tdl_gate *gate)
{
    switch (gate->state) {
    case TDL_GATE_OFF:
        return "off";
    case TDL_GATE_REFUSED:
        return "refused";
    case TDL_GATE_NEW:
    case TDL_GATE_IDLE:
    case TDL_GATE_ARMED:
        return "io_uring";
    }
    TDL_ASSERT(!"gate state");
    return "";
}
