/* Descriptors that libuv polls for us: one uv_poll_t each, found by number.
 * A callback of libuv only notes what happened; items are queued by dispatch, under the GIL. Interest changes
 * are noted too, and handed to libuv before the next poll, so that any thread may make them. */
#include "poll/poller.h"
#include "poll/uvpriv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "treadle/alloc.h"
#include "treadle/assert.h"

enum { TDL_SPARE_MAX = 256 };

static void on_closed(uv_handle_t *handle)
{
    tdl_free(TDL_CONTAINER_OF(handle, struct tdl_watch, poll));
}

static void fire(struct tdl_watch *w, int events)
{
    struct tdl_poller *p = w->poller;
    w->revents |= (uint8_t)events;
    if (!w->fired) {
        w->fired = true;
        w->next_fired = NULL;
        *p->fired_tail = w;
        p->fired_tail = &w->next_fired;
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct tdl_watch *w = TDL_CONTAINER_OF(poll, struct tdl_watch, poll);
    if (status < 0) {
        events = UV_READABLE | UV_WRITABLE; /* both sides see the kernel's own error */
        w->armed = 0;                       /* libuv stopped polling it */
    }
    w->news = true;
    fire(w, events);
}

struct tdl_watch *tdl__watch_get(const struct tdl_poller *p, int fd)
{
    return fd >= 0 && fd < p->watches_len ? p->watches[fd] : NULL;
}

static int table_reserve(struct tdl_poller *p, int fd)
{
    if (fd < p->watches_len) {
        return 0;
    }
    int len = p->watches_len > 0 ? p->watches_len : 64;
    while (len <= fd) {
        len = len <= INT_MAX / 2 ? len * 2 : INT_MAX;
    }
    struct tdl_watch **watches = tdl_realloc(p->watches, (size_t)len * sizeof *watches);
    if (watches == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(watches + p->watches_len, 0, (size_t)(len - p->watches_len) * sizeof *watches);
    p->watches = watches;
    p->watches_len = len;
    return 0;
}

/* Make the handle known to libuv. The number it polls is set when it is armed. */
static void make_ready(struct tdl_watch *w)
{
    tdl__uvpriv_poll_init(&w->poller->uv->uv, &w->poll);
    w->ready = true;
}

/* What epoll says to a descriptor, asked without libuv: 0, or -EBADF, or -EPERM for a file that cannot be polled. */
static int probe(struct tdl_poller *p, int fd)
{
    struct epoll_event event = {.events = 0, .data.fd = -1};
    int epoll = uv_backend_fd(&p->uv->uv);
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        return errno == EEXIST ? 0 : -errno;
    }
    (void)epoll_ctl(epoll, EPOLL_CTL_DEL, fd, &event);
    return 0;
}

/* A watch of nothing yet, with a handle that libuv knows already if one is spare. */
static struct tdl_watch *watch_new(struct tdl_poller *p)
{
    struct tdl_watch *w = p->spare;
    if (w == NULL) {
        w = tdl_calloc(1, sizeof *w);
    } else {
        p->spare = w->next_dirty;
        p->spare_count--;
        memset((char *)w + sizeof w->poll, 0, sizeof *w - sizeof w->poll);
        w->ready = true;
    }
    return w;
}

/* With `sure` the caller knows that the descriptor is open and can be polled. */
struct tdl_watch *tdl__watch_open(struct tdl_poller *p, int fd, bool sure)
{
    if (tdl__uv_check_fork(p) < 0) {
        return NULL;
    }
    int code = sure ? 0 : probe(p, fd); /* before the table grows to any number it is given */
    if (code < 0) {
        tdl__raise_uv(code);
        return NULL;
    }
    if (table_reserve(p, fd) < 0) {
        return NULL;
    }
    struct tdl_watch *w = watch_new(p);
    if (w == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    w->poller = p;
    w->fd = fd;
    tdl_node_init(&w->again);
    if (!w->ready && !p->in_uv) {
        make_ready(w);
    }
    p->watches[fd] = w;
    return w;
}

struct tdl_watch *tdl__watch_fresh(struct tdl_poller *p, int fd, bool sure)
{
    struct tdl_watch *stale = tdl__watch_get(p, fd);
    if (stale != NULL) {
        tdl__watch_release(stale); /* whoever had the number before has closed it */
    }
    return tdl__watch_open(p, fd, sure);
}

static void mark_dirty(struct tdl_watch *w)
{
    struct tdl_poller *p = w->poller;
    if (!w->dirty) {
        w->dirty = true;
        w->next_dirty = p->dirty;
        p->dirty = w;
    }
    tdl__poller_wake(p);
}

/* Whether each event needs to be told only once. A writer's is told as long as it waits, and so is a callback's. */
static bool by_edge(const struct tdl_watch *w)
{
    return w->edge && !w->level && tdl__uvpriv_known(&w->poller->uv->uv) && w->want == UV_READABLE &&
           w->reader.cancelled == NULL;
}

static void leave(struct tdl_watch *w)
{
    tdl__uvpriv_stop(&w->poll);
    w->entered = false;
    w->armed = 0;
}

/* Ask the kernel for what is wanted: 0, or a code, and nothing is asked for. */
static int arm(struct tdl_watch *w)
{
    int code = 0;
    if (!w->ready) {
        make_ready(w);
    }
    w->armed = 0;
    w->armed_edge = by_edge(w);
    w->poller->uv_dirty = true;
    int events = w->want | (w->armed_edge ? UV_DISCONNECT | UV_PRIORITIZED : 0);
    if (w->want != 0) {
        code = tdl__uvpriv_start(&w->poll, w->fd, events, w->armed_edge ? EPOLLET : 0, on_poll);
    }
    if (w->want == 0 || code < 0) {
        leave(w);
    } else {
        w->entered = true;
        w->armed = w->want;
    }
    return code;
}

/* Whether libuv can be called: no thread runs it, and its epoll is this process's own. */
static bool uv_is_ours(const struct tdl_poller *p)
{
    return !p->in_uv && !tdl__uv_forked(p);
}

/* Nobody has this side any more. Returns the object that the last side leaves behind, for the caller to let go. */
static PyObject *forget_side(struct tdl_watch *w, int event)
{
    *tdl__watch_side(w, event) = (struct tdl_watch_side){0};
    w->want &= (uint8_t)~event;
    if (w->want != 0) {
        return NULL;
    }
    PyObject *fileobj = w->fileobj;
    w->fileobj = NULL;
    return fileobj;
}

/* Whether it is refused since the number was closed behind our back, or means by now what cannot be polled. */
static bool is_gone(int fd, int code)
{
    struct stat st;
    return (code == -EBADF || code == -EPERM) &&
           (fstat(fd, &st) < 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
}

/* What stands in epoll already is changed before the next poll, when changes that undo each other are none; but who gives a
 * callback is told at once if it cannot be. */
int tdl__watch_set_side(struct tdl_watch *w, int event, struct tdl_watch_side side)
{
    PyObject *old = tdl__watch_side(w, event)->owner;
    int code = 0;
    *tdl__watch_side(w, event) = side;
    Py_INCREF(side.owner);
    w->want |= (uint8_t)event;
    if (w->armed_edge && !by_edge(w)) {
        w->armed = 0;
    }
    if ((w->want & ~w->armed) != 0) {
        bool known = w->entered;
        if ((known && side.cancelled == NULL) || w->poller->lingering || !uv_is_ours(w->poller)) {
            mark_dirty(w);
        } else if ((code = arm(w)) < 0 && known && is_gone(w->fd, code)) {
            code = 0; /* it was registered, and stays so until it is taken away */
        } else if (code < 0) {
            PyObject *fileobj = forget_side(w, event);
            if (w->want != 0) {
                mark_dirty(w); /* the other side is asked for anew */
            }
            Py_DECREF(side.owner);
            Py_XDECREF(fileobj);
        } else {
            tdl__poller_wake(w->poller);
        }
    }
    Py_XDECREF(old);
    return code;
}

int tdl__watch_set(struct tdl_watch *w, int event, struct tdl_item *item, PyObject *owner)
{
    return tdl__watch_set_side(w, event, (struct tdl_watch_side){.item = item, .owner = owner});
}

bool tdl__watch_unset(struct tdl_watch *w, int event)
{
    if (w == NULL) {
        return false; /* its loop is closed, or its number was taken over */
    }
    struct tdl_watch_side *side = tdl__watch_side(w, event);
    PyObject *old = side->owner;
    if (old == NULL) {
        return false;
    }
    PyObject *fileobj = forget_side(w, event);
    mark_dirty(w);
    Py_XDECREF(fileobj);
    Py_DECREF(old);
    return true;
}

/* Nobody waits for this event now, but somebody soon will: the kernel stays armed until an event comes for nobody. */
void tdl__watch_rest(struct tdl_watch *w, int event)
{
    struct tdl_watch_side *side = tdl__watch_side(w, event);
    PyObject *old = side->owner;
    PyObject *fileobj = forget_side(w, event);
    Py_XDECREF(fileobj);
    Py_XDECREF(old);
}

struct tdl_watch *tdl__watch_of_socket(struct tdl_poller *p, int fd, PyObject *sock)
{
    struct tdl_watch *w = tdl__watch_get(p, fd);
    bool same = w != NULL && w->sock_ref != NULL && tdl__weakref_is(w->sock_ref, sock);
    if (w != NULL && (same || w->want != 0)) {
        if (!same) {
            w->armed = 0; /* ask the kernel again: the number may have been closed and used anew */
        }
        return w;
    }
    PyObject *ref = PyWeakref_NewRef(sock, NULL);
    if (ref == NULL) {
        return NULL;
    }
    w = tdl__watch_fresh(p, fd, false);
    if (w == NULL) {
        Py_DECREF(ref);
        return NULL;
    }
    w->sock_ref = ref;
    return w;
}

void tdl__watch_release(struct tdl_watch *w)
{
    struct tdl_poller *p = w->poller;
    TDL_ASSERT(!w->closing);
    PyObject *reader = w->reader.owner;
    PyObject *writer = w->writer.owner;
    PyObject *fileobj = w->fileobj;
    w->fileobj = NULL;
    w->reader = (struct tdl_watch_side){0};
    w->writer = (struct tdl_watch_side){0};
    w->want = 0;
    w->transport = NULL;
    if (w->holder != NULL) {
        *w->holder = NULL;
        w->holder = NULL;
    }
    w->closing = true;
    tdl_node_remove(&w->again);
    p->watches[w->fd] = NULL;
    mark_dirty(w);
    /* The descriptor may be closed as soon as this returns, so the kernel must forget it now. The loop's
     * thread is in no uv_run while we hold the GIL, unless another thread asks: then apply does it. */
    if (w->entered && uv_is_ours(p)) {
        leave(w);
    }
    p->lingering |= w->entered;
    Py_CLEAR(w->sock_ref);
    Py_XDECREF(reader);
    Py_XDECREF(writer);
    Py_XDECREF(fileobj);
}

/* The edge has been reported: queue the record at the next poll too, unless the descriptor is drained until then, or
 * registered anew, which reports it again. */
void tdl__watch_again(struct tdl_watch *w)
{
    if (w->armed_edge && !tdl_node_is_linked(&w->again)) {
        tdl_node_insert_before(&w->poller->again, &w->again);
    }
}

void tdl__watch_drained(struct tdl_watch *w)
{
    tdl_node_remove(&w->again);
}

/* Fire what is to be found readable, in order, before the kernel is asked for what is new. True if there is any. */
bool tdl__poller_again(struct tdl_poller *p)
{
    while (tdl_node_is_linked(&p->again)) {
        struct tdl_watch *w = TDL_CONTAINER_OF(p->again.next, struct tdl_watch, again);
        tdl_node_remove(&w->again);
        if (w->armed_edge && w->armed != 0 && (w->want & UV_READABLE) != 0) {
            fire(w, UV_READABLE);
        }
    }
    return p->fired != NULL;
}

static void uv_forget(struct tdl_watch *w)
{
    w->poller->uv_dirty = true;
    tdl__uvpriv_close(&w->poll, on_closed);
}

/* Making a handle costs libuv three system calls, so some are kept for the descriptors to come. */
static void discard(struct tdl_watch *w)
{
    struct tdl_poller *p = w->poller;
    if (!w->ready) {
        tdl_free(w);
        return;
    }
    if (w->entered) {
        leave(w);
    }
    if (p->spare_count == TDL_SPARE_MAX || !tdl__uvpriv_known(&p->uv->uv)) {
        uv_forget(w);
        return;
    }
    w->next_dirty = p->spare;
    p->spare = w;
    p->spare_count++;
}

/* What is let go leaves libuv; the rest is returned. */
static struct tdl_watch *close_released(struct tdl_watch *w)
{
    struct tdl_watch *rest = NULL;
    while (w != NULL) {
        struct tdl_watch *next = w->next_dirty;
        w->dirty = false;
        if (!w->closing) {
            w->next_dirty = rest;
            rest = w;
        } else {
            discard(w);
        }
        w = next;
    }
    return rest;
}

/* The kernel refused, and nobody waits for its answer: both sides are found ready, and their owners look at the error or
 * try their calls, and the kernel is asked again before the next poll. What is gone is never ready, as with any epoll. */
static void refused(struct tdl_watch *w, int code)
{
    if (!is_gone(w->fd, code)) {
        w->error = -code;
        fire(w, UV_READABLE | UV_WRITABLE);
    }
}

bool tdl__watch_failed(struct tdl_watch *w)
{
    if (w == NULL || w->error == 0) {
        return false;
    }
    errno = w->error;
    w->error = 0;
    PyErr_SetFromErrno(PyExc_OSError);
    return true;
}

/* Releases go first: each takes its number out of epoll, which may be another's number by now. */
void tdl__poller_apply(struct tdl_poller *p)
{
    struct tdl_watch *w = p->dirty;
    p->dirty = NULL;
    p->lingering = false;
    for (w = close_released(w); w != NULL; w = w->next_dirty) {
        int code = w->want != w->armed ? arm(w) : 0;
        if (code < 0) {
            refused(w, code);
        }
    }
}

/* A recv ends at the mark of TCP's urgent data, whatever lies behind it, and so it does for what else is reported in this way: a
 * short read proves nothing any more. Urgent data is reported before a recv can be cut short by it, or at the same poll as
 * the bytes around it. */
static void leave_edge(struct tdl_watch *w)
{
    w->level = true;
    if (w->armed_edge) {
        w->armed = 0;
    }
}

static void queue_side(struct tdl_watch *w, int event, struct tdl_queue *io)
{
    struct tdl_watch_side *side = tdl__watch_side(w, event);
    if (side->item == NULL) {
        return;
    }
    if (side->cancelled != NULL && side->cancelled(side->item)) {
        (void)tdl__watch_unset(w, event);
        return;
    }
    if (side->item->link.state == TDL_ITEM_IDLE) {
        Py_INCREF(side->owner); /* the queue's reference */
        tdl_queue_push(io, &side->item->link);
    }
}

void tdl__poller_dispatch(struct tdl_poller *p, struct tdl_queue *io)
{
    struct tdl_watch *w = p->fired;
    p->fired = NULL;
    p->fired_tail = &p->fired;
    while (w != NULL) {
        struct tdl_watch *next = w->next_fired;
        uint8_t revents = w->revents;
        w->revents = 0;
        w->fired = false;
        if (!w->closing) {
            w->ended |= (revents & UV_DISCONNECT) != 0;
            if ((revents & UV_PRIORITIZED) != 0) {
                leave_edge(w);
            }
            if (revents & UV_READABLE) {
                queue_side(w, UV_READABLE, io);
            }
            if (revents & UV_WRITABLE) {
                queue_side(w, UV_WRITABLE, io);
            }
            if (w->want != w->armed) {
                mark_dirty(w);
            }
        }
        w = next;
    }
}

/* The child's epoll is new: each descriptor is entered again, if the child still has it. */
void tdl__poller_after_fork(struct tdl_poller *p)
{
    for (int fd = 0; fd < p->watches_len; fd++) {
        struct tdl_watch *w = p->watches[fd];
        if (w != NULL && w->entered) {
            leave(w);
            mark_dirty(w);
        }
    }
}

void tdl__poller_close(struct tdl_poller *p)
{
    for (int fd = 0; fd < p->watches_len; fd++) {
        if (p->watches[fd] != NULL) {
            tdl__watch_release(p->watches[fd]);
        }
    }
    tdl__poller_apply(p);
    while (p->spare != NULL) {
        struct tdl_watch *w = p->spare;
        p->spare = w->next_dirty;
        uv_forget(w);
    }
    p->spare_count = 0;
    tdl_free(p->watches);
    p->watches = NULL;
    p->watches_len = 0;
}

int tdl__poller_traverse(struct tdl_poller *p, visitproc visit, void *arg)
{
    for (int fd = 0; fd < p->watches_len; fd++) {
        if (p->watches[fd] != NULL) {
            Py_VISIT(p->watches[fd]->reader.owner);
            Py_VISIT(p->watches[fd]->writer.owner);
            Py_VISIT(p->watches[fd]->fileobj);
        }
    }
    return 0;
}
