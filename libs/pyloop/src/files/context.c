/* A file context in a loop: staged in a turn, flushed once, reaped when its descriptor shows something. */
#include "files/files.h"
#include "loop/loop.h"

#include <limits.h>
#include <math.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "treadle/clock.h"

/* Tasks that one turn wakes: some 4 us each, and others on the loop wait for all of them. */
#define WAKES_MAX 128u

static FileOp *op_of(struct tdl_link *link)
{
    return TDL_CONTAINER_OF(tdl_fop_of(link), FileOp, fop);
}

/* A task's wake-up calls result() by name on anything but asyncio's own future, which costs a tenth of an operation. */
static PyObject *finished_future(FilesState *st, PyObject *loop)
{
    PyObject *kwnames = Py_BuildValue("(s)", "loop");
    PyObject *future = kwnames != NULL ? PyObject_Vectorcall(st->future_type, &loop, 0, kwnames) : NULL;
    Py_XDECREF(kwnames);
    PyObject *set = future != NULL ? PyObject_CallMethodOneArg(future, st->str_set_result, Py_None) : NULL;
    if (set == NULL) {
        Py_XDECREF(future);
        return NULL;
    }
    Py_DECREF(set);
    return future;
}

static int bind_loop(FileContext *c)
{
    /* Whoever a step wakes runs on the step's own loop. */
    if (c->dispatching && c->step_thread == PyThread_get_thread_ident()) {
        return 0;
    }
    PyObject *loop = tdl__files_running_loop(c->state);
    if (loop == NULL || loop == c->loop) {
        Py_XDECREF(loop);
        return loop != NULL ? 0 : -1;
    }
    if (c->loop != NULL) {
        Py_DECREF(loop);
        PyErr_SetString(PyExc_RuntimeError, "file context belongs to another event loop");
        return -1;
    }
    int fd = tdl_fio_fd(&c->fio);
    if (fd < 0) {
        Py_DECREF(loop);
        errno = -fd;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    Py_XSETREF(c->done, finished_future(c->state, loop));
    Py_XSETREF(c->on_step, PyObject_GetAttrString((PyObject *)c, "_step"));
    Py_XSETREF(c->on_ready, PyObject_GetAttrString((PyObject *)c, "_ready"));
    PyObject *number = PyLong_FromLong(fd);
    PyObject *done =
        c->done != NULL && c->on_step != NULL && c->on_ready != NULL && number != NULL
            ? PyObject_CallMethodObjArgs(loop, c->state->str_add_reader, number, c->on_ready, NULL)
            : NULL;
    Py_XDECREF(number);
    if (done == NULL) {
        Py_DECREF(loop);
        return -1;
    }
    Py_DECREF(done);
    if (c->loop != NULL || c->closed) {
        Py_DECREF(loop);
        PyErr_SetString(PyExc_RuntimeError, "file context was bound or closed while its loop was told of it");
        return -1;
    }
    c->loop = loop;
    c->native = PyObject_TypeCheck(loop, tdl__state_of_type(Py_TYPE((PyObject *)c))->loop_type) != 0;
    c->reader_fd = fd;
    return 0;
}

static int step_soon(FileContext *c)
{
    PyObject *loop = Py_NewRef(c->loop), *on_step = Py_NewRef(c->on_step);
    PyObject *handle = PyObject_CallMethodOneArg(loop, c->state->str_call_soon, on_step);
    Py_DECREF(loop);
    Py_DECREF(on_step);
    if (handle == NULL) {
        return -1;
    }
    Py_DECREF(handle);
    c->soon = true;
    return 0;
}

int tdl__files_schedule(FileContext *c)
{
    if (c->soon || c->listed || c->dispatching || c->loop == NULL || c->closed) {
        return 0;
    }
    if (c->native && !tdl_fio_has_finished(&c->fio)) {
        c->next_staged = TDL_LOOP(c->loop)->files;
        TDL_LOOP(c->loop)->files = c;
        TDL_LOOP(c->loop)->staged = true;
        c->listed = true;
        return 0;
    }
    return step_soon(c);
}

/* treadle's loop submits what its turn staged, without a callback of its own. */
static void before_poll(TdlLoop *loop)
{
    FileContext *c;
    while ((c = loop->files) != NULL) {
        loop->files = c->next_staged;
        c->next_staged = NULL;
        c->listed = false;
        (void)tdl_fio_flush(&c->fio);
        bool more = tdl_fio_wants_flush(&c->fio) || tdl_fio_has_finished(&c->fio);
        if (more && !c->soon) {
            Py_INCREF(c);
            if (step_soon(c) < 0) {
                PyErr_WriteUnraisable((PyObject *)c);
            }
            Py_DECREF(c);
        }
    }
}

const struct tdl_part tdl__files_part = {.before_poll = before_poll};

static void leave_list(FileContext *c)
{
    FileContext **at = &TDL_LOOP(c->loop)->files;
    while (*at != c) {
        at = &(*at)->next_staged;
    }
    *at = c->next_staged;
    c->next_staged = NULL;
    c->listed = false;
}

static void unbind_loop(FileContext *c)
{
    if (c->listed) {
        leave_list(c);
    }
    if (c->reader_fd >= 0) {
        PyObject *loop = Py_NewRef(c->loop);
        PyObject *number = PyLong_FromLong(c->reader_fd);
        c->reader_fd = -1;
        PyObject *done =
            number != NULL ? PyObject_CallMethodOneArg(loop, c->state->str_remove_reader, number) : NULL;
        Py_XDECREF(number);
        Py_XDECREF(done);
        /* A closed loop has forgotten its readers already. */
        PyErr_Clear();
        Py_DECREF(loop);
    }
    Py_CLEAR(c->on_step);
    Py_CLEAR(c->on_ready);
}

static int stage(FileContext *c, FileOp *op)
{
    int rc = tdl_fio_stage(&c->fio, &op->fop);
    if (rc < 0) {
        tdl__files_raise(op, rc);
        return -1;
    }
    Py_INCREF(op);
    tdl_node_insert_before(&c->held, &op->held);
    op->phase = FILES_PENDING;
    return 0;
}

/* The last one out closes it. */
static void shut_waiters(FileContext *c)
{
    if (c->waiters == 0 && c->closing_fd >= 0) {
        (void)close(c->closing_fd);
        c->closing_fd = -1;
    }
}

static int check_open(const FileContext *c)
{
    if (c->closed) {
        PyErr_SetString(PyExc_RuntimeError, "file context is closed");
        return -1;
    }
    return 0;
}

/* The first step of an await: answered at once, or staged. */
int tdl__files_start(FileContext *c, FileOp *op)
{
    if (check_open(c) < 0) {
        return -1;
    }
    if (tdl_fio_try(&c->fio, &op->fop) == 1) {
        tdl__files_op_settle(op);
        return 0;
    }
    if (bind_loop(c) < 0 || stage(c, op) < 0) {
        return -1;
    }
    bool work = tdl_fio_wants_flush(&c->fio) || tdl_fio_has_finished(&c->fio);
    return work ? tdl__files_schedule(c) : 0;
}

int tdl__files_submit(FileContext *c, FileOp *op)
{
    op->raw = true;
    return check_open(c) < 0 ? -1 : stage(c, op);
}

/* The context's reference becomes the caller's. */
static FileOp *give_back(struct tdl_queue *finished)
{
    struct tdl_link *link = tdl_queue_pop(finished);
    if (link == NULL) {
        return NULL;
    }
    FileOp *op = op_of(link);
    tdl_node_remove(&op->held);
    tdl__files_op_settle(op);
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable((PyObject *)op);
    }
    return op;
}

