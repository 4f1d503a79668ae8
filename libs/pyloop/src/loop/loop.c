/* The type treadle._treadle.LoopBase: the loop's state, and what asyncio asks of it per callback. */
#include "loop/loop.h"

#include "loop/handle.h"
#include "loop/registry.h"
#include "loop/snapshot.h"

int tdl__check_closed(TdlLoop *loop)
{
    if (loop->closed) {
        PyErr_SetString(PyExc_RuntimeError, "Event loop is closed");
        return -1;
    }
    return 0;
}

bool tdl__is_exit_exception(void)
{
    return PyErr_ExceptionMatches(PyExc_SystemExit) || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
}

/* Report what a callback raised; what ends the run stays raised, and the rest of the turn waits. */
void tdl__callback_failed(TdlLoop *loop, TdlHandle *h)
{
    if (!tdl__is_exit_exception()) {
        PyObject *exc = PyErr_GetRaisedException();
        PyObject *result = PyObject_CallMethodObjArgs(loop->state->support, loop->state->str__callback_failed,
                                                      (PyObject *)h, exc, NULL);
        Py_DECREF(exc);
        Py_XDECREF(result);
        if (result != NULL) {
            return;
        }
    }
    tdl_sched_interrupt(&loop->sched);
}

static TdlLoop *loop_of_poller(struct tdl_poller *p)
{
    return TDL_CONTAINER_OF(p, TdlLoop, poller);
}

/* The parent's locks may be held, and its threads are not there. */
static void before_fork_child(struct tdl_poller *p)
{
    TdlLoop *loop = loop_of_poller(p);
    tdl_inbox_after_fork(&loop->inbox);
    tdl__pace_open(&loop->pace);
}

static void after_fork_child(struct tdl_poller *p)
{
    TdlLoop *loop = loop_of_poller(p);
    for (const struct tdl_part *const *part = tdl__parts_of(loop); *part != NULL; part++) {
        if ((*part)->after_fork != NULL) {
            (*part)->after_fork(loop);
        }
    }
}

static const struct tdl_fork_hooks fork_hooks = {before_fork_child, after_fork_child};

static PyObject *loop_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    TdlLoop *loop = (TdlLoop *)type->tp_alloc(type, 0);
    if (loop == NULL) {
        return NULL;
    }
    tdl__loop_standard_init(&loop->standard);
    PyObject *module = PyType_GetModuleByDef(type, &tdl__module_def);
    if (module == NULL) {
        Py_DECREF(loop);
        return NULL;
    }
    loop->state = tdl__state_of_module(module);
    tdl__registry_quicken(loop->state);
    tdl__poller_init(&loop->poller, &loop->state->poll_model, &fork_hooks);
    loop->wakeup_theirs = -1;
    loop->closed = true; /* until everything is open */
    loop->thread_id = Py_NewRef(Py_None);
    loop->task_factory = Py_NewRef(Py_None);
    tdl_queue_init(&loop->answered);
    tdl_sched_init(&loop->sched);
    tdl__pace_open(&loop->pace);
    tdl_hold_init(&loop->hold);
    tdl__host_init(loop);
    const struct tdl_wake_options wake_options = {.edge = true};
    int code = tdl_wake_open(&loop->poller.wake, &wake_options);
    if (code < 0) {
        loop->poller.wake.fd = -1;
        tdl__raise_uv(code);
        Py_DECREF(loop);
        return NULL;
    }
    tdl_inbox_init(&loop->inbox, &loop->poller.wake, tdl_sched_mark_source(&loop->sched));
    if (tdl__parts_open(loop) < 0 || tdl__uv_open(&loop->poller) < 0) {
        Py_DECREF(loop);
        return NULL;
    }
    loop->closed = false;
    return (PyObject *)loop;
}

static void drop_item(struct tdl_item *item)
{
    item->run(item); /* each item only lets go of its reference once the loop is closed */
}

