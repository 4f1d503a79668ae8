"""treadle.Loop: the C loop under CPython's own set-up code.

What runs per callback or per packet is C, in LoopBase. What runs once per connection or per loop is asyncio's
own Python, inherited, so that arguments, errors and texts are those of the running Python.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import os
import socket
import sys
import threading
import types
import weakref
from asyncio import base_events, constants, events, trsock
from asyncio.log import logger
from concurrent import futures as _pools
from typing import Any

from . import _treadle
from ._asyncio import (
    format_handle,
    is_asyncios_pool,
    pool_lock,
    pools_are_known,
    pools_are_over,
    set_running_loop,
    trusted,
)
from ._connections import Connections, Refused
from ._lookups import Lookups
from ._options import option_flag, option_number
from ._processes import Processes
from ._signals import Signals
from ._sockets import Sockets
from ._support import outside_of_tasks, run_handle

_UnixLoop: Any = asyncio.SelectorEventLoop
_Socket = socket.socket
trusted.update(_treadle._trusted())
_OWN_TRANSPORTS, _OWN_TLS, _POOLS_ARE_KNOWN = trusted["flow_control"], trusted["sslproto"], pools_are_known()


@types.coroutine
def _sending(transport: Any, operation: Any) -> Any:
    """Await a sock_sendfile, and let the end of the connection end what it waits for."""
    step, value = operation.send, None
    while True:
        try:
            future = step(value)
        except StopIteration as done:
            return done.value
        transport._sendfile_waits_for(future)
        try:
            step, value = operation.send, (yield future)
        except BaseException as exc:
            step, value = operation.throw, exc


def _given(context: Any) -> dict[str, Any]:
    """The context of a connection for asyncio's own methods, which take one from Python 3.15 on."""
    return {} if sys.version_info < (3, 15) else {"context": context}


_forks = 0  # that led to this process, since the first loop's


def _after_fork() -> None:
    global _forks
    _forks += 1


class _Watched:
    """The part of a selector that asyncio's Python transports look at for their repr."""

    def __init__(self, loop: Any) -> None:
        self._loop = weakref.proxy(loop)
        self._ref = weakref.ref(loop)

    def get_key(self, fd: int) -> Any:
        events_mask = self._loop._watched(fd)
        if not events_mask:
            raise KeyError(fd)
        return _Key(events_mask)

    def get_map(self) -> Any:
        return self

    def select(self, timeout: float | None = None) -> list[Any]:
        """Run a turn, for a _run_once() that was written for asyncio's queues, as nest_asyncio's: treadle
        leaves nothing in them.

        It may be called inside of a task, which is no task's inside while others run.
        """
        loop: Any = self._ref()
        with outside_of_tasks(loop):
            loop._run_nested()
        return []

    def close(self) -> None:
        """Do nothing: the loop's poller ends with the loop."""

    def get(self, fd: int) -> Any:
        events_mask = self._loop._watched(fd)
        return _Key(events_mask) if events_mask else None


class _Key:
    __slots__ = ("events",)

    def __init__(self, events_mask: int) -> None:
        self.events = events_mask


class _Ready(collections.deque[Any]):
    """What asyncio's own scheduling finds as its queue, where somebody wrapped it or its handles: always
    empty.

    A handle that is put here runs in its turn among the loop's own.
    """

    __slots__ = ("_loop",)

    def __init__(self, loop: Any) -> None:
        super().__init__()
        self._loop = weakref.proxy(loop)

    def append(self, handle: Any) -> None:
        """Queue an asyncio.Handle."""
        self._loop._push_handle(run_handle, handle)


