"""Contexts on blocking calls in C threads; callbacks run on a thread of the context."""

from __future__ import annotations

import os
import select
import threading
import weakref

from treadle._treadle import FileContext

from . import _raw
from .abstract import AbstractContext, AbstractOperation


class Operation(_raw.RawOperation):
    """An operation of a thread context."""

    _keeps_payload = False


class _Core(_raw.PolledContext):
    """What the context and its thread share; outlives the context until everything was delivered."""

    _operation_class = Operation

    def __init__(self, max_requests: int, pool_size: int) -> None:
        files = FileContext(engine="threads", max_requests=max_requests, threads=pool_size, mode="immediate",
                            any_thread=True, inline=False)
        files.caps()
        super().__init__(files, max_requests)
        self.thread: threading.Thread | None = None
        self.closing = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def start(self) -> None:
        """Start the thread that delivers, with the first operation."""
        if self.thread is None:
            self.thread = threading.Thread(target=self._serve, name="treadle-files", daemon=True)
            self.thread.start()

    def _serve(self) -> None:
        poller = select.poll()
        poller.register(self.fileno, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while True:
            poller.poll()
            self._hear()
            self._collect()
            self._deliver(1 << 30)
            with self._lock:
                if self.closing and self._in_flight == 0:
                    self._files.close()
                    os.close(self._wake)
                    return

    def _hear(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            pass

    def finish(self) -> None:
        """Deliver what is left, then end the thread; waits for it unless that is us."""
        with self._lock:
            if self.closing:
                return
            self.closing = True
            if self.thread is None:
                self._files.close()
                os.close(self._wake)
                return
            os.eventfd_write(self._wake, 1)
        if self.thread is not threading.current_thread():
            self.thread.join()


class Context(AbstractContext):
    """Blocking calls on a pool of thread workers in C, pool_size of them at once."""

    MAX_POOL_SIZE = 128

    def __init__(self, max_requests: int = 512, pool_size: int = 8) -> None:
        if not 1 <= pool_size <= self.MAX_POOL_SIZE:
            raise ValueError(f"pool_size must be 1 to {self.MAX_POOL_SIZE}")
        if not 1 <= max_requests < 65535:
            raise ValueError("max_requests must be 1 to 65534")
        self._core = _Core(max_requests, pool_size)
        self._pool_size = pool_size
        # At exit nobody waits for a call that may never return.
        weakref.finalize(self, self._core.finish).atexit = False

    @property
    def max_requests(self) -> int:
        """How many operations the context has room for."""
        return self._core.max_requests

    @property
    def pool_size(self) -> int:
        """How many calls are made at once."""
        return self._pool_size

    def submit(self, *aio_operations: AbstractOperation) -> int:
        """Queue operations; RuntimeError when the queue is full, those before the one that did not fit are
        taken."""
        core = self._core
        core._check_types(aio_operations)
        count = 0
        with core._lock:
            if core.closing:
                raise RuntimeError("context is closed")
            core.start()
            for operation in aio_operations:
                if operation._state is _raw._State.NEW and core._in_flight >= core.max_requests:  # type: ignore[attr-defined]
                    raise RuntimeError("queue is full")
                count += core._stage(operation, self)  # type: ignore[arg-type]
        return count

    def cancel(self, *aio_operations: AbstractOperation) -> int:
        """Ask for operations to be dropped that no worker has begun."""
        return self._core.cancel(*aio_operations)

    def close(self) -> None:
        """Deliver what is left and end the threads; idempotent."""
        self._core.finish()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__module__}.Context max_requests={self.max_requests} pool_size={self._pool_size}>"
        )