/* Runs those who waited; after one that stops the loop, the others are told by the loop instead. Of a crowd some are left in
 * the queue for the next turn, but not when the context was closed meanwhile: it has no other turn. */
static int dispatch(FileContext *c, struct tdl_queue *finished, size_t count)
{
    int rc = 0;
    PyObject *stopped = NULL;
    size_t left = count < WAKES_MAX ? count : WAKES_MAX;
    FileOp *op;
    while ((left > 0 || c->closed) && (op = give_back(finished)) != NULL) {
        tdl_fio_share(&c->fio, left > 0 ? left-- : 1);
        if (tdl__files_op_wake(op, stopped == NULL) < 0) {
            if (stopped == NULL && !PyErr_ExceptionMatches(PyExc_Exception)) {
                stopped = PyErr_GetRaisedException();
            } else {
                PyErr_WriteUnraisable((PyObject *)c);
            }
        }
        Py_DECREF(op);
    }
    if (stopped != NULL) {
        PyErr_SetRaisedException(stopped);
        rc = -1;
    }
    return rc;
}

/* Another step where something is left; also when this one ends by an exception that stops the loop, since it may run again. */
static int go_on(FileContext *c, int rc)
{
    if (!tdl_fio_wants_flush(&c->fio) && !tdl_fio_has_finished(&c->fio)) {
        return rc;
    }
    PyObject *stopped = rc < 0 ? PyErr_GetRaisedException() : NULL;
    rc = tdl__files_schedule(c);
    if (stopped != NULL) {
        if (rc < 0) {
            PyErr_WriteUnraisable((PyObject *)c);
        }
        PyErr_SetRaisedException(stopped);
        rc = -1;
    }
    return rc;
}