class _WakeupEnd:
    """The descriptor that signals write to, as asyncio's own add_signal_handler() asks for it."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop

    def fileno(self) -> int:
        return int(self._loop._signal_fds()[1])


class Loop(_treadle.LoopBase, Processes, Lookups, Signals, Sockets, Connections, _UnixLoop):  # type: ignore[misc]
    """An asyncio event loop in C on libuv.

    io_uring: False uses no io_uring: the loop polls the kernel on every turn, and treadle.fileio's default
    context runs on threads; True skips polls when a completion ring tells that nothing happened.
    spin_us: how long the loop watches for callbacks of other threads before it sleeps, 0 to 1,000,000
    microseconds.
    lookup_slots: how many lookups may be in libc at once, 1 to 1,000. None takes TREADLE_IO_URING (0 or 1),
    TREADLE_SPIN_US or TREADLE_LOOKUP_SLOTS from the environment, and without it True, 0 and the smaller of 32
    and the processors plus 4. Raises TypeError or ValueError for anything else.
    """

    # Whatever asyncio's set-up leaves on a loop, so that its dict stays empty: from Python 3.12 on the
    # interpreter looks methods up by itself, and not by name at each call, only where there is none.
    __slots__ = (
        "_asyncgens",
        "_asyncgens_shutdown_called",
        "_children",
        "_clock_resolution",
        "_coroutine_origin_tracking_enabled",
        "_coroutine_origin_tracking_saved_depth",
        "_current_handle",
        "_default_executor",
        "_exception_handler",
        "_executor_forks",
        "_executor_shutdown_called",
        "_file_context",
        "_foreign_wakeup",
        "_internal_fds",
        "_lent",
        "_old_agen_hooks",
        "_ready",
        "_scheduled",
        "_selector",
        "_signal_arrival",
        "_signal_handlers",
        "_timer_cancelled_count",
        "_unix_server_sockets",
        "_uses_uring",
        "slow_callback_duration",
    )

    def __init__(
        self, *, io_uring: bool | None = None, spin_us: int | None = None, lookup_slots: int | None = None
    ) -> None:
        base_events.BaseEventLoop.__init__(self)
        self._transports: Any = weakref.WeakValueDictionary()
        self._signal_handlers: dict[int, Any] = {}
        self._unix_server_sockets: dict[Any, Any] = {}
        self._selector: _Watched | None = _Watched(self)
        self._ready = _Ready(self)
        self._scheduled: list[Any] = []
        self._children = {}
        self._foreign_wakeup = None
        self._lent: Any = weakref.WeakSet()  # sockets that the program gave to transports
        self._signal_arrival = None
        self._executor_forks = _forks
        self._file_context: _treadle.FileContext | None = None  # of treadle.fileio, which makes it
        self._uses_uring = True
        try:
            self._take_options(io_uring, spin_us, lookup_slots)
        except BaseException:
            self.close()
            raise

    def _take_options(self, io_uring: bool | None, spin_us: int | None, lookup_slots: int | None) -> None:
        self._uses_uring = option_flag("io_uring", io_uring, True)
        if not self._uses_uring:
            self._gate_off()
        if spin := option_number("spin_us", spin_us, 0, 1_000_000, 0):
            self._set_spin(spin)
        if slots := option_number("lookup_slots", lookup_slots, 1, 1000, 0):
            self._set_lookup_slots(slots)

    def info(self) -> dict[str, Any]:
        """Return what is in force on this loop: the gate's state, turns, polls and skipped polls so far, and
        its options."""
        native = self._native_info()
        found = {name: native[name] for name in ("gate", "turns", "polls", "skipped", "spin_us")}
        return {**found, "lookup_slots": self._lookup_info()["slots"]}

    # Running

    def run_forever(self) -> None:
        """Run until stop() is called."""
        replaced = self._patched("run_forever")
        if replaced is not None:
            return self._run_replaced(replaced)
        self._check_closed()
        self._check_running()
        self._set_coroutine_origin_tracking(self._debug)
        old_agen_hooks = sys.get_asyncgen_hooks()
        try:
            self._thread_id: int | None = threading.get_ident()
            sys.set_asyncgen_hooks(
                firstiter=self._asyncgen_firstiter_hook, finalizer=self._asyncgen_finalizer_hook
            )
            set_running_loop(self)
            self._run(threading.current_thread() is threading.main_thread())
        finally:
            self._stopping = False
            self._thread_id = None
            set_running_loop(None)
            self._set_coroutine_origin_tracking(False)
            sys.set_asyncgen_hooks(*old_agen_hooks)

    def _run_replaced(self, run_forever: Any) -> None:
        """Run as somebody who wrapped asyncio's run_forever() wants it: asyncio's own calls _run_once() turn
        after turn."""
        self._handle_signals(threading.current_thread() is threading.main_thread())
        run_forever()

    def close(self) -> None:
        """Close the loop: queued callbacks are dropped, the executor is told to end; idempotent."""
        if self.is_running():
            raise RuntimeError("Cannot close a running event loop")
        if self.is_closed():
            return
        if self._debug:
            logger.debug("Close %r", self)
        self._forget_signals()
        files, self._file_context = self._file_context, None
        if files is not None:
            files.close()
        replaced = self._patched("close")
        if replaced is not None:
            replaced()  # asyncio's own, behind it, sets _closed
        self._close_native()
        self._forget_children()
        self._selector = None
        self._executor_shutdown_called = True
        self._forget_inherited_executor()
        executor = self._default_executor
        if executor is not None:
            self._default_executor = None
            executor.shutdown(wait=False)

    def _close_self_pipe(self) -> None:
        """What asyncio's own close() calls: there is no pipe."""

    @property
    def _csock(self) -> Any:
        return _WakeupEnd(self)

    def _take_scheduled(self) -> None:
        """Arm the timers that asyncio's own call_at() made."""
        timers, self._scheduled = self._scheduled, []
        for timer in timers:
            self._push_timer(timer._when, run_handle, timer)

    def _create_task_slow(self, coro: Any, **kwargs: Any) -> Any:
        return base_events.BaseEventLoop.create_task(self, coro, **kwargs)

    def _run_debug(self, handle: Any) -> None:
        # As BaseEventLoop._run_once does in debug mode.
        if handle._callback is run_handle:
            (handle,) = handle._args
            if handle._cancelled:
                return
        try:
            self._current_handle = handle
            t0 = self.time()
            handle._run()
            dt = self.time() - t0
            if dt >= self.slow_callback_duration:
                text = format_handle(handle)
                base_events.logger.warning("Executing %s took %.3f seconds", text, dt)  # type: ignore[attr-defined]
        finally:
            self._current_handle = None
            # A traceback may keep this frame; it must not keep the handle.
            handle = None

    def _add_callback(self, handle: Any) -> None:
        if not handle._cancelled:
            self._push_handle(run_handle, handle)

    def _add_callback_signalsafe(self, handle: Any) -> None:
        self._add_callback(handle)
        self._write_to_self()

    # Executor

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """Call func(*args) in a thread of the executor, None for the default one; return an asyncio future.

        Raises RuntimeError on a closed loop or an executor that was shut down; what func raises is the
        future's.
        """
        pool = executor
        if executor is None and not self._executor_shutdown_called:
            self._forget_inherited_executor()
            pool = self._default_executor
            if pool is None and self._patched("run_in_executor") is None:
                pool = self._default_executor = _pools.ThreadPoolExecutor(thread_name_prefix="asyncio")
        if not _POOLS_ARE_KNOWN or not self._pool_is_standard(pool):
            return self._run_by_asyncio(executor, func, args)
        executor = pool
        future = self.create_future()
        job = self._make_job(future, func, args)
        with executor._shutdown_lock, pool_lock:
            if executor._shutdown:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if pools_are_over():
                raise RuntimeError("cannot schedule new futures after interpreter shutdown")
            executor._work_queue.put(job)
            executor._adjust_thread_count()
        return future

    def _run_by_asyncio(self, executor: Any, func: Any, args: Any) -> Any:
        replaced = self._patched("run_in_executor")
        if replaced is not None:
            return replaced(executor, func, *args)
        return _UnixLoop.run_in_executor(self, executor, func, *args)

    def _forget_inherited_executor(self) -> None:
        """In the child of a fork: the threads of asyncio's pool are the parent's, and a lock of it may be
        held for ever."""
        if self._executor_forks == _forks:
            return
        self._executor_forks = _forks
        executor = self._default_executor
        if is_asyncios_pool(executor):
            self._default_executor = None

    # Transports

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **kwargs: Any
    ) -> Any:
        """Connect to host and port; return (transport, protocol). Arguments and errors are asyncio's."""
        fd = None
        if (
            type(host) is str
            and type(port) is int
            and type(self) is Loop
            and not self._debug
            and _say_nothing(kwargs)
        ):
            if _OWN_TRANSPORTS and self._sockets_in_place() and not self._overridden(_OF_CONNECT):
                connect = self._connect_numeric(host, port)
                if connect is None:
                    fd = await self._connect_named(host, port)
                elif connect is not False:
                    fd = await connect
        if fd is None:
            self._lend(kwargs.get("sock"))
            replaced = self._patched("create_connection")
            if replaced is not None:
                return await replaced(protocol_factory, host, port, **kwargs)
            return await super().create_connection(protocol_factory, host, port, **kwargs)
        context = contextvars.copy_context()
        try:
            protocol = protocol_factory()
        except BaseException:
            os.close(fd)
            raise
        waiter = self.create_future()
        transport = self._make_stream_fd(fd, protocol, waiter, context)
        try:
            await waiter
        except BaseException:
            transport.close()
            raise
        return transport, protocol

    create_connection.__wrapped__ = _UnixLoop.create_connection  # type: ignore[attr-defined]

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **kwargs: Any) -> Any:
        """Connect to a path; return (transport, protocol). Arguments and errors are asyncio's."""
        self._lend(kwargs.get("sock"))
        replaced = self._patched("create_unix_connection")
        if replaced is not None:
            return await replaced(protocol_factory, path, **kwargs)
        return await super().create_unix_connection(protocol_factory, path, **kwargs)

    create_unix_connection.__wrapped__ = _UnixLoop.create_unix_connection  # type: ignore[attr-defined]

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **kwargs: Any) -> Any:
        """Make a transport for a connection accepted elsewhere; return (transport, protocol). Arguments and
        errors are asyncio's."""
        self._lend(sock)
        replaced = self._patched("connect_accepted_socket")
        if replaced is not None:
            return await replaced(protocol_factory, sock, **kwargs)
        return await super().connect_accepted_socket(protocol_factory, sock, **kwargs)

    connect_accepted_socket.__wrapped__ = _UnixLoop.connect_accepted_socket  # type: ignore[attr-defined]

    def _lend(self, sock: Any) -> None:
        """Note that the program has this socket too, so that its transport sends at once whatever it
        writes."""
        if isinstance(sock, _Socket):
            self._lent.add(sock)

    async def create_datagram_endpoint(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        """Make a datagram transport; return (transport, protocol). Arguments and errors are asyncio's."""
        replaced = self._patched("create_datagram_endpoint")
        if replaced is not None:
            return await replaced(protocol_factory, *args, **kwargs)
        return await self._create_endpoint(protocol_factory, *args, **kwargs)

    create_datagram_endpoint.__wrapped__ = _UnixLoop.create_datagram_endpoint  # type: ignore[attr-defined]

    async def create_server(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        """Listen on a host and port, or on several hosts; return the server. Arguments and errors are
        asyncio's."""
        replaced = self._patched("create_server")
        if replaced is not None:
            return await replaced(protocol_factory, *args, **kwargs)
        return await self._serve(_UnixLoop.create_server, protocol_factory, *args, **kwargs)

    create_server.__wrapped__ = _UnixLoop.create_server  # type: ignore[attr-defined]

    async def create_unix_server(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        """Listen on a path; return the server. Arguments and errors are asyncio's."""
        replaced = self._patched("create_unix_server")
        if replaced is not None:
            return await replaced(protocol_factory, *args, **kwargs)
        return await self._serve(_UnixLoop.create_unix_server, protocol_factory, *args, **kwargs)

    create_unix_server.__wrapped__ = _UnixLoop.create_unix_server  # type: ignore[attr-defined]

    def _make_socket_transport(
        self,
        sock: Any,
        protocol: Any,
        waiter: Any = None,
        *,
        extra: Any = None,
        server: Any = None,
        context: Any = None,
    ) -> Any:
        if not self._transports_are_plain(sock):
            return _UnixLoop._make_socket_transport(
                self, sock, protocol, waiter, extra=extra, server=server, **_given(context)
            )
        self._ensure_fd_no_transport(sock)
        transport = self._make_stream(sock, protocol, waiter, extra, server, context)
        if sock in self._lent:
            transport._lend()
        return transport

    def _transports_are_plain(self, sock: Any) -> bool:
        """Whether C may go around the methods of a socket, and around the loop's that asyncio's transports
        call."""
        return _OWN_TRANSPORTS and self._socket_is_plain(sock) and not self._overridden(_OF_TRANSPORTS)

    def _make_datagram_transport(
        self, sock: Any, protocol: Any, address: Any = None, waiter: Any = None, extra: Any = None
    ) -> Any:
        if type(protocol) is Refused:
            sock.close()
            raise protocol.exc
        if not self._transports_are_plain(sock):
            return _UnixLoop._make_datagram_transport(self, sock, protocol, address, waiter, extra)
        self._ensure_fd_no_transport(sock)
        info = dict(extra or {})
        info["socket"] = trsock.TransportSocket(sock)
        try:
            info["sockname"] = sock.getsockname()
        except OSError:
            info["sockname"] = None
        if "peername" not in info:
            try:
                info["peername"] = sock.getpeername()
            except OSError:
                info["peername"] = None
        return self._make_datagram(sock, protocol, address, waiter, info)

    def _make_ssl_transport(
        self,
        rawsock: Any,
        protocol: Any,
        sslcontext: Any,
        waiter: Any = None,
        *,
        server_side: bool = False,
        server_hostname: Any = None,
        extra: Any = None,
        server: Any = None,
        ssl_handshake_timeout: Any = constants.SSL_HANDSHAKE_TIMEOUT,
        ssl_shutdown_timeout: Any = constants.SSL_SHUTDOWN_TIMEOUT,
        context: Any = None,
    ) -> Any:
        if not _OWN_TLS:
            return _UnixLoop._make_ssl_transport(
                self,
                rawsock,
                protocol,
                sslcontext,
                waiter,
                server_side=server_side,
                server_hostname=server_hostname,
                extra=extra,
                server=server,
                ssl_handshake_timeout=ssl_handshake_timeout,
                ssl_shutdown_timeout=ssl_shutdown_timeout,
                **_given(context),
            )
        from ._tls import TLSProtocol

        self._ensure_fd_no_transport(rawsock)
        ssl_protocol: Any = TLSProtocol(
            self,
            protocol,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )
        self._make_socket_transport(rawsock, ssl_protocol, extra=extra, server=server, context=context)
        return ssl_protocol._app_transport

    async def start_tls(self, transport: Any, protocol: Any, sslcontext: Any, **kwargs: Any) -> Any:
        """Shake hands over an open transport; return the transport that protocol is to use from now on.

        The timeouts are in seconds, None for asyncio's own. Raises TypeError for what is no SSLContext or no
        transport for it, and what the handshake raises: ssl.SSLError, ConnectionError.
        """
        replaced = self._patched("start_tls")
        if replaced is not None:
            return await replaced(transport, protocol, sslcontext, **kwargs)
        if not _OWN_TLS:
            return await _UnixLoop.start_tls(self, transport, protocol, sslcontext, **kwargs)
        return await self._shake_hands(transport, protocol, sslcontext, **kwargs)

    start_tls.__wrapped__ = _UnixLoop.start_tls  # type: ignore[attr-defined]

    async def _shake_hands(
        self,
        transport: Any,
        protocol: Any,
        sslcontext: Any,
        *,
        server_side: bool = False,
        server_hostname: Any = None,
        ssl_handshake_timeout: Any = None,
        ssl_shutdown_timeout: Any = None,
    ) -> Any:
        import ssl

        from ._tls import TLSProtocol, move_reader, take_buffered

        if not isinstance(sslcontext, ssl.SSLContext):
            raise TypeError(f"sslcontext is expected to be an instance of ssl.SSLContext, got {sslcontext!r}")
        if not getattr(transport, "_start_tls_compatible", False):
            raise TypeError(f"transport {transport!r} is not supported by start_tls()")
        waiter: Any = self.create_future()
        ssl_protocol: Any = TLSProtocol(
            self,
            protocol,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
            call_connection_made=False,
        )
        transport.pause_reading()  # nothing may come before connection_made()
        if server_side:
            take_buffered(protocol, ssl_protocol)
        transport.set_protocol(ssl_protocol)
        made = self.call_soon(ssl_protocol.connection_made, transport)
        resume = self.call_soon(transport.resume_reading)
        try:
            await waiter
        except BaseException:
            transport.close()
            made.cancel()
            resume.cancel()
            waiter = None  # its exception would keep the protocol alive
            raise
        move_reader(protocol, transport, ssl_protocol._app_transport)
        return ssl_protocol._app_transport

    # Servers

    def _accepts_by_itself(self, sock: Any) -> bool:
        return (
            _OWN_TRANSPORTS
            and self._sockets_in_place()
            and self._socket_is_plain(sock)
            and not self._overridden(_OF_ACCEPTING)
        )

    def _start_serving(
        self,
        protocol_factory: Any,
        sock: Any,
        sslcontext: Any = None,
        server: Any = None,
        backlog: int = 100,
        *timeouts: Any,
        context: Any = None,
    ) -> None:
        if not self._accepts_by_itself(sock) or not (sslcontext is None or _OWN_TLS):
            _UnixLoop._start_serving(
                self, protocol_factory, sock, sslcontext, server, backlog, *timeouts, **_given(context)
            )
            return
        if sslcontext is not None:
            from ._tls import Acceptor

            protocol_factory = Acceptor(self, protocol_factory, sslcontext, *timeouts)
        self._start_accepting(sock, protocol_factory, server, backlog, context)

    def _accept_failed(
        self, exc: OSError, pause: bool, sock: Any, protocol_factory: Any, server: Any, backlog: int
    ) -> None:
        if not pause:
            self.call_exception_handler(
                {
                    "message": f"Exception in callback _accept_connection({sock!r})",
                    "exception": exc,
                    "socket": trsock.TransportSocket(sock),
                }
            )
            return
        self.call_exception_handler(
            {
                "message": "socket.accept() out of system resource",
                "exception": exc,
                "socket": trsock.TransportSocket(sock),
            }
        )
        if sock.fileno() != -1 and not self.is_closed():  # the exception handler may have closed either
            self._remove_reader(sock.fileno())
            self.call_later(
                constants.ACCEPT_RETRY_DELAY, self._resume_serving, protocol_factory, sock, server, backlog
            )

    def _resume_serving(self, protocol_factory: Any, sock: Any, server: Any, backlog: int) -> None:
        if sock.fileno() != -1 and (server is None or server.is_serving()):
            try:
                self._start_serving(protocol_factory, sock, None, server, backlog)
            except OSError as exc:  # the kernel has no room for one more descriptor to poll: try again later
                self._accept_failed(exc, True, sock, protocol_factory, server, backlog)

    def _accept_failed_connection(self, exc: BaseException, protocol: Any, transport: Any = None) -> None:
        if self._debug or transport is None:  # a handshake that failed is the peer's business
            context = {"message": "Error on transport creation for incoming connection", "exception": exc}
            if protocol is not None:
                context["protocol"] = protocol
            if transport is not None:
                context["transport"] = transport
            self.call_exception_handler(context)

    # Sendfile

    async def _sendfile_native(self, transp: Any, file: Any, offset: int, count: int | None) -> int:
        if not isinstance(transp, _treadle.TCPTransport):
            return int(await super()._sendfile_native(transp, file, offset, count))
        resume_reading = transp.is_reading()
        transp.pause_reading()
        empty = transp._make_empty_waiter()
        try:
            await empty
            if transp.is_closing():
                raise ConnectionError("Connection is closed by peer")
            return int(
                await _sending(transp, self.sock_sendfile(transp._sock, file, offset, count, fallback=False))
            )
        finally:
            transp._reset_empty_waiter()
            if resume_reading:
                transp.resume_reading()


os.register_at_fork(after_in_child=_after_fork)

# Private methods of asyncio's loop that a short cut goes around, beside those that it stands in front of.
_GONE_AROUND = (
    "_accept_connection",
    "_accept_connection2",
    "_connect_sock",
    "_create_connection_transport",
    "_ensure_resolved",
    "add_reader",
    "add_writer",
    "remove_reader",
    "remove_writer",
    "sock_accept",
    "sock_connect",
)
_OF_CONNECT = (
    "create_connection",
    "sock_connect",
    "_connect_sock",
    "_create_connection_transport",
    "_ensure_resolved",
    "_make_socket_transport",
    "create_future",
    "call_soon",
    "remove_writer",
)
_NONE_SAYS_NOTHING = frozenset(
    (
        "ssl",
        "sock",
        "local_addr",
        "server_hostname",
        "ssl_handshake_timeout",
        "ssl_shutdown_timeout",
        "happy_eyeballs_delay",
        "interleave",
    )
)
_OF_TRANSPORTS = ("call_soon", "_add_reader", "_add_writer", "_remove_reader", "_remove_writer")
_OF_ACCEPTING = (
    "_accept_connection",
    "_accept_connection2",
    "create_task",
    "create_future",
    "_make_socket_transport",
    *_OF_TRANSPORTS,
)


def _say_nothing(kwargs: dict[str, Any]) -> bool:
    """Whether arguments of create_connection are those that it has by itself."""
    return not kwargs or (
        _NONE_SAYS_NOTHING.issuperset(kwargs) and all(value is None for value in kwargs.values())
    )


def _is_asyncios(function: Any) -> bool:
    module = getattr(function, "__globals__", {}).get("__name__", "")
    return module.startswith("asyncio.") and not hasattr(function, "__wrapped__")


def _shipped(name: str) -> Any:
    """What asyncio's classes have under a name, None if one of it is not asyncio's own function: somebody
    replaced it already."""
    chain = tuple(vars(base)[name] for base in _UnixLoop.__mro__ if name in vars(base))
    return chain if all(map(_is_asyncios, chain)) else None


def _stands_in_front(name: str) -> bool:
    return not name.startswith("__") and callable(getattr(_UnixLoop, name, None))


_treadle._loop_setup(
    Loop,
    _UnixLoop,
    {
        name: _shipped(name)
        for base in (Loop, *Loop.__bases__[:-1])
        for name in (*vars(base), *_GONE_AROUND)
        if _stands_in_front(name)
    },
)
Loop._looks_up_natively = True  # this class itself, and no subclass of it
