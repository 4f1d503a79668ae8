/* The context: operations move from waiting to staged to flight to finished; the engine only does the two
 * middle steps. */
#include "budget.h"
#include "internal.h"
#include "workers.h"

#include <limits.h>
#include <string.h>

#include "treadle/fileio.h"

#define DEFAULT_INFLIGHT 128u
#define DEFAULT_THREADS 4u
#define DEFAULT_STEP_NS 100000u
#define INFLIGHT_LIMIT 65536u
#define THREADS_LIMIT 65536u

/* How often, and how long apart, a closing context looks for what nothing tells of. */
#define LOOKS_MAX 100u
#define LOOK_NS TDL_NS_PER_MS

static struct tdl_fop *of_node(struct tdl_node *node)
{
    return TDL_CONTAINER_OF(node, struct tdl_fop, node);
}

int tdl_fio_open(struct tdl_fio *f, const struct tdl_fio_options *options)
{
    memset(f, 0, sizeof *f);
    tdl_queue_init(&f->finished);
    if (options != NULL) {
        f->options = *options;
    }
    struct tdl_fio_options *o = &f->options;
    if ((unsigned)o->engine >= TDL_FIO_ENGINES || (unsigned)o->mode >= TDL_FIO_MODES ||
        o->inflight_max > INFLIGHT_LIMIT || o->threads_max > THREADS_LIMIT) {
        return -EINVAL;
    }
    if (o->sqpoll && o->engine != TDL_FIO_AUTO && o->engine != TDL_FIO_LINUX_URING) {
        return -EINVAL;
    }
    if (o->inflight_max == 0) {
        o->inflight_max = DEFAULT_INFLIGHT;
    }
    if (o->threads_max == 0) {
        o->threads_max = DEFAULT_THREADS;
    }
    if (o->step_ns == 0) {
        o->step_ns = DEFAULT_STEP_NS;
    }
    if (o->chunk_max == 0 || o->chunk_max > TDL__CHUNK_MAX) {
        o->chunk_max = TDL__CHUNK_MAX;
    }
    if (o->ring_flags_mask == 0) {
        o->ring_flags_mask = UINT32_MAX;
    }
    tdl_node_init(&f->waiting);
    tdl_node_init(&f->staged);
    tdl_node_init(&f->inflight);
    tdl_node_init(&f->joined);
    tdl_node_init(&f->closing);
    f->inflight_max = o->inflight_max;
    f->bounced_fd = -1;
    tdl_fork_watch();
    f->fork_epoch = tdl_fork_count();
    f->state = TDL_FIO_NEW;
    tdl_fio_step(f);
    return 0;
}

static int start_engine(struct tdl_fio *f, enum tdl_fio_engine id)
{
    f->engine = tdl__engine_of(id);
    f->caps.engine = id;
    f->caps.mode = f->options.mode;
    f->caps.inflight_max = f->inflight_max;
    int rc = f->engine->start(f);
    TDL_ASSERT(f->state == TDL_FIO_NEW);
    if (rc == 0) {
        TDL_ASSERT(f->backend != NULL || id == TDL_FIO_THREADS);
        f->state = TDL_FIO_RUNNING;
    } else {
        f->engine = NULL;
    }
    return rc;
}

int tdl_fio_start(struct tdl_fio *f)
{
    if (f->state == TDL_FIO_RUNNING && f->fork_epoch == tdl_fork_count()) {
        return 0;
    }
    if (f->state == TDL_FIO_CLOSED) {
        return TDL_ECLOSED;
    }
    if (f->fork_epoch != tdl_fork_count()) {
        tdl__fio_after_fork(f);
    }
    memset(&f->caps, 0, sizeof f->caps);
    if (f->options.engine != TDL_FIO_AUTO) {
        return start_engine(f, f->options.engine);
    }
    int rc = start_engine(f, TDL_FIO_LINUX_URING);
    if (rc == 0) {
        return 0;
    }
    /* linux_aio is never second: it blocks the loop in submission for every file that is not O_DIRECT. */
    int threads_rc = start_engine(f, TDL_FIO_THREADS);
    f->caps.refused_engine = TDL_FIO_LINUX_URING;
    f->caps.refused_code = rc;
    return threads_rc;
}

const struct tdl_fio_caps *tdl_fio_caps(struct tdl_fio *f)
{
    return tdl_fio_start(f) == 0 ? &f->caps : NULL;
}

int tdl_fio_fd(struct tdl_fio *f)
{
    int rc = tdl_fio_start(f);
    return rc == 0 ? f->engine->fd(f) : rc;
}

int tdl_fio_register(struct tdl_fio *f, void *memory, size_t length)
{
    int rc = tdl_fio_start(f);
    if (rc != 0) {
        return rc;
    }
    if (f->engine->pin == NULL) {
        return -ENOTSUP;
    }
    if (f->pinned != NULL) {
        return -EBUSY;
    }
    rc = f->engine->pin(f, memory, length);
    if (rc == 0) {
        f->pinned = (const char *)memory;
        f->pinned_bytes = length;
    }
    return rc;
}

