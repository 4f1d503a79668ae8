/* The loop, the C part of treadle.Loop, and what any file that serves it needs.
 * Thread: everything here is guarded by the GIL. */
#ifndef TDL_PYLOOP_LOOP_H
#define TDL_PYLOOP_LOOP_H

#include "ground/state.h"
#include "loop/overrides.h"
#include "loop/pace.h"
#include "loop/part.h"
#include "poll/poller.h"

#include <errno.h>

#include "treadle/assert.h"
#include "treadle/hold.h"
#include "treadle/inbox.h"
#include "treadle/sched.h"
#include "treadle/turn.h"

/* The C part of treadle.Loop. */
struct tdl_loop {
    PyObject_HEAD PyObject *weakrefs;
    struct tdl_module_state *state;
    struct tdl_loop_standard standard;
    struct tdl_sched sched;
    struct tdl_host host;
    struct tdl_inbox inbox;
    struct tdl_poller poller;
    struct tdl_dns *dns; /* of dns/ */
    struct tdl_pace pace;
    struct tdl_hold hold;        /* what stream transports wrote in this step and have not sent */
    struct tdl_item hold_item;   /* sends it at the generation's end */
    struct tdl_item enough_item; /* at the step's end: it is enough, or the step was late */
    uint32_t held_count;         /* transports that began to hold since it was sent */
    uint32_t held_max;           /* of them, how many may */
    struct files_context *files; /* file contexts with operations to submit before the poll */
    PyObject *debug_info;        /* {handle address: [source traceback, repr]} in debug mode */
    struct tdl_queue answered;   /* items that the next poll finds ready without asking the kernel */
    PyObject *clock_error;       /* what a replaced loop.time() raised in this turn */
    PyObject *thread_id;         /* int while running, else None */
    unsigned long run_thread;    /* identity of the thread that runs the turns */
    PyObject *task_factory;      /* None for asyncio.Task */
    PyObject *snapshot;          /* the last copy of a context made for a handle; never entered */
    PyObject
        *spare_context;   /* of a callback that has run and that nobody kept; saves the next one its copy */
    PyObject *transports; /* {descriptor: transport} of the transports that are Python, by weak reference */
    PyObject *tls_records, *tls_plain; /* memory for TLS, made when first needed; holds no references */
    char *read_buffer; /* shared by all stream transports of this loop: they read one at a time */
    int wakeup_theirs; /* CPython's wakeup descriptor while the loop has put it aside; -1 for none */
    bool others;       /* since the last poll: another thread may want the GIL */
    bool staged;       /* a part has something to do before the poll */
    bool hurried;      /* the next poll may not sleep: the two above say why */
    bool turning;      /* in _run, whatever the overridable is_running says */
    bool signals;      /* _run is in the thread that handles signals */
    bool wakeup_taken; /* the wakeup descriptor is the loop's until its sleep is over */
    bool gather_all;   /* for tests: every transport holds its small writes */
    bool closing;      /* close runs destructors, which may ask for it again */
    bool quiescent;    /* a turn works off what it schedules before the next poll */
    bool closed;
    bool debug;
    uint64_t spin_ns; /* how long the loop watches for callbacks of other threads before it sleeps */
    uint64_t turns;
    uint64_t polls;
    uint64_t skips;
};

#define TDL_LOOP(op) ((TdlLoop *)(op))

/* Whether nothing is replaced that hot paths go around: asked before each short cut. */
static inline bool tdl__loop_is_plain(const TdlLoop *loop)
{
    return tdl__type_tag(Py_TYPE(loop)) == loop->standard.plain_tag;
}

/* Whether asyncio's classes have their own methods, each of them. */
static inline bool tdl__loop_is_unpatched(const TdlLoop *loop)
{
    return tdl__type_tag(Py_TYPE(loop)) == loop->standard.seen_tag && loop->standard.patched == NULL;
}

/* Whether the loop has treadle's own methods before them, each of them. */
static inline bool tdl__loop_is_whole(const TdlLoop *loop)
{
    return tdl__type_tag(Py_TYPE(loop)) == loop->standard.seen_tag && loop->standard.overridden == NULL;
}

/* Whether handles run by asyncio's own _run(). */
static inline bool tdl__handles_are_plain(const TdlLoop *loop)
{
    return tdl__type_tag((const PyTypeObject *)loop->state->asyncio_timer_handle) ==
           loop->standard.handle_tag;
}

/* The loop's shared read buffer, asyncio's max_size. */
enum { TDL_READ_BUFFER_SIZE = 256 * 1024 };

/* Around a stream's system call, as asyncio's sockets do: a thread that waits for the GIL needs longer to
 * wake up than an empty poll takes, and gets it while the kernel carries data. errno is kept. */
static inline PyThreadState *tdl__gil_give(const TdlLoop *loop)
{
    return loop->others ? PyEval_SaveThread() : NULL;
}

static inline void tdl__gil_take(PyThreadState *given)
{
    if (given != NULL) {
        int error = errno;
        PyEval_RestoreThread(given);
        errno = error;
    }
}

/* Make an idle item that is embedded in a Python object, at this place of it: the collector finds the object
 * by that. */
static inline void tdl__item_init(struct tdl_item *item, void (*run)(struct tdl_item *), size_t place)
{
    tdl_item_init(item, run);
    item->link.user = (uint16_t)place;
}

/* The object that an item is embedded in; NULL if it is none of Python's. The last two bits are the object's
 * own. */
static inline PyObject *tdl__item_owner(struct tdl_item *item)
{
    size_t place = item->link.user & ~3U;
    return place != 0 ? (PyObject *)(void *)((char *)item - place) : NULL;
}

static inline void tdl__loop_wake(TdlLoop *loop)
{
    tdl__poller_wake(&loop->poller);
}

/* loop.c */
int tdl__loop_type(PyObject *module);
char *tdl__read_buffer(TdlLoop *loop);
void tdl__callback_failed(TdlLoop *loop, TdlHandle *h);
bool tdl__is_exit_exception(void);
int tdl__check_closed(TdlLoop *loop);
PyObject *tdl__future_new(TdlLoop *loop);

/* run.c: one turn after another */
PyObject *tdl__loop_run(TdlLoop *loop, bool main_thread);
bool tdl__loop_in_turn(const TdlLoop *loop);
PyObject *tdl__loop_run_nested(PyObject *self, PyObject *ignored);
PyObject *tdl__loop_run_once(PyObject *self, PyObject *ignored);

/* host.c */
#define TDL_CLOCK_BIAS ((uint64_t)1 << 62) /* so that deadlines before the clock's zero keep their order */
void tdl__host_init(TdlLoop *loop);
uint64_t tdl__clock_ns(void);

/* loop.c and tasks.c share */
PyObject *tdl__loop_create_future(PyObject *self, PyObject *Py_UNUSED(ignored));
PyObject *tdl__loop_create_task(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* loop.c and shape.c share */
PyObject *tdl__loop_gate_off(PyObject *self, PyObject *Py_UNUSED(ignored));
PyObject *tdl__loop_native_info(PyObject *self, PyObject *Py_UNUSED(ignored));
PyObject *tdl__loop_set_spin(PyObject *self, PyObject *value);
PyObject *tdl__loop_shape_holds(PyObject *self, PyObject *args);
PyObject *tdl__loop_shape_turns(PyObject *self, PyObject *quiescent);

#endif