/* Close what C holds: the queues, the watches, libuv, the wake. */
static void close_all(TdlLoop *loop)
{
    if (loop->poller.uv == NULL) {
        tdl_wake_close(&loop->poller.wake);
        tdl_sched_drain(&loop->sched, drop_item);
        return;
    }
    tdl__parts_close(loop);
    tdl_sched_push_queue(&loop->sched, &loop->answered);
    tdl_sched_drain(&loop->sched, drop_item);
    if (tdl__uv_check_fork(&loop->poller) < 0) {
        PyErr_WriteUnraisable((PyObject *)loop);
    }
    tdl__uv_close(&loop->poller);
    tdl_sched_drain(&loop->sched, drop_item);
    struct tdl_link *left = tdl_inbox_close(&loop->inbox);
    while (left != NULL) {
        struct tdl_link *link = left;
        left = left->next;
        drop_item(TDL_CONTAINER_OF(link, struct tdl_item, link));
    }
    tdl_wake_close(&loop->poller.wake);
    PyMem_Free(loop->read_buffer);
    loop->read_buffer = NULL;
    Py_CLEAR(loop->tls_records);
    Py_CLEAR(loop->tls_plain);
}

static void loop_close_native(TdlLoop *loop)
{
    loop->closed = true;
    if (!loop->closing) {
        loop->closing = true;
        close_all(loop);
        tdl_hold_close(&loop->hold);
        loop->closing = false;
    }
}

char *tdl__read_buffer(TdlLoop *loop)
{
    if (loop->read_buffer == NULL) {
        loop->read_buffer = PyMem_Malloc(TDL_READ_BUFFER_SIZE);
    }
    return loop->read_buffer;
}

/* The queues own a reference for each item; the collector must see it. */
struct tdl_visit {
    visitproc visit;
    void *arg;
    int code;
};

static void visit_item(struct tdl_item *item, void *arg)
{
    struct tdl_visit *v = arg;
    PyObject *owner = tdl__item_owner(item);
    if (v->code == 0 && owner != NULL) {
        v->code = v->visit(owner, v->arg);
    }
}

static int loop_traverse(PyObject *self, visitproc visit, void *arg)
{
    TdlLoop *loop = TDL_LOOP(self);
    struct tdl_visit v = {visit, arg, 0};
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(loop->thread_id);
    Py_VISIT(loop->task_factory);
    Py_VISIT(loop->snapshot);
    Py_VISIT(loop->spare_context);
    Py_VISIT(loop->transports);
    Py_VISIT(loop->debug_info);
    Py_VISIT(loop->clock_error);
    v.code = tdl__loop_standard_traverse(&loop->standard, visit, arg);
    tdl_sched_visit(&loop->sched, visit_item, &v);
    for (struct tdl_link *link = loop->answered.head; link != NULL; link = link->next) {
        visit_item(TDL_CONTAINER_OF(link, struct tdl_item, link), &v);
    }
    for (const struct tdl_part *const *part = tdl__parts_of(loop); v.code == 0 && *part != NULL; part++) {
        v.code = (*part)->traverse != NULL ? (*part)->traverse(loop, visit, arg) : 0;
    }
    return v.code != 0 ? v.code : tdl__poller_traverse(&loop->poller, visit, arg);
}

static int loop_clear(PyObject *self)
{
    TdlLoop *loop = TDL_LOOP(self);
    loop_close_native(loop); /* the queues' references are part of the garbage */
    tdl__parts_clear(loop);
    Py_CLEAR(loop->task_factory);
    tdl__snapshot_forget(loop);
    Py_CLEAR(loop->transports);
    Py_CLEAR(loop->tls_records);
    Py_CLEAR(loop->tls_plain);
    Py_CLEAR(loop->debug_info);
    Py_CLEAR(loop->clock_error);
    tdl__loop_standard_clear(&loop->standard);
    return 0;
}

