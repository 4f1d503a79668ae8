/* What the poller does around each poll: interest changes before it, and behind it the queueing of what is
 * ready. */
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

/* Fire what is to be found readable, in order, before the kernel is asked for what is new. True if there is
 * any. */
bool tdl__poller_again(struct tdl_poller *p)
{
    while (tdl_node_is_linked(&p->again)) {
        struct tdl_watch *w = TDL_CONTAINER_OF(p->again.next, struct tdl_watch, again);
        tdl_node_remove(&w->again);
        if (w->armed_edge && w->armed != 0 && (w->want & UV_READABLE) != 0) {
            tdl__watch_fire(w, UV_READABLE);
        }
    }
    return p->fired != NULL;
}

static void uv_forget(struct tdl_watch *w)
{
    w->poller->uv_dirty = true;
    tdl__uvpriv_close(&w->poll, tdl__watch_on_closed);
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
        tdl__watch_leave(w);
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

/* The kernel refused, and nobody waits for its answer: both sides are found ready, and their owners look at
 * the error or try their calls, and the kernel is asked again before the next poll. What is gone is never
 * ready, as with any epoll. */
static void refused(struct tdl_watch *w, int code)
{
    if (!tdl__watch_is_gone(w->fd, code)) {
        w->error = -code;
        tdl__watch_fire(w, UV_READABLE | UV_WRITABLE);
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
        int code = w->want != w->armed ? tdl__watch_arm(w) : 0;
        if (code < 0) {
            refused(w, code);
        }
    }
}

/* A recv ends at the mark of TCP's urgent data, whatever lies behind it, and so it does for what else is
 * reported in this way: a short read proves nothing any more. Urgent data is reported before a recv can be
 * cut short by it, or at the same poll as the bytes around it. */
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
                tdl__watch_changed(w);
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
            tdl__watch_leave(w);
            tdl__watch_changed(w);
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
