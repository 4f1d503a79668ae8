/* The loop's side of a turn: clock, remote items, and the poll through libuv behind the readiness filter.
 * What libuv's callbacks do is collected without the GIL and dispatched in one place once the GIL is back. */
#include "loop/loop.h"
#include "loop/signals.h"
#include "loop/snapshot.h"
#include "loop/soon.h"

#include "treadle/clock.h"

uint64_t tdl__clock_ns(void)
{
    return TDL_CLOCK_BIAS + tdl_clock_ns();
}

static TdlLoop *loop_of(struct tdl_host *host)
{
    return TDL_CONTAINER_OF(host, TdlLoop, host);
}

/* The clock that somebody put in the place of loop.time(). What it raises ends the run, behind this turn. */
TDL_RARE static uint64_t replaced_clock_ns(TdlLoop *loop)
{
    PyObject *exc = PyErr_GetRaisedException();
    PyObject *now = PyObject_CallMethodNoArgs((PyObject *)loop, loop->state->str_time);
    double now_s = now != NULL ? PyFloat_AsDouble(now) : -1;
    Py_XDECREF(now);
    bool failed = PyErr_Occurred() != NULL;
    if (failed) {
        Py_XSETREF(loop->clock_error, PyErr_GetRaisedException());
        loop->poller.signal_seen = true; /* so that run_turn() looks */
        loop->hurried = true;
    }
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
    return failed ? tdl__clock_ns() : tdl__when_to_ns(now_s);
}

static uint64_t host_now_ns(struct tdl_host *host)
{
    TdlLoop *loop = loop_of(host);
    if (!tdl__loop_is_plain(loop) && tdl__loop_overridden(loop, loop->state->str_time)) {
        return replaced_clock_ns(loop);
    }
    return tdl__clock_ns();
}

static struct tdl_link *host_take(struct tdl_host *host)
{
    return tdl_inbox_take(&loop_of(host)->inbox);
}

static void parts_before_poll(TdlLoop *loop)
{
    loop->staged = false;
    for (const struct tdl_part *const *part = loop->state->parts; *part != NULL; part++) {
        if ((*part)->before_poll != NULL) {
            (*part)->before_poll(loop);
        }
    }
}

static void host_before_poll(struct tdl_host *host)
{
    TdlLoop *loop = loop_of(host);
    if (loop->poller.dirty != NULL) {
        tdl__poller_apply(&loop->poller);
    }
    if (loop->staged) {
        parts_before_poll(loop);
    }
}

/* Whether anybody else may want the GIL. Released every turn or, while no other thread state exists, never: a
 * waiter that loses a rare release restarts its 5 ms timer and starves. */
static bool others_alive(void)
{
    PyThreadState *mine = PyThreadState_Get();
    PyInterpreterState *interp = PyThreadState_GetInterpreter(mine);
    PyThreadState *head = PyInterpreterState_ThreadHead(interp);
    if (head != mine || PyThreadState_Next(head) != NULL) {
        return true;
    }
    return PyInterpreterState_Head() != interp || PyInterpreterState_Next(interp) != NULL;
}

/* libuv 1.44 runs timers before it polls: one that came due between its start and uv_run would leave the poll
 * without a limit. A stopped loop does not block, and uv_run clears the stop. */
