"""Connections, endpoints and listening sockets being made: where the running Python's asyncio lacks what a
newer one mended.

docs/asyncio-compat.md lists each, with CPython's issue.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import socket
import sys
from asyncio import base_events, staggered
from typing import Any

from ._asyncio import SendfileFallback, interleave_addrinfos


_RACE = staggered.staggered_race  # what stands in its place later has reasons to see each race

# What asyncio's call graphs show, from Python 3.14 on.
_show: Any = getattr(asyncio, "future_add_to_awaited_by", None)
_hide: Any = getattr(asyncio, "future_discard_from_awaited_by", None)


class Refused:
    """Stands for the protocol that a factory did not make, until the socket that was made for it is
    closed."""

    def __init__(self, exc: BaseException) -> None:
        self.exc = exc


async def _first_to_connect(loop: Any, connect: Any, infos: Any, delay: float) -> Any:
    """Return what the first connect(info) to succeed returns, or None; each starts when the one before failed
    or delay passed.

    The others are canceled and have ended by then. Tasks are made here and nowhere else, so it makes no
    difference whether they start at once (gh-124309), and none is left behind (gh-128479).
    """
    winner = None
    waiter = asyncio.current_task(loop)
    running: set[Any] = set()
    wanted: Any = None  # a future: the latest attempt failed, or one succeeded

    async def attempt(info: Any) -> None:
        nonlocal winner
        try:
            sock = await connect(info)
        except (SystemExit, KeyboardInterrupt, asyncio.CancelledError):
            raise
        except BaseException:
            return
        if winner is None:
            winner = sock
        else:
            sock.close()

    def ended(task: Any) -> None:
        running.discard(task)
        if _hide is not None:
            _hide(task, waiter)
        if not task.cancelled():
            task.exception()  # an exit has ended the loop's run by itself
        if wanted is not None and not wanted.done() and (winner is not None or task is latest or not running):
            wanted.set_result(None)

    latest: Any = None
    canceled: BaseException | None = None
    try:
        for info in infos:
            latest = loop.create_task(attempt(info))
            running.add(latest)
            if _show is not None:
                _show(latest, waiter)
            latest.add_done_callback(ended)
            if not latest.done():
                wanted = loop.create_future()
                timer = loop.call_later(delay, _wake, wanted)
                try:
                    await wanted
                finally:
                    timer.cancel()
            if winner is not None:
                break
        else:
            latest = None
            while winner is None and running:
                wanted = loop.create_future()
                await wanted
    except asyncio.CancelledError as exc:
        canceled = exc
    for task in list(running):
        task.cancel()
    while running:
        wanted = loop.create_future()
        try:
            await wanted
        except asyncio.CancelledError as exc:
            canceled = exc
    try:
        if canceled is None:
            return winner
        if winner is not None:
            winner.close()
        raise canceled
    finally:
        canceled = winner = wanted = waiter = None  # a traceback may keep this frame


def _call(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _wake(future: Any) -> None:
    if not future.done():
        future.set_result(None)


def _connect_error(errors: list[OSError]) -> Exception:
    """Return what a connection whose every attempt failed is told."""
    if not errors:
        return TimeoutError("create_connection failed")
    if all(str(exc) == str(errors[0]) for exc in errors):
        return errors[0]
    return OSError("Multiple exceptions: {}".format(", ".join(str(exc) for exc in errors)))


def _can_bind(info: Any) -> bool:
    """Whether the address of an IPv6 row is one of this machine's interfaces' (gh-75128)."""
    family, kind, proto, _, address = info
    if family != socket.AF_INET6:
        return True
    try:
        with socket.socket(family, kind, proto) as sock:
            sock.bind((address[0], 0, *address[2:]))
    except OSError as exc:
        return exc.errno != errno.EADDRNOTAVAIL
    return True


_OF_LOOKUP = ("getaddrinfo",)


class Connections:
    """The part of a loop that makes connections."""

    async def create_connection(
        self: Any,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        happy_eyeballs_delay: float | None = None,
        sock: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Connect to a TCP server; return (transport, protocol)."""
        raced = happy_eyeballs_delay is not None and sock is None and (host is not None or port is not None)
        if sys.version_info < (3, 12) and "all_errors" in kwargs:
            raced = False  # asyncio refuses it there
        if raced and staggered.staggered_race is _RACE:
            return await self._create_raced(protocol_factory, host, port, happy_eyeballs_delay, **kwargs)
        return await super().create_connection(  # type: ignore[misc]
            protocol_factory, host, port, happy_eyeballs_delay=happy_eyeballs_delay, sock=sock, **kwargs
        )

    async def _connect_named(self: Any, host: str, port: int) -> Any:
        """Connect to one of the addresses of a name, in their order; return the descriptor, None if asyncio
        has to do it."""
        if not 0 <= port <= 0xFFFF or self._overridden(_OF_LOOKUP) or not self._asks_no_executor():
            return None
        infos = self._getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, 0)
        if infos is None:
            return None
        if type(infos) is not list:
            infos = await self._lookup(infos)
        if not all(len(info[4]) == 2 or info[4][2:] == (0, 0) for info in infos):
            return None
        errors: Any = []
        try:
            for info in infos:
                connect = self._connect_numeric(*info[4][:2])
                if not connect:
                    return None
                try:
                    return await connect
                except OSError as exc:
                    errors.append(exc)
            if not infos:
                raise OSError("getaddrinfo() returned empty list")
            raise _connect_error(errors)
        finally:
            errors = None  # a traceback may keep this frame

    async def _create_raced(
        self: Any,
        protocol_factory: Any,
        host: Any,
        port: Any,
        delay: float,
        *,
        ssl: Any = None,
        family: int = 0,
        proto: int = 0,
        flags: int = 0,
        local_addr: Any = None,
        server_hostname: Any = None,
        ssl_handshake_timeout: Any = None,
        ssl_shutdown_timeout: Any = None,
        interleave: int | None = None,
        all_errors: bool = False,
    ) -> Any:
        tls = {"server_hostname": server_hostname, "ssl_handshake_timeout": ssl_handshake_timeout}
        tls["ssl_shutdown_timeout"] = ssl_shutdown_timeout
        if ssl:
            if server_hostname is None:
                if not host:
                    raise ValueError("You must set server_hostname when using ssl without a host")
                tls["server_hostname"] = host
        else:
            for name, value in tls.items():
                if value is not None:
                    raise ValueError(f"{name} is only meaningful with ssl")
        named = {"family": family, "type": socket.SOCK_STREAM, "proto": proto, "flags": flags, "loop": self}
        infos = await self._ensure_resolved((host, port), **named)
        local = None if local_addr is None else await self._ensure_resolved(local_addr, **named)
        if not infos or local is not None and not local:
            raise OSError("getaddrinfo() returned empty list")
        count = 1 if interleave is None else interleave
        if count:
            infos = interleave_addrinfos(infos, count)
        failed: list[list[OSError]] = []
        errors: list[OSError] = []
        try:
            sock = await _first_to_connect(
                self, lambda info: self._connect_sock(failed, info, local), infos, delay
            )
            if sock is None:
                errors = [exc for attempt in failed for exc in attempt]
                if all_errors:
                    raise ExceptionGroup("create_connection failed", errors)
                raise _connect_error(errors)
        finally:
            failed, errors = [], []  # whose tracebacks have this frame (gh-124858)
        return await super().create_connection(protocol_factory, ssl=ssl, sock=sock, **tls)  # type: ignore[misc]

    if sys.version_info < (3, 14):

        async def _connect_sock(
            self: Any, exceptions: Any, addr_info: Any, local_addr_infos: Any = None
        ) -> Any:
            # What fails is in exceptions, and a close() that fails hides nothing (gh-135836).
            family, kind, proto, _, address = addr_info
            sock = None
            failures: Any = []
            exceptions.append(failures)
            try:
                try:
                    sock = base_events.socket.socket(family=family, type=kind, proto=proto)  # type: ignore[attr-defined]
                    sock.setblocking(False)
                    if local_addr_infos is not None:
                        _bind_first(sock, family, local_addr_infos, failures)
                    await self.sock_connect(sock, address)
                    return sock
                except OSError as exc:
                    failures.append(exc)
                    raise
            except BaseException:
                if sock is not None:
                    try:
                        sock.close()
                    except OSError:
                        pass
                raise
            finally:
                exceptions = failures = None

    if sys.version_info < (3, 13):

        async def _create_server_getaddrinfo(self: Any, host: Any, port: Any, family: Any, flags: Any) -> Any:
            infos = await super()._create_server_getaddrinfo(host, port, family, flags)  # type: ignore[misc]
            return [info for info in infos if _can_bind(info)]

    async def _serve(
        self: Any, create: Any, protocol_factory: Any, *where: Any, start_serving: bool = True, **kwargs: Any
    ) -> Any:
        server = await create(self, protocol_factory, *where, start_serving=False, **kwargs)
        try:
            if not server._sockets:
                raise OSError(f"could not bind on any address of {where[0]!r}")
            if start_serving:
                await server.start_serving()
        except BaseException:
            server.close()  # nobody else could: on asyncio a canceled one serves for ever
            raise
        return server

    async def _create_connection_transport(
        self: Any,
        sock: Any,
        protocol_factory: Any,
        ssl: Any,
        server_hostname: Any,
        server_side: bool = False,
        ssl_handshake_timeout: Any = None,
        ssl_shutdown_timeout: Any = None,
        context: contextvars.Context | None = None,
    ) -> Any:
        try:
            sock.setblocking(False)
            if context is None:
                context = contextvars.copy_context()
            protocol = protocol_factory()
            waiter = self.create_future()
            make: Any = context.run
            named: dict[str, Any] = {}
            if sys.version_info >= (3, 15):
                make, named = _call, {"context": context}
            if ssl:
                transport = make(
                    self._make_ssl_transport,
                    sock,
                    protocol,
                    None if isinstance(ssl, bool) else ssl,
                    waiter,
                    server_side=server_side,
                    server_hostname=server_hostname,
                    ssl_handshake_timeout=ssl_handshake_timeout,
                    ssl_shutdown_timeout=ssl_shutdown_timeout,
                    **named,
                )
            else:
                transport = make(self._make_socket_transport, sock, protocol, waiter, **named)
        except BaseException:
            sock.close()  # no transport will
            raise
        try:
            await waiter
        except BaseException:
            transport.close()
            waiter = None  # its exception's traceback has this frame
            raise
        return transport, protocol

    async def _create_endpoint(
        self: Any,
        protocol_factory: Any,
        local_addr: Any = None,
        remote_addr: Any = None,
        *,
        sock: Any = None,
        **kwargs: Any,
    ) -> Any:
        if sock is not None:
            odd = sock.type not in (socket.SOCK_DGRAM, socket.SOCK_STREAM)
            if odd and sys.version_info < (3, 13) and not any((local_addr, remote_addr, *kwargs.values())):
                return await self._create_endpoint_of(sock, protocol_factory)
            return await super().create_datagram_endpoint(  # type: ignore[misc]
                protocol_factory, local_addr, remote_addr, sock=sock, **kwargs
            )

        def factory() -> Any:
            try:
                return protocol_factory()
            except BaseException as exc:
                return Refused(exc)

        return await super().create_datagram_endpoint(factory, local_addr, remote_addr, **kwargs)  # type: ignore[misc]

    async def _create_endpoint_of(self: Any, sock: Any, protocol_factory: Any) -> Any:
        # A socket of messages of another kind: raw, or SOCK_SEQPACKET (gh-114887).
        sock.setblocking(False)
        protocol = protocol_factory()
        waiter = self.create_future()
        transport = self._make_datagram_transport(sock, protocol, None, waiter)
        try:
            await waiter
        except BaseException:
            transport.close()
            raise
        return transport, protocol

    # Sendfile without the system call: as CPython does it since gh-131325 and gh-150107

    async def _sendfile_fallback(self: Any, transp: Any, file: Any, offset: int, count: int | None) -> int:
        if SendfileFallback is None:
            return int(await super()._sendfile_fallback(transp, file, offset, count))  # type: ignore[misc]
        if hasattr(file, "seek"):
            file.seek(offset)
        size = min(count, 16384) if count else 16384
        buffer = bytearray(size)
        total = 0
        flow = SendfileFallback(transp)
        try:
            while True:
                if count:
                    size = min(count - total, size)
                    if size <= 0:
                        return total
                view = memoryview(buffer)[:size]
                read = await self.run_in_executor(None, file.readinto, view)
                if not read:
                    return total
                transp.write(bytes(view[:read]))  # the transport may keep it, and the buffer is filled again
                total += read
                await flow.drain()
        finally:
            if total > 0 and hasattr(file, "seek"):
                file.seek(offset + total)
            await flow.restore()


def _bind_first(sock: Any, family: int, local_addr_infos: Any, failures: list[OSError]) -> None:
    """Bind to the first local address that can be had."""
    try:
        for local_family, _, _, _, address in local_addr_infos:
            if local_family != family:
                continue
            try:
                sock.bind(address)
                return
            except OSError as exc:
                # As the running Python words it: up to 3.12 without the number, which some errors do not
                # have.
                text = str(exc) if sys.version_info >= (3, 13) else exc.strerror or str(exc)
                failures.append(
                    OSError(
                        exc.errno, f"error while attempting to bind on address {address!r}: {text.lower()}"
                    )
                )
        if failures:
            raise failures.pop()
        raise OSError(f"no matching local address with {family=} found")
    finally:
        failures = []  # what is raised has this frame


# A wrong argument's error then reads as asyncio's.
Connections._create_raced.__qualname__ = "BaseEventLoop.create_connection"
