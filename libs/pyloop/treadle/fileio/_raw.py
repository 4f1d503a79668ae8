"""Contexts and operations without a loop: the caller submits, flushes and asks for completions."""

from __future__ import annotations

import collections
import contextlib
import enum
import operator
import os
import select
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from treadle._treadle import FileContext, FileOp, _call_guarded

from ._errors import system_error
from .abstract import AbstractContext, AbstractOperation

# An offset that every file refuses with EINVAL; to a FileContext a negative one means the descriptor's own
# position.
BAD_OFFSET = 1 << 63

# More than any address space holds: refused at once, not when the buffer is made.
_BYTES_MAX = 1 << 47


class _State(enum.Enum):
    NEW = "new"
    IN_FLIGHT = "in flight"
    DONE = "done"


class RawOperation(AbstractOperation):
    """One read, write or sync of one descriptor; submitted once."""

    @staticmethod
    def _make_error(number: int) -> OSError:
        return system_error(number)

    _keeps_payload: ClassVar[bool] = True

    def __init__(
        self, kind: str, fd: int, nbytes: int, payload: bytes | None, offset: int, priority: int
    ) -> None:
        self._kind = kind
        self._fd = operator.index(fd)
        self._nbytes = self._asked = operator.index(nbytes)
        self._offset = operator.index(offset)
        self._payload = payload
        self._callback: Callable[[int], Any] | None = None
        self._state = _State.NEW
        self._code = 0
        self._op: FileOp[Any] | None = None
        self._owner: AbstractContext | None = None
        self.priority = operator.index(priority)

    @classmethod
    def read(cls, nbytes: int, fd: int, offset: int = 0, priority: int = 0) -> RawOperation:
        """Read up to nbytes at an offset."""
        if not 0 <= operator.index(nbytes) <= _BYTES_MAX:
            raise OverflowError("nbytes is negative or more than memory can hold")
        return cls("read", fd, nbytes, None, offset, priority)

    @classmethod
    def write(cls, payload_bytes: bytes, fd: int, offset: int = 0, priority: int = 0) -> RawOperation:
        """Write bytes at an offset."""
        if not isinstance(payload_bytes, (bytes, bytearray, memoryview)):
            raise ValueError("payload_bytes must be bytes")
        return cls("write", fd, len(payload_bytes), bytes(payload_bytes), offset, priority)

    @classmethod
    def fsync(cls, fd: int, priority: int = 0) -> RawOperation:
        """Bring data and metadata to the disk."""
        return cls("fsync", fd, 0, None, 0, priority)

    @classmethod
    def fdsync(cls, fd: int, priority: int = 0) -> RawOperation:
        """Bring data to the disk."""
        return cls("fdsync", fd, 0, None, 0, priority)

    def _prepare(self, files: FileContext) -> FileOp[Any]:
        """The operation of the C library that does it."""
        if self._kind == "read":
            return files.read(self._fd, self._nbytes, self._offset if self._offset >= 0 else BAD_OFFSET)
        if self._kind == "write":
            return files.write(
                self._fd, self._payload or b"", self._offset if self._offset >= 0 else BAD_OFFSET
            )
        return files.fsync(self._fd) if self._kind == "fsync" else files.fdatasync(self._fd)

    def _begin(self, owner: AbstractContext | None) -> None:
        self._state = _State.IN_FLIGHT
        self._owner = owner

    def _finish(self, code: int, data: bytes | None) -> None:
        """The result is there: bytes for a read, and the code in every case."""
        self._state = _State.DONE
        self._owner = None
        self._op = None
        self._code = code
        if code >= 0 and self._kind in ("read", "write"):
            self._nbytes = code
        if self._kind == "read":
            self._payload = data
        elif not self._keeps_payload:
            self._payload = None

    def _call_back(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            _call_guarded(callback, self._code)

    def _check_done(self) -> None:
        if self._state is _State.IN_FLIGHT:
            raise RuntimeError("operation is in flight")

    def get_value(self) -> bytes | int | None:
        """Return bytes of a read, the count of a write, None of a sync; raise OSError for a failure."""
        self._check_done()
        if self._code < 0:
            raise type(self)._make_error(-self._code)
        if self._kind == "read":
            return self._payload if self._payload is not None else b""
        return self._code if self._kind == "write" else None

    def set_callback(self, callback: Callable[[int], Any]) -> bool:
        """Have callback(result) called on completion."""
        if not callable(callback):
            raise ValueError("callback must be callable")
        self._callback = callback
        return True

    @property
    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    @property
    def offset(self) -> int:
        """Where in the file."""
        return self._offset

    @property
    def payload(self) -> bytes | memoryview | None:
        """The bytes to write, or those read."""
        self._check_done()
        return self._payload

    @property
    def nbytes(self) -> int:
        """Bytes asked for, and once done the bytes moved."""
        return self._nbytes

    @property
    def result(self) -> int:
        """The count, once done."""
        return max(self._code, 0)

    @property
    def error(self) -> int:
        """The number of the error, once failed."""
        return max(-self._code, 0)

    @property
    def context(self) -> AbstractContext | None:
        """The context, while in flight."""
        return self._owner

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self._kind} fd={self._fd} offset={self._offset} nbytes={self._nbytes} "
            f"{self._state.value}>"
        )


