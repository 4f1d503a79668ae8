/* A loop's poller: the descriptors that libuv polls for it, its wake, and the readiness filter before the
 * poll. Thread: the GIL guards everything here, but for the fields marked "poll", which the loop's thread
 * alone touches while it runs libuv without the GIL. */
#ifndef TDL_PYLOOP_POLLER_H
#define TDL_PYLOOP_POLLER_H

#include "ground/compat.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "treadle/filter.h"
#include "treadle/list.h"
#include "treadle/sched.h"
#include "treadle/wake.h"

struct tdl_module_state;
struct tdl_poller;

/* Where an I/O event goes: the item that a readable or writable descriptor queues, and the object that holds
 * it. */
struct tdl_watch_side {
    struct tdl_item *item;
    PyObject *owner; /* a reference while registered; visited by the loop */
    /* Of an item that is a callback of the program's: whether it was cancelled, and is let go. NULL for
     * treadle's own items. */
    bool (*cancelled)(const struct tdl_item *item);
};

/* The record of a descriptor that libuv polls. It outlives its Python owners until libuv's close callback. */
struct tdl_watch {
    uv_poll_t poll;
    struct tdl_poller *poller;
    int fd;
    int error;       /* why the kernel refused to poll it, until the owner was told */
    uint8_t want;    /* UV_READABLE and UV_WRITABLE bits that have a side */
    uint8_t armed;   /* poll: what libuv has been asked for */
    uint8_t revents; /* poll: what libuv reported since the last dispatch */
    bool ready; /* libuv knows the handle; one made while the loop slept is registered before the next poll */
    bool entered; /* the descriptor is registered with epoll */
    bool dirty;   /* stands in the poller's dirty list */
    bool fired;   /* poll: stands in the poller's fired list */
    bool closing;
    bool edge;       /* the reader says when it has drained the descriptor, so edge-triggered will do */
    bool level;      /* level-triggered from now on: a short read does not prove that it was drained */
    bool armed_edge; /* poll: registered edge-triggered */
    bool ended;      /* the peer has shut down, which makes no further edge */
    bool news;       /* poll: reported as ready, and not read since */
    struct tdl_watch *next_dirty;
    struct tdl_watch *next_fired;
    struct tdl_node again; /* in the poller's ring while it may not be drained, though no edge will come */
    struct tdl_watch_side reader, writer;
    PyObject *fileobj; /* what add_reader or add_writer was given first: it lives, and is found when closed */
    PyObject
        *sock_ref; /* weak: the socket object of sock_recv and the like, by which a reused number is told */
    PyObject
        *transport; /* borrowed: the transport that owns this descriptor, while nobody else may watch it */
    struct tdl_watch **holder; /* that transport's pointer to this watch, cleared on release */
};

/* libuv's part: allocated apart, since libuv keeps pointers into it until every handle is closed. */
struct tdl_uv {
    uv_loop_t uv;
    uv_poll_t
        *wake_poll; /* each in a block of its own: a forked child opens a new one while the old closes */
    uv_poll_t *signal_poll;
    uv_poll_t *guard_poll;
    uv_timer_t timer;
    bool timer_active;
};

/* What the loop does in a forked child, before and after the poller has got descriptors of its own. */
struct tdl_fork_hooks {
    void (*before)(struct tdl_poller *p);
    void (*after)(struct tdl_poller *p);
};