static void loop_dealloc(PyObject *self)
{
    TdlLoop *loop = TDL_LOOP(self);
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (loop->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    (void)loop_clear(self);
    tdl__parts_release(loop);
    tdl__pace_close(&loop->pace);
    Py_CLEAR(loop->thread_id);
    type->tp_free(self);
    Py_DECREF(type);
}

/* _run(main_thread): turns until a stop; whether they are run where CPython calls signal handlers. */
static PyObject *loop_run(PyObject *self, PyObject *main_thread)
{
    int truth = PyObject_IsTrue(main_thread);
    return truth < 0 ? NULL : tdl__loop_run(TDL_LOOP(self), truth > 0);
}

/* _handle_signals(main thread): whether signals end the sleeps of turns that are run one by one. */
static PyObject *loop_handle_signals(PyObject *self, PyObject *main_thread)
{
    TDL_LOOP(self)->signals = main_thread == Py_True && PyInterpreterState_Get() == PyInterpreterState_Main();
    Py_RETURN_NONE;
}

/* _wakeup_put_aside(): the wakeup descriptor that a signal would have gone to but for the sleep, or None
 * between sleeps. */
static PyObject *loop_wakeup_put_aside(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    const TdlLoop *loop = TDL_LOOP(self);
    return loop->wakeup_taken ? PyLong_FromLong(loop->wakeup_theirs) : Py_NewRef(Py_None);
}

static PyObject *loop_stop(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *result;
    if (tdl__loop_step_aside(TDL_LOOP(self), TDL_LOOP(self)->state->str_stop, NULL, 0, NULL, &result)) {
        return result;
    }
    tdl_sched_stop(&TDL_LOOP(self)->sched);
    Py_RETURN_NONE;
}

static PyObject *loop_close_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (TDL_LOOP(self)->turning || tdl__loop_in_turn(TDL_LOOP(self))) {
        PyErr_SetString(PyExc_RuntimeError, "Cannot close a running event loop");
        return NULL;
    }
    loop_close_native(TDL_LOOP(self));
    Py_RETURN_NONE;
}

static PyObject *loop_is_running(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *result;
    if (tdl__loop_step_aside(TDL_LOOP(self), TDL_LOOP(self)->state->str_is_running, NULL, 0, NULL, &result)) {
        return result;
    }
    return PyBool_FromLong(TDL_LOOP(self)->thread_id != Py_None);
}

static PyObject *loop_is_closed(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *result;
    if (tdl__loop_step_aside(TDL_LOOP(self), TDL_LOOP(self)->state->str_is_closed, NULL, 0, NULL, &result)) {
        return result;
    }
    return PyBool_FromLong(TDL_LOOP(self)->closed);
}

static PyObject *loop_get_debug(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *result;
    if (tdl__loop_step_aside(TDL_LOOP(self), TDL_LOOP(self)->state->str_get_debug, NULL, 0, NULL, &result)) {
        return result;
    }
    return PyBool_FromLong(TDL_LOOP(self)->debug);
}

static PyObject *loop_wake(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    tdl__loop_wake(TDL_LOOP(self));
    Py_RETURN_NONE;
}

static PyObject *loop_signal_fds(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    TdlLoop *loop = TDL_LOOP(self);
    if (tdl__check_closed(loop) < 0 || tdl__uv_check_fork(&loop->poller) < 0) {
        return NULL;
    }
    return Py_BuildValue("(ii)", loop->poller.signal_rfd, loop->poller.signal_wfd);
}

static PyObject *get_closed(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(TDL_LOOP(self)->closed);
}

/* asyncio's own close() sets True, where it is called because somebody wrapped it. */
static int set_closed(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    TdlLoop *loop = TDL_LOOP(self);
    if (value == Py_True && !loop->turning && !tdl__loop_in_turn(loop)) {
        loop_close_native(loop);
    }
    return 0; /* False is BaseEventLoop.__init__'s */
}

static PyObject *get_debug(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(TDL_LOOP(self)->debug);
}

static int set_bool(PyObject *value, bool *out)
{
    int truth = value != NULL ? PyObject_IsTrue(value) : 0;
    if (truth < 0) {
        return -1;
    }
    *out = truth > 0;
    return 0;
}

static int set_debug(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    return set_bool(value, &TDL_LOOP(self)->debug);
}

static PyObject *get_stopping(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(tdl_sched_stopping(&TDL_LOOP(self)->sched));
}

static int set_stopping(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    bool stopping = false;
    if (set_bool(value, &stopping) < 0) {
        return -1;
    }
    if (stopping) {
        tdl_sched_stop(&TDL_LOOP(self)->sched);
    } else {
        tdl_sched_clear_stop(&TDL_LOOP(self)->sched);
    }
    return 0;
}