class PolledContext(AbstractContext):
    """A context whose completions are asked for."""

    _operation_class: ClassVar[type[RawOperation]] = RawOperation

    def __init__(self, files: FileContext, max_requests: int) -> None:
        self._files = files
        self._max_requests = max_requests
        self._lock = threading.RLock()
        self._finished: collections.deque[FileOp[Any]] = collections.deque()
        self._in_flight = 0
        self._signals = 0
        self._waiters = 0
        self._delivered = 0
        self._news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self._news)
        self.fileno = files.fileno()

    @property
    def max_requests(self) -> int:
        """How many operations the context has room for."""
        return self._max_requests

    def _check_types(self, operations: Sequence[object]) -> None:
        for operation in operations:
            if not isinstance(operation, self._operation_class):
                raise TypeError(f"{self._operation_class.__name__} expected, not {type(operation).__name__}")

    def _stage(self, operation: RawOperation, owner: AbstractContext) -> bool:
        """Give one operation to the C library; False for one that was submitted before. It keeps owner alive
        until it is done."""
        if operation._state is not _State.NEW:
            return False
        op = operation._prepare(self._files)
        op.owner = operation
        self._files.submit(op)
        operation._op = op
        operation._begin(owner)
        self._in_flight += 1
        return True

    def _collect(self) -> None:
        with self._lock:
            self._finished.extend(self._files.reap())

    def _deliver(self, limit: int) -> int:
        """Finish up to limit operations and call their callbacks; a callback may come back in here."""
        count = 0
        while count < limit:
            with self._lock:
                if not self._finished:
                    break
                op = self._finished.popleft()
                self._in_flight -= 1
            operation = op.owner
            op.owner = None
            owner = operation._owner
            operation._finish(
                op.code, op.take_bytes() if operation._kind == "read" and op.code >= 0 else None
            )
            del op
            operation._call_back()
            del owner
            count += 1
        with self._lock:
            self._delivered += count
        # After the count, which a woken waiter looks at.
        if count and self._waiters:
            os.eventfd_write(self._news, 1)
        return count

    def _wait(self, seconds: float) -> None:
        """Until there is something to collect, or another thread delivered something."""
        poller = select.poll()
        poller.register(self.fileno, select.POLLIN)
        poller.register(self._news, select.POLLIN)
        self._waiters += 1
        try:
            poller.poll(None if seconds < 0 else seconds * 1000)
        finally:
            self._waiters -= 1
            if not self._waiters:
                try:
                    os.eventfd_read(self._news)
                except BlockingIOError:
                    pass

    def process_events(self, max_requests: int = 512, min_requests: int = 0, timeout: float = 0) -> int:
        """Deliver completions, waiting for min_requests of them for up to timeout seconds; return how
        many."""
        if min_requests > max_requests:
            raise ValueError("min_requests is more than max_requests")
        deadline = None if timeout < 0 else time.monotonic() + timeout
        before = self._delivered
        self._collect()
        count = self._deliver(max_requests)
        # What another thread delivers meanwhile counts as arrived.
        while self._delivered - before < min_requests:
            left = -1.0 if deadline is None else deadline - time.monotonic()
            if deadline is not None and left <= 0:
                break
            self._wait(left)
            self._collect()
            count += self._deliver(max_requests - count)
        return count

    def poll(self) -> int:
        """Return how many signals came since the last call; BlockingIOError for none."""
        signals, self._signals = self._signals, 0
        if self._files.wait(0) or self._finished:
            signals += 1
        if signals == 0:
            raise BlockingIOError("nothing was signalled")
        return signals

    def cancel(self, *aio_operations: AbstractOperation) -> int:
        """Ask for operations to be dropped; their results come as any other."""
        self._check_types(aio_operations)
        for operation in aio_operations:
            op = operation._op  # type: ignore[attr-defined]
            if op is not None:
                with self._lock, contextlib.suppress(TypeError):  # of another context: not ours to drop
                    self._files.cancel(op)
            self._signals += 1
        return 0

    def __repr__(self) -> str:
        return (
            f"<{type(self).__module__}.{type(self).__name__} max_requests={self._max_requests} "
            f"in_flight={self._in_flight}>"
        )
