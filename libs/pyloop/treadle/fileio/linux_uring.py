"""Contexts on io_uring; importing it fails where the kernel refuses one."""

from __future__ import annotations

from treadle._treadle import FileContext, sqpoll_allowed

from . import _raw
from .abstract import AbstractOperation

try:
    _probe = FileContext(engine="linux_uring", max_requests=1)
    _probe.caps()
    _probe.close()
    del _probe
except OSError as _error:
    raise ImportError(f"io_uring is not to be had here: {_error}") from _error

#: Whether the kernel grants this process a polling thread; tried once.
SQPOLL_ALLOWED: bool = sqpoll_allowed()


class Operation(_raw.RawOperation):
    """An operation of an io_uring context."""

    @property
    def payload(self) -> bytes | memoryview | None:
        """The bytes to write; of a read the whole buffer, with zeros behind what was read."""
        data = super().payload
        if self._kind != "read" or data is None:
            return data
        return bytes(data).ljust(self._asked, b"\0")


class Context(_raw.PolledContext):
    """A uring: submit stages, flush makes one system call for all that is staged."""

    _operation_class = Operation

    def __init__(self, max_requests: int = 32, sqpoll: bool = False) -> None:
        if not 1 <= max_requests <= 32767:
            raise SystemError(f"max_requests must be 1 to 32767, not {max_requests}")
        files = FileContext(engine="linux_uring", max_requests=max_requests, mode="deferred", sqpoll=sqpoll,
                            any_thread=True, inline=False)
        caps = files.caps()
        self.sqpoll = int(caps["sqpoll"])
        super().__init__(files, max_requests)

    def submit(self, *aio_operations: AbstractOperation) -> int:
        """Stage operations without a system call; OverflowError over max_requests in flight."""
        self._check_types(aio_operations)
        count = 0
        with self._lock:
            for operation in aio_operations:
                if operation._state is _raw._State.NEW and self._in_flight >= self._max_requests:  # type: ignore[attr-defined]
                    raise OverflowError("max_requests operations are in flight")
                count += self._stage(operation, self)  # type: ignore[arg-type]
        return count

    def flush(self) -> int:
        """Submit what is staged, deliver what is complete; return how many completions."""
        with self._lock:
            self._files.flush()
        self._collect()
        return self._deliver(1 << 30)
