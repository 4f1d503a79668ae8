/* Writes that wait for a moment: a transport that was seen to write more than once in a step (an HTTP
 * server's head and body) holds its small writes until the step ends, and sends them in one system call,
 * which is one wake-up of the peer too. In a generation of many steps those of eight transports leave
 * together: sends one after the other are cheaper than each between two steps of Python, which then find the
 * processor's caches full of the kernel. libs/hold sends what waits for two milliseconds, without the GIL. */
#include "ground/audit.h"
#include "transport/stream.h"
#include "transport/transport.h"

#include <sys/uio.h>

enum {
    TDL_HOLD_MAX = 16 * 1024,  /* bytes of a transport that wait at most */
    TDL_HOLD_STREAMS_MAX = 8,  /* transports whose writes wait at most; hold keeps as many blocks */
    TDL_HOLD_GATHER_STEPS = 8, /* steps with a single write after which batching stops */
};

static size_t hold_max(const TdlStream *t)
{
    return t->high_water < TDL_HOLD_MAX ? t->high_water : TDL_HOLD_MAX;
}

/* Learn from a write whether the next step's should be held. */
static void note_write(TdlStream *t)
{
    uint32_t turn = (uint32_t)t->loop->turns;
    uint32_t left = (uint32_t)tdl_sched_left(&t->loop->sched);
    if (t->write_turn != turn || t->write_left != left) {
        t->write_turn = turn;
        t->write_left = left;
        t->gather = (uint8_t)(t->gather - (t->gather > 0));
    } else {
        t->gather = TDL_HOLD_GATHER_STEPS;
    }
}

/* Another thread's write may not wait: the step may wait for what it brings about. */
static bool in_run_thread(const TdlStream *t)
{
    return PyThread_get_thread_ident() == t->loop->run_thread;
}

/* A forked child's write may not wait until the loop is its own. Nothing is held unless what replaces the
 * process is heard of. */
static bool may_begin(const TdlStream *t)
{
    const TdlLoop *loop = t->loop;
    return t->state == TDL_STREAM_OPEN && tdl_sched_running(&loop->sched) && !tdl__uv_forked(&loop->poller) &&
           tdl__audit_hears_ends();
}

/* Send what is held, and be late no more, when the step ends. */
static void send_at_step_end(TdlLoop *loop)
{
    if (loop->enough_item.link.state == TDL_ITEM_IDLE) {
        tdl_sched_push_after(&loop->sched, &loop->enough_item);
    }
}

/* One more transport holds. While there are only a few steps to run, what each holds is sent at its end. */
static void send_in_time(TdlLoop *loop)
{
    if (loop->held_count == 0) {
        loop->held_max = tdl_sched_left(&loop->sched) + 1 < TDL_HOLD_STREAMS_MAX ? 1 : TDL_HOLD_STREAMS_MAX;
    }
    if (++loop->held_count >= loop->held_max) {
        send_at_step_end(loop);
    } else if (loop->hold_item.link.state == TDL_ITEM_IDLE) {
        tdl_sched_push_last(&loop->sched, &loop->hold_item);
    }
}

static bool begin(TdlStream *t, const void *data, size_t len)
{
    TdlLoop *loop = t->loop;
    t->held = tdl_hold_begin(&loop->hold, t->fd, t->sock_number, data, len);
    if (t->held == NULL) {
        return false;
    }
    t->held->owner = Py_NewRef((PyObject *)t);
    send_in_time(loop);
    return true;
}

/* Whether the bytes of this write, made while nothing is queued, wait. */
bool tdl__stream_hold(TdlStream *t, const void *data, size_t len)
{
    bool gathers = t->gather > 0 || t->loop->gather_all;
    size_t waiting = t->held != NULL ? t->held->len : 0;
    note_write(t);
    if (!gathers || t->lent || waiting + len > hold_max(t) || !in_run_thread(t)) {
        return false;
    }
    bool holds = t->held != NULL ? tdl_held_append(&t->loop->hold, t->held, data, len) == 0
                                 : may_begin(t) && begin(t, data, len);
    if (!holds && tdl_hold_is_late(&t->loop->hold) && tdl_sched_running(&t->loop->sched)) {
        send_at_step_end(t->loop);
    }
    return holds;
}

/* What the program does by the socket or its number must come behind what it wrote before: from now on all
 * leaves at once. */
void tdl__stream_lend(TdlStream *t)
{
    tdl__stream_flush(t);
    t->lent = true;
}