struct tdl_poller {
    struct tdl_uv *uv;
    const uv_poll_t *model; /* the module's */
    const struct tdl_fork_hooks *fork_hooks;
    struct tdl_wake wake;
    struct tdl_filter filter;
    struct tdl_watch **watches; /* by descriptor */
    int watches_len;
    int spare_count;
    struct tdl_watch *spare; /* let go, with handles that libuv still knows */
    struct tdl_watch *dirty; /* watches whose interest changed since the last poll */
    struct tdl_node again;   /* watches to find readable at the next poll, whatever the kernel says */
    struct tdl_watch *fired; /* poll: watches with revents */
    struct tdl_watch **fired_tail;
    uint32_t fork_seen;
    int fork_error; /* why libuv could not be given an epoll of its own in this child */
    int signal_rfd, signal_wfd;
    int guard_fd;     /* a timer's, that ends a sleep without the wakeup descriptor; -1 if there are none */
    bool lingering;   /* a dirty watch was let go and still stands in epoll */
    bool uv_busy;     /* poll: the last uv_run handled something, so poll again */
    bool uv_dirty;    /* libuv has interest changes or closing handles of ours to work on */
    bool slept;       /* the last turn slept in libuv */
    bool signal_seen; /* poll: the signal descriptor was readable */
    bool parked;      /* the loop's thread sleeps in libuv, or is about to */
    bool in_uv;       /* the loop's thread runs libuv without the GIL: nobody else may call libuv */
    bool guard_armed;
    bool guard_due; /* the next sleep may be long: it takes the wakeup descriptor */
};

/* Whether CPython's wakeup descriptor is swapped by a function of C; else guard_fd is needed
 * (loop/signals.c). */
enum { TDL_WAKEUP_IS_CHEAP = PY_VERSION_HEX >= 0x030D0000 };

/* End the sleep of the loop's thread. */
static inline void tdl__poller_wake(struct tdl_poller *p)
{
    if (p->parked) {
        tdl_wake_notify(&p->wake); /* MO-1: the GIL orders the push and the park */
    }
}

/* uvhandle.c: opening, closing and forking libuv's part */
int tdl__uv_setup(uv_poll_t *model);
void tdl__poller_init(struct tdl_poller *p, const uv_poll_t *model, const struct tdl_fork_hooks *hooks);
int tdl__uv_open(struct tdl_poller *p);
void tdl__uv_close(struct tdl_poller *p);
int tdl__uv_check_fork(struct tdl_poller *p);
bool tdl__uv_forked(const struct tdl_poller *p);
void tdl__raise_uv(int code);

/* watch.c: each descriptor, found by its number */
struct tdl_watch *tdl__watch_get(const struct tdl_poller *p, int fd);
struct tdl_watch *tdl__watch_open(struct tdl_poller *p, int fd, bool sure);
struct tdl_watch *tdl__watch_fresh(struct tdl_poller *p, int fd, bool sure);
struct tdl_watch *tdl__watch_of_socket(struct tdl_poller *p, int fd, PyObject *sock);
int tdl__watch_set(struct tdl_watch *w, int event, struct tdl_item *item, PyObject *owner);
int tdl__watch_set_side(struct tdl_watch *w, int event, struct tdl_watch_side side);
bool tdl__watch_failed(struct tdl_watch *w);
bool tdl__watch_unset(struct tdl_watch *w, int event);
void tdl__watch_rest(struct tdl_watch *w, int event);
void tdl__watch_release(struct tdl_watch *w);
void tdl__watch_again(struct tdl_watch *w);
void tdl__watch_drained(struct tdl_watch *w);
bool tdl__poller_again(struct tdl_poller *p);
void tdl__poller_apply(struct tdl_poller *p);
void tdl__poller_dispatch(struct tdl_poller *p, struct tdl_queue *io);
void tdl__poller_after_fork(struct tdl_poller *p);
void tdl__poller_close(struct tdl_poller *p);
int tdl__poller_traverse(struct tdl_poller *p, visitproc visit, void *arg);

/* watch.c and dispatch.c share */
bool tdl__watch_is_gone(int fd, int code);
int tdl__watch_arm(struct tdl_watch *w);
void tdl__watch_changed(struct tdl_watch *w);
void tdl__watch_fire(struct tdl_watch *w, int events);
void tdl__watch_leave(struct tdl_watch *w);
void tdl__watch_on_closed(uv_handle_t *handle);

static inline struct tdl_watch_side *tdl__watch_side(struct tdl_watch *w, int event)
{
    return event == UV_READABLE ? &w->reader : &w->writer;
}

#endif
