/* The simulated engine: calls are made at once, and a generator decides when, in which order and how
 * broken results come. */
#include "../internal.h"

#include <sys/eventfd.h>
#include <unistd.h>

struct simulated {
    uint64_t random;
    int fd; /* readable while anything is in flight */
    bool raised;
};

static struct simulated *backend(const struct tdl_fio *f)
{
    return (struct simulated *)f->backend;
}

/* xorshift64*: small, and the same on every machine. */
static uint32_t draw(struct simulated *s, uint32_t below)
{
    s->random ^= s->random >> 12;
    s->random ^= s->random << 25;
    s->random ^= s->random >> 27;
    return (uint32_t)((s->random * UINT64_C(2685821657736338717)) >> 33) % below;
}

static int start(struct tdl_fio *f)
{
    struct simulated *s = (struct simulated *)tdl_calloc(1, sizeof *s);
    if (s == NULL) {
        return -ENOMEM;
    }
    s->fd = TDL_SYSCALL(EMFILE, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (s->fd < 0) {
        tdl_free(s);
        return -errno;
    }
    s->random = f->options.simulation.seed * 2 + 1;
    f->backend = s;
    f->caps.single_syscall = true;
    return 0;
}

static void stop(struct tdl_fio *f)
{
    (void)close(backend(f)->fd);
    tdl_free(f->backend);
    f->backend = NULL;
}

static int descriptor(struct tdl_fio *f)
{
    return backend(f)->fd;
}

static void show(struct tdl_fio *f)
{
    struct simulated *s = backend(f);
    bool wanted = f->inflight_count > 0;
    if (wanted == s->raised) {
        return;
    }
    eventfd_t count;
    (void)(wanted ? eventfd_write(s->fd, 1) : eventfd_read(s->fd, &count));
    s->raised = wanted;
}

static void submit(struct tdl_fio *f)
{
    struct simulated *s = backend(f);
    struct tdl_fop *op;
    TDL_ASSERT(s->fd >= 0);
    f->stats.submit_calls += f->staged_count > 0;
    while ((op = tdl__fio_first(f)) != NULL) {
        tdl__fio_sent(f, op, TDL__ROUTE_ENGINE);
        op->engine.simulated.delay =
            f->options.simulation.delay_max > 0 ? (uint16_t)draw(s, f->options.simulation.delay_max + 1) : 0;
    }
    show(f);
}

/* Part of what one call would have moved. */
static int64_t shortened(struct tdl_fio *f, struct tdl_fop *op)
{
    struct tdl__span span;
    tdl__transfer_span(op, f->options.chunk_max, &span);
    TDL_ASSERT(span.length >= 2);
    size_t part = 1 + draw(backend(f), (uint32_t)(span.length < 65536 ? span.length - 1 : 65536));
    ssize_t res;
    if (tdl__fop_is_write(op)) {
        res = span.offset == TDL_FOP_POSITION ? write(op->fd, span.buffer, part)
                                              : pwrite(op->fd, span.buffer, part, (off_t)span.offset);
    } else {
        res = span.offset == TDL_FOP_POSITION ? read(op->fd, span.buffer, part)
                                              : pread(op->fd, span.buffer, part, (off_t)span.offset);
    }
    return res < 0 ? -(int64_t)errno : res;
}

static bool can_be_cut(const struct tdl_fop *op)
{
    return tdl__fop_is_transfer(op) && !tdl__fop_is_vectored(op) && op->length - op->done >= 2;
}

static void complete(struct tdl_fio *f, struct tdl_fop *op)
{
    struct simulated *s = backend(f);
    const struct tdl_fio_simulation *sim = &f->options.simulation;
    if (op->asked) {
        tdl__fio_finish(f, op, op->done > 0 ? (int64_t)op->done : -ECANCELED);
    } else if (draw(s, 1000) < sim->fault_permille) {
        tdl__fio_complete(f, op, -EIO);
    } else if (can_be_cut(op) && draw(s, 1000) < sim->short_permille) {
        tdl__fio_complete(f, op, shortened(f, op));
    } else {
        tdl__fio_finish(f, op, tdl__fop_execute(op, f->options.chunk_max, NULL));
    }
}

static void reap(struct tdl_fio *f)
{
    struct simulated *s = backend(f);
    uint32_t before = f->inflight_count;
    /* Each round ages everyone and lets those go whose time has come, starting at a random one. */
    struct tdl_node *start_at = f->inflight.next;
    for (uint32_t skip = before > 0 ? draw(s, before) : 0; skip > 0; skip--) {
        start_at = start_at->next;
    }
    struct tdl_node *node = start_at;
    for (uint32_t left = before; left > 0; left--) {
        struct tdl_fop *op = TDL_CONTAINER_OF(node, struct tdl_fop, node);
        node = node->next == &f->inflight ? f->inflight.next : node->next;
        if (op->engine.simulated.delay > 0) {
            op->engine.simulated.delay--;
        } else {
            complete(f, op);
        }
        if (node == &f->inflight) {
            break;
        }
    }
    show(f);
}

static void cancel(struct tdl_fio *f, struct tdl_fop *op)
{
    (void)f;
    op->asked = 1;
}

static void cancel_all(struct tdl_fio *f)
{
    for (struct tdl_node *node = f->inflight.next; node != &f->inflight; node = node->next) {
        TDL_CONTAINER_OF(node, struct tdl_fop, node)->asked = 1;
    }
}

static int wait(struct tdl_fio *f, uint64_t timeout_ns)
{
    (void)timeout_ns;
    submit(f);
    return 0;
}

/* The call is made when it is reaped; what was canceled by then makes none. */
static bool borrows(const struct tdl_fio *f, const struct tdl_fop *op)
{
    (void)f;
    return !op->asked;
}

const struct tdl__fio_engine tdl__fio_simulated = {
    .id = TDL_FIO_SIMULATED,
    .start = start,
    .stop = stop,
    .forget = stop,
    .fd = descriptor,
    .submit = submit,
    .reap = reap,
    .cancel = cancel,
    .cancel_all = cancel_all,
    .wait = wait,
    .borrows = borrows,
};
