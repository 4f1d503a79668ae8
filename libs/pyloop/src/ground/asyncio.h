/* All private names of asyncio, and of what asyncio stands on (socket, weakref, concurrent.futures), that C
 * uses; Python's are in treadle/_asyncio.py. tools/tidy.py finds one of them that stands elsewhere. "At
 * import" is a check made once, whose outcome is in _treadle._trusted(), and which TREADLE_TEST_DISTRUST
 * makes fail for a test; the others are made where the name is used.
 *
 * Names                       versions      check                                      where it fails
 * _FlowControlMixin           all           flow_control, at import: the size of its   asyncio's own
 * transports are used, and its instances is that of our first fields      own accepting of connections
 * _SelectorSocketTransport    all           found at import                            the same
 * members of SSLProtocol      all           sslproto, when TLS is first used: its      asyncio's own TLS is
 * used, over our transports functions use each name _ThreadSafeHandle           3.14 on       found at import
 * handles show none _all_tasks, _scheduled_     before 3.14   task_registry, at the first loop: a        the
 * registry keeps its add() in Python tasks and WeakSet's parts                WeakSet with parts of these
 * types ThreadPoolExecutor's        all           each is asked for before a job is put run_in_executor() is
 * asyncio's into a pool past submit() _intenum_converter          all           a function of socket's
 * lookups are asyncio's attributes of streams        all           each is looked for at each use asyncio's
 * own method goes on task_wakeup                 all           asked of each callback tasks are told by the
 * operation, not a future methods of BaseEventLoop    all           inherited: the loop is one AttributeError
 * where asyncio's own code had it and Server Thread: with the GIL. */
#ifndef TDL_PYLOOP_ASYNCIO_H
#define TDL_PYLOOP_ASYNCIO_H

#include "ground/compat.h"

#include <stdbool.h>

#define TDL_FLOW_CONTROL "_FlowControlMixin"
#define TDL_SOCKET_TRANSPORT "_SelectorSocketTransport"
#define TDL_THREADSAFE_HANDLE "_ThreadSafeHandle"
#define TDL_TASK_WAKEUP "task_wakeup"
#define TDL_TASK_REGISTRY (PY_VERSION_HEX < 0x030c0000 ? "_all_tasks" : "_scheduled_tasks")
#define TDL_WEAKSET_DATA "data"
#define TDL_WEAKSET_PENDING "_pending_removals"
#define TDL_WEAKSET_ITERATING "_iterating"
#define TDL_WEAKSET_COMMIT "_commit_removals"
#define TDL_POOL_ADJUST "_adjust_thread_count"
#define TDL_POOL_CONTEXT "_create_worker_context"
#define TDL_INT_ENUM_CONVERTER "_intenum_converter"

/* SSLProtocol keeps its state under these, and ours has members in C for them. */
#define TDL_TLS_STATE "_state"
#define TDL_TLS_OBJECT "_sslobj"
#define TDL_TLS_INCOMING "_incoming"
#define TDL_TLS_OUTGOING "_outgoing"
#define TDL_TLS_TRANSPORT "_transport"
#define TDL_TLS_APP_PROTOCOL "_app_protocol"
#define TDL_TLS_BACKLOG "_write_backlog"
#define TDL_TLS_WRITE_SIZE "_write_buffer_size"
#define TDL_TLS_APP_IS_BUFFER "_app_protocol_is_buffer"
#define TDL_TLS_APP_READING_PAUSED "_app_reading_paused"
#define TDL_TLS_APP_WRITING_PAUSED "_app_writing_paused"
#define TDL_TLS_SSL_READING_PAUSED "_ssl_reading_paused"
#define TDL_TLS_SSL_WRITING_PAUSED "_ssl_writing_paused"
/* Its methods that C calls or stands in for, and what its transport calls it. */
#define TDL_TLS_CONTROL_APP_WRITING "_control_app_writing"
#define TDL_TLS_CONTROL_SSL_READING "_control_ssl_reading"
#define TDL_TLS_CALL_EOF "_call_eof_received"
#define TDL_TLS_START_SHUTDOWN "_start_shutdown"
#define TDL_TLS_DO_READ "_do_read"
#define TDL_TLS_DO_WRITE "_do_write"
#define TDL_TLS_PROCESS_OUTGOING "_process_outgoing"
#define TDL_TLS_WRITE_APPDATA "_write_appdata"
#define TDL_TLS_OF_TRANSPORT "_ssl_protocol"

/* Those that hot paths look up; interned with the others (state.h). */
#define TDL_ASYNCIO_NAMES(XX)                                                                                \
    XX(_attach)                                                                                              \
    XX(_check_callback)                                                                                      \
    XX(_check_thread)                                                                                        \
    XX(_detach)                                                                                              \
    XX(_run_once)                                                                                            \
    XX(_adjust_thread_count)                                                                                 \
    XX(_broken)                                                                                              \
    XX(_initializer)                                                                                         \
    XX(_work_queue)

/* Where StreamReader, StreamWriter and StreamReaderProtocol keep what they know, and what they call of each
 * other. */
#define TDL_ASYNCIO_STREAMS(XX)                                                                              \
    XX(_buffer)                                                                                              \
    XX(_client_connected_cb)                                                                                 \
    XX(_connection_lost)                                                                                     \
    XX(_drain_helper)                                                                                        \
    XX(_drain_waiters)                                                                                       \
    XX(_eof)                                                                                                 \
    XX(_exception)                                                                                           \
    XX(_limit)                                                                                               \
    XX(_loop)                                                                                                \
    XX(_paused)                                                                                              \
    XX(_protocol)                                                                                            \
    XX(_reader)                                                                                              \
    XX(_stream_reader_wr)                                                                                    \
    XX(_stream_writer)                                                                                       \
    XX(_transport)                                                                                           \
    XX(_waiter)

#endif