static void on_timer(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

/* Bound libuv's wait; its clock has milliseconds, so round up and let the scheduler look again. */
static void timer_set(TdlLoop *loop, uint64_t timeout_ns)
{
    const uint64_t longest_ms = 24U * 3600U * 1000U;
    uint64_t ms = timeout_ns / 1000000U + (timeout_ns % 1000000U != 0);
    uv_update_time(&loop->poller.uv->uv);
    uv_timer_start(&loop->poller.uv->timer, on_timer, ms < longest_ms ? ms : longest_ms, 0);
    loop->poller.uv->timer_active = true;
}

/* Of the first part that would have the loop watch for its answer before it sleeps; NULL if none would. */
static struct tdl_patience *patience_of_parts(TdlLoop *loop, uint64_t timeout_ns)
{
    struct tdl_patience *patience = NULL;
    for (const struct tdl_part *const *part = loop->state->parts; patience == NULL && *part != NULL; part++) {
        patience = (*part)->watches != NULL ? (*part)->watches(loop, timeout_ns) : NULL;
    }
    return patience;
}

/* Sleep in libuv until an event, a wake or the timeout. */
static void park(TdlLoop *loop, uint64_t timeout_ns)
{
    tdl_filter_disarm(&loop->poller.filter);
    tdl_wake_park_begin(&loop->poller.wake); /* MO-1 */
    bool posted = !tdl_inbox_is_empty(&loop->inbox);
    if (!posted && timeout_ns != UINT64_MAX) {
        timer_set(loop, timeout_ns);
    }
    struct tdl_patience *patience = posted ? NULL : patience_of_parts(loop, timeout_ns);
    loop->poller.parked = true;
    loop->poller.in_uv = true;
    tdl__signals_hold(loop);
    PyThreadState *save = PyEval_SaveThread();
    if (patience != NULL) {
        posted = tdl_wake_watch(&loop->poller.wake, TDL_WATCH_NS);
        tdl_patience_tell(patience, posted);
    }
    uv_run(&loop->poller.uv->uv, posted ? UV_RUN_NOWAIT : UV_RUN_ONCE);
    (void)tdl_wake_park_end(&loop->poller.wake); /* before the GIL, which the notifier may still hold */
    PyEval_RestoreThread(save);
    loop->poller.parked = false;
    loop->poller.in_uv = false;
    if (loop->poller.uv->timer_active) {
        uv_timer_stop(&loop->poller.uv->timer);
        loop->poller.uv->timer_active = false;
    }
}

/* A sleeping loop keeps no context's values alive. Their end may run any code, so the turn's wait is computed
 * anew. */
static uint64_t forget_snapshot(TdlLoop *loop)
{
    tdl__snapshot_forget(loop);
    host_before_poll(&loop->host);
    if (tdl_sched_has_ready(&loop->sched) || tdl_sched_stopping(&loop->sched) || loop->poller.fired != NULL) {
        return 0;
    }
    if (!tdl_sched_has_timers(&loop->sched)) {
        return loop->hurried ? 0 : UINT64_MAX;
    }
    uint64_t timeout_ns = tdl_sched_timeout(&loop->sched, host_now_ns(&loop->host));
    return loop->hurried ? 0 : timeout_ns; /* a replaced clock may have raised */
}

static void poll_now(TdlLoop *loop)
{
    if (loop->others) {
        loop->poller.in_uv = true;
        PyThreadState *save = PyEval_SaveThread();
        uv_run(&loop->poller.uv->uv, UV_RUN_NOWAIT);
        PyEval_RestoreThread(save);
        loop->poller.in_uv = false;
    } else {
        uv_run(&loop->poller.uv->uv, UV_RUN_NOWAIT);
    }
}

/* Whether this turn need not ask the kernel: the ring tells that nothing happened, or the turn before this
 * one slept in the kernel and saw no descriptor ready. A socket that becomes readable meanwhile is one turn
 * late at most. */
static bool may_skip(TdlLoop *loop)
{
    if (loop->poller.uv_busy || loop->poller.uv_dirty) {
        return false;
    }
    if (loop->poller.slept) {
        loop->poller.slept = false;
        return true;
    }
    return tdl_filter_skips(&loop->poller.filter, uv_backend_fd(&loop->poller.uv->uv));
}

/* The poll of a turn, in order:
 *   1. Records of descriptors that may not be drained yet are queued again; if there are any, the poll does
 * not wait.
 *   2. A poll that would not wait is skipped if the readiness filter allows it. The GIL is offered all the
 * same, else a busy loop would starve the other threads.
 *   3. A poll that will wait first lets go of cached contexts. That may run code which schedules something,
 * so the time to wait is computed again.
 *   4. libuv polls, at once or until an event, a notification or the timeout; its callbacks only link
 * records. Before a poll at once the filter takes its completions: one that comes later then counts for the
 * next turn.
 *   5. The readiness filter is told whether anything was found, and the linked records become queued
 * items. */
static void poll_filtered(TdlLoop *loop, uint64_t timeout_ns, struct tdl_queue *io)
{
    bool fired = tdl__poller_again(&loop->poller);
    if (fired) {
        timeout_ns = 0;
    }
    if (timeout_ns == 0 && !fired && may_skip(loop)) {
        loop->skips++;
        if (loop->others) {
            PyEval_RestoreThread(PyEval_SaveThread());
        }
        return;
    }
    if (timeout_ns != 0 && (loop->snapshot != NULL || loop->spare_context != NULL)) {
        timeout_ns = forget_snapshot(loop);
    }
    loop->poller.uv_dirty = false;
    if (timeout_ns == 0) {
        tdl_filter_before_poll(&loop->poller.filter);
        poll_now(loop);
    } else {
        park(loop, timeout_ns);
    }
    loop->poller.slept = timeout_ns != 0;
    loop->polls++;
    loop->poller.uv_busy = loop->poller.fired != NULL;
    tdl_filter_polled(&loop->poller.filter, loop->poller.uv_busy);
    tdl__poller_dispatch(&loop->poller, io);
}

/* Behind what the poll found, as if the kernel had told of them. */
static void take_answered(TdlLoop *loop, struct tdl_queue *io)
{
    loop->hurried = false;
    tdl_queue_splice(io, &loop->answered);
}

static void host_poll(struct tdl_host *host, uint64_t timeout_ns, struct tdl_queue *io)
{
    TdlLoop *loop = loop_of(host);
    loop->turns++;
    if (loop->pace.measured > 0) {
        tdl__pace_ran(loop);
    }
    loop->others = others_alive();
    poll_filtered(loop, loop->hurried ? 0 : timeout_ns, io);
    if (loop->hurried) {
        take_answered(loop, io);
    }
    tdl__signals_give(loop); /* before anything runs that could look */
    if (loop->pace.posts != 0 || loop->pace.waiting > 0) {
        tdl__pace_polled(loop);
    }
}

void tdl__host_init(TdlLoop *loop)
{
    loop->host = (struct tdl_host){
        .now_ns = host_now_ns,
        .take = host_take,
        .before_poll = host_before_poll,
        .poll = host_poll,
    };
}
