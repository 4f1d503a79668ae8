"""What the C code calls once per failure, per connection or in debug mode: asyncio's own texts, built in
Python."""

from __future__ import annotations

import contextlib
import sys
import types
import weakref
from asyncio import format_helpers, tasks, trsock
from asyncio.log import logger
from collections.abc import Callable, Iterator
from typing import Any

from ._asyncio import (
    SENDFILE_MODE as SENDFILE_MODE,
    convert_future_exc,
    enter_task,
    format_callback_source,
    leave_task,
    python_tasks,
    running_loop as running_loop,
    set_result_unless_cancelled,
)

wake_waiter = set_result_unless_cancelled


def _nobody() -> None:
    """Stands for the reference to a transport that holds nothing any more."""


class TransportSocket(trsock.TransportSocket):
    """What a transport shows of its socket. Whoever uses it finds sent what the transport was told to send
    before."""

    __slots__ = ("_shown", "_transport")

    def __init__(self, sock: Any, transport: Any) -> None:
        self._shown = sock
        self._transport: Callable[[], Any] = weakref.ref(transport)

    @property
    def _sock(self) -> Any:  # which all of asyncio's methods ask for
        transport = self._transport()
        if transport is not None:
            transport.get_write_buffer_size()  # sends what is held for the step's end
            self._lend_unless_asyncio_asks(sys._getframe(1))
        return self._shown

    def fileno(self) -> int:
        """Return the descriptor's number."""
        if self._transport is not _nobody:  # pools of connections ask for it at each use
            self._lend_unless_asyncio_asks(sys._getframe(1))  # as its __repr__ does
        return super().fileno()

    def dup(self) -> Any:
        """Return a socket of its own for the same connection."""
        self._lend_unless_asyncio_asks(sys._getframe(1))
        return super().dup()

    def _lend_unless_asyncio_asks(self, frame: types.FrameType) -> None:
        """Who has the socket itself, a copy of it or its number may write by it: the transport sends at once
        from now on."""
        transport = self._transport()
        if transport is not None and frame.f_globals is not trsock.__dict__:
            transport._lend()
            self._transport = _nobody


_wrap_transport_socket = TransportSocket


def _source_stack() -> Any:
    return format_helpers.extract_stack(sys._getframe(1))


def handle_repr(handle: Any) -> str:
    """Return asyncio's text for a Handle or TimerHandle."""
    if handle._repr is not None:
        return str(handle._repr)
    timer = hasattr(handle, "when")
    info = ["TimerHandle" if timer else "Handle"]
    if handle._cancelled:
        info.append("cancelled")
    if timer:
        info.append(f"when={handle._when}")
    if handle._callback is not None:
        info.append(_format_callback(handle))
    if handle._source_traceback:
        frame = handle._source_traceback[-1]
        info.append(f"created at {frame[0]}:{frame[1]}")
    return "<{}>".format(" ".join(info))


if sys.version_info >= (3, 13):

    def _format_callback(handle: Any) -> str:
        return str(format_callback_source(handle._callback, handle._args, debug=handle._loop.get_debug()))

else:

    def _format_callback(handle: Any) -> str:
        return str(format_callback_source(handle._callback, handle._args))


def _callback_failed(handle: Any, exc: BaseException) -> None:
    context = {
        "message": f"Exception in callback {_format_callback(handle)}",
        "exception": exc,
        "handle": handle,
    }
    if handle._source_traceback:
        context["source_traceback"] = handle._source_traceback
    handle._loop.call_exception_handler(context)


def run_handle(handle: Any) -> None:
    """Run a handle of asyncio's own make, as its loop does."""
    if not handle._cancelled:
        handle._run()


def _log_conn_lost() -> None:
    logger.warning("socket.send() raised exception.")


def _transport_debug(text: str, transport: Any) -> None:
    logger.debug(text, transport)


def _transport_debug_exc(transport: Any, message: str, exc: BaseException) -> None:
    logger.debug("%r: %s", transport, message, exc_info=exc)


def write_buffer_limits(high: Any, low: Any) -> tuple[int, int]:
    """Return the marks that asyncio makes of set_write_buffer_limits' arguments, which may be None."""
    if high is None:
        high = 64 * 1024 if low is None else 4 * low
    if low is None:
        low = high // 4
    if not high >= low >= 0:
        raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
    return high, low


def set_job_exception(future: Any, exc: BaseException) -> None:
    """Give a future what a pool's thread raised; what no future can carry is told by a RuntimeError."""
    try:
        future.set_exception(convert_future_exc(exc))
    except TypeError:
        wrapped = RuntimeError(
            "StopIteration interacts badly with generators and cannot be raised into a Future"
        )
        wrapped.__cause__ = exc
        future.set_exception(wrapped)


def detach_server(server: Any, transport: Any) -> None:
    """Tell a server that a transport was collected without being closed."""
    if sys.version_info >= (3, 13):
        server._detach(transport)
    else:
        server._detach()


@contextlib.contextmanager
def outside_of_tasks(loop: Any) -> Iterator[None]:
    """Let other tasks of the loop run inside of the one that runs."""
    task = tasks.current_task(loop)
    if task is not None:
        leave_task(loop, task)
    of_python = python_tasks.pop(loop, None)
    try:
        yield
    finally:
        if of_python is not None:
            python_tasks[loop] = of_python
        if task is not None:
            enter_task(loop, task)
