/* A whole file as one submission: open, read, a probe that must find the end, close. They are linked and
 * share a registered file, of which there are so many that chains beyond them wait on the stage. */
#include "uring.h"

#include <fcntl.h>
#include <string.h>

/* Where a chain's probe of the end puts the byte it should not find; nobody reads it. */
static char probe_byte;

int tdl__chain_register(struct tdl__uring *u)
{
    int none[TDL__CHAIN_SLOTS];
    memset(none, -1, sizeof none);
    int rc = tdl_ring_register(&u->main, IORING_REGISTER_FILES, none, TDL__CHAIN_SLOTS);
    u->free_slots = rc < 0 ? 0 : UINT64_MAX;
    return rc;
}

void tdl__chain_give_slot(struct tdl__uring *u, const struct tdl_fop *op)
{
    uint64_t bit = UINT64_C(1) << op->engine.uring.slot;
    TDL_ASSERT((u->free_slots & bit) == 0);
    u->free_slots |= bit;
}

bool tdl__chain_take_slot(struct tdl__uring *u, struct tdl_fop *op)
{
    if (u->free_slots == 0) {
        return false;
    }
    unsigned slot = (unsigned)__builtin_ctzll(u->free_slots);
    u->free_slots &= u->free_slots - 1;
    op->engine.uring.slot = (uint16_t)slot;
    return true;
}

void tdl__chain_part(struct tdl_fio *f, struct tdl__uring *u, struct tdl_fop *op, enum tdl__part part,
                     int32_t res)
{
    TDL_ASSERT(op->code == TDL_FOP_READ_FILE && op->engine.uring.parts > 0);
    if (part != TDL__PART_CLOSE && res < 0 && op->result >= 0 &&
        (part != TDL__PART_PROBE || op->result < (int64_t)op->length)) {
        op->result = res;
    }
    if (part == TDL__PART_READ && res >= 0) {
        op->result = res;
    }
    if (part == TDL__PART_PROBE && res > 0) {
        op->engine.uring.longer = 1; /* there is more behind a short read */
    }
    if (--op->engine.uring.parts > 0) {
        /* A hard link survives the read's cancelation, and a FIFO's probe would wait for a writer. */
        u->probe_runs_on = u->probe_runs_on || (op->asked && part == TDL__PART_READ);
        return;
    }
    tdl__chain_give_slot(u, op);
    if (op->engine.uring.longer && op->result >= 0 && op->result < (int64_t)op->length && !op->asked) {
        tdl__fio_unsent(f, op);
        op->routed = TDL__ROUTE_WORKERS;
        f->resubmit++;
        return;
    }
    tdl__fio_complete(f, op, op->result);
}

void tdl__chain_cancel_probes(struct tdl_fio *f, struct tdl__uring *u)
{
    u->probe_runs_on = false;
    for (struct tdl_node *node = f->inflight.next; node != &f->inflight; node = node->next) {
        const struct tdl_fop *op = TDL_CONTAINER_OF(node, struct tdl_fop, node);
        if (op->code != TDL_FOP_READ_FILE || !op->asked || op->routed == TDL__ROUTE_WORKERS) {
            continue;
        }
        if (tdl_ring_space(&u->main) == 0) {
            u->probe_runs_on = true;
            break;
        }
        struct io_uring_sqe *sqe = tdl_ring_sqe(&u->main);
        tdl_sqe_cancel(sqe, tdl__uring_data(op, TDL__PART_PROBE), 0);
        sqe->user_data = TDL__DATA_NOBODY;
    }
    tdl__uring_kick(f, u, &u->main);
}

/* open, read, a probe that must find the end, close. The links after the read are hard: a short read is
 * the normal case. */
void tdl__chain_prepare(struct tdl_ring *r, struct tdl_fop *op)
{
    TDL_ASSERT(tdl_ring_space(r) >= TDL__CHAIN_PARTS && op->engine.uring.slot < TDL__CHAIN_SLOTS);
    struct io_uring_sqe *sqe = tdl_ring_sqe(r);
    /* A registered file is never inherited, and the kernel refuses O_CLOEXEC for one. */
    tdl_sqe_fill(sqe, IORING_OP_OPENAT, op->fd, op->at.path, 0, 0);
    sqe->open_flags = op->flags & ~(uint32_t)O_CLOEXEC;
    sqe->file_index = (uint32_t)op->engine.uring.slot + 1; /* of registered files, where 0 is none */
    sqe->flags |= IOSQE_IO_LINK;
    sqe->user_data = tdl__uring_data(op, TDL__PART_OPEN);
    sqe = tdl_ring_sqe(r);
    unsigned length = (unsigned)(op->length < TDL__CHUNK_MAX ? op->length : TDL__CHUNK_MAX);
    tdl_sqe_fill(sqe, IORING_OP_READ, op->engine.uring.slot, op->to.buffer, length, TDL_FOP_POSITION);
    sqe->flags |= IOSQE_FIXED_FILE | IOSQE_IO_HARDLINK;
    sqe->user_data = tdl__uring_data(op, TDL__PART_READ);
    sqe = tdl_ring_sqe(r);
    tdl_sqe_fill(sqe, IORING_OP_READ, op->engine.uring.slot, &probe_byte, 1, TDL_FOP_POSITION);
    sqe->flags |= IOSQE_FIXED_FILE | IOSQE_IO_HARDLINK;
    sqe->user_data = tdl__uring_data(op, TDL__PART_PROBE);
    sqe = tdl_ring_sqe(r);
    tdl_sqe_fill(sqe, IORING_OP_CLOSE, 0, NULL, 0, 0);
    sqe->file_index = (uint32_t)op->engine.uring.slot + 1;
    sqe->user_data = tdl__uring_data(op, TDL__PART_CLOSE);
    op->engine.uring.parts = TDL__CHAIN_PARTS;
    op->engine.uring.longer = 0;
    op->result = 0;
    op->done = 0;
}
