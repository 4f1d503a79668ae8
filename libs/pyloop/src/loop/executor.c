/* run_in_executor: a job in ThreadPoolExecutor's own queue that resolves the loop's future itself.
 * concurrent.futures makes a second future with a lock and condition, and three callbacks between the two;
 * that was more than the thread switch costs. */
#include "loop/executor.h"

#include "loop/loop.h"

typedef struct {
    PyObject_HEAD TdlLoop *loop;
    PyObject *future;
    PyObject *func;
    PyObject *args;
    PyObject *value; /* result or exception, once run */
    struct tdl_item item;
    bool failed;   /* value is an exception */
    bool canceled; /* the executor dropped the job */
} TdlJob;

#define TDL_JOB(op) ((TdlJob *)(op))

/* Let the loop's thread settle the future. */
static void post(TdlJob *job)
{
    if (job->loop->closed || job->item.link.state != TDL_ITEM_IDLE) {
        return;
    }
    Py_INCREF(job); /* the queue's reference */
    tdl_sched_push(&job->loop->sched, &job->item);
    tdl__loop_wake(job->loop);
}

static bool future_done(TdlJob *job)
{
    PyObject *done = PyObject_CallMethodNoArgs(job->future, job->loop->state->str_done);
    bool result = done != Py_False;
    if (done == NULL) {
        PyErr_Clear();
    }
    Py_XDECREF(done);
    return result;
}

static void settle(TdlJob *job)
{
    struct tdl_module_state *st = job->loop->state;
    PyObject *result;
    if (job->canceled) {
        result = PyObject_CallMethod(job->future, "cancel", NULL);
    } else if (job->failed) {
        result = PyObject_CallMethod(st->support, "set_job_exception", "OO", job->future, job->value);
    } else {
        result = PyObject_CallMethodOneArg(job->future, st->str_set_result, job->value);
    }
    if (result == NULL) {
        PyErr_WriteUnraisable((PyObject *)job);
    }
    Py_XDECREF(result);
}

static void job_settle_run(struct tdl_item *item)
{
    TdlJob *job = TDL_CONTAINER_OF(item, TdlJob, item);
    if (!job->loop->closed && !future_done(job)) {
        settle(job);
    }
    Py_DECREF(job);
}

/* run(*ignored): called by the pool's worker thread. */
static PyObject *job_run(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(nargs))
{
    TdlJob *job = TDL_JOB(self);
    PyObject *func = job->func;
    PyObject *args = job->args;
    job->func = NULL;
    job->args = NULL;
    if (func != NULL && !job->canceled && !future_done(job)) {
        job->value = PyObject_CallObject(func, args);
        if (job->value == NULL) {
            job->value = PyErr_GetRaisedException();
            job->failed = true;
        }
        post(job);
    }
    Py_XDECREF(func);
    Py_XDECREF(args);
    Py_RETURN_NONE;
}

/* cancel(): the executor is shut down and drops what has not started. */
static PyObject *job_cancel(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlJob *job = TDL_JOB(self);
    job->canceled = true;
    post(job);
    Py_RETURN_TRUE;
}

/* The executor knows its jobs by the future in them: a job answers for its own. */
static PyObject *get_future(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self);
}

static int job_traverse(PyObject *self, visitproc visit, void *arg)
{
    TdlJob *job = TDL_JOB(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(job->loop);
    Py_VISIT(job->future);
    Py_VISIT(job->func);
    Py_VISIT(job->args);
    Py_VISIT(job->value);
    return 0;
}

static int job_clear(PyObject *self)
{
    TdlJob *job = TDL_JOB(self);
    Py_CLEAR(job->future);
    Py_CLEAR(job->func);
    Py_CLEAR(job->args);
    Py_CLEAR(job->value);
    return 0;
}

static void job_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, job_dealloc);
    (void)job_clear(self);
    Py_CLEAR(TDL_JOB(self)->loop);
    type->tp_free(self);
    Py_DECREF(type);
    Py_TRASHCAN_END;
}

/* _make_job(future, func, args): what run_in_executor puts into the pool's queue. */
static PyObject *loop_make_job(PyObject *self, PyObject *args)
{
    TdlLoop *loop = TDL_LOOP(self);
    PyObject *future, *func, *func_args;
    if (!PyArg_ParseTuple(args, "OOO!", &future, &func, &PyTuple_Type, &func_args)) {
        return NULL;
    }
    TdlJob *job = (TdlJob *)loop->state->job_type->tp_alloc(loop->state->job_type, 0);
    if (job != NULL) {
        job->loop = (TdlLoop *)Py_NewRef(self);
        job->future = Py_NewRef(future);
        job->func = Py_NewRef(func);
        job->args = Py_NewRef(func_args);
        tdl__item_init(&job->item, job_settle_run, offsetof(TdlJob, item));
    }
    return (PyObject *)job;
}