static struct tdl_held *take(TdlStream *t)
{
    struct tdl_held *held = t->held;
    t->held = NULL;
    tdl_hold_take(&t->loop->hold, held);
    return held;
}

static void end(TdlStream *t, struct tdl_held *held)
{
    tdl_hold_end(&t->loop->hold, held);
    Py_DECREF(t); /* the hold's reference; the caller has its own */
}

/* Queue what the kernel has not taken of it. */
static int queue_rest(TdlStream *t, const struct tdl_held *held, size_t sent)
{
    if (held->sent + sent >= held->len) {
        return 0;
    }
    const char *rest = held->data + held->sent + sent;
    PyObject *data = PyBytes_FromStringAndSize(rest, (Py_ssize_t)(held->len - held->sent - sent));
    int code = data != NULL ? tdl__stream_queue_push(t, data, 0) : -1;
    Py_XDECREF(data);
    return code;
}

/* Put what is held into the queue, for a caller that sends the queue. A failure that the thread met is told
 * to the protocol. */
int tdl__stream_held_to_queue(TdlStream *t)
{
    if (t->held == NULL) {
        return 0;
    }
    struct tdl_held *held = take(t);
    int code = 0;
    if (held->error != 0) {
        tdl__stream_send_failed(t, held->error);
        code = PyErr_Occurred() ? -1 : 0;
    } else {
        code = queue_rest(t, held, 0);
    }
    end(t, held);
    return code;
}

/* In one system call; the bytes taken, or -1 with errno. */
static ssize_t send_both(TdlStream *t, const struct tdl_held *held, const void *data, size_t len)
{
    size_t rest = held->len - held->sent;
    if (rest + len == 0) {
        return 0;
    }
    char *first = held->data + held->sent;
    struct iovec iov[2] = {{first, rest}, {(void *)(uintptr_t)data, len}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    int fd = tdl__stream_fd(t);
    ssize_t n;
    do {
        n = len == 0 ? send(fd, first, rest, MSG_NOSIGNAL) : sendmsg(fd, &msg, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : n;
}

/* Send what is held, and the bytes behind it; the bytes of `data` that were sent, or -1 if the connection is
 * lost, which is told to the protocol, or if an exception is raised. What is dropped with the write that
 * failed does not count for asyncio's warning about writes to a lost connection: the program could not know
 * yet. */
ssize_t tdl__stream_send_behind_held(TdlStream *t, const void *data, size_t len)
{
    struct tdl_held *held = take(t);
    size_t rest = held->len - held->sent;
    errno = held->error;
    ssize_t n = held->error == 0 ? send_both(t, held, data, len) : -1;
    ssize_t behind = -1;
    if (n < 0) {
        tdl__stream_send_failed(t, errno);
    } else if (queue_rest(t, held, (size_t)n) == 0) {
        behind = (size_t)n > rest ? n - (ssize_t)rest : 0;
    }
    end(t, held);
    return behind;
}

/* Leaves no exception: what is held is below the high-water mark, so no pause_writing is called. */
void tdl__stream_send_held(TdlStream *t)
{
    Py_INCREF(t);
    if ((tdl__stream_send_behind_held(t, NULL, 0) == 0 && tdl__stream_wait_rest(t) < 0) || PyErr_Occurred()) {
        PyErr_WriteUnraisable((PyObject *)t);
    }
    Py_DECREF(t);
}

/* What another transport wrote earlier leaves before what this one is about to send. */
void tdl__stream_send_older(TdlStream *t)
{
    struct tdl_held *held;
    while ((held = tdl_hold_first(&t->loop->hold)) != NULL && held != t->held) {
        tdl__stream_send_held(held->owner);
    }
}

static void send_all_held(TdlLoop *loop)
{
    PyObject *exc = PyErr_Occurred() ? PyErr_GetRaisedException() : NULL;
    struct tdl_held *held;
    while ((held = tdl_hold_first(&loop->hold)) != NULL) {
        tdl__stream_send_held(held->owner);
    }
    loop->held_count = 0;
    tdl_hold_over(&loop->hold);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

static void generation_ended(struct tdl_item *item)
{
    send_all_held(TDL_CONTAINER_OF(item, TdlLoop, hold_item));
}

static void enough_held(struct tdl_item *item)
{
    send_all_held(TDL_CONTAINER_OF(item, TdlLoop, enough_item));
}

static int loop_open(TdlLoop *loop)
{
    tdl_item_init(&loop->hold_item, generation_ended);
    tdl_item_init(&loop->enough_item, enough_held);
    return 0;
}

const struct tdl_part tdl__held_part = {.open = loop_open};
