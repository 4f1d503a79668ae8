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

void tdl__watch_on_closed(uv_handle_t *handle)
{
    tdl_free(TDL_CONTAINER_OF(handle, struct tdl_watch, poll));
}

void tdl__watch_fire(struct tdl_watch *w, int events)
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
    tdl__watch_fire(w, events);
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

/* What epoll says to a descriptor, asked without libuv: 0, or -EBADF, or -EPERM for a file that cannot be
 * polled. */
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

void tdl__watch_changed(struct tdl_watch *w)
{
    struct tdl_poller *p = w->poller;
    if (!w->dirty) {
        w->dirty = true;
        w->next_dirty = p->dirty;
        p->dirty = w;
    }
    tdl__poller_wake(p);
}

/* Whether each event needs to be told only once. A writer's is told as long as it waits, and so is a
 * callback's. */
static bool by_edge(const struct tdl_watch *w)
{
    return w->edge && !w->level && tdl__uvpriv_known(&w->poller->uv->uv) && w->want == UV_READABLE &&
           w->reader.cancelled == NULL;
}

void tdl__watch_leave(struct tdl_watch *w)
{
    tdl__uvpriv_stop(&w->poll);
    w->entered = false;
    w->armed = 0;
}

/* Ask the kernel for what is wanted: 0, or a code, and nothing is asked for. */
int tdl__watch_arm(struct tdl_watch *w)
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
        tdl__watch_leave(w);
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

/* Nobody has this side any more. Returns the object that the last side leaves behind, for the caller to let
 * go. */
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

/* Whether it is refused since the number was closed behind our back, or means by now what cannot be
 * polled. */
bool tdl__watch_is_gone(int fd, int code)
{
    struct stat st;
    return (code == -EBADF || code == -EPERM) &&
           (fstat(fd, &st) < 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
}

/* What stands in epoll already is changed before the next poll, when changes that undo each other are none;
 * but who gives a callback is told at once if it cannot be. */
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
            tdl__watch_changed(w);
        } else if ((code = tdl__watch_arm(w)) < 0 && known && tdl__watch_is_gone(w->fd, code)) {
            code = 0; /* it was registered, and stays so until it is taken away */
        } else if (code < 0) {
            PyObject *fileobj = forget_side(w, event);
            if (w->want != 0) {
                tdl__watch_changed(w); /* the other side is asked for anew */
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
    tdl__watch_changed(w);
    Py_XDECREF(fileobj);
    Py_DECREF(old);
    return true;
}

/* Nobody waits for this event now, but somebody soon will: the kernel stays armed until an event comes for
 * nobody. */
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
    tdl__watch_changed(w);
    /* The descriptor may be closed as soon as this returns, so the kernel must forget it now. The loop's
     * thread is in no uv_run while we hold the GIL, unless another thread asks: then apply does it. */
    if (w->entered && uv_is_ours(p)) {
        tdl__watch_leave(w);
    }
    p->lingering |= w->entered;
    Py_CLEAR(w->sock_ref);
    Py_XDECREF(reader);
    Py_XDECREF(writer);
    Py_XDECREF(fileobj);
}

/* The edge has been reported: queue the record at the next poll too, unless the descriptor is drained until
 * then, or registered anew, which reports it again. */
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
