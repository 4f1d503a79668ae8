"""Contexts on linux_aio; importing it fails where the kernel refuses one."""

from __future__ import annotations

import os

from treadle._treadle import FileContext, _aio_refused

from . import _raw
from ._errors import submit_error
from .abstract import AbstractOperation

_code = _aio_refused()
if _code:
    raise ImportError(f"linux_aio is not to be had here: {os.strerror(_code)}")

_EVENTS_MAX = 1 << 20


class Operation(_raw.RawOperation):
    """An operation of a linux_aio context."""

    @staticmethod
    def _make_error(number: int) -> OSError:
        return submit_error(number)


class Context(_raw.PolledContext):
    """A linux aio context: each submit is one system call for all its operations."""

    _operation_class = Operation

    def __init__(self, max_requests: int = 32) -> None:
        files = FileContext(
            engine="linux_aio", max_requests=max_requests, mode="deferred", any_thread=True, inline=False
        )
        files.caps()
        super().__init__(files, max_requests)

    def submit(self, *aio_operations: AbstractOperation) -> int:
        """Submit operations; those over max_requests wait for room."""
        self._check_types(aio_operations)
        with self._lock:
            count = sum(self._stage(operation, self) for operation in aio_operations)  # type: ignore[arg-type]
            self._files.flush()
        return count

    def process_events(self, max_requests: int = 512, min_requests: int = 0, timeout: float = 0) -> int:
        """Deliver completions, waiting for min_requests of them for up to timeout seconds; return how
        many."""
        if max_requests > _EVENTS_MAX:
            raise OverflowError("max_requests is too large")
        return super().process_events(max_requests, min_requests, timeout)

    def cancel(self, *aio_operations: AbstractOperation) -> int:
        """Ask for operations to be dropped; ValueError for one that is not in flight here."""
        for operation in aio_operations:
            if isinstance(operation, Operation) and operation.context is not self:
                raise ValueError("operation is not in flight in this context")
        return super().cancel(*aio_operations)
