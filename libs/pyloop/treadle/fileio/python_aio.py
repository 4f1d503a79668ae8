"""Contexts on a pool of Python threads: no C, for comparison and for what the other engines do not know."""

from __future__ import annotations

import enum
import errno
import multiprocessing.pool
import operator
import os
import threading
from collections.abc import Callable
from typing import Any

from .abstract import AbstractContext, AbstractOperation


class OpCode(enum.IntEnum):
    """What an operation does."""

    READ = 0
    WRITE = 1
    FSYNC = 2
    FDSYNC = 3
    NOOP = -1


class ContextState(enum.IntEnum):
    """Whether a context takes operations."""

    OPEN = 0
    CLOSED = 1


class Operation(AbstractOperation):
    """An operation of a context of Python threads."""

    def __init__(
        self,
        fd: int,
        nbytes: int | None,
        offset: int | None,
        opcode: OpCode,
        payload: bytes | None = None,
        priority: int | None = None,
    ) -> None:
        self._fd = operator.index(fd)
        self._nbytes = operator.index(nbytes or 0)
        self._offset = operator.index(offset or 0)
        self._priority = operator.index(priority or 0)
        self.opcode = opcode
        self.data = payload
        self.written = 0
        self.in_progress = False
        self.calling = False
        self.dropped = False
        self._lock = threading.Lock()
        self.exception: BaseException | None = None
        self.callback: Callable[[int], Any] | None = None

    @classmethod
    def read(cls, nbytes: int, fd: int, offset: int = 0, priority: int = 0) -> Operation:
        """Read up to nbytes at an offset."""
        return cls(fd, nbytes, offset, OpCode.READ, priority=priority)

    @classmethod
    def write(cls, payload_bytes: bytes, fd: int, offset: int = 0, priority: int = 0) -> Operation:
        """Write bytes at an offset."""
        if not isinstance(payload_bytes, (bytes, bytearray, memoryview)):
            raise ValueError("payload_bytes must be bytes")
        return cls(fd, len(payload_bytes), offset, OpCode.WRITE, bytes(payload_bytes), priority)

    @classmethod
    def fsync(cls, fd: int, priority: int = 0) -> Operation:
        """Bring data and metadata to the disk."""
        return cls(fd, 0, 0, OpCode.FSYNC, priority=priority)

    @classmethod
    def fdsync(cls, fd: int, priority: int = 0) -> Operation:
        """Bring data to the disk."""
        return cls(fd, 0, 0, OpCode.FDSYNC, priority=priority)

    def execute(self) -> int:
        """Make the blocking call, on a thread of the pool; returns the count."""
        if not self._begin_call():
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
        try:
            if self.opcode is OpCode.READ:
                self.data = os.pread(self._fd, self._nbytes, self._offset)
                return len(self.data)
            if self.opcode is OpCode.WRITE:
                return self._write_all()
            (os.fsync if self.opcode is OpCode.FSYNC else os.fdatasync)(self._fd)
            return 0
        finally:
            self.calling = False

    def _write_all(self) -> int:
        view = memoryview(self.data or b"")
        done = 0
        while done < len(view) and (done == 0 or self._begin_call()):
            done += os.pwrite(self._fd, view[done:], self._offset + done)
        return done

    def _begin_call(self) -> bool:
        with self._lock:
            self.calling = not self.dropped
            return self.calling

    def drop(self) -> bool:
        """Make no further call; whether one is being made that changes what the number of the descriptor
        stands for."""
        with self._lock:
            self.dropped = True
            return self.calling and self.opcode is OpCode.WRITE

    def get_value(self) -> bytes | int | None:
        """Return bytes of a read, the count of a write, None of a sync; raise OSError for a failure."""
        if self.exception is not None:
            raise self.exception
        if self.opcode is OpCode.READ:
            return self.data if self.data is not None else b""
        return self.written if self.opcode is OpCode.WRITE else None

    def set_callback(self, callback: Callable[[int], Any]) -> bool:
        """Have callback(result) called on completion, on a thread of the pool."""
        if not callable(callback):
            raise ValueError("callback must be callable")
        self.callback = callback
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
        return self.data

    @property
    def nbytes(self) -> int:
        """Bytes asked for."""
        return self._nbytes

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.opcode.name} fd={self._fd} offset={self._offset} "
            f"nbytes={self._nbytes}>"
        )


class Context(AbstractContext):
    """A pool of python threads that make the calls."""

    MAX_POOL_SIZE = 128

    def __init__(self, max_requests: int = 32, pool_size: int = 8) -> None:
        if not 0 < pool_size < self.MAX_POOL_SIZE:
            raise ValueError(f"pool_size must be 1 to {self.MAX_POOL_SIZE - 1}")
        if max_requests <= 0:
            raise ValueError("max_requests must be positive")
        self._max_requests = max_requests
        self._in_progress = 0
        self._state = ContextState.OPEN
        self._lock = threading.RLock()
        self.pool = multiprocessing.pool.ThreadPool(pool_size)

    @property
    def max_requests(self) -> int:
        """How many operations the context has room for."""
        return self._max_requests

    def _done(self, operation: Operation, result: int, error: BaseException | None) -> None:
        operation.exception = error
        operation.written = result
        with self._lock:
            self._in_progress -= 1
        if operation.callback is None:
            return
        try:
            operation.callback(result)
        except Exception as exc:
            # The pool's thread must live on, so the failure goes where those of threads go.
            threading.excepthook(
                threading.ExceptHookArgs((type(exc), exc, exc.__traceback__, threading.current_thread()))
            )

    def _submit_one(self, operation: Operation) -> int:
        with self._lock:
            if self._state is not ContextState.OPEN:
                raise RuntimeError("context is closed")
            if operation.in_progress:
                return 0
            if self._in_progress >= self._max_requests:
                raise RuntimeError("queue is full")
            operation.in_progress = True
            self._in_progress += 1
        try:
            self.pool.apply_async(
                operation.execute,
                callback=lambda count: self._done(operation, count, None),
                error_callback=lambda error: self._done(
                    operation, -(getattr(error, "errno", None) or 5), error
                ),
            )
        except BaseException:
            with self._lock:
                operation.in_progress = False
                self._in_progress -= 1
            raise
        return 1

    def submit(self, *aio_operations: AbstractOperation) -> int:
        """Queue operations; RuntimeError when the queue is full."""
        mine = [operation for operation in aio_operations if isinstance(operation, Operation)]
        if len(mine) != len(aio_operations):
            raise ValueError("an operation of python_aio expected")
        return sum([self._submit_one(operation) for operation in mine])

    def cancel(self, *aio_operations: AbstractOperation) -> int:
        """Does nothing: a call that was begun cannot be taken back."""
        return 0

    def close(self) -> None:
        """Stop the pool after what was queued; idempotent."""
        with self._lock:
            if self._state is ContextState.CLOSED:
                return
            self._state = ContextState.CLOSED
        self.pool.close()

    def __del__(self) -> None:
        if hasattr(self, "pool"):
            self.close()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__module__}.Context max_requests={self._max_requests} "
            f"in_progress={self._in_progress}>"
        )
