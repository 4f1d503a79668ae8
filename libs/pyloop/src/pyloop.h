/* The objects that the files of pyloop share: module state, loop, handles, watches.
 * Thread: everything here is guarded by the GIL, but for the fields marked "poll", which the loop's thread
 * alone touches while it runs libuv without the GIL. */
#ifndef TDL_PYLOOP_PYLOOP_H
#define TDL_PYLOOP_PYLOOP_H

#include "ground/compat.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "treadle/assert.h"
#include "treadle/hold.h"
#include "treadle/inbox.h"
#include "treadle/list.h"
#include "treadle/sched.h"
#include "treadle/timer.h"
#include "treadle/turn.h"
#include "treadle/wake.h"

#include "ground/audit.h"
#include "dns/dns.h"
#include "ground/fileno.h"
#include "ground/standard.h"
#include "poll/poller.h"
#include "streams/streams.h"

typedef struct tdl_loop TdlLoop;
typedef struct tdl_handle TdlHandle;
typedef struct tdl_timer_handle TdlTimerHandle;

/* Every name that a hot path looks up, interned once per module. */
#define TDL_NAMES(XX)                                                                                        \
    XX(Future)                                                                                               \
    XX(Task)                                                                                                 \
    XX(_accept_failed_connection)                                                                            \
    XX(_attach)                                                                                              \
    XX(_callback_failed)                                                                                     \
    XX(_check_callback)                                                                                      \
    XX(_check_thread)                                                                                        \
    XX(_create_task_slow)                                                                                    \
    XX(_detach)                                                                                              \
    XX(_log_conn_lost)                                                                                       \
    XX(_run_debug)                                                                                           \
    XX(_signal_bytes)                                                                                        \
    XX(_source_stack)                                                                                        \
    XX(_wrap_transport_socket)                                                                               \
    XX(_run)                                                                                                 \
    XX(_run_once)                                                                                            \
    XX(_take_scheduled)                                                                                      \
    XX(add_reader)                                                                                           \
    XX(add_writer)                                                                                           \
    XX(_adjust_thread_count)                                                                                 \
    XX(_broken)                                                                                              \
    XX(_initializer)                                                                                         \
    XX(_work_queue)                                                                                          \
    XX(submit)                                                                                               \
    XX(buffer_updated)                                                                                       \
    XX(call_at)                                                                                              \
    XX(call_exception_handler)                                                                               \
    XX(call_later)                                                                                           \
    XX(call_soon)                                                                                            \
    XX(call_soon_threadsafe)                                                                                 \
    XX(close)                                                                                                \
    XX(connection_lost)                                                                                      \
    XX(connection_made)                                                                                      \
    XX(create_future)                                                                                        \
    XX(create_task)                                                                                          \
    XX(context)                                                                                              \
    XX(data_received)                                                                                        \
    XX(datagram_received)                                                                                    \
    XX(done)                                                                                                 \
    XX(eof_received)                                                                                         \
    XX(error_received)                                                                                       \
    XX(fileno)                                                                                               \
    XX(get_debug)                                                                                            \
    XX(get_extra_info)                                                                                       \
    XX(get_buffer)                                                                                           \
    XX(getpeername)                                                                                          \
    XX(getsockname)                                                                                          \
    XX(is_closed)                                                                                            \
    XX(is_running)                                                                                           \
    XX(is_closing)                                                                                           \
    XX(loop)                                                                                                 \
    XX(name)                                                                                                 \
    XX(pause_writing)                                                                                        \
    XX(pending)                                                                                              \
    XX(peername)                                                                                             \
    XX(read)                                                                                                 \
    XX(remove_reader)                                                                                        \
    XX(remove_writer)                                                                                        \
    XX(run_in_executor)                                                                                      \
    XX(resume_writing)                                                                                       \
    XX(set_exception)                                                                                        \
    XX(set_result)                                                                                           \
    XX(socket)                                                                                               \
    XX(sock_recv)                                                                                            \
    XX(sock_recv_into)                                                                                       \
    XX(sock_sendall)                                                                                         \
    XX(stop)                                                                                                 \
    XX(time)                                                                                                 \
    XX(sockname)                                                                                             \
    XX(writelines)                                                                                           \
    XX(write)