/* One turn's work: what is finished wakes those who waited, and what they stage goes out together. */
static PyObject *step(FileContext *c)
{
    struct tdl_queue finished;
    tdl_queue_init(&finished);
    if (c->closed || c->dispatching) {
        Py_RETURN_NONE;
    }
    Py_INCREF(c);
    tdl_fio_step(&c->fio);
    size_t count = tdl_fio_reap(&c->fio, &finished);
    c->dispatching = true;
    c->step_thread = PyThread_get_thread_ident();
    tdl_fio_hold(&c->fio, true);
    int rc = dispatch(c, &finished, count);
    tdl_fio_put_back(&c->fio, &finished);
    tdl_fio_hold(&c->fio, false);
    c->dispatching = false;
    if (!c->closed) {
        if (tdl_fio_wants_flush(&c->fio)) {
            (void)tdl_fio_flush(&c->fio);
        }
        rc = go_on(c, rc);
    }
    Py_DECREF(c);
    if (rc < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *tdl__files_step(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    c->soon = false;
    if (c->native && c->loop != NULL) {
        c->stepped_turn = TDL_LOOP(c->loop)->turns;
    }
    return step(c);
}

/* One step a turn is enough: behind one, or with one to come, the descriptor stays readable. */
PyObject *tdl__files_ready(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    if (c->soon || (c->native && c->loop != NULL && c->stepped_turn == TDL_LOOP(c->loop)->turns)) {
        Py_RETURN_NONE;
    }
    return step(c);
}

/* While the lock is let go, `closed` keeps everybody else away from the library's context: no other thread starts, cancels or
 * reaps an operation of it (drop() in op.c), and each comes back below. */
static int close_context(FileContext *c)
{
    if (c->closed) {
        return 0;
    }
    c->closed = true;
    if (c->closing_fd >= 0) {
        (void)eventfd_write(c->closing_fd, 1);
        shut_waiters(c);
    }
    struct tdl_queue finished;
    tdl_queue_init(&finished);
    unbind_loop(c);
    PyThreadState *save = PyEval_SaveThread();
    int rc = tdl_fio_close(&c->fio, &finished);
    PyEval_RestoreThread(save);
    c->lost = rc < 0;
    if (c->pinned.obj != NULL) {
        PyBuffer_Release(&c->pinned);
    }
    FileOp *op;
    while ((op = give_back(&finished)) != NULL) {
        /* On a closed loop nobody waits any more. */
        if (c->loop != NULL && op->owner == NULL && tdl__files_op_wake(op, false) < 0) {
            PyErr_Clear();
        }
        if (!tdl__files_op_is_lost(op)) {
            Py_DECREF(op); /* the lost stay for good, and what the kernel may write into */
        }
    }
    Py_CLEAR(c->done); /* tasks were told of it until now */
    return rc;
}

PyObject *tdl__files_register(PyObject *self, PyObject *memory)
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    if (check_open(c) < 0) {
        return NULL;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    int rc = tdl_fio_register(&c->fio, view.buf, (size_t)view.len);
    if (rc == 0) {
        c->pinned = view;
        Py_RETURN_TRUE;
    }
    PyBuffer_Release(&view);
    if (rc == -EBUSY || rc == -EFAULT || rc == -EINVAL) {
        errno = -rc;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_FALSE;
}

PyObject *tdl__files_context_close(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    Py_INCREF(self);
    int rc = close_context(c);
    Py_DECREF(self);
    if (rc < 0) {
        errno = -rc;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

PyObject *tdl__files_context_submit(PyObject *self, PyObject *op)
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    if (!Py_IS_TYPE(op, c->state->op_type) || TDL_FILE_OP(op)->context != c ||
        TDL_FILE_OP(op)->phase != FILES_NEW) {
        PyErr_SetString(PyExc_TypeError, "submit() takes a fresh operation of this context");
        return NULL;
    }
    if (tdl__files_submit(c, TDL_FILE_OP(op)) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *tdl__files_flush(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    tdl_fio_step(&c->fio);
    int count = check_open(c) < 0 ? -1 : tdl_fio_flush(&c->fio);
    if (count < 0) {
        if (!PyErr_Occurred()) {
            errno = -count;
            PyErr_SetFromErrno(PyExc_OSError);
        }
        return NULL;
    }
    return PyLong_FromLong(count);
}

PyObject *tdl__files_reap(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    struct tdl_queue finished;
    tdl_queue_init(&finished);
    PyObject *list = PyList_New(0);
    if (list == NULL || c->closed) {
        return list;
    }
    tdl_fio_step(&c->fio);
    (void)tdl_fio_reap(&c->fio, &finished);
    FileOp *op;
    while ((op = give_back(&finished)) != NULL) {
        /* What is awaited is not the caller's: its task goes on. */
        if (op->raw ? PyList_Append(list, (PyObject *)op) < 0 : tdl__files_op_wake(op, false) < 0) {
            PyErr_WriteUnraisable(self);
        }
        Py_DECREF(op);
    }
    if (tdl_fio_wants_flush(&c->fio)) {
        (void)tdl_fio_flush(&c->fio);
    }
    return list;
}

PyObject *tdl__files_context_cancel(PyObject *self, PyObject *op)
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    if (!Py_IS_TYPE(op, c->state->op_type) || TDL_FILE_OP(op)->context != c) {
        PyErr_SetString(PyExc_TypeError, "cancel() takes an operation of this context");
        return NULL;
    }
    int rc = c->closed ? -ENOENT : tdl_fio_cancel(&c->fio, &TDL_FILE_OP(op)->fop);
    if (rc == 0 && c->loop != NULL && tdl__files_schedule(c) < 0) {
        return NULL;
    }
    return PyLong_FromLong(rc);
}

/* The descriptor that shows results; -1 with an exception. */
static int fd_of(FileContext *c)
{
    if (check_open(c) < 0) {
        return -1;
    }
    int fd = tdl_fio_fd(&c->fio);
    if (fd < 0) {
        errno = -fd;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    return fd;
}

PyObject *tdl__files_fileno(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    int fd = fd_of(TDL_FILE_CONTEXT(self));
    return fd >= 0 ? PyLong_FromLong(fd) : NULL;
}

/* Whether an operation of the context that has begun, or is about to, uses this descriptor. */
PyObject *tdl__files_uses(PyObject *self, PyObject *arg)
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    int fd;
    if (!tdl__files_fd_from(arg, &fd)) {
        return NULL;
    }
    return PyBool_FromLong(!c->closed && tdl_fio_names(&c->fio, fd));
}

/* Milliseconds for poll(), -1 for ever; more than it can hold is as good as for ever. */
static int milliseconds_of(double seconds)
{
    if (seconds < 0 || isnan(seconds) || seconds >= INT_MAX / 1000) {
        return -1;
    }
    return (int)(seconds * 1000 + 0.999);
}

/* Beside the descriptor that tells of results, the one that tells of the end. A negative code is an errno. */
static int wait_for_results(FileContext *c, int fd, double seconds)
{
    if (c->closing_fd < 0) {
        c->closing_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    struct pollfd both[] = {{.fd = fd, .events = POLLIN, .revents = 0},
                            {.fd = c->closing_fd, .events = POLLIN, .revents = 0}};
    c->waiters++;
    PyThreadState *save = PyEval_SaveThread();
    int ready = poll(both, 2, milliseconds_of(seconds));
    ready = ready < 0 ? -errno : ready;
    PyEval_RestoreThread(save);
    c->waiters--;
    if (c->closed) {
        shut_waiters(c);
    }
    return ready;
}

static double seconds_now(void)
{
    return (double)tdl_clock_ns() * 1e-9;
}

PyObject *tdl__files_wait(PyObject *self, PyObject *arg)
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    double seconds = PyFloat_AsDouble(arg);
    if (seconds == -1 && PyErr_Occurred()) {
        return NULL;
    }
    int fd = fd_of(c);
    if (fd < 0) {
        return NULL;
    }
    int ready = 1;
    double end = seconds_now() + seconds;
    while (!tdl_fio_has_finished(&c->fio)) {
        ready = wait_for_results(c, fd, seconds);
        if ((ready == -EINTR && PyErr_CheckSignals() < 0) || check_open(c) < 0) {
            return NULL;
        }
        if (ready != -EINTR) {
            break;
        }
        /* The signal's handler had nothing against waiting on. */
        if (seconds >= 0) {
            seconds = fmax(0, end - seconds_now());
        }
        ready = 1;
    }
    if (ready < 0) {
        errno = -ready;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyBool_FromLong(ready > 0);
}

static const char *const mode_names[] = {"adaptive", "deferred", "immediate"};

PyObject *tdl__files_caps(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    if (check_open(c) < 0) {
        return NULL;
    }
    int rc = tdl_fio_start(&c->fio);
    if (rc < 0) {
        errno = -rc;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    const struct tdl_fio_caps *caps = tdl_fio_caps(&c->fio);
    const struct tdl_fio_stats *stats = tdl_fio_stats(&c->fio);
    return Py_BuildValue("{s:s,s:s,s:s,s:i,s:I,s:I,s:I,s:I,s:I,s:O,s:O,s:K,s:K,s:K,s:K,s:K,s:K}", "engine",
                         tdl_fio_engine_name(caps->engine), "mode", mode_names[caps->mode], "refused",
                         tdl_fio_engine_name(caps->refused_engine), "refused_code", caps->refused_code,
                         "max_requests", caps->inflight_max, "ring_flags", caps->ring_flags, "sq_entries",
                         caps->sq_entries, "cq_entries", caps->cq_entries, "kernel_ops", caps->kernel_ops,
                         "sqpoll", caps->sqpoll ? Py_True : Py_False, "single_syscall",
                         caps->single_syscall ? Py_True : Py_False, "submissions", stats->submissions,
                         "submit_calls", stats->submit_calls, "other_calls", stats->other_calls, "completed",
                         stats->completed, "inlined", stats->inlined, "polled", stats->polled);
}

static int mode_of(const char *name)
{
    for (int mode = 0; mode < 3; mode++) {
        if (strcmp(mode_names[mode], name) == 0) {
            return mode;
        }
    }
    PyErr_SetString(PyExc_ValueError, "mode must be adaptive, deferred or immediate");
    return -1;
}

static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"engine",     "max_requests", "mode",  "sqpoll",           "threads",
                                        "any_thread", "inline",       "error", "sqpoll_when_busy", NULL};
    PyObject *make_error = Py_None;
    const char *engine = "auto", *mode = "adaptive";
    int max_requests = 128, threads = 4;
    int sqpoll = 0, any_thread = 0, inlined = 1, when_busy = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|sispippOp:FileContext", TDL_KEYWORDS(names), &engine,
                                     &max_requests, &mode, &sqpoll, &threads, &any_thread, &inlined,
                                     &make_error, &when_busy)) {
        return NULL;
    }
    int engine_id = tdl_fio_engine_by_name(engine), mode_id = mode_of(mode);
    if (mode_id < 0) {
        return NULL;
    }
    struct tdl_fio_options options = {
        .engine = engine_id < 0 ? TDL_FIO_ENGINES : (enum tdl_fio_engine)engine_id,
        .mode = (enum tdl_fio_mode)mode_id,
        .inflight_max = (uint32_t)max_requests,
        .threads_max = (uint32_t)threads,
        .sqpoll = sqpoll != 0,
        .sqpoll_when_busy = when_busy != 0,
        .any_thread = any_thread != 0,
        .no_inline = inlined == 0,
        .provide = tdl__files_provide,
    };
    FileContext *c = (FileContext *)type->tp_alloc(type, 0);
    if (c == NULL) {
        return NULL;
    }
    c->reader_fd = -1;
    c->closing_fd = -1;
    tdl_node_init(&c->held);
    c->state = tdl__files_state(type);
    c->make_error = make_error != Py_None ? Py_NewRef(make_error) : NULL;
    c->closed = true;
    if (c->state == NULL || max_requests <= 0 || threads < 0 || tdl_fio_open(&c->fio, &options) != 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "options that are unknown, out of range or exclude each other");
        }
        Py_DECREF(c);
        return NULL;
    }
    c->closed = false;
    return (PyObject *)c;
}

static int context_traverse(PyObject *self, visitproc visit, void *arg)
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(c->state);
    Py_VISIT(c->loop);
    Py_VISIT(c->done);
    Py_VISIT(c->on_step);
    Py_VISIT(c->on_ready);
    Py_VISIT(c->make_error);
    Py_VISIT(c->pinned.obj);
    for (struct tdl_node *node = c->held.next; node != NULL && node != &c->held; node = node->next) {
        Py_VISIT((PyObject *)TDL_CONTAINER_OF(node, FileOp, held));
    }
    return 0;
}

