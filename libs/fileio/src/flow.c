/* The moves of an operation: from those who wait to the stage, to flight, and to the finished ones. The
 * context begins them (fio.c), the engines make the two in the middle. */
#include "budget.h"
#include "internal.h"

static struct tdl_fop *of_node(struct tdl_node *node)
{
    return TDL_CONTAINER_OF(node, struct tdl_fop, node);
}

static bool lacks_buffer(const struct tdl_fop *op)
{
    if (op->code == TDL_FOP_READ) {
        return op->at.buffer == NULL;
    }
    return op->code == TDL_FOP_READ_FILE && op->to.buffer == NULL;
}

int tdl__fio_provide(struct tdl_fio *f, struct tdl_fop *op)
{
    return f->options.provide != NULL && lacks_buffer(op) ? f->options.provide(op) : 0;
}

/* Known to need aligned memory: the kernel is not asked first. */
static void align_early(const struct tdl_fio *f, struct tdl_fop *op)
{
    if (op->fd == f->bounced_fd && op->done == 0 && op->own.bounce == NULL &&
        tdl__transfer_is_unaligned(op)) {
        (void)tdl__transfer_make_bounce(op);
    }
}

static bool borrows(const struct tdl_fio *f, const struct tdl_fop *op)
{
    return op->routed == TDL__ROUTE_WORKERS || f->engine->borrows(f, op);
}

/* The first operation in flight on this descriptor that may still look it up by its number: all but the
 * transfers that the kernel has taken and that will not be continued, since only those of files are. */
static struct tdl_fop *first_borrower(const struct tdl_fio *f, int fd, bool unasked)
{
    int is_file = -1;
    for (struct tdl_node *node = f->inflight.next; node != &f->inflight; node = node->next) {
        struct tdl_fop *op = of_node(node);
        if ((op->fd != fd && op->fd2 != fd) || (unasked && op->cancel_sent != 0)) {
            continue;
        }
        if (is_file < 0) {
            is_file = tdl__fd_is_file(fd);
        }
        if (is_file || !tdl__fop_is_transfer(op) || borrows(f, op)) {
            return op;
        }
    }
    return NULL;
}

static void stage_before(struct tdl_fio *f, struct tdl_node *place, struct tdl_fop *op)
{
    tdl_node_insert_before(place, &op->node);
    tdl__fop_enter(op, TDL_FOP_STAGED);
    f->staged_count++;
}

/* Back to the stage with the closes that waited for the last one on their descriptor; behind what is to be
 * continued. */
static void release_closes(struct tdl_fio *f)
{
    for (struct tdl_node *node = f->closing.next; node != &f->closing;) {
        struct tdl_fop *op = of_node(node);
        node = node->next;
        if (first_borrower(f, op->fd, false) != NULL) {
            continue;
        }
        tdl_node_remove(&op->node);
        stage_before(f, &f->staged, op);
        f->resubmit++;
    }
}

/* A close goes behind what was begun before it: a number that is free too early is soon another's. What
 * waits for another program does not keep it waiting, it is canceled. True when the close has to wait. */
static bool hold_close(struct tdl_fio *f, struct tdl_fop *op)
{
    if (op->fd < 0 || first_borrower(f, op->fd, false) == NULL) {
        return false;
    }
    tdl_node_remove(&op->node);
    tdl_node_insert_before(&f->closing, &op->node);
    tdl__fop_enter(op, TDL_FOP_WAITING);
    f->staged_count--;
    struct tdl_fop *other;
    while (!tdl__fd_is_file(op->fd) && (other = first_borrower(f, op->fd, true)) != NULL) {
        other->cancel_sent = 1;
        f->engine->cancel(f, other);
    }
    release_closes(f); /* a polling thread may have taken the last one's entry just now: nothing is to come */
    return true;
}

struct tdl_fop *tdl__fio_first(struct tdl_fio *f)
{
    while (tdl_node_is_linked(&f->staged) && tdl__budget_may_submit(f)) {
        struct tdl_fop *op = of_node(f->staged.next);
        if (op->code == TDL_FOP_CLOSE && hold_close(f, op)) {
            continue;
        }
        int rc = tdl__fio_provide(f, op);
        if (rc == 0) {
            align_early(f, op);
            return op;
        }
        tdl__fio_finish(f, op, rc);
    }
    return NULL;
}

