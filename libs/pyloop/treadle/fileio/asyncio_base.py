"""What the asyncio contexts of all engines share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Any, ClassVar, TypeVar

from treadle._asyncio import running_loop
from treadle._treadle import FileContext

from . import _raw
from .abstract import AbstractContext, AbstractOperation

ContextType: Any = type[AbstractContext]
OperationType: Any = type[AbstractOperation]

_Self = TypeVar("_Self", bound="AsyncioContextBase")


class AsyncioContextBase:
    """Operations awaited in a loop; the same arguments for every engine.

    max_requests: operations in the kernel's hands at once, 512 if not given; more wait their turn.
    loop: the loop, else the current one. deferred: submit once per turn of the loop, never earlier.
    Other keywords go to the engine's context.
    """

    MAX_REQUESTS_DEFAULT: ClassVar[int] = 512
    CONTEXT_CLASS: ClassVar[type[AbstractContext]]
    OPERATION_CLASS: ClassVar[type[AbstractOperation]]

    def __init__(self, max_requests: int | None = None, loop: asyncio.AbstractEventLoop | None = None,
                 deferred: bool = False, **kwargs: Any) -> None:
        count = max_requests or self.MAX_REQUESTS_DEFAULT
        self.loop = loop or asyncio.get_event_loop()
        self.deferred = deferred
        self.semaphore = asyncio.BoundedSemaphore(count)
        self.context: Any = self._create_context(count, **kwargs)

    def _create_context(self, max_requests: int, **kwargs: Any) -> Any:
        return self.CONTEXT_CLASS(max_requests=max_requests, **kwargs)  # type: ignore[call-arg]

    async def __aenter__(self: _Self) -> _Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None,
                        traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is in flight and fail those who wait for it; idempotent, also on a stopped or closed
        loop."""
        raise NotImplementedError

    def submit(self, op: AbstractOperation) -> Awaitable[Any]:
        """Run a raw operation and give its value."""
        raise NotImplementedError

    def read(self, nbytes: int, fd: int, offset: int, priority: int = 0) -> Awaitable[bytes]:
        """Read up to nbytes at an offset."""
        return self.submit(self.OPERATION_CLASS.read(nbytes, fd, offset, priority))

    def write(self, payload: bytes, fd: int, offset: int, priority: int = 0) -> Awaitable[int]:
        """Write bytes at an offset; gives the count."""
        return self.submit(self.OPERATION_CLASS.write(payload, fd, offset, priority))

    def fsync(self, fd: int) -> Awaitable[None]:
        """Bring data and metadata to the disk."""
        return self.submit(self.OPERATION_CLASS.fsync(fd))

    def fdsync(self, fd: int) -> Awaitable[None]:
        """Bring data to the disk."""
        return self.submit(self.OPERATION_CLASS.fdsync(fd))


class FilesInfo(AbstractContext):
    """What an asyncio context says of the engine below it."""

    def __init__(self, files: FileContext, **more: Any) -> None:
        self._files = files
        self._max_requests = files.max_requests
        self.__dict__.update(more)

    @property
    def max_requests(self) -> int:
        """Operations in the kernel's hands at once."""
        return self._max_requests

    @property
    def sqpoll(self) -> int:
        """1 where a polling kernel thread is in force."""
        return int(self._files.caps()["sqpoll"])


class FilesContext(AsyncioContextBase):
    """Operations of the C library, awaited without a future or a coroutine."""

    def __init__(self, max_requests: int | None = None, loop: asyncio.AbstractEventLoop | None = None,
                 deferred: bool = False, **kwargs: Any) -> None:
        super().__init__(max_requests, loop, deferred, **kwargs)
        files: FileContext = self.context._files
        if running_loop() is self.loop:
            # In the thread of its loop the engine can start now, before a descriptor that the caller closes
            # is free again.
            files.caps()
        # Bound once: an instance attribute is found without a method object per call.
        self._read = files.read
        self._write = files.write

    def _mode(self) -> str:
        return "deferred" if self.deferred else "adaptive"

    def close(self) -> None:
        """Cancel what is in flight and fail those who wait for it; idempotent, also on a stopped or closed
        loop."""
        self.context._files.close()

    def submit(self, op: AbstractOperation) -> Awaitable[Any]:
        """Run a raw operation of this engine and give its value."""
        return self._run(op)

    async def _run(self, op: AbstractOperation) -> Any:
        if not isinstance(op, self.OPERATION_CLASS) or not isinstance(op, _raw.RawOperation):
            raise ValueError(f"an operation of {self.OPERATION_CLASS.__module__} expected")
        if op._state is not _raw._State.NEW:
            raise OSError("operation was submitted before")
        fop = op._prepare(self.context._files)
        op._begin(self.context)
        data: Any = None
        try:
            data = await fop
        finally:
            op._finish(fop.code, data if isinstance(data, bytes) else None)
            op._call_back()
        return op.get_value()

    def read(self, nbytes: int, fd: int, offset: int, priority: int = 0) -> Awaitable[bytes]:
        """Read up to nbytes at an offset."""
        return self._read(fd, nbytes, offset if offset >= 0 else _raw.BAD_OFFSET)

    def write(self, payload: bytes, fd: int, offset: int, priority: int = 0) -> Awaitable[int]:
        """Write bytes at an offset; gives the count."""
        return self._write(fd, payload, offset if offset >= 0 else _raw.BAD_OFFSET)

    def fsync(self, fd: int) -> Awaitable[None]:
        """Bring data and metadata to the disk."""
        files: FileContext = self.context._files
        return files.fsync(fd)

    def fdsync(self, fd: int) -> Awaitable[None]:
        """Bring data to the disk."""
        files: FileContext = self.context._files
        return files.fdatasync(fd)
