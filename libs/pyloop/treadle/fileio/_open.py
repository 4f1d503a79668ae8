"""open() and the whole-file functions, on a context that each loop has of its own."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import warnings
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, overload

from ._binary import BinaryFile
from ._contexts import context
from ._text import TextFile

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_File = TypeVar("_File", BinaryFile, TextFile)

_BUFFER = 1 << 16
# A file up to this size is read by one operation that also opens and closes it.
_WHOLE = 1 << 16
_WRITING = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


_closing: set[Any] = set()  # tasks that end what a cancel interrupted


async def _close(file: BinaryFile | TextFile) -> None:
    await file.close()


class _Opening(Generic[_File]):
    """What open() returns: awaited it gives the file, in `async with` it closes it too."""

    __slots__ = ("_file", "_make")

    def __init__(self, make: Callable[[], Coroutine[Any, Any, _File]]) -> None:
        self._make: Callable[[], Coroutine[Any, Any, _File]] = make
        self._file: _File | None = None

    def __await__(self) -> Generator[Any, Any, _File]:
        return self._make().__await__()

    async def __aenter__(self) -> _File:
        self._file = await self._make()
        return self._file

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None,
                        traceback: TracebackType | None) -> None:
        if self._file is None:
            return
        try:
            await self._file.close()
        except asyncio.CancelledError:
            if not self._file.closed:  # it was flushing; nobody else would close it
                closing = asyncio.get_running_loop().create_task(_close(self._file))
                _closing.add(closing)
                closing.add_done_callback(_closing.discard)
            raise


class _Mode:
    """A mode string, checked as io.open checks it."""

    def __init__(
        self, mode: str, buffering: int, encoding: str | None, errors: str | None, newline: str | None
    ) -> None:
        kinds = set(mode)
        if kinds - set("axrwb+t") or len(mode) > len(kinds):
            raise ValueError(f"invalid mode: {mode!r}")
        self.text = "b" not in kinds
        if "t" in kinds and not self.text:
            raise ValueError("can't have text and binary mode at once")
        chosen = kinds & set("axrw")
        if len(chosen) != 1:
            raise ValueError("must have exactly one of create/read/write/append mode")
        if not self.text and (encoding is not None or errors is not None or newline is not None):
            raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
        if self.text and buffering == 0:
            raise ValueError("can't have unbuffered text I/O")
        if buffering < -1:
            raise ValueError("invalid buffering size")
        if buffering == 1 and not self.text:
            warnings.warn(
                "line buffering (buffering=1) isn't supported in binary mode, the default buffer size will be used",
                RuntimeWarning,
                stacklevel=3,
            )
        update = "+" in kinds
        self.readable = "r" in kinds or update
        self.writable = "r" not in kinds or update
        self.appending = "a" in kinds
        letter = (
            "a" if self.appending else "x" if "x" in kinds else "w" if chosen == {"w"} and not update else "r"
        )
        self.mode = letter + ("b+" if update else "b")
        self.audited = next(iter(chosen)) + ("+" if update else "")
        access = os.O_RDWR if update else os.O_RDONLY if self.readable else os.O_WRONLY
        more = {
            "r": 0,
            "w": os.O_CREAT | os.O_TRUNC,
            "a": os.O_CREAT | os.O_APPEND,
            "x": os.O_CREAT | os.O_EXCL,
        }
        self.flags = access | more[chosen.pop()] | os.O_CLOEXEC


async def _open_binary(file: _Path | int, mode: str, parsed: _Mode, buffering: int, closefd: bool,
                       opener: Callable[[Any, int], int] | None, told: bool = False) -> BinaryFile:
    files = context()
    given = isinstance(file, int)
    if isinstance(file, int) and file < 0:
        raise ValueError("negative file descriptor")
    if not told:
        sys.audit("open", file if isinstance(file, int) else os.fspath(file), parsed.audited, parsed.flags)
    if isinstance(file, int):
        fd = file
    elif opener is not None:
        fd = opener(file, parsed.flags)
        if fd < 0:
            raise ValueError(f"opener returned {fd}")
        os.set_inheritable(fd, False)
    else:
        if not closefd:
            raise ValueError("Cannot use closefd=False with file name")
        fd = await files._file_open(file, parsed.flags, 0o666)
    try:
        info = os.fstat(fd)
        if stat.S_ISDIR(info.st_mode):
            raise IsADirectoryError(21, os.strerror(21), file)
        size = 0 if buffering == 0 else buffering if buffering > 1 else _BUFFER
        return BinaryFile(
            files,
            fd,
            file,  # type: ignore[arg-type]
            parsed.mode,
            parsed.readable,
            parsed.writable,
            parsed.appending,
            size,
            info,
            closefd,
        )
    except BaseException:
        if not given:
            os.close(fd)
        raise


async def _open_text(file: _Path | int, mode: str, parsed: _Mode, buffering: int, closefd: bool,
                     opener: Callable[[Any, int], int] | None, encoding: str | None, errors: str | None,
                     newline: str | None) -> TextFile:
    binary = await _open_binary(file, mode, parsed, -1 if buffering == 1 else buffering, closefd, opener)
    try:
        return TextFile(
            binary, mode, encoding, errors, newline, buffering == 1 or (buffering < 0 and binary.isatty())
        )
    except BaseException:
        await binary.close()
        raise


@overload
def open(
    file: _Path | int,
    mode: Literal["r", "w", "a", "x", "r+", "w+", "a+", "x+", "rt", "wt", "at", "xt"] = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
) -> _Opening[TextFile]: ...


@overload
def open(
    file: _Path | int,
    mode: Literal["rb", "wb", "ab", "xb", "rb+", "wb+", "ab+", "xb+", "r+b", "w+b", "a+b", "x+b"],
    buffering: int = -1,
    encoding: None = None,
    errors: None = None,
    newline: None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
) -> _Opening[BinaryFile]: ...


@overload
def open(
    file: _Path | int,
    mode: str,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
) -> _Opening[Any]: ...


def open(
    file: _Path | int,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
) -> _Opening[Any]:
    """Open a file, with the arguments of the built-in open(): ``async with open(path) as f`` or ``f = await
    open(path)``."""
    parsed = _Mode(mode, buffering, encoding, errors, newline)
    if parsed.text:
        return _Opening(
            lambda: _open_text(file, mode, parsed, buffering, closefd, opener, encoding, errors, newline)
        )
    return _Opening(lambda: _open_binary(file, mode, parsed, buffering, closefd, opener))


async def read_bytes(path: _Path) -> bytes:
    """Read a whole file."""
    data = await context().read_file(path, _WHOLE)
    if len(data) < _WHOLE:
        return data
    file = await _open_binary(path, "rb", _Mode("rb", -1, None, None, None), -1, True, None, told=True)
    async with file:
        return await file.read()


async def write_bytes(path: _Path, data: bytes | bytearray | memoryview, *, sync: bool = False) -> int:
    """Write a whole file, replacing what was there; return the count. With sync, it is on the disk then."""
    files = context()
    sys.audit("open", os.fspath(path), "w", _WRITING)
    fd = await files._file_open(path, _WRITING, 0o666)
    try:
        done = 0
        with memoryview(data).cast("B") as view:
            while done < len(view):
                done += await files.write(fd, view[done:], done)
        if sync:
            await files.fsync(fd)
    finally:
        os.close(fd)
    return done


async def read_text(
    path: _Path, encoding: str | None = None, errors: str | None = None, newline: str | None = None
) -> str:
    """Read a whole file as text."""
    if newline is None and (encoding or "").lower() in ("utf-8", "utf8"):
        text = (await read_bytes(path)).decode("utf-8", errors or "strict")
        return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    async with open(path, "r", encoding=encoding, errors=errors, newline=newline) as file:
        return await file.read()


async def write_text(path: _Path, text: str, encoding: str | None = None, errors: str | None = None,
                     newline: str | None = None) -> int:
    """Write a whole file as text, replacing what was there; return the characters written."""
    if not isinstance(text, str):
        raise TypeError(f"text must be str, not {type(text).__name__}")
    async with open(path, "w", encoding=encoding, errors=errors, newline=newline) as file:
        return await file.write(text)


async def copy(source: _Path, target: _Path) -> int:
    """Copy the contents of a file, in the kernel where it can; return the bytes copied."""
    files = context()
    sys.audit("shutil.copyfile", source, target)
    sys.audit("open", os.fspath(source), "r", os.O_RDONLY | os.O_CLOEXEC)
    from_fd = await files._file_open(source, os.O_RDONLY | os.O_CLOEXEC, 0o666)
    try:
        info = os.fstat(from_fd)
        if stat.S_ISDIR(info.st_mode):
            raise IsADirectoryError(21, os.strerror(21), source)
        sys.audit("open", os.fspath(target), "w", _WRITING)
        to_fd = await files._file_open(target, _WRITING & ~os.O_TRUNC, 0o666)  # it may be the source
        try:
            if os.path.samestat(info, os.fstat(to_fd)):
                raise OSError(22, "source and target are the same file", source, None, target)
            await files._file_truncate(to_fd, 0)
            done = 0
            while count := await files.copy(from_fd, done, to_fd, done, 1 << 30):
                done += count
            return done
        finally:
            os.close(to_fd)
    finally:
        os.close(from_fd)