static bool method_is(PyObject *object, PyObject *name, const struct tdl_function *f)
{
    PyObject *method = PyObject_GetAttr(object, name);
    bool same = method != NULL && PyMethod_Check(method) && PyMethod_GET_FUNCTION(method) == f->function;
    Py_XDECREF(method);
    return same;
}

/* Whether the pool starts its threads without an initializer, whose failure would end the jobs by their
 * futures. */
static bool no_initializer(const struct tdl_module_state *st, PyObject *pool)
{
#if PY_VERSION_HEX >= 0x030E0000
    (void)st;
    PyObject *owner = PyObject_CallMethod(pool, TDL_POOL_CONTEXT, NULL);
    PyObject *initializer = owner != NULL ? PyObject_GetAttrString(owner, "initializer") : NULL;
    Py_XDECREF(owner);
#else
    PyObject *initializer = PyObject_GetAttr(pool, st->str__initializer);
#endif
    Py_XDECREF(initializer);
    return initializer == Py_None;
}

static bool is_whole(const struct tdl_module_state *st, PyObject *pool)
{
    PyObject *broken = PyObject_GetAttr(pool, st->str__broken);
    bool whole = broken == Py_False;
    Py_XDECREF(broken);
    return whole;
}

static bool queue_is_standard(const struct tdl_module_state *st, PyObject *pool)
{
    PyObject *queue = PyObject_GetAttr(pool, st->str__work_queue);
    bool standard = queue != NULL && (PyObject *)Py_TYPE(queue) == st->standard.work_queue_type;
    Py_XDECREF(queue);
    return standard;
}

/* What a job in a pool goes through on asyncio, but for the pool itself. */
bool tdl__pools_in_place(TdlLoop *loop)
{
    struct tdl_module_state *st = loop->state;
    struct tdl_standard *s = &st->standard;
    return tdl__class_in_place(&s->pool) && tdl__code_in_place(&s->submit) &&
           tdl__code_in_place(&s->adjust) && tdl__code_in_place(&s->run_in_executor) &&
           tdl__loop_patched(loop, st->str_run_in_executor) == NULL &&
           (tdl__loop_is_whole(loop) || !(tdl__loop_overridden(loop, st->str_call_soon) ||
                                          tdl__loop_overridden(loop, st->str_call_soon_threadsafe) ||
                                          tdl__loop_overridden(loop, st->str_create_future)));
}

/* _pool_is_standard(pool): whether a job may be put into the pool's queue past submit(), which agents
 * replace. */
static PyObject *loop_pool_is_standard(PyObject *self, PyObject *pool)
{
    TdlLoop *loop = TDL_LOOP(self);
    struct tdl_module_state *st = loop->state;
    struct tdl_standard *s = &st->standard;
    if (Py_TYPE(pool) != s->pool.type || loop->debug || loop->closed || !tdl__pools_in_place(loop)) {
        Py_RETURN_FALSE;
    }
    bool standard = method_is(pool, st->str_submit, &s->submit) &&
                    method_is(pool, st->str__adjust_thread_count, &s->adjust) &&
                    queue_is_standard(st, pool) && no_initializer(st, pool) && is_whole(st, pool);
    PyErr_Clear();
    return PyBool_FromLong(standard);
}

static PyMethodDef job_methods[] = {
    {"run", (PyCFunction)(void (*)(void))job_run, METH_FASTCALL,
     PyDoc_STR(
         "run($self, /, *ignored)\n--\n\nMake the call, in a thread of the pool; errors go to the future.")},
    {"cancel", job_cancel, METH_NOARGS,
     PyDoc_STR("cancel($self, /)\n--\n\nCancel the future of a call that the pool will not make.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef job_getset[] = {
    {"future", get_future, NULL, PyDoc_STR("Who the result is for."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot job_slots[] = {
    {Py_tp_doc, TDL_DOC("A call that a thread pool makes for a loop.")},
    {Py_tp_dealloc, job_dealloc},
    {Py_tp_traverse, job_traverse},
    {Py_tp_clear, job_clear},
    {Py_tp_methods, job_methods},
    {Py_tp_getset, job_getset},
    {0, NULL},
};

static PyType_Spec job_spec = {
    .name = "treadle._treadle.ExecutorJob",
    .basicsize = sizeof(TdlJob),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = job_slots,
};

PyMethodDef tdl__executor_loop_methods[] = {
    {"_pool_is_standard", loop_pool_is_standard, METH_O, NULL},
    {"_make_job", loop_make_job, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int tdl__job_type(PyObject *module)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    st->job_type = tdl__add_type(module, &job_spec, NULL);
    return st->job_type != NULL ? 0 : -1;
}