static int context_clear(PyObject *self)
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    (void)close_context(c);
    Py_CLEAR(c->loop);
    Py_CLEAR(c->done);
    Py_CLEAR(c->on_step);
    Py_CLEAR(c->on_ready);
    Py_CLEAR(c->make_error);
    return 0;
}

static void context_dealloc(PyObject *self)
{
    FileContext *c = TDL_FILE_CONTEXT(self);
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, context_dealloc) /* its maker of errors may lead to a further one */
        if (c->weakrefs != NULL)
    {
        PyObject_ClearWeakRefs(self);
    }
    (void)context_clear(self);
    Py_XDECREF(c->state);
    type->tp_free(self);
    Py_DECREF(type);
    Py_TRASHCAN_END
}

static PyObject *get_loop(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *loop = TDL_FILE_CONTEXT(self)->loop;
    return Py_NewRef(loop != NULL ? loop : Py_None);
}

static PyObject *get_closed(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(TDL_FILE_CONTEXT(self)->closed);
}

static PyObject *get_max_requests(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(tdl_fio_inflight_max(&TDL_FILE_CONTEXT(self)->fio));
}

static PyGetSetDef context_getset[] = {
    {"loop", get_loop, NULL, PyDoc_STR("The loop, once an operation had to wait."), NULL},
    {"closed", get_closed, NULL, PyDoc_STR("Whether close() was called."), NULL},
    {"max_requests", get_max_requests, NULL, PyDoc_STR("Operations in flight at most."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef context_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FileContext, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot context_slots[] = {
    {Py_tp_doc, TDL_DOC("FileContext(engine='auto', max_requests=128, "
                        "mode='adaptive', sqpoll=False, threads=4, any_thread=False, inline=True, "
                        "error=None, sqpoll_when_busy=False)\n--\n\n"
                        "Operations on files, awaited on the loop of the first one that waits.")},
    {Py_tp_new, context_new},
    {Py_tp_traverse, context_traverse},
    {Py_tp_clear, context_clear},
    {Py_tp_dealloc, context_dealloc},
    {Py_tp_methods, tdl__files_context_methods},
    {Py_tp_getset, context_getset},
    {Py_tp_members, context_members},
    {0, NULL},
};

PyType_Spec tdl__files_context_spec = {
    .name = "treadle._treadle.FileContext",
    .basicsize = sizeof(FileContext),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = context_slots,
};
