/* The threads engine: every operation is a blocking call on a worker. */
#include "../internal.h"
#include "../workers.h"

static int start(struct tdl_fio *f)
{
    int rc = tdl__workers_start(f);
    f->caps.kernel_ops = 0;
    return rc;
}

static void stop(struct tdl_fio *f)
{
    (void)f;
}

static int descriptor(struct tdl_fio *f)
{
    return tdl__workers_fd(f);
}

static void submit(struct tdl_fio *f)
{
    struct tdl_fop *op;
    while ((op = tdl__fio_first(f)) != NULL) {
        tdl__workers_submit(f, op);
    }
}

static int wait(struct tdl_fio *f, uint64_t timeout_ns)
{
    submit(f);
    if (!tdl_queue_is_empty(&f->finished)) {
        return 0;
    }
    f->stats.other_calls++;
    return tdl__fio_wait_readable(tdl__workers_fd(f), timeout_ns);
}

static void cancel_all(struct tdl_fio *f)
{
    struct tdl_node *node = f->inflight.next;
    while (node != &f->inflight) {
        struct tdl_fop *op = TDL_CONTAINER_OF(node, struct tdl_fop, node);
        node = node->next;
        tdl__workers_cancel(f, op);
    }
}

static bool borrows(const struct tdl_fio *f, const struct tdl_fop *op)
{
    (void)f;
    return tdl__workers_borrow(op);
}

const struct tdl__fio_engine tdl__fio_threads = {
    .id = TDL_FIO_THREADS,
    .start = start,
    .stop = stop,
    .forget = stop,
    .fd = descriptor,
    .submit = submit,
    .reap = tdl__workers_reap,
    .cancel = tdl__workers_cancel,
    .cancel_all = cancel_all,
    .wait = wait,
    .borrows = borrows,
};