static bool vector_is_sound(const struct tdl_fop *op)
{
    return !tdl__fop_is_vectored(op) || (op->length > 0 && op->length <= IOV_MAX);
}

/* The calls take a signed number; and a ring would take some negative ones for the descriptor's own
 * position. */
static bool offset_is_sound(const struct tdl_fop *op)
{
    return !tdl__fop_is_transfer(op) || op->offset <= INT64_MAX || op->offset == TDL_FOP_POSITION;
}

static bool flush_now(const struct tdl_fio *f)
{
    if (f->options.mode == TDL_FIO_IMMEDIATE) {
        return true;
    }
    if (f->options.mode == TDL_FIO_DEFERRED) {
        return false;
    }
    return f->staged_count >= TDL__BATCH || (f->inflight_count == 0 && f->staged_count == 1 && !f->held);
}

int tdl_fio_stage(struct tdl_fio *f, struct tdl_fop *op)
{
    if (op->link.state != TDL_FOP_IDLE || op->code >= TDL_FOP_CODES) {
        return -EINVAL;
    }
    int rc = tdl_fio_start(f);
    if (rc != 0) {
        return rc;
    }
    op->asked = 0;
    op->leads = 0;
    op->rounds = 0;
    op->routed = TDL__ROUTE_ENGINE;
    op->cancel_sent = 0;
    tdl__fop_enter(op, TDL_FOP_WAITING);
    tdl_node_insert_before(&f->waiting, &op->node);
    if (!vector_is_sound(op) || !offset_is_sound(op)) {
        tdl__fio_finish(f, op, -EINVAL);
        return 0;
    }
    if (tdl__join(f, op)) {
        return 0;
    }
    tdl__fio_admit(f);
    if (op->link.state == TDL_FOP_STAGED && flush_now(f)) {
        f->engine->submit(f);
    }
    return 0;
}

int tdl_fio_flush(struct tdl_fio *f)
{
    int rc = tdl_fio_start(f);
    if (rc != 0) {
        return rc;
    }
    uint32_t before = f->staged_count;
    if (!tdl_fio_wants_flush(f)) {
        return 0;
    }
    f->engine->submit(f);
    return (int)(before - f->staged_count);
}

static size_t hand_out(struct tdl_fio *f, struct tdl_queue *out)
{
    size_t count = 0;
    for (struct tdl_link *link = f->finished.head; link != NULL; link = link->next) {
        tdl__fop_enter(tdl_fop_of(link), TDL_FOP_IDLE);
        count++;
    }
    if (out != NULL) {
        tdl_queue_splice(out, &f->finished);
    } else {
        tdl_queue_init(&f->finished);
    }
    return count;
}

size_t tdl_fio_reap(struct tdl_fio *f, struct tdl_queue *out)
{
    if (f->state == TDL_FIO_CLOSED) {
        return hand_out(f, out);
    }
    if (f->fork_epoch != tdl_fork_count()) {
        tdl__fio_after_fork(f);
    }
    if (f->state == TDL_FIO_RUNNING && f->inflight_count > 0) {
        f->engine->reap(f);
    }
    if (f->resubmit > 0) {
        f->resubmit = 0;
        f->engine->submit(f);
    }
    size_t count = hand_out(f, out);
    tdl__fio_admit(f);
    if (f->staged_count > 0 && f->options.mode == TDL_FIO_IMMEDIATE) {
        f->engine->submit(f);
    }
    return count;
}

int tdl_fio_wait(struct tdl_fio *f, uint64_t timeout_ns)
{
    if (!tdl_queue_is_empty(&f->finished)) {
        return 0;
    }
    int rc = tdl_fio_start(f);
    if (rc != 0) {
        return rc;
    }
    if (f->staged_count + f->inflight_count == 0) {
        return -EDEADLK;
    }
    tdl__budget_renew_submissions(f);
    return f->engine->wait(f, timeout_ns);
}

/* Bytes moved by earlier rounds are reported; an inline answer that got only part of a read is simply
 * dropped. */
static int64_t canceled_result(const struct tdl_fop *op)
{
    return op->rounds > 0 && op->done > 0 ? (int64_t)op->done : -ECANCELED;
}

int tdl_fio_cancel(struct tdl_fio *f, struct tdl_fop *op)
{
    if (f->fork_epoch != tdl_fork_count()) {
        tdl__fio_after_fork(f);
    }
    switch (tdl_fop_state(op)) {
    case TDL_FOP_IDLE:
        return -ENOENT;
    case TDL_FOP_DONE:
        return -EALREADY;
    case TDL_FOP_INFLIGHT:
        if (op->asked) {
            return -EALREADY;
        }
        /* With others to serve it goes on; it comes back as soon as it would have been canceled, or a
         * little later. */
        if (!op->leads) {
            f->engine->cancel(f, op);
        }
        return 0;
    default:
        f->stats.canceled++;
        if (op->leads) {
            tdl__join_promote(f, op);
        }
        tdl__fio_finish(f, op, canceled_result(op));
        return 0;
    }
}

