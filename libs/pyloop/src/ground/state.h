/* What the module owns: its types, what it has imported and the names that hot paths look up; and what is
 * done with types. Thread: the GIL guards it. */
#ifndef TDL_PYLOOP_STATE_H
#define TDL_PYLOOP_STATE_H

#include "ground/asyncio.h"
#include "ground/compat.h"
#include "ground/standard.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

typedef struct tdl_loop TdlLoop;
typedef struct tdl_handle TdlHandle;
typedef struct tdl_timer_handle TdlTimerHandle;
struct tdl_dns_state;
struct tdl_streams;
struct tdl_part;

/* Every name that a hot path looks up, interned once per module. */
#define TDL_NAMES(XX)                                                                                        \
    TDL_ASYNCIO_NAMES(XX)                                                                                    \
    XX(Future)                                                                                               \
    XX(Task)                                                                                                 \
    XX(_accept_failed_connection)                                                                            \
    XX(_callback_failed)                                                                                     \
    XX(_create_task_slow)                                                                                    \
    XX(_log_conn_lost)                                                                                       \
    XX(_run_debug)                                                                                           \
    XX(_signal_bytes)                                                                                        \
    XX(_source_stack)                                                                                        \
    XX(_wrap_transport_socket)                                                                               \
    XX(_run)                                                                                                 \
    XX(_take_scheduled)                                                                                      \
    XX(add_reader)                                                                                           \
    XX(add_writer)                                                                                           \
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
    PyObject *loop_kwname;   /* ("loop",) */
    PyObject *task_kwnames;  /* ("loop", "name", "context") */
    bool registry_known;     /* and it was what it is known as */
    bool flow_control;       /* asyncio's base of transports is: our types derive from it */
    bool registry_seen;      /* by tdl__registry_quicken */
#define TDL_NAME_FIELD(name) PyObject *str_##name;
    TDL_NAMES(TDL_NAME_FIELD)
#undef TDL_NAME_FIELD
    struct tdl_standard standard;
    struct tdl_streams *streams;         /* of streams/ */
    struct tdl_dns_state *dns;           /* of dns/ */
    const struct tdl_part *const *parts; /* what the folders above loop/ do for each loop; the last is NULL */
    uv_poll_t poll_model; /* as libuv's own set-up leaves a handle that polls nothing; type is 0 if it is not
                             understood */
    TdlHandle *handle_free; /* handles kept for reuse, linked by their loop field; each still owns its type */
    unsigned handle_free_count;
    TdlTimerHandle *timer_free;
    unsigned timer_free_count;
    TdlHandle *ending; /* handles that end when the outermost end is over, linked by their weakrefs field */
    unsigned ending_depth;
};

/* Of module.c, and the only name of it that a folder uses: CPython finds a module by this. */
extern struct PyModuleDef tdl__module_def;
struct tdl_module_state *tdl__state_of_type(PyTypeObject *type);
struct tdl_module_state *tdl__state_of_module(PyObject *module);
int tdl__state_init(PyObject *module);
int tdl__state_traverse(struct tdl_module_state *st, visitproc visit, void *arg);
void tdl__state_clear(struct tdl_module_state *st);
PyTypeObject *tdl__add_type(PyObject *module, PyType_Spec *spec, PyObject *bases);
int tdl__add_methods(PyTypeObject *type, PyMethodDef *table);
PyObject *tdl__import_from(const char *module_name, const char *name);
PyObject *tdl__only_argument(const char *method, const char *name, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames);

#endif
