"""The asyncio context on Python threads."""

from __future__ import annotations

import asyncio
import contextlib
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
            self.semaphore.release()
            if not done.done():
                done.set_result(result)

        await self.semaphore.acquire()
        try:
            if op.in_progress:
                raise OSError("operation was submitted before")
            op.set_callback(lambda result: self.loop.call_soon_threadsafe(finish, result))
            self.context.submit(op)
        except BaseException:
            self.semaphore.release()
            raise
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError:
            # Whoever is cancelled may close the descriptor: no further call is made, and a write in its call
            # is waited for.
            while op.drop() and not done.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([done])
            raise
        return op.get_value()