bool tdl_fio_borrows(const struct tdl_fio *f, const struct tdl_fop *op)
{
    if (f->state != TDL_FIO_RUNNING || op->link.state != TDL_FOP_INFLIGHT ||
        f->fork_epoch != tdl_fork_count()) {
        return false;
    }
    return op->routed == TDL__ROUTE_WORKERS ? tdl__workers_borrow(op) : f->engine->borrows(f, op);
}

static bool names(const struct tdl_node *ring, int fd)
{
    for (const struct tdl_node *node = ring->next; node != ring; node = node->next) {
        const struct tdl_fop *op = TDL_CONTAINER_OF(node, const struct tdl_fop, node);
        if (op->fd == fd || op->fd2 == fd) {
            return true;
        }
    }
    return false;
}

bool tdl_fio_names(const struct tdl_fio *f, int fd)
{
    return f->state == TDL_FIO_RUNNING && fd >= 0 &&
           (names(&f->waiting, fd) || names(&f->staged, fd) || names(&f->inflight, fd) ||
            names(&f->closing, fd));
}

int tdl_fio_drain(struct tdl_fio *f, struct tdl_queue *out)
{
    while (!tdl_fio_is_idle(f)) {
        if (f->staged_count > 0) {
            tdl__budget_renew_submissions(f);
            int rc = tdl_fio_flush(f);
            if (rc < 0) {
                return rc;
            }
        }
        if (tdl_queue_is_empty(&f->finished) && f->inflight_count > 0) {
            int rc = tdl_fio_wait(f, UINT64_MAX);
            if (rc != 0 && rc != -EINTR) {
                return rc;
            }
        }
        (void)tdl_fio_reap(f, out);
    }
    return 0;
}

static void cancel_ring(struct tdl_fio *f, struct tdl_node *ring)
{
    while (tdl_node_is_linked(ring)) {
        f->stats.canceled++;
        struct tdl_fop *op = of_node(ring->next);
        tdl__fio_finish(f, op, canceled_result(op));
    }
}

/* Until all is back; 0. Once somebody has closed the engine's descriptors nothing tells of it, so this
 * looks by itself; what a kernel that is no longer to be asked does not give back in a while is left to
 * it, and the reason returned. */
static int take_back(struct tdl_fio *f, struct tdl_queue *out)
{
    unsigned looks = 0;
    while (f->inflight_count > 0) {
        (void)hand_out(f, out); /* an engine does not wait beside what is finished */
        int rc = f->engine->wait(f, UINT64_MAX);
        f->engine->reap(f);
        if (rc < 0 && rc != -EINTR && rc != -ETIMEDOUT) {
            tdl__workers_reap(f);
            if (looks++ >= LOOKS_MAX && tdl__workers_running(f) == 0) {
                return f->inflight_count > 0 ? rc : 0;
            }
            (void)tdl__fio_wait_readable(-1, LOOK_NS);
        }
        cancel_ring(f, &f->staged);
        cancel_ring(f, &f->closing);
    }
    return 0;
}

int tdl_fio_close(struct tdl_fio *f, struct tdl_queue *out)
{
    if (f->state == TDL_FIO_CLOSED) {
        return 0;
    }
    int rc = 0;
    if (f->fork_epoch != tdl_fork_count()) {
        tdl__fio_after_fork(f);
    }
    cancel_ring(f, &f->waiting);
    cancel_ring(f, &f->staged);
    cancel_ring(f, &f->closing);
    if (f->state == TDL_FIO_RUNNING) {
        if (f->inflight_count > 0) {
            f->engine->cancel_all(f);
        }
        rc = take_back(f, out);
        f->engine->stop(f);
        while (tdl_node_is_linked(&f->inflight)) {
            tdl__fio_finish(f, of_node(f->inflight.next), rc);
        }
        tdl__workers_close(f);
    }
    TDL_ASSERT(f->inflight_count == 0 && f->staged_count == 0);
    f->state = TDL_FIO_CLOSED;
    f->resubmit = 0;
    (void)hand_out(f, out);
    return rc;
}

void tdl__fio_after_fork(struct tdl_fio *f)
{
    f->fork_epoch = tdl_fork_count();
    if (f->state != TDL_FIO_RUNNING) {
        return;
    }
    f->engine->forget(f);
    tdl__workers_forget(f);
    while (tdl_node_is_linked(&f->inflight)) {
        tdl__fio_finish(f, of_node(f->inflight.next), -ECANCELED);
    }
    cancel_ring(f, &f->staged);
    cancel_ring(f, &f->waiting);
    cancel_ring(f, &f->closing);
    TDL_ASSERT(f->inflight_count == 0 && f->staged_count == 0);
    f->backend = NULL;
    f->engine = NULL;
    f->state = TDL_FIO_NEW;
    f->resubmit = 0;
    f->pinned = NULL;
}

bool tdl_fio_is_idle(const struct tdl_fio *f)
{
    if (f->state == TDL_FIO_CLOSED) {
        return tdl_queue_is_empty(&f->finished);
    }
    return !tdl_node_is_linked(&f->waiting) && !tdl_node_is_linked(&f->staged) &&
           !tdl_node_is_linked(&f->inflight) && !tdl_node_is_linked(&f->closing) &&
           tdl_queue_is_empty(&f->finished);
}
