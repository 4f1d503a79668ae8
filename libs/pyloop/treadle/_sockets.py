"""The sock_ operations that are not in C, and those in C for sockets and modes that C does not answer.

Each calls its function in the step of the task that awaits it, and lets the poller only wake that task. On
asyncio a callback of the poller makes the call and hands the result to the task's next step: a cancel in
between loses the connection that was accepted (gh-153761 mended one half of that) or the bytes that were
received.
"""

from __future__ import annotations

import os
import socket
from asyncio import unix_events
from typing import Any

from ._asyncio import check_ssl_socket

_UnixLoop: Any = unix_events.SelectorEventLoop


def _wake(future: Any) -> None:
    if not future.done():
        future.set_result(None)


class Sockets:
    """The part of a loop that works on sockets of the caller's."""

    _debug: bool

    async def _until_ready(self: Any, sock: Any, writing: bool) -> None:
        fd = sock.fileno()
        self._ensure_fd_no_transport(fd)
        future = self.create_future()
        add, remove = (
            (self._add_writer, self._remove_writer) if writing else (self._add_reader, self._remove_reader)
        )
        handle = add(fd, _wake, future)
        try:
            await future
        finally:
            if not handle.cancelled():  # else the number is another's, or waited for by a later call
                remove(fd)

    async def _call_when_ready(self, sock: Any, writing: bool, function: Any, *args: Any) -> Any:
        check_ssl_socket(sock)
        if self._debug and sock.gettimeout() != 0:
            raise ValueError("the socket must be non-blocking")
        while True:
            try:
                return function(*args)
            except (BlockingIOError, InterruptedError):
                pass
            await self._until_ready(sock, writing)

    async def _sock_recv_slow(self, sock: Any, n: int) -> Any:
        return await self._call_when_ready(sock, False, lambda: sock.recv(n))

    async def _sock_recv_into_slow(self, sock: Any, buf: Any) -> Any:
        return await self._call_when_ready(sock, False, lambda: sock.recv_into(buf))

    def _sock_sendall_slow(self, sock: Any, data: Any) -> Any:
        return _UnixLoop.sock_sendall(self, sock, data)

    async def sock_accept(self: Any, sock: Any) -> tuple[socket.socket, Any]:
        """Accept a connection on a listening, non-blocking socket; return it and the peer's address."""
        replaced = self._patched("sock_accept")
        if replaced is not None:
            return await replaced(sock)  # type: ignore[no-any-return]
        conn, address = await self._call_when_ready(sock, False, lambda: sock.accept())
        conn.setblocking(False)
        return conn, address

    async def sock_recvfrom(self: Any, sock: Any, bufsize: int) -> tuple[bytes, Any]:
        """Receive a datagram of at most bufsize bytes; return it and its sender's address."""
        replaced = self._patched("sock_recvfrom")
        if replaced is not None:
            return await replaced(sock, bufsize)  # type: ignore[no-any-return]
        return await self._call_when_ready(sock, False, lambda: sock.recvfrom(bufsize))  # type: ignore[no-any-return]

    async def sock_recvfrom_into(self: Any, sock: Any, buf: Any, nbytes: int = 0) -> tuple[int, Any]:
        """Receive a datagram into a buffer, at most nbytes; return its size and its sender's address."""
        replaced = self._patched("sock_recvfrom_into")
        if replaced is not None:
            return await replaced(sock, buf, nbytes)  # type: ignore[no-any-return]
        return await self._call_when_ready(  # type: ignore[no-any-return]
            sock, False, lambda: sock.recvfrom_into(buf, nbytes or len(buf))
        )

    async def sock_sendto(self: Any, sock: Any, data: Any, address: Any) -> int:
        """Send a datagram to an address; return the bytes sent."""
        replaced = self._patched("sock_sendto")
        if replaced is not None:
            return await replaced(sock, data, address)  # type: ignore[no-any-return]
        return await self._call_when_ready(sock, True, lambda: sock.sendto(data, address))  # type: ignore[no-any-return]

    # What CPython has mended in its sendfile since (gh-150107): the file's position is where it ends up, also
    # if nothing was sent

    def _sock_sendfile_update_filepos(self, fileno: int, offset: int, *total_sent: int) -> None:
        try:
            os.lseek(fileno, offset, os.SEEK_SET)
        except OSError:
            pass  # it has no position, or the offset was wrong: the caller is told of that by itself

    async def _sock_sendfile_fallback(self: Any, sock: Any, file: Any, offset: int, count: int | None) -> Any:
        if not offset and hasattr(file, "seek"):
            file.seek(offset)
        return await super()._sock_sendfile_fallback(sock, file, offset, count)  # type: ignore[misc]


for _name in ("sock_accept", "sock_recvfrom", "sock_recvfrom_into", "sock_sendto"):
    # Coroutines then read as asyncio's.
    getattr(Sockets, _name).__qualname__ = f"BaseSelectorEventLoop.{_name}"
Sockets._sock_recv_slow.__qualname__ = "BaseSelectorEventLoop.sock_recv"
Sockets._sock_recv_into_slow.__qualname__ = "BaseSelectorEventLoop.sock_recv_into"
