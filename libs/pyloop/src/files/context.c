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
void tdl__files_shut_waiters(FileContext *c)
{
    if (c->waiters == 0 && c->closing_fd >= 0) {
        (void)close(c->closing_fd);
        c->closing_fd = -1;
    }
}

int tdl__files_check_open(const FileContext *c)
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
    if (tdl__files_check_open(c) < 0) {
        return -1;
    }
    if (tdl_fio_try(&c->fio, &op->fop) == 1) {
        tdl__files_op_settle(op);
        return 0;
    }
    if (tdl__files_bind_loop(c) < 0 || stage(c, op) < 0) {
        return -1;
    }
    bool work = tdl_fio_wants_flush(&c->fio) || tdl_fio_has_finished(&c->fio);
    return work ? tdl__files_schedule(c) : 0;
}

int tdl__files_submit(FileContext *c, FileOp *op)
{
    op->raw = true;
    return tdl__files_check_open(c) < 0 ? -1 : stage(c, op);
}

/* The context's reference becomes the caller's. */
FileOp *tdl__files_give_back(struct tdl_queue *finished)
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

/* Runs those who waited; after one that stops the loop, the others are told by the loop instead. Of a crowd
 * some are left in the queue for the next turn, but not when the context was closed meanwhile: it has no
 * other turn. */
static int dispatch(FileContext *c, struct tdl_queue *finished, size_t count)
{
    int rc = 0;
    PyObject *stopped = NULL;
    size_t left = count < WAKES_MAX ? count : WAKES_MAX;
    FileOp *op;
    while ((left > 0 || c->closed) && (op = tdl__files_give_back(finished)) != NULL) {
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

/* Another step where something is left; also when this one ends by an exception that stops the loop, since it
 * may run again. */
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

/* While the lock is let go, `closed` keeps everybody else away from the library's context: no other thread
 * starts, cancels or reaps an operation of it (drop() in op.c), and each comes back below. */
static int close_context(FileContext *c)
{
    if (c->closed) {
        return 0;
    }
    c->closed = true;
    if (c->closing_fd >= 0) {
        (void)eventfd_write(c->closing_fd, 1);
        tdl__files_shut_waiters(c);
    }
    struct tdl_queue finished;
    tdl_queue_init(&finished);
    tdl__files_unbind_loop(c);
    PyThreadState *save = PyEval_SaveThread();
    int rc = tdl_fio_close(&c->fio, &finished);
    PyEval_RestoreThread(save);
    c->lost = rc < 0;
    if (c->pinned.obj != NULL) {
        PyBuffer_Release(&c->pinned);
    }
    FileOp *op;
    while ((op = tdl__files_give_back(&finished)) != NULL) {
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
    if (tdl__files_check_open(c) < 0) {
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

double tdl__files_seconds_now(void)
{
    return (double)tdl_clock_ns() * 1e-9;
}

static int mode_of(const char *name)
{
    for (int mode = 0; mode < 3; mode++) {
        if (strcmp(tdl__files_mode_names[mode], name) == 0) {
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
