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
except OSError as error:
    raise ImportError(f"io_uring is not to be had here: {error}") from error

#: Whether the kernel grants this process a polling thread; tried once.
SQPOLL_ALLOWED: bool = sqpoll_allowed()


class Operation(_raw.RawOperation):
    """An operation of an io_uring context."""



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
        # As many as the entries of a ring for them, with one to spare.
        self._room = 1 << max_requests.bit_length()
        self._staged = 0
        super().__init__(files, max_requests)

    def submit(self, *aio_operations: AbstractOperation) -> int:
        """Stage operations without a system call; OverflowError when there is no room before the next flush."""
        self._check_types(aio_operations)
        count = 0
        with self._lock:
            for operation in aio_operations:
                if self._staged >= self._room:
                    raise OverflowError("submission queue is full; flush first")
                if self._stage(operation):  # type: ignore[arg-type]
                    self._staged += 1
                    count += 1
        return count

    def flush(self) -> int:
        """Submit what is staged, deliver what is complete; return how many completions."""
        with self._lock:
            self._staged = 0
            self._files.flush()
        self._collect()
        return self._deliver(1 << 30)