/* What the module owns; found from any of its types. */
struct tdl_module_state {
    PyTypeObject *loop_type;
    PyTypeObject *handle_type;
    PyTypeObject *timer_handle_type;
    PyTypeObject *stream_type;
    PyTypeObject *acceptor_type;
    PyTypeObject *sockwait_type;
    PyTypeObject *job_type;
    PyTypeObject *udp_type;
    PyTypeObject *tls_type;
    PyTypeObject *span_type;
    PyObject *tls_wrapped, *tls_flushing; /* members of asyncio's SSLProtocolState */
    PyObject *tls_again;                  /* the exceptions that mean: more records first */
    PyObject *asyncio_handle;
    PyObject *asyncio_timer_handle;
    PyObject *asyncio_threadsafe_handle; /* NULL before Python 3.14 */
    PyObject *asyncio_transport;
    PyObject *buffered_protocol;
    PyObject
        *futures_dict; /* of asyncio.futures and asyncio.tasks: their classes may be replaced at any time */
    PyObject *tasks_dict;
    PyObject *events_dict;
    PyObject *support; /* the module treadle._support: what runs once per failure or per connection */
    PyObject *socket_type;
    PyObject *set_wakeup_fd; /* the built-in function of the signal module, for Pythons without one in C */
    PyObject *loop_kwname;  /* ("loop",) */
    PyObject *task_kwnames; /* ("loop", "name", "context") */
    bool registry_seen;     /* by tdl__registry_quicken */
    bool snapshots;         /* callbacks scheduled from one context may share one copy of it until they run */
#define TDL_NAME_FIELD(name) PyObject *str_##name;
    TDL_NAMES(TDL_NAME_FIELD)
#undef TDL_NAME_FIELD
    struct tdl_standard standard;
    struct tdl_dns_state dns;
    struct tdl_streams streams;
    uv_poll_t
        poll_model; /* as libuv's own set-up leaves a handle that polls nothing; type is 0 if it is not understood */
    TdlHandle *handle_free; /* handles kept for reuse, linked by their loop field; each still owns its type */
    unsigned handle_free_count;
    TdlTimerHandle *timer_free;
    unsigned timer_free_count;
    TdlHandle *ending; /* handles that end when the outermost end is over, linked by their weakrefs field */
    unsigned ending_depth;
};

/* How a handle keeps its arguments, in link.user. */
enum tdl_args_kind {
    TDL_ARGS_NONE,  /* no argument */
    TDL_ARGS_ONE,   /* arg is the only argument */
    TDL_ARGS_TUPLE, /* arg is a tuple of two or more */
};

/* Bits of a handle's link.flags. */
enum {
    TDL_HANDLE_CANCELLED = 1,
    TDL_HANDLE_TIMER = 2,
    TDL_HANDLE_DEBUG = 4,     /* the loop's debug table has an entry for this handle */
    TDL_HANDLE_SCHEDULED = 8, /* a timer handle that has not fired */
    TDL_HANDLE_THREADSAFE =
        32, /* of call_soon_threadsafe: from Python 3.14 on, cancel waits for a callback that runs */
    TDL_HANDLE_RUNNING = 64,
    TDL_HANDLE_WRAPS = 128, /* runs a handle of asyncio's own make, which has a _run() of its own */
    TDL_HANDLE_SHARED = 16, /* its context is a snapshot that others hold too: run in a copy */
};

#define TDL_HANDLE_FIELDS                                                                                    \
    PyObject_HEAD PyObject *callback;                                                                        \
    PyObject *arg;                                                                                           \
    PyObject *context;                                                                                       \
    TdlLoop *loop;                                                                                           \
    PyObject *weakrefs;

/* A callback waiting for its turn. The queue that it stands in owns one reference.
 * While its loop runs, a handle that only the queue holds is not tracked by the garbage collector: the running loop is
 * alive, and so is what it will call. It is tracked once it has run and somebody else holds it, or when the loop stops. */
struct tdl_handle {
    TDL_HANDLE_FIELDS
    struct tdl_item item;
};

/* A callback waiting for its time. The heap, then the queue, own one reference. */
struct tdl_timer_handle {
    TDL_HANDLE_FIELDS
    struct tdl_timer timer;
    double when;
    PyObject *given; /* the time as it was given, if that is no float; else NULL */
};

/* How far producers on other threads may run ahead of the loop (pace.c). */
struct tdl_pace {
    int32_t posts;    /* call_soon_threadsafe() since the last poll, less what was granted to a loop that stands */
    int32_t limit;    /* so many, then a producer waits for the next poll */
    int32_t grant;    /* the last that was */
    uint32_t waiting; /* producers that do */
    uint32_t polls;   /* ends of their waits; written with the GIL and the lock */
    uint64_t stood;   /* where the loop was then */
    uint32_t measured; /* posts of the generation that is timed, or 0 */
    size_t generation; /* its items */
    uint64_t begin_ns;
    pthread_mutex_t lock;
    pthread_cond_t polled;
};