void tdl__fio_sent(struct tdl_fio *f, struct tdl_fop *op, enum tdl__route route)
{
    TDL_ASSERT(op->link.state == TDL_FOP_STAGED);
    TDL_ASSERT(f->staged_count > 0);
    tdl_node_remove(&op->node);
    tdl_node_insert_before(&f->inflight, &op->node);
    tdl__fop_enter(op, TDL_FOP_INFLIGHT);
    op->routed = (uint8_t)route;
    f->staged_count--;
    f->inflight_count++;
    f->stats.submissions++;
    tdl__join_ends(f, op);
    if (route != TDL__ROUTE_WORKERS && op->code == TDL_FOP_READ) {
        tdl__budget_submitted(f, op->length);
    }
}

static void stage_first(struct tdl_fio *f, struct tdl_fop *op)
{
    stage_before(f, f->staged.next, op);
}

static void leave_flight(struct tdl_fio *f, struct tdl_fop *op)
{
    TDL_ASSERT(op->link.state == TDL_FOP_INFLIGHT && f->inflight_count > 0);
    tdl_node_remove(&op->node);
    f->inflight_count--;
}

void tdl__fio_unsent(struct tdl_fio *f, struct tdl_fop *op)
{
    TDL_ASSERT(f->stats.submissions > 0);
    leave_flight(f, op);
    stage_first(f, op);
    f->stats.submissions--;
}

void tdl__fio_finish(struct tdl_fio *f, struct tdl_fop *op, int64_t result)
{
    if (op->link.state == TDL_FOP_INFLIGHT) {
        leave_flight(f, op);
    } else {
        tdl_node_remove(&op->node);
        if (op->link.state == TDL_FOP_STAGED) {
            TDL_ASSERT(f->staged_count > 0);
            f->staged_count--;
        }
    }
    tdl__join_ends(f, op);
    tdl_free(op->own.rest);
    op->own.rest = NULL;
    op->result = result;
    tdl__fop_enter(op, TDL_FOP_DONE);
    tdl_queue_push(&f->finished, &op->link);
    f->stats.completed++;
    if (op->leads) {
        tdl__join_finish(f, op, result);
    }
    if (tdl_node_is_linked(&f->closing)) {
        release_closes(f);
    }
}

/* A canceled operation that the kernel interrupted says EINTR; its owner asked for ECANCELED. */
static int64_t final_result(const struct tdl_fop *op, int64_t res)
{
    return op->asked && res == -EINTR ? -ECANCELED : res;
}

void tdl__fio_complete(struct tdl_fio *f, struct tdl_fop *op, int64_t res)
{
    /* A canceled one is not tried again, so its memory is not what its owner hears of. */
    if (res == -EINVAL && op->asked && op->own.bounce == NULL && tdl__transfer_is_unaligned(op)) {
        res = -ECANCELED;
    }
    if (res == -EINVAL && op->own.bounce == NULL && tdl__transfer_wants_bounce(op)) {
        tdl__fio_unsent(f, op);
        if (tdl__transfer_make_bounce(op)) {
            f->bounced_fd = op->fd;
        } else {
            op->routed = TDL__ROUTE_WORKERS;
        }
        f->resubmit++;
        return;
    }
    if (op->own.bounce != NULL && !tdl__fop_is_vectored(op)) {
        tdl__transfer_take_bounce(op, res);
    }
    bool again = tdl__fop_is_transfer(op) ? tdl__transfer_round(op, res, f->options.chunk_max, false)
                                          : res == -EINTR && !op->asked && op->code != TDL_FOP_CLOSE;
    if (again) {
        leave_flight(f, op);
        stage_first(f, op);
        f->resubmit++;
        return;
    }
    tdl__fio_finish(f, op, final_result(op, tdl__fop_is_transfer(op) ? op->result : res));
}

/* Refill the stage from those who wait; the limit counts what is staged and what is in flight. */
void tdl__fio_admit(struct tdl_fio *f)
{
    while (tdl_node_is_linked(&f->waiting) && f->staged_count + f->inflight_count < f->inflight_max) {
        struct tdl_fop *op = of_node(f->waiting.next);
        tdl_node_remove(&op->node);
        stage_before(f, &f->staged, op);
    }
}
