"""What binary and text files do alike, by their own readline(), write() and close()."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from types import TracebackType
from typing import Generic, TypeVar

_Self = TypeVar("_Self", bound="LineFile")  # type: ignore[type-arg]
_Line = TypeVar("_Line", bytes, str)
_Data = TypeVar("_Data", contravariant=True)


class LineFile(Generic[_Line, _Data]):
    """A file of lines that is closed at the end of its `async with`."""

    def _check_open(self) -> None:
        raise NotImplementedError

    async def readline(self, size: int = -1, /) -> _Line:
        """Read to the end of a line, or up to size bytes or characters of it."""
        raise NotImplementedError

    async def write(self, data: _Data, /) -> int:
        """Write; return the count."""
        raise NotImplementedError

    async def close(self) -> None:
        """Flush and close."""
        raise NotImplementedError

    async def readlines(self, hint: int | None = -1, /) -> list[_Line]:
        """Read lines until the end, or until hint bytes or characters were read."""
        limit = 0 if hint is None else operator.index(hint)
        self._check_open()
        lines: list[_Line] = []
        total = 0
        while line := await self.readline():
            lines.append(line)
            total += len(line)
            if 0 < limit < total:
                break
        return lines

    def __aiter__(self: _Self) -> _Self:
        self._check_open()
        return self

    async def __anext__(self) -> _Line:
        line = await self.readline()
        if not line:
            raise StopAsyncIteration
        return line

    async def writelines(self, lines: Iterable[_Data], /) -> None:
        """Write each of the lines."""
        self._check_open()
        for line in lines:
            await self.write(line)

    async def __aenter__(self: _Self) -> _Self:
        self._check_open()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None,
                        traceback: TracebackType | None) -> None:
        await self.close()
