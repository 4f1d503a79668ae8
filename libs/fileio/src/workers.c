#include "workers.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "treadle/inbox.h"
#include "treadle/pool.h"
#include "treadle/wake.h"

struct tdl__fio_workers {
    struct tdl_wake wake;
    struct tdl_inbox inbox;
    struct tdl_pool *pool;
    uint32_t running;
    bool own_pool;
};

/* One call on its way; the operation itself is not written until the owner received the job. */
struct tdl__worker_job {
    struct tdl_job job;
    struct tdl_link done;
    struct tdl_fop *op;
    struct tdl_fop *subject; /* for the worker: the operation, or the copy of one that may be abandoned */
    struct tdl__stop stop;
    uint64_t chunk_max;
    int64_t result;
    struct tdl_fop
        copy; /* has a directory of its own, since the caller may close his once the open was abandoned */
    char path[];
};

static struct tdl__worker_job *of_job(struct tdl_job *job)
{
    return TDL_CONTAINER_OF(job, struct tdl__worker_job, job);
}

static void work(struct tdl_job *job)
{
    struct tdl__worker_job *w = of_job(job);
    w->result = tdl__fop_execute(w->subject, w->chunk_max, &w->stop);
}

static void free_job(struct tdl__worker_job *w)
{
    if (w->subject == &w->copy && w->copy.fd >= 0) {
        (void)close(w->copy.fd);
    }
    tdl__stop_close(&w->stop);
    tdl_free(w);
}

/* Nobody took the descriptor of an open that was abandoned. */
static void release(struct tdl_job *job)
{
    struct tdl__worker_job *w = of_job(job);
    if (w->subject == &w->copy && w->result >= 0) {
        (void)close((int)w->result);
    }
    free_job(w);
}

static int own_directory(const struct tdl_fop *op)
{
    if (op->fd < 0 || op->at.path[0] == '/') {
        return op->fd < 0 ? op->fd : AT_FDCWD;
    }
    int fd = TDL_SYSCALL(EMFILE, fcntl(op->fd, F_DUPFD_CLOEXEC, 0));
    return fd >= 0 ? fd : op->fd;
}

static struct tdl__worker_job *make_job(struct tdl_fio *f, struct tdl_fop *op)
{
    size_t room = op->code == TDL_FOP_OPEN ? strlen(op->at.path) + 1 : 0;
    struct tdl__worker_job *w = (struct tdl__worker_job *)tdl_malloc(sizeof *w + room);
    if (w == NULL) {
        return NULL;
    }
    tdl_job_init(&w->job, work, release);
    tdl__stop_init(&w->stop);
    w->op = op;
    w->subject = op;
    w->chunk_max = f->options.chunk_max;
    w->result = -ECANCELED;
    if (room > 0) {
        w->copy = *op;
        memcpy(w->path, op->at.path, room);
        w->copy.at.path = w->path;
        w->copy.fd = own_directory(op);
        w->subject = &w->copy;
    }
    return w;
}

static int open_pool(struct tdl_fio *f, struct tdl__fio_workers *w)
{
    w->pool = f->options.pool;
    if (w->pool != NULL) {
        return 0;
    }
    const uint32_t slots[] = {f->options.threads_max};
    struct tdl_pool_options options = {.slots = slots, .classes = 1, .name = "tdl-file"};
    w->own_pool = true;
    return tdl_pool_open(&w->pool, &options);
}

int tdl__workers_start(struct tdl_fio *f)
{
    if (f->workers != NULL) {
        return 0;
    }
    struct tdl__fio_workers *w = (struct tdl__fio_workers *)tdl_calloc(1, sizeof *w);
    if (w == NULL) {
        return -ENOMEM;
    }
    int rc = tdl_wake_open(&w->wake, NULL);
    if (rc != 0) {
        goto free_workers;
    }
    rc = open_pool(f, w);
    if (rc != 0) {
        goto close_wake;
    }
    tdl_inbox_init(&w->inbox, &w->wake, NULL);
    /* Parked all the time but inside reap: the descriptor alone tells a foreign poller that there are
     * results (MO-1). */
    tdl_wake_park_begin(&w->wake);
    f->workers = w;
    return 0;

close_wake:
    tdl_wake_close(&w->wake);
free_workers:
    tdl_free(w);
    return rc;
}

int tdl__workers_fd(const struct tdl_fio *f)
{
    return f->workers != NULL ? tdl_wake_fd(&f->workers->wake) : -1;
}

uint32_t tdl__workers_running(const struct tdl_fio *f)
{
    return f->workers != NULL ? f->workers->running : 0;
}

