"""All private names of asyncio and concurrent.futures that treadle's Python uses; C's are in
ground/asyncio.h.

Each is looked for once, when treadle is imported, and where a Python has it no more something public does the
same, with less: ``_private`` says what. TREADLE_TEST_DISTRUST in the environment names some that are not
looked for, for a test. The attributes of asyncio's own objects that its inherited code works on (a server's,
a transport's) are not here: whoever derives from a class has them, and tests/conformance holds each version.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from asyncio import (
    base_events,
    constants,
    coroutines,
    events,
    format_helpers,
    futures,
    sslproto,
    tasks,
    unix_events,
)
from concurrent.futures import thread as _thread
from typing import Any

_distrusted = os.environ.get("TREADLE_TEST_DISTRUST", "").split(",")
trusted: dict[str, bool] = {}  # by name: whether it is there, or by check: whether it holds


def _private(module: Any, name: str, otherwise: Any) -> Any:
    found = None if name in _distrusted else getattr(module, name, None)
    trusted[name] = found is not None
    return otherwise if found is None else found


# Exported by asyncio for event loops: all versions have them, and no loop can do without.
running_loop = asyncio._get_running_loop


def set_running_loop(loop: Any) -> None:
    """Tell asyncio which loop runs in this thread, by the function that it has now: somebody may replace it."""
    events._set_running_loop(loop)


def _interleave_anyhow(addrinfos: list[Any], first_address_family_count: int = 1) -> list[Any]:
    families: dict[int, list[Any]] = {}
    for info in addrinfos:
        families.setdefault(info[0], []).append(info)
    queues = list(families.values())
    head = queues[0][: first_address_family_count - 1]
    del queues[0][: first_address_family_count - 1]
    return head + [info for row in itertools.zip_longest(*queues) for info in row if info is not None]


def _refuse_ssl_socket(sock: Any) -> None:
    ssl = sys.modules.get("ssl")  # no socket is one of ssl's before it is imported
    if ssl is not None and isinstance(sock, ssl.SSLSocket):
        raise TypeError("Socket cannot be of type SSLSocket")


def _set_result(future: Any, result: Any) -> None:
    if not future.cancelled():
        future.set_result(result)


def _source(callback: Any, args: Any, **_: Any) -> str:
    return f"{callback!r}({', '.join(map(repr, args))})"


def _nothing(*_: Any) -> None:
    pass


# base_events: 3.11 to 3.15
interleave_addrinfos = _private(base_events, "_interleave_addrinfos", _interleave_anyhow)
check_ssl_socket = _private(base_events, "_check_ssl_socket", _refuse_ssl_socket)
format_handle = _private(base_events, "_format_handle", repr)
# Else asyncio's own fallback is used.
SendfileFallback = _private(base_events, "_SendfileFallbackProtocol", None)
# futures: 3.11 to 3.15
set_result_unless_cancelled = _private(futures, "_set_result_unless_cancelled", _set_result)
convert_future_exc = _private(futures, "_convert_future_exc", lambda exc: exc)
# constants, format_helpers, coroutines, unix_events: 3.11 to 3.15; _iscoroutinefunction is new in 3.14
# Else by asyncio's fallback.
SENDFILE_MODE = getattr(_private(constants, "_SendfileMode", None), "TRY_NATIVE", None)
format_callback_source = _private(format_helpers, "_format_callback_source", _source)
iscoroutinefunction = getattr(coroutines, "_iscoroutinefunction", coroutines.iscoroutinefunction)
signal_handler = getattr(unix_events, "_sighandler_noop", None)  # asyncio's, which is no user's
# tasks: 3.11 to 3.15. Without them a task in a nested turn sees the outer one as the current.
enter_task = _private(tasks, "_enter_task", _nothing)
leave_task = _private(tasks, "_leave_task", _nothing)
# From Python 3.14 on tasks of asyncio's Python class are kept by themselves.
python_tasks: dict[Any, Any] = getattr(tasks, "_current_tasks", {})
# unix_events: 3.11 to 3.15; else subprocesses are asyncio's own
UnixSubprocessTransport = _private(unix_events, "_UnixSubprocessTransport", None)


def give_child_watcher(loop: Any) -> None:
    """Give a loop what asyncio's own code for subprocesses takes children's ends from: up to Python 3.13 it
    asks the policy, from 3.14 on the loop has it from its set-up."""
    pidfd = getattr(unix_events, "_PidfdChildWatcher", None)
    if sys.version_info >= (3, 14) and not hasattr(loop, "_watcher") and pidfd is not None:
        loop._watcher = pidfd()


# concurrent.futures.thread: 3.11 to 3.15; else run_in_executor() is asyncio's
pool_lock = _private(_thread, "_global_shutdown_lock", None)


def pools_are_known() -> bool:
    """Tell whether a job may be put into a pool's queue as submit() does."""
    return pool_lock is not None and hasattr(_thread, "_shutdown")


def pools_are_over() -> bool:
    """Tell whether the interpreter ends, and with it every pool."""
    return bool(_thread._shutdown)


def is_asyncios_pool(executor: Any) -> bool:
    """Tell whether a loop has made the pool for itself."""
    return (
        executor.__class__ is _thread.ThreadPoolExecutor
        and getattr(executor, "_thread_name_prefix", "") == "asyncio"
    )


# sslproto: what SSLProtocol keeps its state in and C has members for, 3.11 to 3.15
_TLS_MEMBERS = (
    "_state",
    "_sslobj",
    "_incoming",
    "_outgoing",
    "_transport",
    "_app_protocol",
    "_write_backlog",
    "_write_buffer_size",
    "_app_protocol_is_buffer",
    "_app_reading_paused",
    "_app_writing_paused",
    "_ssl_reading_paused",
    "_ssl_writing_paused",
)
_TLS_METHODS = (
    "_control_app_writing",
    "_control_ssl_reading",
    "_call_eof_received",
    "_start_shutdown",
    "_do_read",
    "_do_write",
    "_do_flush",
    "_do_handshake",
    "_do_shutdown",
    "_process_outgoing",
    "_write_appdata",
    "_set_state",
    "_fatal_error",
    "_get_app_transport",
    "_set_write_buffer_limits",
    "_set_read_buffer_limits",
    "_on_handshake_complete",
)
_TLS_STATES = ("DO_HANDSHAKE", "WRAPPED", "FLUSHING", "SHUTDOWN", "UNWRAPPED")


def _tls_is_known() -> bool:
    protocol: Any = sslproto.SSLProtocol
    methods = vars(protocol)
    used = {
        name
        for method in methods.values()
        if hasattr(method, "__code__")
        for name in method.__code__.co_names
    }
    return (
        used.issuperset(_TLS_MEMBERS)
        and all(callable(methods.get(name)) for name in _TLS_METHODS)
        and all(hasattr(sslproto.SSLProtocolState, name) for name in _TLS_STATES)
        and isinstance(getattr(sslproto, "SSLAgainErrors", None), tuple)
    )


SSLTransport: Any = getattr(sslproto, "_SSLProtocolTransport", object)
# Else TLS is asyncio's own, over treadle's transports.
trusted["sslproto"] = "sslproto" not in _distrusted and SSLTransport is not object and _tls_is_known()
