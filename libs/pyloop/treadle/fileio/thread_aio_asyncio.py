"""The asyncio context on blocking calls in C threads."""

from __future__ import annotations

from typing import Any

from treadle._treadle import FileContext

from . import thread_aio
from ._errors import system_error
from .asyncio_base import FilesContext, FilesInfo


class AsyncioContext(FilesContext):
    """Operations on a pool of C threads, pool_size of them at once."""

    CONTEXT_CLASS = thread_aio.Context
    OPERATION_CLASS = thread_aio.Operation

    def _create_context(self, max_requests: int, pool_size: int = 8) -> Any:  # type: ignore[override]
        files = FileContext(engine="threads", max_requests=max_requests, mode=self._mode(), threads=pool_size,
                            error=system_error)
        return FilesInfo(files, pool_size=pool_size)
