/* Figures and traps: docs/turn.md. */
#include "treadle/filter.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "treadle/assert.h"
#include "treadle/atomic.h"
#include "treadle/fork.h"

/* One poll and its removal are in the ring at a time; the smallest ring there is holds more. */
#define ENTRIES 8u

/* A short spin is over before the ring would pay for its arming. */
#define EMPTY_POLLS_MIN 4u

/* The kernel works cooperatively, and says by a flag that it has something to do: with default flags
 * readiness was measured up to 142 turns late. */
#define SETUP_FLAGS (IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG)

/* user_data of what answers nobody; a poll's is its sequence number and a one. */
#define DATA_REMOVAL UINT64_C(0)

static uint64_t data_of(uint32_t sequence)
{
    return (uint64_t)sequence << 8 | 1u;
}

/* NEW -> IDLE <-> ARMED, and from each of them REFUSED; NEW again by close and in a child; OFF from the
 * beginning. */
static void enter_state(struct tdl_filter *f, enum tdl_filter_state state)
{
    TDL_ASSERT(f->state != TDL_FILTER_OFF && f->state != TDL_FILTER_REFUSED);
    TDL_ASSERT(state != TDL_FILTER_ARMED || f->state == TDL_FILTER_IDLE);
    TDL_ASSERT((state == TDL_FILTER_IDLE || state == TDL_FILTER_ARMED) == (f->ring.fd >= 0));
    f->state = state;
}

static void refuse(struct tdl_filter *f, int error)
{
    tdl_ring_close(&f->ring);
    f->error = -error;
    enter_state(f, TDL_FILTER_REFUSED);
}

static void open_ring(struct tdl_filter *f)
{
    const struct tdl_ring_options options = {.sq_entries = ENTRIES, .flags_exact = SETUP_FLAGS};
    tdl_fork_watch();
    f->fork_count = tdl_fork_count();
    int rc = tdl_ring_open(&f->ring, &options);
    if (rc != 0) {
        refuse(f, rc);
        return;
    }
    enter_state(f, TDL_FILTER_IDLE);
}

static bool has_ring(const struct tdl_filter *f)
{
    return f->state == TDL_FILTER_IDLE || f->state == TDL_FILTER_ARMED;
}

/* A child has the descriptor and not the maps. */
static void begin_anew_in_child(struct tdl_filter *f)
{
    tdl_ring_forget(&f->ring);
    f->empty_polls = 0;
    enter_state(f, TDL_FILTER_NEW);
}

static bool is_inherited(const struct tdl_filter *f)
{
    return f->fork_count != tdl_fork_count() && has_ring(f);
}

static int enter(struct tdl_filter *f, uint32_t submit, uint32_t flags)
{
    int rc;
    do {
        rc = tdl_ring_enter(&f->ring, submit, 0, flags, UINT64_MAX);
    } while (rc == -EINTR);
    return rc;
}

/* Hands the one filled entry to the kernel; false when that refused it, and the filter with it. */
static bool submit(struct tdl_filter *f)
{
    int rc = enter(f, tdl_ring_publish(&f->ring), 0);
    if (rc != 1) {
        refuse(f, rc < 0 ? rc : -EIO);
    }
    return rc == 1;
}

static void arm(struct tdl_filter *f, int fd)
{
    if (f->state == TDL_FILTER_NEW) {
        open_ring(f);
    }
    if (f->state != TDL_FILTER_IDLE) {
        return;
    }
    struct io_uring_sqe *sqe = tdl_ring_sqe(&f->ring);
    tdl_sqe_poll_add(sqe, fd, POLLIN);
    sqe->len = IORING_POLL_ADD_MULTI;
    sqe->user_data = data_of(++f->sequence);
    if (submit(f)) {
        enter_state(f, TDL_FILTER_ARMED);
    }
}

/* Takes what the kernel posted; false when the poll that counts has ended. */
static bool drain(struct tdl_filter *f)
{
    bool alive = true;
    uint32_t count = tdl_ring_ready(&f->ring);
    for (uint32_t i = 0; i < count; i++) {
        const struct io_uring_cqe *cqe = tdl_ring_cqe(&f->ring, i);
        if (cqe->user_data == data_of(f->sequence) && (cqe->flags & IORING_CQE_F_MORE) == 0) {
            alive = false;
        }
    }
    if (count > 0) {
        tdl_ring_seen(&f->ring, count);
    }
    return alive;
}

void tdl_filter_init(struct tdl_filter *f, bool off)
{
    memset(f, 0, sizeof *f);
    f->ring.fd = -1;
    f->state = off ? TDL_FILTER_OFF : TDL_FILTER_NEW;
}

bool tdl_filter_skips(struct tdl_filter *f, int fd)
{
    if (is_inherited(f)) {
        begin_anew_in_child(f);
    }
    if (f->state != TDL_FILTER_ARMED) {
        if (f->state != TDL_FILTER_OFF && f->state != TDL_FILTER_REFUSED &&
            f->empty_polls >= EMPTY_POLLS_MIN) {
            arm(f, fd);
        }
        return false; /* this turn still polls: it covers what came before the arming */
    }
    /* MO-7: an event is in the tail, or work that will write it there is announced in the flags. */
    return tdl_ring_ready(&f->ring) == 0 &&
           (tdl_load_acquire_shared_u32(f->ring.sq_flags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) == 0;
}

void tdl_filter_before_poll(struct tdl_filter *f)
{
    if (f->state != TDL_FILTER_ARMED) {
        return;
    }
    if (is_inherited(f)) {
        begin_anew_in_child(f);
        return;
    }
    if (tdl_load_acquire_shared_u32(f->ring.sq_flags) & IORING_SQ_CQ_OVERFLOW) {
        (void)enter(f, 0, IORING_ENTER_GETEVENTS);
    }
    if (!drain(f)) {
        enter_state(f, TDL_FILTER_IDLE);
    }
}

void tdl_filter_polled(struct tdl_filter *f, bool handled)
{
    f->empty_polls = handled ? 0 : f->empty_polls + 1;
}

void tdl_filter_disarm(struct tdl_filter *f)
{
    f->empty_polls = 0;
    if (f->state != TDL_FILTER_ARMED) {
        return;
    }
    if (is_inherited(f)) {
        begin_anew_in_child(f);
        return;
    }
    struct io_uring_sqe *sqe = tdl_ring_sqe(&f->ring);
    tdl_sqe_fill(sqe, IORING_OP_POLL_REMOVE, -1, NULL, 0, 0);
    sqe->addr = data_of(f->sequence);
    sqe->user_data = DATA_REMOVAL;
    if (submit(f)) {
        enter_state(f, TDL_FILTER_IDLE);
        (void)drain(f);
    }
}

void tdl_filter_close(struct tdl_filter *f)
{
    f->empty_polls = 0;
    if (!has_ring(f)) {
        return;
    }
    if (is_inherited(f)) {
        begin_anew_in_child(f);
        return;
    }
    tdl_ring_close(&f->ring);
    enter_state(f, TDL_FILTER_NEW);
}

const char *tdl_filter_name(const struct tdl_filter *f)
{
    switch (f->state) {
    case TDL_FILTER_OFF:
        return "off";
    case TDL_FILTER_REFUSED:
        return "refused";
    case TDL_FILTER_NEW:
    case TDL_FILTER_IDLE:
    case TDL_FILTER_ARMED:
        return "io_uring";
    }
    TDL_ASSERT(!"filter state");
    return "";
}