void tdl__workers_submit(struct tdl_fio *f, struct tdl_fop *op)
{
    int rc = tdl__workers_start(f);
    struct tdl__worker_job *w = rc == 0 ? make_job(f, op) : NULL;
    if (w == NULL) {
        tdl__fio_finish(f, op, rc == 0 ? -ENOMEM : rc);
        return;
    }
    op->with.job = w;
    tdl__fio_sent(f, op, TDL__ROUTE_WORKERS);
    rc = tdl_pool_submit(f->workers->pool, &w->job, 0, &f->workers->inbox, &w->done);
    if (rc != 0) {
        free_job(w);
        tdl__fio_finish(f, op, rc);
        return;
    }
    f->workers->running++;
}

static void receive(struct tdl_fio *f, struct tdl_link *link)
{
    while (link != NULL) {
        struct tdl__worker_job *w = TDL_CONTAINER_OF(link, struct tdl__worker_job, done);
        struct tdl_fop *op = w->op;
        int64_t result = w->result;
        link = link->next;
        TDL_ASSERT(f->workers->running > 0 && op->with.job == w);
        tdl_job_received(&w->job);
        free_job(w);
        f->workers->running--;
        op->with.job = NULL;
        tdl__fio_finish(f, op, result);
    }
}

void tdl__workers_reap(struct tdl_fio *f)
{
    struct tdl__fio_workers *w = f->workers;
    if (w == NULL) {
        return;
    }
    (void)tdl_wake_park_end(&w->wake);
    receive(f, tdl_inbox_take(&w->inbox));
    tdl_wake_park_begin(&w->wake); /* MO-1: what is posted from here on writes the descriptor */
    receive(f, tdl_inbox_take(&w->inbox));
}

void tdl__workers_cancel(struct tdl_fio *f, struct tdl_fop *op)
{
    struct tdl__worker_job *w = op->with.job;
    struct tdl_pool *pool = f->workers->pool;
    TDL_ASSERT(w != NULL && op->routed == TDL__ROUTE_WORKERS);
    if (tdl_job_state(&w->job) == TDL_JOB_ABANDONED) {
        return; /* asked for before; it was done already, and its result is on the way */
    }
    tdl__stop_ask(&w->stop);
    bool gone = tdl_job_cancel(pool, &w->job);
    if (!gone && op->code == TDL_FOP_OPEN) {
        gone = tdl_job_abandon(pool, &w->job); /* MO-5 */
    }
    if (!gone) {
        return;
    }
    TDL_ASSERT(f->workers->running > 0);
    f->workers->running--;
    f->stats.canceled++;
    op->with.job = NULL;
    tdl__fio_finish(f, op, -ECANCELED);
}

bool tdl__workers_borrow(const struct tdl_fop *op)
{
    const struct tdl__worker_job *w = op->with.job;
    if (tdl_job_state(&w->job) == TDL_JOB_DONE) {
        return false;
    }
    switch ((enum tdl_fop_code)op->code) {
    case TDL_FOP_READ:
    case TDL_FOP_READV:
        /* At most one call is still to come, and with an offset it moves nothing that is another's: a file
         * gives bytes that nobody will see, and what has no offsets refuses it. */
        return op->offset == TDL_FOP_POSITION || !tdl__fd_is_file(op->fd);
    case TDL_FOP_WRITE:
    case TDL_FOP_WRITEV:
    case TDL_FOP_CLOSE:
    case TDL_FOP_FALLOCATE:
    case TDL_FOP_TRUNCATE:
    case TDL_FOP_SPLICE:
    case TDL_FOP_COPY:
        return true;
    default:
        return false; /* by a path; or it asks of a file, or syncs it, which changes nothing of another */
    }
}

static void free_workers(struct tdl_fio *f)
{
    struct tdl__fio_workers *w = f->workers;
    tdl_wake_close(&w->wake);
    tdl_free(w);
    f->workers = NULL;
}

void tdl__workers_close(struct tdl_fio *f)
{
    struct tdl__fio_workers *w = f->workers;
    if (w == NULL) {
        return;
    }
    TDL_ASSERT(w->running == 0);
    (void)tdl_inbox_close(&w->inbox);
    if (w->own_pool) {
        tdl_pool_close(w->pool);
    }
    free_workers(f);
}

void tdl__workers_forget(struct tdl_fio *f)
{
    struct tdl__fio_workers *w = f->workers;
    if (w == NULL) {
        return;
    }
    tdl_inbox_after_fork(&w->inbox);
    receive(f, tdl_inbox_take(&w->inbox));
    if (w->own_pool) {
        struct tdl_job *job;
        while ((job = tdl_pool_take_forked(w->pool)) != NULL) {
            free_job(of_job(job));
        }
        tdl_pool_close(w->pool);
    }
    free_workers(f);
}
