"""The asyncio context on Python threads."""

from __future__ import annotations

import asyncio
from typing import Any

from . import python_aio
from .abstract import AbstractOperation
from .asyncio_base import AsyncioContextBase


class AsyncioContext(AsyncioContextBase):
    """Operations on a pool of Python threads."""

    CONTEXT_CLASS = python_aio.Context
    OPERATION_CLASS = python_aio.Operation

    def close(self) -> None:
        """Stop the pool after what was queued; idempotent."""
        self.context.close()

    async def submit(self, op: AbstractOperation) -> Any:
        """Run a raw operation and give its value."""
        if not isinstance(op, python_aio.Operation):
            raise ValueError("an operation of python_aio expected")
        done: asyncio.Future[int] = self.loop.create_future()

        def finish(result: int) -> None:
            if not done.done():
                done.set_result(result)

        op.set_callback(lambda result: self.loop.call_soon_threadsafe(finish, result))
        async with self.semaphore:
            if self.context.submit(op) != 1:
                raise OSError("operation was submitted before")
            await done
        return op.get_value()
