"""The asynchronous binary file: a position, a read-ahead and a write-behind over one descriptor."""

from __future__ import annotations

import io
import os
import stat

from treadle._treadle import FileContext, FileOp

from ._lines import LineFile

_Buffer = bytes | bytearray | memoryview

_WHOLE_CHUNK = 1 << 18


class BinaryFile(LineFile[bytes, _Buffer]):
    """A binary file; each method that touches the file is awaited. Use open() to get one.

    One task at a time uses the position; pread() and pwrite() have none and run in parallel.
    """

    def __init__(self, files: FileContext, fd: int, name: str | bytes | int | os.PathLike[str], mode: str, readable: bool,
                 writable: bool, appending: bool, buffer_size: int, info: os.stat_result, closefd: bool) -> None:
        self._files = files
        self._fd = fd
        self.name = name
        self.mode = mode
        self._readable = readable
        self._writable = writable
        self._appending = appending
        self._size = buffer_size
        self._closefd = closefd
        self._closed = False
        # Of a device only the kernel knows what its position means; its reads and writes are not given one.
        self._seekable = stat.S_ISREG(info.st_mode) or stat.S_ISBLK(info.st_mode)
        self._device = stat.S_ISCHR(info.st_mode) and _has_position(fd)
        if readable and writable and buffer_size > 1 and not self.seekable():
            raise io.UnsupportedOperation("File or stream is not seekable.")
        self._position = 0
        self._ahead = b""
        self._ahead_start = 0
        self._behind = bytearray()
        if self._seekable:
            self._position = os.lseek(fd, 0, os.SEEK_END if appending else os.SEEK_CUR)

    # what it is

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    def fileno(self) -> int:
        """Return the descriptor."""
        self._check_open()
        return self._fd

    def readable(self) -> bool:
        """Tell whether it can be read."""
        self._check_open()
        return self._readable

    def writable(self) -> bool:
        """Tell whether it can be written."""
        self._check_open()
        return self._writable

    def seekable(self) -> bool:
        """Tell whether it has a position that can be set."""
        self._check_open()
        return self._seekable or self._device

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""
        self._check_open()
        return os.isatty(self._fd)

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("I/O operation on closed file.")

    def _check_readable(self) -> None:
        self._check_open()
        if not self._readable:
            raise io.UnsupportedOperation("not readable")

    def _check_writable(self) -> None:
        self._check_open()
        if not self._writable:
            raise io.UnsupportedOperation("not writable")

    def _check_seekable(self) -> None:
        if not self.seekable():
            raise io.UnsupportedOperation("File or stream is not seekable.")

    # reading

    def _offset(self) -> int | None:
        return self._position if self._seekable else None

    def _buffered(self) -> bytes:
        """What the read-ahead holds from the position on."""
        start = self._position - self._ahead_start
        if 0 <= start < len(self._ahead):
            return self._ahead if start == 0 else self._ahead[start:]
        return b""

    def _forget_ahead(self) -> None:
        self._ahead = b""
        self._ahead_start = self._position

    def _take(self, data: bytes) -> bytes:
        self._position += len(data)
        return data

    async def _fill(self, size: int) -> bytes:
        """Read ahead at the position; what came is also the read-ahead."""
        data = await self._files.read(self._fd, size, self._offset())
        self._ahead = data
        self._ahead_start = self._position
        return data

    async def read(self, size: int | None = -1, /) -> bytes:
        """Read up to size bytes, all that is left for None or a negative size."""
        self._check_readable()
        if self._behind:
            await self.flush()
        if size is None or size < 0:
            return await self._read_all()
        data = self._buffered()
        if len(data) >= size:
            return self._take(data[:size])
        parts = [self._take(data)]
        missing = size - len(data)
        while missing > 0:
            if missing >= self._size:
                data = await self._files.read(self._fd, missing, self._offset())
            else:
                data = (await self._fill(self._size))[:missing]
            if not data:
                break
            parts.append(self._take(data))
            missing -= len(data)
        return b"".join(parts)

    async def _read_all(self) -> bytes:
        parts = [self._take(self._buffered())]
        self._forget_ahead()
        hint = os.fstat(self._fd).st_size - self._position if self._seekable else 0
        size = hint + 1 if hint > 0 else _WHOLE_CHUNK
        while True:
            data = await self._files.read(self._fd, size, self._offset())
            if not data:
                break
            parts.append(self._take(data))
            if hint > 0 and len(data) == hint:
                break
            size = _WHOLE_CHUNK
        self._forget_ahead()
        return b"".join(parts) if len(parts) > 2 else parts[0] + b"".join(parts[1:])

    async def read1(self, size: int = -1, /) -> bytes:
        """Read up to size bytes with at most one read of the file."""
        self._check_readable()
        if self._behind:
            await self.flush()
        if size is None or size < 0:
            size = self._size
        data = self._buffered()
        if not data:
            data = await self._fill(max(size, self._size))
        return self._take(data[:size])

    async def readinto(self, buffer: bytearray | memoryview, /) -> int:
        """Read into a buffer; return the count, short only at the end of the file."""
        self._check_readable()
        if self._behind:
            await self.flush()
        with memoryview(buffer).cast("B") as view:
            data = self._buffered()[: len(view)]
            view[: len(data)] = data
            count = len(self._take(data))
            while count < len(view):
                got = await self._files.readinto(self._fd, view[count:], self._offset())
                if got == 0:
                    break
                self._position += got
                count += got
            return count

    async def readline(self, size: int | None = -1, /) -> bytes:
        """Read to the end of a line, or up to size bytes of it."""
        self._check_readable()
        if self._behind:
            await self.flush()
        limit = -1 if size is None else size
        parts: list[bytes] = []
        have = 0
        while limit < 0 or have < limit:
            data = self._buffered() or await self._fill(self._size)
            if not data:
                break
            end = data.find(b"\n") + 1
            piece = data[:end] if end else data
            if 0 <= limit < have + len(piece):
                piece = piece[: limit - have]
            parts.append(self._take(piece))
            have += len(piece)
            if piece.endswith(b"\n"):
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pread(self, size: int, offset: int, /) -> FileOp[bytes]:
        """Read at an offset, beside everything else; what was written and not flushed is not seen."""
        self._check_readable()
        return self._files.read(self._fd, size, offset)

    # writing

    async def write(self, data: _Buffer, /) -> int:
        """Write bytes behind what was written before; they reach the file with flush(), close() or a full buffer."""
        self._check_writable()
        with memoryview(data).cast("B") as view:
            count = len(view)
            if self._ahead:
                self._forget_ahead()
            if count >= self._size:
                await self.flush()
                await self._write_out(view)
            else:
                self._behind += view
                if len(self._behind) >= self._size:
                    await self.flush()
            return count

    async def _write_out(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            done += self._advance(await self._files.write(self._fd, view[done:], self._offset()))

    def _advance(self, count: int) -> int:
        if self._appending and self._seekable:
            self._position = os.lseek(self._fd, 0, os.SEEK_END)
        else:
            self._position += count
        return count

    def pwrite(self, data: _Buffer, offset: int, /) -> FileOp[int]:
        """Write at an offset, beside everything else."""
        self._check_writable()
        self._forget_ahead()
        return self._files.write(self._fd, data, offset)

    async def flush(self) -> None:
        """Bring what was written to the file; what a failure left unwritten stays for the next flush."""
        self._check_open()
        while self._behind:
            data = bytes(self._behind)
            count = self._advance(await self._files.write(self._fd, data, self._offset()))
            del self._behind[:count]

    async def sync(self, *, data_only: bool = False) -> None:
        """Flush, then bring the file to the disk."""
        await self.flush()
        await (self._files.fdatasync(self._fd) if data_only else self._files.fsync(self._fd))

    # the position

    async def tell(self) -> int:
        """Return the position."""
        self._check_open()
        if not self._seekable:
            return max(0, os.lseek(self._fd, 0, os.SEEK_CUR) - len(self._buffered())) + len(self._behind)
        return self._position + len(self._behind)

    async def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Set the position, from the start, the position or the end; return it."""
        self._check_open()
        if not self._seekable:
            return await self._seek_device(offset, whence)
        await self.flush()
        if whence == os.SEEK_SET:
            target = offset
        elif whence == os.SEEK_CUR:
            target = self._position + offset
        elif whence == os.SEEK_END:
            size = (await self._files.stat(self._fd)).st_size
            # Files of /proc have no size, and many no end.
            target = size + offset if size > 0 else os.lseek(self._fd, offset, whence)
        else:
            # SEEK_DATA and SEEK_HOLE are the kernel's to answer.
            target = os.lseek(self._fd, offset, whence)
        if target < 0:
            raise OSError(22, os.strerror(22))
        self._position = target
        return target

    async def _seek_device(self, offset: int, whence: int) -> int:
        if self._size > 1:
            self._check_seekable()
        await self.flush()
        if whence == os.SEEK_CUR:
            offset -= len(self._buffered())
        self._forget_ahead()
        return os.lseek(self._fd, offset, whence)

    async def truncate(self, size: int | None = None, /) -> int:
        """Set the size of the file, to the position if none is given; return it."""
        self._check_writable()
        await self.flush()
        target = self._position if size is None else size
        if target < 0:
            raise OSError(22, os.strerror(22))
        self._forget_ahead()
        await self._files.truncate(self._fd, target)
        return target

    # the end

    async def close(self) -> None:
        """Flush and close; the descriptor is closed also when the flush fails."""
        if self._closed:
            return
        try:
            await self.flush()
        finally:
            self._closed = True
            if self._closefd:
                # What was only read is closed without a wait; what was written may still have to be told to a server.
                if self._writable:
                    await self._files.close_fd(self._fd)
                else:
                    os.close(self._fd)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} name={self.name!r} mode={self.mode!r}>"


def _has_position(fd: int) -> bool:
    try:
        os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        return False
    return True
