"""The asyncio context on io_uring."""

from __future__ import annotations

from typing import Any

from treadle._treadle import FileContext

from . import linux_uring
from ._errors import system_error
from .asyncio_base import FilesContext, FilesInfo


class AsyncioContext(FilesContext):
    """Operations on a uring; sqpoll is SQPOLL_ALLOWED unless given, and falls back to a plain ring.

    Not given, the kernel's polling thread is left asleep as long as the loop has time to submit by itself.
    """

    CONTEXT_CLASS = linux_uring.Context
    OPERATION_CLASS = linux_uring.Operation

    def _create_context(self, max_requests: int, sqpoll: bool | None = None) -> Any:  # type: ignore[override]
        wanted = linux_uring.SQPOLL_ALLOWED if sqpoll is None else sqpoll
        return FilesInfo(
            FileContext(
                engine="linux_uring",
                max_requests=max_requests,
                mode=self._mode(),
                sqpoll=wanted,
                sqpoll_when_busy=sqpoll is None,
                error=system_error,
            )
        )
