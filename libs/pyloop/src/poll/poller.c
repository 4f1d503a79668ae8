/* Descriptors that libuv polls for us: one uv_poll_t each, found by number.
 * A callback of libuv only notes what happened; items are queued by dispatch, under the GIL. Interest changes
 * are noted too, and handed to libuv before the next poll, so that any thread may make them. */
#include "pyloop.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "treadle/alloc.h"

enum { TDL_SPARE_MAX = 256 };

static void on_closed(uv_handle_t *handle)
{
    tdl_free(TDL_CONTAINER_OF(handle, struct tdl_watch, poll));
}

static void fire(struct tdl_watch *w, int events)
{
    TdlLoop *loop = w->loop;
    w->revents |= (uint8_t)events;
    if (!w->fired) {
        w->fired = true;
        w->next_fired = NULL;
        *loop->fired_tail = w;
        loop->fired_tail = &w->next_fired;
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

struct tdl_watch *tdl__watch_get(TdlLoop *loop, int fd)
{
    return fd >= 0 && fd < loop->watches_len ? loop->watches[fd] : NULL;
}

static int table_reserve(TdlLoop *loop, int fd)
{
    if (fd < loop->watches_len) {
        return 0;
    }
    int len = loop->watches_len > 0 ? loop->watches_len : 64;
    while (len <= fd) {
        len = len <= INT_MAX / 2 ? len * 2 : INT_MAX;
    }
    struct tdl_watch **watches = tdl_realloc(loop->watches, (size_t)len * sizeof *watches);
    if (watches == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(watches + loop->watches_len, 0, (size_t)(len - loop->watches_len) * sizeof *watches);
    loop->watches = watches;
    loop->watches_len = len;
    return 0;
}

/* Make the handle known to libuv. The number it polls is set when it is armed. */
static int make_ready(struct tdl_watch *w)
{
    int code = tdl__poll_init(w->loop, &w->poll);
    w->ready = code == 0;
    return code;
}

/* What epoll says to a descriptor, asked without libuv: 0, or -EBADF, or -EPERM for a file that cannot be polled. */
static int probe(TdlLoop *loop, int fd)
{
    struct epoll_event event = {.events = 0, .data.fd = -1};
    int epoll = uv_backend_fd(&loop->uv->uv);
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        return errno == EEXIST ? 0 : -errno;
    }
    (void)epoll_ctl(epoll, EPOLL_CTL_DEL, fd, &event);
    return 0;
}

/* A watch of nothing yet, with a handle that libuv knows already if one is spare. */
static struct tdl_watch *watch_new(TdlLoop *loop)
{
    struct tdl_watch *w = loop->spare;
    if (w == NULL) {
        w = tdl_calloc(1, sizeof *w);
    } else {
        loop->spare = w->next_dirty;
        loop->spare_count--;
        memset((char *)w + sizeof w->poll, 0, sizeof *w - sizeof w->poll);
        w->ready = true;
    }
    return w;
}

/* With `sure` the caller knows that the descriptor is open and can be polled. */
static struct tdl_watch *watch_open(TdlLoop *loop, int fd, bool sure)
{
    if (tdl__uv_check_fork(loop) < 0) {
        return NULL;
    }
    int code = sure ? 0 : probe(loop, fd); /* before the table grows to any number it is given */
    if (code < 0) {
        tdl__raise_uv(code);
        return NULL;
    }
    if (table_reserve(loop, fd) < 0) {
        return NULL;
    }
    struct tdl_watch *w = watch_new(loop);
    if (w == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    w->loop = loop;
    w->fd = fd;
    tdl_node_init(&w->again);
    code = w->ready || loop->in_uv ? 0 : make_ready(w);
    if (code < 0) {
        tdl_free(w);
        tdl__raise_uv(code);
        return NULL;
    }
    loop->watches[fd] = w;
    return w;
}

struct tdl_watch *tdl__watch_fresh(TdlLoop *loop, int fd, bool sure)
{
    struct tdl_watch *stale = tdl__watch_get(loop, fd);
    if (stale != NULL) {
        tdl__watch_release(stale); /* whoever had the number before has closed it */
    }
    return watch_open(loop, fd, sure);
}

static void mark_dirty(struct tdl_watch *w)
{
    TdlLoop *loop = w->loop;
    if (!w->dirty) {
        w->dirty = true;
        w->next_dirty = loop->dirty;
        loop->dirty = w;
    }
    tdl__loop_wake(loop);
}

static struct tdl_watch_side *side_of(struct tdl_watch *w, int event)
{
    return event == UV_READABLE ? &w->reader : &w->writer;
}

/* Whether each event needs to be told only once. A writer's is told as long as it waits, and so is a callback's. */
static bool by_edge(const struct tdl_watch *w)
{
    return w->edge && !w->level && w->want == UV_READABLE && w->reader.item->run != tdl__handle_run;
}

static void leave(struct tdl_watch *w)
{
    uv_poll_stop(&w->poll);
    w->entered = false;
    w->armed = 0;
}

/* Ask the kernel for what is wanted: 0, or a code, and nothing is asked for. */
static int arm(struct tdl_watch *w)
{
    int code = w->ready ? 0 : make_ready(w);
    if (code < 0) {
        return code;
    }
    w->poll.io_watcher.fd = w->fd;
    w->armed = 0;
    w->armed_edge = by_edge(w);
    w->loop->uv_dirty = true;
    int events = w->want | (w->armed_edge ? UV_DISCONNECT | UV_PRIORITIZED : 0);
    if (w->want != 0) {
        code = uv_poll_start(&w->poll, events, on_poll);
    }
    if (w->want != 0 && code == 0) {
        code = tdl__poll_enter(w->loop, &w->poll.io_watcher, w->armed_edge ? EPOLLET : 0);
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
static bool uv_is_ours(const TdlLoop *loop)
{
    return !loop->in_uv && !tdl__uv_forked(loop);
}

/* Nobody has this side any more. Returns the object that the last side leaves behind, for the caller to let go. */
static PyObject *forget_side(struct tdl_watch *w, int event)
{
    *side_of(w, event) = (struct tdl_watch_side){NULL, NULL};
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
int tdl__watch_set(struct tdl_watch *w, int event, struct tdl_item *item, PyObject *owner)
{
    struct tdl_watch_side *side = side_of(w, event);
    PyObject *old = side->owner;
    int code = 0;
    side->item = item;
    side->owner = Py_NewRef(owner);
    w->want |= (uint8_t)event;
    if (w->armed_edge && !by_edge(w)) {
        w->armed = 0;
    }
    if ((w->want & ~w->armed) != 0) {
        bool known = w->entered;
        if ((known && item->run != tdl__handle_run) || w->loop->lingering || !uv_is_ours(w->loop)) {
            mark_dirty(w);
        } else if ((code = arm(w)) < 0 && known && is_gone(w->fd, code)) {
            code = 0; /* it was registered, and stays so until it is taken away */
        } else if (code < 0) {
            PyObject *fileobj = forget_side(w, event);
            if (w->want != 0) {
                mark_dirty(w); /* the other side is asked for anew */
            }
            Py_DECREF(owner);
            Py_XDECREF(fileobj);
        } else {
            tdl__loop_wake(w->loop);
        }
    }
    Py_XDECREF(old);
    return code;
}

bool tdl__watch_unset(struct tdl_watch *w, int event)
{
    if (w == NULL) {
        return false; /* its loop is closed, or its number was taken over */
    }
    struct tdl_watch_side *side = side_of(w, event);
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
    struct tdl_watch_side *side = side_of(w, event);
    PyObject *old = side->owner;
    PyObject *fileobj = forget_side(w, event);
    Py_XDECREF(fileobj);
    Py_XDECREF(old);
}

struct tdl_watch *tdl__watch_of_socket(TdlLoop *loop, int fd, PyObject *sock)
{
    struct tdl_watch *w = tdl__watch_get(loop, fd);
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
    w = tdl__watch_fresh(loop, fd, false);
    if (w == NULL) {
        Py_DECREF(ref);
        return NULL;
    }
    w->sock_ref = ref;
    return w;
}

void tdl__watch_release(struct tdl_watch *w)
{
    TdlLoop *loop = w->loop;
    TDL_ASSERT(!w->closing);
    PyObject *reader = w->reader.owner;
    PyObject *writer = w->writer.owner;
    PyObject *fileobj = w->fileobj;
    w->fileobj = NULL;
    w->reader = (struct tdl_watch_side){NULL, NULL};
    w->writer = (struct tdl_watch_side){NULL, NULL};
    w->want = 0;
    w->transport = NULL;
    if (w->holder != NULL) {
        *w->holder = NULL;
        w->holder = NULL;
    }
    w->closing = true;
    tdl_node_remove(&w->again);
    loop->watches[w->fd] = NULL;
    mark_dirty(w);
    /* The descriptor may be closed as soon as this returns, so the kernel must forget it now. The loop's
     * thread is in no uv_run while we hold the GIL, unless another thread asks: then apply does it. */
    if (w->entered && uv_is_ours(loop)) {
        leave(w);
    }
    loop->lingering |= w->entered;
    Py_CLEAR(w->sock_ref);
    Py_XDECREF(reader);
    Py_XDECREF(writer);
    Py_XDECREF(fileobj);
}

/* The kernel has told of what is readable: find it readable at the next poll too, unless it is drained until then, or
 * entered anew and told again. */
void tdl__watch_again(struct tdl_watch *w)
{
    if (w->armed_edge && !tdl_node_is_linked(&w->again)) {
        tdl_node_insert_before(&w->loop->again, &w->again);
    }
}

void tdl__watch_drained(struct tdl_watch *w)
{
    tdl_node_remove(&w->again);
}

/* Fire what is to be found readable, in order, before the kernel is asked for what is new. True if there is any. */
bool tdl__poller_again(TdlLoop *loop)
{
    while (tdl_node_is_linked(&loop->again)) {
        struct tdl_watch *w = TDL_CONTAINER_OF(loop->again.next, struct tdl_watch, again);
        tdl_node_remove(&w->again);
        if (w->armed_edge && w->armed != 0 && (w->want & UV_READABLE) != 0) {
            fire(w, UV_READABLE);
        }
    }
    return loop->fired != NULL;
}

static void uv_forget(struct tdl_watch *w)
{
    tdl__poll_park(&w->poll);
    uv_close((uv_handle_t *)&w->poll, on_closed);
    w->loop->uv_dirty = true;
}

/* Making a handle costs libuv three system calls, so some are kept for the descriptors to come. */
static void discard(struct tdl_watch *w)
{
    TdlLoop *loop = w->loop;
    if (!w->ready) {
        tdl_free(w);
        return;
    }
    if (w->entered) {
        leave(w);
    }
    if (loop->spare_count == TDL_SPARE_MAX) {
        uv_forget(w);
        return;
    }
    w->next_dirty = loop->spare;
    loop->spare = w;
    loop->spare_count++;
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
void tdl__poller_apply(TdlLoop *loop)
{
    struct tdl_watch *w = loop->dirty;
    loop->dirty = NULL;
    loop->lingering = false;
    for (w = close_released(w); w != NULL; w = w->next_dirty) {
        int code = w->want != w->armed ? arm(w) : 0;
        if (code < 0) {
            refused(w, code);
        }
    }
}

/* TCP's urgent data stops a recv at its mark, whatever lies behind it, and so does what else the kernel tells of in this way: a
 * short read proves nothing any more. The kernel tells of urgent data before a recv can be cut short by it, or at the same
 * poll as of the data. */
static void leave_edge(struct tdl_watch *w)
{
    w->level = true;
    if (w->armed_edge) {
        w->armed = 0;
    }
}

static void queue_side(struct tdl_watch *w, int event, struct tdl_queue *io)
{
    struct tdl_watch_side *side = side_of(w, event);
    if (side->item == NULL) {
        return;
    }
    if (side->item->run == tdl__handle_run && tdl__handle_cancelled(tdl__handle_of(side->item))) {
        (void)tdl__watch_unset(w, event);
        return;
    }
    if (side->item->link.state == TDL_ITEM_IDLE) {
        Py_INCREF(side->owner); /* the queue's reference */
        tdl_queue_push(io, &side->item->link);
    }
}

void tdl__poller_dispatch(TdlLoop *loop, struct tdl_queue *io)
{
    struct tdl_watch *w = loop->fired;
    loop->fired = NULL;
    loop->fired_tail = &loop->fired;
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
void tdl__poller_after_fork(TdlLoop *loop)
{
    for (int fd = 0; fd < loop->watches_len; fd++) {
        struct tdl_watch *w = loop->watches[fd];
        if (w != NULL && w->entered) {
            leave(w);
            mark_dirty(w);
        }
    }
}

void tdl__poller_close(TdlLoop *loop)
{
    for (int fd = 0; fd < loop->watches_len; fd++) {
        if (loop->watches[fd] != NULL) {
            tdl__watch_release(loop->watches[fd]);
        }
    }
    tdl__poller_apply(loop);
    while (loop->spare != NULL) {
        struct tdl_watch *w = loop->spare;
        loop->spare = w->next_dirty;
        uv_forget(w);
    }
    loop->spare_count = 0;
    tdl_free(loop->watches);
    loop->watches = NULL;
    loop->watches_len = 0;
}

int tdl__poller_traverse(TdlLoop *loop, visitproc visit, void *arg)
{
    for (int fd = 0; fd < loop->watches_len; fd++) {
        if (loop->watches[fd] != NULL) {
            Py_VISIT(loop->watches[fd]->reader.owner);
            Py_VISIT(loop->watches[fd]->writer.owner);
            Py_VISIT(loop->watches[fd]->fileobj);
        }
    }
    return 0;
}

/* The handle of a side, or NULL if it has none or is no handle; a new reference. */
static TdlHandle *side_handle(const struct tdl_watch_side *side)
{
    bool is_handle = side->item != NULL && side->item->run == tdl__handle_run;
    return is_handle ? (TdlHandle *)Py_NewRef((PyObject *)tdl__handle_of(side->item)) : NULL;
}

/* Cancel and let go: the callback's end may run any code, so nothing of the watch is touched behind it. */
static void retire(TdlHandle *h)
{
    if (h != NULL) {
        (void)tdl__handle_cancel(h);
        Py_DECREF(h);
    }
}

/* Take a side from the callback that has it, which does not run any more though it was queued. Nothing else is taken. */
void tdl__watch_retire(struct tdl_watch *w, int event)
{
    TdlHandle *h = w != NULL ? side_handle(side_of(w, event)) : NULL;
    if (h != NULL) {
        (void)tdl__watch_unset(w, event);
        retire(h);
    }
}

/* As tdl__fd_of, but an object that was closed while it is registered still has the number it was registered by. */
static int registered_fd(TdlLoop *loop, PyObject *fileobj)
{
    int fd = tdl__fd_of(fileobj);
    if (fd >= 0 || !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return fd;
    }
    for (int i = 0; i < loop->watches_len; i++) {
        if (loop->watches[i] != NULL && loop->watches[i]->fileobj == fileobj) {
            PyErr_Clear();
            return i;
        }
    }
    return -1;
}

/* Let go of a watch that nobody waits by, if it still is that number's: any code may have run meanwhile. */
static void drop_unwanted(TdlLoop *loop, int fd, struct tdl_watch *w)
{
    if (tdl__watch_get(loop, fd) == w && w->want == 0 && w->holder == NULL) {
        tdl__watch_release(w);
    }
}

static int watch_handle(TdlLoop *loop, PyObject *fileobj, int fd, int event, TdlHandle *h)
{
    struct tdl_watch *w = tdl__watch_get(loop, fd);
    if (w != NULL && w->want == 0 && w->holder == NULL) {
        tdl__watch_release(w); /* the number may mean another file by now */
        w = NULL;
    }
    if (w == NULL && (w = watch_open(loop, fd, false)) == NULL) {
        return -1;
    }
    TdlHandle *old = side_handle(side_of(w, event));
    if (old != NULL) {
        w->armed = 0; /* ask the kernel again: the number may have been closed and used anew */
    }
    if (w->want == 0 && w->fileobj == NULL) {
        w->fileobj = Py_NewRef(fileobj);
    }
    int code = tdl__watch_set(w, event, &h->item, (PyObject *)h);
    retire(old);
    if (code < 0) {
        drop_unwanted(loop, fd, w);
        tdl__raise_uv(code);
    }
    return code;
}

static PyObject *watch_callback(TdlLoop *loop, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                                int event)
{
    if (tdl__check_closed(loop) < 0) {
        return NULL;
    }
    if (nargs < 2) {
        PyErr_SetString(PyExc_TypeError, "a file descriptor and a callback are required");
        return NULL;
    }
    int fd = registered_fd(loop, args[0]);
    if (fd < 0) {
        return NULL;
    }
    PyObject *context = tdl__given_context(loop, args + nargs, kwnames);
    TdlHandle *h =
        PyErr_Occurred() == NULL ? tdl__handle_new(loop, args[1], args + 2, nargs - 2, context) : NULL;
    if (h == NULL) {
        return NULL;
    }
    /* What was called may have run any code, that closes the loop too. */
    if ((loop->debug && tdl__handle_remember(h) < 0) || tdl__check_closed(loop) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    tdl__handle_track(h); /* the watch keeps it, run after run */
    if (watch_handle(loop, args[0], fd, event, h) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    return (PyObject *)h;
}

static PyObject *unwatch(TdlLoop *loop, PyObject *fileobj, int event)
{
    if (loop->closed) {
        Py_RETURN_FALSE;
    }
    int fd = registered_fd(loop, fileobj);
    if (fd < 0) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) {
            return NULL;
        }
        PyErr_Clear(); /* nobody registered it */
        Py_RETURN_FALSE;
    }
    struct tdl_watch *w = tdl__watch_get(loop, fd);
    if (w == NULL) {
        Py_RETURN_FALSE;
    }
    TdlHandle *old = side_handle(side_of(w, event));
    bool had = tdl__watch_unset(w, event);
    drop_unwanted(loop, fd, w);
    retire(old);
    return PyBool_FromLong(had);
}

static PyObject *loop_add_reader(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return watch_callback(TDL_LOOP(self), args, nargs, kwnames, UV_READABLE);
}

static PyObject *loop_add_writer(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return watch_callback(TDL_LOOP(self), args, nargs, kwnames, UV_WRITABLE);
}

static PyObject *loop_remove_reader(PyObject *self, PyObject *fileobj)
{
    return unwatch(TDL_LOOP(self), fileobj, UV_READABLE);
}

static PyObject *loop_remove_writer(PyObject *self, PyObject *fileobj)
{
    return unwatch(TDL_LOOP(self), fileobj, UV_WRITABLE);
}

static PyObject *loop_watched(PyObject *self, PyObject *fileobj)
{
    int fd = tdl__fd_of(fileobj);
    if (fd < 0) {
        return NULL;
    }
    const struct tdl_watch *w = tdl__watch_get(TDL_LOOP(self), fd);
    return PyLong_FromLong(w != NULL ? w->want : 0);
}

int tdl__has_transports(TdlLoop *loop)
{
    PyObject *transports = Py_XNewRef(loop->transports); /* none before asyncio's __init__ */
    Py_ssize_t size = transports != NULL ? PyObject_Size(transports) : 0;
    Py_XDECREF(transports);
    return size < 0 ? -1 : size > 0;
}

static PyObject *used_by_transport(PyObject *fileobj, PyObject *transport)
{
    PyErr_Format(PyExc_RuntimeError, "File descriptor %R is used by transport %R", fileobj, transport);
    return NULL;
}

static PyObject *loop_ensure_fd_no_transport(PyObject *self, PyObject *fileobj)
{
    TdlLoop *loop = TDL_LOOP(self);
    PyObject *number = tdl__number_of(fileobj);
    if (number == NULL) {
        return NULL;
    }
    int overflow;
    long given = PyLong_AsLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    if (overflow != 0 || given < 0 || given > INT_MAX) {
        Py_RETURN_NONE; /* the registration's error to tell, and none for what is closed while it is registered */
    }
    int fd = (int)given;
    const struct tdl_watch *w = tdl__watch_get(loop, fd);
    PyObject *transport = w != NULL ? Py_XNewRef(w->transport) : NULL;
    int others = tdl__has_transports(loop);
    if (others < 0) {
        Py_XDECREF(transport);
        return NULL;
    }
    if (transport == NULL && others > 0) {
        PyObject *transports = Py_NewRef(loop->transports);
        transport = PyObject_CallMethod(transports, "get", "i", fd);
        Py_DECREF(transports);
        if (transport == NULL) {
            return NULL;
        }
    }
    if (transport == NULL || transport == Py_None) {
        Py_XDECREF(transport);
        Py_RETURN_NONE;
    }
    PyObject *closing = PyObject_CallMethodNoArgs(transport, loop->state->str_is_closing);
    int is_closing = closing != NULL ? PyObject_IsTrue(closing) : -1;
    Py_XDECREF(closing);
    PyObject *result = NULL;
    if (is_closing > 0) {
        result = Py_NewRef(Py_None);
    } else if (is_closing == 0) {
        result = used_by_transport(fileobj, transport);
    }
    Py_DECREF(transport);
    return result;
}

PyMethodDef tdl__poller_methods[] = {
    {"_add_reader", (PyCFunction)(void (*)(void))loop_add_reader, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_add_writer", (PyCFunction)(void (*)(void))loop_add_writer, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_remove_reader", loop_remove_reader, METH_O, NULL},
    {"_remove_writer", loop_remove_writer, METH_O, NULL},
    {"_watched", loop_watched, METH_O, NULL},
    {"_ensure_fd_no_transport", loop_ensure_fd_no_transport, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
