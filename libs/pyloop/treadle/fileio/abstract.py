"""The interfaces of contexts and operations, for type checks and for other implementations."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any


class AbstractContext(abc.ABC):
    """Takes operations, and completes them in any order."""

    @property
    def max_requests(self) -> int:
        """How many operations the context has room for."""
        raise NotImplementedError

    def submit(self, *aio_operations: AbstractOperation) -> int:
        """Take operations; return how many were taken."""
        raise NotImplementedError(aio_operations)

    def cancel(self, *aio_operations: AbstractOperation) -> int:
        """Ask for operations to be dropped."""
        raise NotImplementedError(aio_operations)


class AbstractOperation(abc.ABC):
    """One read, write or sync of one descriptor; submitted once."""

    @classmethod
    @abc.abstractmethod
    def read(cls, nbytes: int, fd: int, offset: int, priority: int = 0) -> AbstractOperation:
        """Read up to nbytes at an offset."""

    @classmethod
    @abc.abstractmethod
    def write(cls, payload_bytes: bytes, fd: int, offset: int, priority: int = 0) -> AbstractOperation:
        """Write bytes at an offset."""

    @classmethod
    @abc.abstractmethod
    def fsync(cls, fd: int, priority: int = 0) -> AbstractOperation:
        """Bring data and metadata to the disk."""

    @classmethod
    @abc.abstractmethod
    def fdsync(cls, fd: int, priority: int = 0) -> AbstractOperation:
        """Bring data to the disk."""

    @abc.abstractmethod
    def get_value(self) -> bytes | int | None:
        """Return bytes of a read, the count of a write, None of a sync; raise OSError for a failure."""

    @property
    @abc.abstractmethod
    def fileno(self) -> int:
        """The descriptor."""

    @property
    @abc.abstractmethod
    def offset(self) -> int:
        """Where in the file."""

    @property
    @abc.abstractmethod
    def payload(self) -> bytes | memoryview | None:
        """The bytes to write, or those read."""

    @property
    @abc.abstractmethod
    def nbytes(self) -> int:
        """Bytes asked for, and once done the bytes moved."""

    @abc.abstractmethod
    def set_callback(self, callback: Callable[[int], Any]) -> bool:
        """Have callback(result) called on completion."""