/* The C part of treadle.Loop. */
struct tdl_loop {
    PyObject_HEAD PyObject *weakrefs;
    struct tdl_module_state *state;
    struct tdl_loop_standard standard;
    struct tdl_sched sched;
    struct tdl_host host;
    struct tdl_inbox inbox;
    struct tdl_poller poller;
    struct tdl_dns dns;
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
    int wakeup_theirs;     /* CPython's wakeup descriptor while the loop has put it aside; -1 for none */
    bool others;      /* since the last poll: another thread may want the GIL */
    bool hurried;     /* the next poll may not sleep: the two above say why */
    bool turning;     /* in _run, whatever the overridable is_running says */
    bool signals;     /* _run is in the thread that handles signals */
    bool wakeup_taken; /* the wakeup descriptor is the loop's until its sleep is over */
    bool gather_all;  /* for tests: every transport holds its small writes */
    bool closing;     /* close runs destructors, which may ask for it again */
    bool quiescent;   /* a turn works off what it schedules before the next poll */
    bool closed;
    bool debug;
    uint64_t spin_ns; /* how long the loop watches for callbacks of other threads before it sleeps */
    uint64_t turns;
    uint64_t polls;
    uint64_t skips;
};

/* state.c */
struct tdl_module_state *tdl__state_of_type(PyTypeObject *type);
struct tdl_module_state *tdl__state_of_module(PyObject *module);
int tdl__state_init(PyObject *module);
int tdl__state_traverse(PyObject *module, visitproc visit, void *arg);
int tdl__state_clear(PyObject *module);
PyTypeObject *tdl__add_type(PyObject *module, PyType_Spec *spec, PyObject *bases);
PyObject *tdl__import_from(const char *module_name, const char *name);
PyObject *tdl__only_argument(const char *method, const char *name, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
int tdl__add_methods(PyTypeObject *type, PyMethodDef *table);
extern struct PyModuleDef tdl__module_def;

/* registry.c: before the first loop, asyncio's registry of tasks gets an add() in C; one that it does not know is left alone. */
void tdl__registry_quicken(struct tdl_module_state *st);

/* files.c */
int tdl_files_exec(PyObject *module);
void tdl__files_before_poll(TdlLoop *loop);

/* handle.c */
int tdl__handle_types(PyObject *module);
TdlHandle *tdl__handle_new(TdlLoop *loop, PyObject *callback, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *context);
TdlTimerHandle *tdl__timer_handle_new(TdlLoop *loop, double when, PyObject *callback, PyObject *const *args,
                                      Py_ssize_t nargs, PyObject *context);
void tdl__handle_track(TdlHandle *h);
int tdl__handle_remember(TdlHandle *h);
bool tdl__handle_cancel(TdlHandle *h);
bool tdl__handle_cancelled(const TdlHandle *h);
void tdl__handle_run(struct tdl_item *item);
void tdl__handle_clear_free(struct tdl_module_state *state);
TdlHandle *tdl__handle_of(struct tdl_item *item);

/* snapshot.c */
void tdl__snapshot_probe(struct tdl_module_state *state);
PyObject *tdl__snapshot_take(TdlLoop *loop, bool *shared);
PyObject *tdl__snapshot_private(TdlLoop *loop, PyObject *shared);
void tdl__snapshot_give_back(TdlLoop *loop, TdlHandle *h);
void tdl__snapshot_forget(TdlLoop *loop);
void tdl__context_leave(TdlLoop *loop, PyObject *context);

/* soon.c */
extern PyMethodDef tdl__soon_methods[];
int tdl__call_soon(TdlLoop *loop, PyObject *callback, PyObject *arg, PyObject *context);
PyObject *tdl__given_context(TdlLoop *loop, PyObject *const *values, PyObject *kwnames);
uint64_t tdl__when_to_ns(double when);

/* pace.c: the GIL guards what has no lock of its own */
void tdl__pace_open(struct tdl_pace *p);
void tdl__pace_close(struct tdl_pace *p);
void tdl__pace_producer(TdlLoop *loop);
void tdl__pace_polled(TdlLoop *loop);
void tdl__pace_ran(TdlLoop *loop);

/* run.c: one turn after another */
PyObject *tdl__loop_run(TdlLoop *loop, bool main_thread);
bool tdl__loop_in_turn(const TdlLoop *loop);
PyObject *tdl__loop_run_nested(PyObject *self, PyObject *ignored);
PyObject *tdl__loop_run_once(PyObject *self, PyObject *ignored);

/* signals.c: the wakeup descriptor is taken before a turn that may sleep (-1 if a signal's handler raised), held when the sleep
 * begins, and given back before anything else runs */
int tdl__signals_before_turn(TdlLoop *loop, bool idle);
void tdl__signals_hold(TdlLoop *loop);
void tdl__signals_give(TdlLoop *loop);

/* host.c */
#define TDL_CLOCK_BIAS ((uint64_t)1 << 62) /* so that deadlines before the clock's zero keep their order */
void tdl__host_init(TdlLoop *loop);
uint64_t tdl__clock_ns(void);
void tdl__loop_wake(TdlLoop *loop);

/* readers.c */
extern PyMethodDef tdl__reader_methods[];
void tdl__watch_retire(struct tdl_watch *w, int event);
int tdl__has_transports(TdlLoop *loop);

/* loop.c */
int tdl__loop_type(PyObject *module);
char *tdl__read_buffer(TdlLoop *loop);
void tdl__callback_failed(TdlLoop *loop, TdlHandle *h);
bool tdl__is_exit_exception(void);
int tdl__check_closed(TdlLoop *loop);
PyObject *tdl__future_new(TdlLoop *loop);
PyObject *tdl__item_owner(struct tdl_item *item);

/* Slots of asyncio's _FlowControlMixin, the base of both kinds of transports. Nothing is kept in them: properties of the
 * same names lie over them, so that its inherited methods work on the fields that C uses. */
enum { TDL_MIXIN_SLOTS = 4 };

/* transport.c and server.c: stream transports */
int tdl__stream_type(PyObject *module);
int tdl__acceptor_type(PyObject *module);
PyObject *tdl__stream_item_owner(struct tdl_item *item);
void tdl__streams_send_held(TdlLoop *loop);
void tdl__streams_generation_ended(struct tdl_item *item);
void tdl__streams_enough_held(struct tdl_item *item);
int tdl__parse_write_limits(TdlLoop *loop, PyObject *args, PyObject *kwargs, size_t *high_water,
                            size_t *low_water);
int tdl__parse_water(PyObject *value, size_t *water);
int tdl__parse_flag(PyObject *value, bool *flag);
PyObject *tdl__acceptor_owner(struct tdl_item *item);
extern PyMethodDef tdl__transport_loop_methods[];
extern PyMethodDef tdl__server_loop_methods[];

/* udp.c: datagram transports */
int tdl__udp_type(PyObject *module);
PyObject *tdl__udp_item_owner(struct tdl_item *item);
extern PyMethodDef tdl__udp_loop_methods[];

/* sockops.c */
int tdl__sockwait_type(PyObject *module);
PyObject *tdl__sockwait_owner(struct tdl_item *item);
extern PyMethodDef tdl__sockops_loop_methods[];

/* executor.c */
int tdl__job_type(PyObject *module);
bool tdl__pools_in_place(TdlLoop *loop);
PyObject *tdl__job_owner(struct tdl_item *item);
extern PyMethodDef tdl__executor_loop_methods[];

/* Whether nothing is replaced that hot paths go around: asked before each short cut. */
static inline bool tdl__loop_is_plain(const TdlLoop *loop)
{
    return Py_TYPE(loop)->tp_version_tag == loop->standard.plain_tag;
}

/* Whether asyncio's classes have their own methods, each of them. */
static inline bool tdl__loop_is_unpatched(const TdlLoop *loop)
{
    return Py_TYPE(loop)->tp_version_tag == loop->standard.seen_tag && loop->standard.patched == NULL;
}

/* Whether the loop has treadle's own methods before them, each of them. */
static inline bool tdl__loop_is_whole(const TdlLoop *loop)
{
    return Py_TYPE(loop)->tp_version_tag == loop->standard.seen_tag && loop->standard.overridden == NULL;
}

/* Whether handles run by asyncio's own _run(). */
static inline bool tdl__handles_are_plain(const TdlLoop *loop)
{
    return ((const PyTypeObject *)loop->state->asyncio_timer_handle)->tp_version_tag == loop->standard.handle_tag;
}

/* The loop's shared read buffer, asyncio's max_size. */
enum { TDL_READ_BUFFER_SIZE = 256 * 1024 };

/* Around a stream's system call, as asyncio's sockets do: a thread that waits for the GIL needs longer to wake up than an
 * empty poll takes, and gets it while the kernel carries data. errno is kept. */
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

#define TDL_LOOP(op) ((TdlLoop *)(op))
#define TDL_HANDLE(op) ((TdlHandle *)(op))

#endif