static PyGetSetDef loop_getset[] = {
    {"_closed", get_closed, set_closed, NULL, NULL},
    {"_debug", get_debug, set_debug, NULL, NULL},
    {"_stopping", get_stopping, set_stopping, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef loop_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TdlLoop, weakrefs), READONLY, NULL},
    {"_thread_id", T_OBJECT, offsetof(TdlLoop, thread_id), 0, NULL},
    {"_task_factory", T_OBJECT, offsetof(TdlLoop, task_factory), 0, NULL},
    {"_transports", T_OBJECT, offsetof(TdlLoop, transports), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* asyncio's signature, which grew arbitrary keywords for the task factory in 3.14. */
#if PY_VERSION_HEX >= 0x030E0000
#define TDL_CREATE_TASK_SIGNATURE "create_task($self, coro, **kwargs)"
#else
#define TDL_CREATE_TASK_SIGNATURE "create_task($self, coro, *, name=None, context=None)"
#endif

static PyMethodDef loop_own_methods[] = {
    {"_run", loop_run, METH_O, NULL},
    {"_wakeup_put_aside", loop_wakeup_put_aside, METH_NOARGS, NULL},
    {"_run_once", tdl__loop_run_once, METH_NOARGS, NULL},
    {"_run_nested", tdl__loop_run_nested, METH_NOARGS, NULL},
    {"_handle_signals", loop_handle_signals, METH_O, NULL},
    {"stop", loop_stop, METH_NOARGS,
     PyDoc_STR("stop($self, /)\n--\n\nLet run_forever return after the turn that asked.")},
    {"_close_native", loop_close_method, METH_NOARGS, NULL},
    {"is_running", loop_is_running, METH_NOARGS,
     PyDoc_STR("is_running($self, /)\n--\n\nReturn True while the loop runs.")},
    {"is_closed", loop_is_closed, METH_NOARGS,
     PyDoc_STR("is_closed($self, /)\n--\n\nReturn True if the loop was closed.")},
    {"get_debug", loop_get_debug, METH_NOARGS,
     PyDoc_STR("get_debug($self, /)\n--\n\nReturn True in debug mode.")},
    {"_write_to_self", loop_wake, METH_NOARGS, NULL},
    {"create_future", tdl__loop_create_future, METH_NOARGS,
     PyDoc_STR("create_future($self, /)\n--\n\nReturn an asyncio.Future of this loop.")},
    {"create_task", (PyCFunction)(void (*)(void))tdl__loop_create_task, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR(TDL_CREATE_TASK_SIGNATURE "\n--\n\nSchedule a coroutine; return its task.")},
    {"_signal_fds", loop_signal_fds, METH_NOARGS, NULL},
    {"_gate_off", tdl__loop_gate_off, METH_NOARGS, NULL},
    {"_shape_turns", tdl__loop_shape_turns, METH_O, NULL},
    {"_set_spin", tdl__loop_set_spin, METH_O, NULL},
    {"_shape_holds", tdl__loop_shape_holds, METH_VARARGS, NULL},
    {"_native_info", tdl__loop_native_info, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot loop_slots[] = {
    {Py_tp_doc, TDL_DOC("The C part of treadle.Loop.")},
    {Py_tp_new, loop_new},
    {Py_tp_dealloc, loop_dealloc},
    {Py_tp_traverse, loop_traverse},
    {Py_tp_clear, loop_clear},
    {Py_tp_setattro, tdl__loop_setattr},
    {Py_tp_methods, loop_own_methods},
    {Py_tp_getset, loop_getset},
    {Py_tp_members, loop_members},
    {0, NULL},
};

static PyType_Spec loop_spec = {
    .name = "treadle._treadle.LoopBase",
    .basicsize = sizeof(TdlLoop),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = loop_slots,
};

int tdl__loop_type(PyObject *module)
{
    struct tdl_module_state *st = tdl__state_of_module(module);
    st->loop_type = tdl__add_type(module, &loop_spec, NULL);
    return st->loop_type != NULL ? 0 : -1;
}
