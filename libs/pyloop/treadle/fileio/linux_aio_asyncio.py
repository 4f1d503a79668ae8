"""The asyncio context on linux_aio."""

from __future__ import annotations

from typing import Any

from treadle._treadle import FileContext

from . import linux_aio
from ._errors import submit_error
from .asyncio_base import FilesContext, FilesInfo


class AsyncioContext(FilesContext):
    """Operations on a linux aio context."""

    CONTEXT_CLASS = linux_aio.Context
    OPERATION_CLASS = linux_aio.Operation

    def _create_context(self, max_requests: int) -> Any:  # type: ignore[override]
        return FilesInfo(
            FileContext(engine="linux_aio", max_requests=max_requests, mode=self._mode(), error=submit_error)
        )
