"""The asynchronous binary file: a read-ahead and a write-behind over the position that the kernel keeps with
a descriptor.

What waits for the kernel belongs to the file and not to the task that awaits it. A task that is cancelled
leaves the operation running, and whoever uses the file next takes its result into the file first; so every
method has happened or has not. Between two awaits nothing is half done: bytes that came are put into the
read-ahead at once, and a method takes what it gives away only at its end.

A regular file is read at an offset, since only that is answered at once from the page cache, so the kernel's
position lags behind until somebody can see it: _place is where the next read begins, or -1 while the kernel
knows. Reading at an offset moves nothing, therefore such a read that is cancelled is simply dropped. It is
written at an offset too, since a ring that writes at the position takes it back when the disk is full; a
write that is done sets the position at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import functools
import io
import operator
import os
import stat
import warnings
from collections.abc import Callable
from typing import Any

from treadle._treadle import FileContext, FileOp

from ._contexts import context
from ._lines import LineFile

_Buffer = bytes | bytearray | memoryview

_WHOLE_CHUNK = 1 << 18


class BinaryFile(LineFile[bytes, _Buffer]):
    """A binary file; each method that touches the file is awaited. Use open() to get one.

    One task at a time uses the position; pread() and pwrite() have none and run in parallel.
    """

    _closed = True  # until it is made

    def __init__(
        self,
        files: FileContext,
        fd: int,
        name: str | bytes | int | os.PathLike[str],
        mode: str,
        readable: bool,
        writable: bool,
        appending: bool,
        buffer_size: int,
        info: os.stat_result,
        closefd: bool,
    ) -> None:
        self._files = files
        self._fd = fd
        self.name = name
        self.mode = mode
        self._readable = readable
        self._writable = writable
        self._size = buffer_size
        self._raw = buffer_size == 0
        self._closefd = closefd
        self._pid = os.getpid()
        # Of a device only the kernel knows what its position means; its reads and writes are not given one.
        self._seekable = stat.S_ISREG(info.st_mode) or stat.S_ISBLK(info.st_mode)
        self._device = stat.S_ISCHR(info.st_mode) and _has_position(fd)
        if readable and writable and buffer_size > 0 and not (self._seekable or self._device):
            raise io.UnsupportedOperation("File or stream is not seekable.")
        # What was read and not taken: _ahead from _at on, then _later.
        self._ahead = b""
        self._at = 0
        self._later: list[bytes] = []
        self._place = -1
        self._appends = appending or (writable and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND != 0)
        # What was written and is not in the file: what goes to the kernel first, and what was written behind
        # it.
        self._out: _Buffer = b""
        self._behind = bytearray()
        # Whether a read, or a write, may begin without a look at everything else; both at once only without a
        # common position.
        self._reads = readable
        self._writes = writable and not readable
        self._reading: FileOp[bytes] | None = None  # of a stream
        self._running: FileOp[Any] | None = None  # a write, or what sets the size
        self._after: Callable[[int], None] | None = None  # what its count means to the file
        self._closing: FileOp[None] | None = None
        self._held: set[FileOp[Any]] = set()
        if appending and self._seekable:
            os.lseek(fd, 0, os.SEEK_END)
        self._closed = False

    # what it is

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    def fileno(self) -> int:
        """Return the descriptor, with the kernel's position behind what was read of the file."""
        self._check_open()
        if self._place >= 0:
            self._tell_kernel()
        return self._fd

    def readable(self) -> bool:
        """Tell whether it can be read."""
        if self._readable or self._raw:
            self._check_open()
        return self._readable

    def writable(self) -> bool:
        """Tell whether it can be written."""
        if self._writable or self._raw:
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
        if not self._readable:
            self._refuse("not readable")
        self._check_open()

    def _check_writable(self) -> None:
        if not self._writable:
            self._refuse("not writable")
        self._check_open()

    def _check_seekable(self) -> None:
        if not self.seekable():
            raise io.UnsupportedOperation("File or stream is not seekable.")

    def _refuse(self, why: str) -> None:
        # io's raw file looks first whether it is closed.
        if self._raw:
            self._check_open()
        raise io.UnsupportedOperation(why)

    def _number(self, size: Any, allowed: bool) -> int:
        """A size that is not plainly one; -1 for none."""
        if not allowed and not self._raw:
            self._refuse("not allowed by the mode")
        return -1 if size is None else operator.index(size)

    # operations that outlive who awaits them

    def _context(self) -> FileContext:
        """The running loop's context, for what is to be begun: the loop that the file was opened in may be
        gone."""
        files = context()
        self._files = files
        return files

    def _moved(self) -> bool:
        """Whether the context that refused was not the running loop's."""
        before = self._files
        return self._context() is not before

    def _check_loop(self, op: FileOp[Any]) -> None:
        """An operation can be awaited only in the loop that it was begun in. It ends with the loop, and in a
        forked child."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._files.reap()
        if op.done() or context() is self._files:
            return
        loop = self._files.loop
        if loop is not None and loop.is_closed():
            self._files.close()
        if not op.done():
            raise RuntimeError("an operation of the file is running in another event loop")

    def _hold(self, op: FileOp[Any]) -> None:
        """Nobody awaits it any more; it keeps the file until it is done."""
        self._reads = self._writes = False
        if op not in self._held:
            self._held.add(op)
            op.add_done_callback(functools.partial(self._let_go, op))

    def _let_go(self, op: FileOp[Any], _: object) -> None:
        if op.done():
            self._held.discard(op)
            if self._running is op:
                self._finish(op)
        else:  # another one who awaited it was cancelled
            op.add_done_callback(functools.partial(self._let_go, op))

    def _begin(self, op: FileOp[Any], after: Callable[[int], None] | None) -> FileOp[Any]:
        self._running = op.keep()
        self._after = after
        return op

    async def _end(self, op: FileOp[Any]) -> Any:
        """The result of what runs; whoever comes first tells the file of it."""
        try:
            return await op
        except BaseException:
            if not op.done():
                self._hold(op)
            raise
        finally:
            if op.done() and self._running is op:
                self._finish(op)

    def _finish(self, op: FileOp[Any]) -> None:
        after, self._after = self._after, None
        self._running = None
        if after is not None:
            after(max(op.code, 0))

    async def _settle(self) -> None:
        """Wait for what somebody left running. If it failed, it has not happened, and the next attempt fails
        by itself."""
        while (op := self._running) is not None:
            self._check_loop(op)
            try:
                await self._end(op)
            except OSError:
                if not op.done() or op.code >= 0:
                    raise

    # reading

    async def _begin_reading(self) -> None:
        self._check_readable()
        if self._seekable or self._device:
            await self._flush()
            self._writes = False
        self._reads = True

    def _have(self) -> int:
        """How much is in the read-ahead."""
        have = len(self._ahead) - self._at
        return have + sum(map(len, self._later)) if self._later else have

    def _take(self, size: int) -> bytes:
        """Give away as much of the read-ahead."""
        start = self._at
        end = start + size
        data = self._ahead
        if end <= len(data):
            self._at = end
            if end == len(data) and (self._raw or end > self._size):
                self._ahead = b""
                self._at = 0
            return data[start:end]
        parts = [data[start:]]
        size -= len(parts[0])
        while True:
            self._ahead = data = self._later.pop(0)
            if size <= len(data):
                break
            parts.append(data)
            size -= len(data)
        self._at = 0
        parts.append(self._take(size))
        return b"".join(parts)

    def _put(self, data: bytes) -> None:
        """Append to the read-ahead."""
        if self._at == len(self._ahead) and not self._later:
            self._ahead = data
            self._at = 0
        elif data:
            self._later.append(data)

    def _forget(self) -> None:
        self._ahead = b""
        self._at = 0
        self._later.clear()

    def _tell_kernel(self) -> None:
        os.lseek(self._fd, self._place, os.SEEK_SET)
        self._place = -1

    def _rewind(self) -> None:
        """Set the kernel's position to the file's, and forget the read-ahead."""
        if self._place >= 0:
            os.lseek(self._fd, self._place - self._have(), os.SEEK_SET)
            self._place = -1
        elif self._have() > 0:
            os.lseek(self._fd, -self._have(), os.SEEK_CUR)
        self._forget()

    async def _fill(self, size: int) -> bool:
        """Have the kernel read up to size bytes into the read-ahead; False at the end of the file."""
        if not self._seekable:
            return await self._fill_stream(size)
        place = self._place
        if place < 0:
            place = self._place = os.lseek(self._fd, 0, os.SEEK_CUR)
        self._writes = False
        try:
            data = await self._files.read(self._fd, size, place)
        except RuntimeError:
            if not self._moved():
                raise
            return await self._fill(size)
        if self._place != place:
            # Somebody else moved it: there may be something to take, or the next one reads it again.
            return True
        if data:
            self._place = place + len(data)
            self._put(data)
        if self._raw:
            self._tell_kernel()
        return bool(data)

    async def _fill_stream(self, size: int) -> bool:
        """What a stream or a device gave cannot be read again, so its reads are taken up where they were
        left."""
        while True:
            op = self._reading
            if op is None:
                self._writes = self._writes and not self._device
                op = self._reading = self._context().read(self._fd, size).keep()
            else:
                self._check_loop(op)
            try:
                await op
            except BaseException as exc:
                if op.done():
                    if op.code != -errno.ECANCELED or not isinstance(exc, OSError) or self._files.closed:
                        raise
                    # Asked to be dropped for somebody else who awaited it.
                    self._check_open()
                else:
                    self._hold(op)
                    self._files.cancel(op)
                    raise
            else:
                return op.code > 0
            finally:
                if op.done() and self._reading is op:
                    self._take_up(op)

    def _take_up(self, op: FileOp[bytes]) -> None:
        self._reading = None
        if op.code > 0 and not self._closed:
            self._put(op.result())

    async def read(self, size: int | None = -1, /) -> bytes:
        """Read up to size bytes, all that is left for None or a negative size."""
        if size.__class__ is not int:
            size = self._number(size, self._readable)
        if not self._reads:
            await self._begin_reading()
        if size < 0:
            if size < -1 and not self._raw:
                raise ValueError("read length must be non-negative or -1")
            return await self._read_all()
        ahead = self._ahead
        start = self._at
        end = start + size
        if end <= len(ahead):
            self._at = end
            return ahead[start:end]
        if self._raw:
            return await self._read_once(size)
        while (missing := size - self._have()) > 0:
            if not await self._fill(missing if missing > self._size else self._size):
                break
        return self._take(min(size, self._have()))

    async def _read_once(self, size: int) -> bytes:
        """A read of an unbuffered file, which sets the kernel's position too."""
        fd = self._fd
        while self._seekable:
            place = os.lseek(fd, 0, os.SEEK_CUR)
            try:
                data = await self._files.read(fd, size, place)
            except RuntimeError:
                if not self._moved():
                    raise
                continue
            if os.lseek(fd, len(data), os.SEEK_CUR) == place + len(data):
                return data
            os.lseek(fd, -len(data), os.SEEK_CUR)  # somebody else read it
        if self._have() == 0:
            await self._fill(size)
        return self._take(min(size, self._have()))

    async def _read_all(self) -> bytes:
        size, hint = _WHOLE_CHUNK, 0
        if self._seekable:
            place = self._place if self._place >= 0 else os.lseek(self._fd, 0, os.SEEK_CUR)
            hint = os.fstat(self._fd).st_size - place
            if hint > 0:
                size = hint + 1
        while await self._fill(size):
            if hint > 0 and self._place == place + hint:
                break  # less than asked for: nothing is behind it
            size = _WHOLE_CHUNK
        return self._take(self._have())

    async def read1(self, size: int = -1, /) -> bytes:
        """Read up to size bytes with at most one read of the file."""
        if not self._reads:
            await self._begin_reading()
        if size < 0:
            size = self._size
        if size > 0 and self._have() == 0:
            await self._fill(size if self._raw else max(size, self._size))
        return self._take(min(size, len(self._ahead) - self._at))

    async def peek(self, size: int = 0, /) -> bytes:
        """Return some bytes without moving on, with at most one read of the file."""
        if not self._reads:
            await self._begin_reading()
        if self._have() == 0:
            await self._fill(self._size or 1)
        return self._ahead[self._at:]

    async def readinto(self, buffer: bytearray | memoryview, /) -> int:
        """Read into a buffer; return the count, short only at the end of the file."""
        return await self._read_into(buffer, False)

    async def readinto1(self, buffer: bytearray | memoryview, /) -> int:
        """Read into a buffer with at most one read of the file; return the count."""
        return await self._read_into(buffer, True)

    async def _read_into(self, buffer: bytearray | memoryview, once: bool) -> int:
        with memoryview(buffer) as given:
            if given.readonly:
                raise TypeError(
                    f"readinto() argument must be read-write bytes-like object, not {type(buffer).__name__}"
                )
            if not self._reads:
                await self._begin_reading()
            with given.cast("B") as view:
                if once or self._raw:
                    if len(view) > 0 and self._have() == 0:
                        await self._fill(len(view) if self._raw else max(len(view), self._size))
                elif self._seekable and len(view) - self._have() > self._size:
                    return await self._fill_buffer(view)
                else:
                    while (missing := len(view) - self._have()) > 0:
                        if not await self._fill(missing if missing > self._size else self._size):
                            break
                count = min(len(view), self._have())
                view[:count] = self._take(count)
                return count

    async def _fill_buffer(self, view: memoryview) -> int:
        """Read more than the read-ahead would hold, into the caller's memory."""
        have = self._have()
        place = self._place if self._place >= 0 else os.lseek(self._fd, 0, os.SEEK_CUR)
        view[:have] = b"".join((self._ahead[self._at:], *self._later))
        count = have
        while count < len(view):
            rest = view[count:]
            try:
                got = await self._into(rest, place + count - have)
            finally:
                # Of a coroutine that is thrown away, when the kernel is done.
                with contextlib.suppress(BufferError):
                    rest.release()
            if got == 0:
                break
            count += got
        self._forget()
        self._writes = False
        self._place = place + count - have
        return count

    async def _into(self, view: memoryview, place: int) -> int:
        """One read into the caller's memory, which is the caller's again when it is over: a cancel waits for
        the kernel."""
        op = self._context().readinto(self._fd, view, place).keep()
        try:
            return await op
        except GeneratorExit:
            raise
        except BaseException:
            if not op.done():
                self._files.cancel(op)
            while not op.done():
                try:
                    await op
                except (asyncio.CancelledError, OSError):
                    continue
            raise

    async def readline(self, size: int | None = -1, /) -> bytes:
        """Read to the end of a line, or up to size bytes of it."""
        if size.__class__ is not int:
            size = self._number(size, self._readable)
        if not self._reads:
            await self._begin_reading()
        if size < 0:
            start = self._at
            end = self._ahead.find(b"\n", start) + 1
            if end > 0:
                self._at = end
                return self._ahead[start:end]
        return await self._read_line(size)

    async def _read_line(self, limit: int) -> bytes:
        looked: tuple[bytes, int, int, int] | None = None
        while True:
            # What was looked through before stays so, unless another task took some of it.
            if looked is None or looked[0] is not self._ahead or looked[1] != self._at:
                looked = self._ahead, self._at, 0, 0
            first, at, pieces, have = looked
            for piece in [first[at:], *self._later][pieces:]:
                end = piece.find(b"\n") + 1
                pieces += 1
                have += end or len(piece)
                if end or 0 <= limit <= have:
                    return self._take(min(have, limit) if limit >= 0 else have)
            looked = first, at, pieces, have
            if self._at == len(first) and not self._later:
                looked = None
            if limit == 0 or not await self._fill(self._size or 1):
                return self._take(min(limit, self._have()) if limit >= 0 else self._have())

    async def pread(self, size: int, offset: int, /) -> bytes:
        """Read at an offset, beside everything else; what was written and not flushed is not seen."""
        self._check_readable()
        return await self._context().read(self._fd, size, offset)

    # writing

    async def _begin_writing(self) -> None:
        self._check_writable()
        if self._device:
            await self._settle_reading()
        if self._seekable or self._device:
            self._rewind()
            self._reads = False
        self._writes = self._running is None

    async def _settle_reading(self) -> None:
        while self._reading is not None:
            await self._fill_stream(1)

    async def write(self, data: _Buffer, /) -> int:
        """Write bytes behind what was written before; they reach the file with flush(), close() or a full
        buffer."""
        if data.__class__ is not bytes:
            if not self._writable and not self._raw:
                self._refuse("write")
            if isinstance(data, str):
                raise TypeError("a bytes-like object is required, not 'str'")
            data = bytes(memoryview(data))
        if not self._writes:
            await self._begin_writing()
        count = len(data)
        while True:
            if len(self._behind) + count <= self._size and not self._raw:
                self._behind += data
                return count
            if self._behind or self._out or self._running is not None:
                await self._flush()
            elif count == 0:
                return 0
            elif self._raw or count > self._size:
                return await self._write_through(data)

    async def _write_through(self, data: bytes) -> int:
        """Write what the write-behind has no room for. Who is cancelled has written all of it, or nothing if
        no byte was moved."""
        self._out = data
        while True:
            op = self._write_out(self._sent)
            try:
                await self._end(op)
            except BaseException:
                if not op.done():
                    if len(self._out) == len(data):
                        self._after = self._sent_or_not
                    self._files.cancel(op)
                elif op.code < 0:
                    self._out = b""
                raise
            if not self._out or self._raw:
                break
        left, self._out = len(self._out), b""
        return len(data) - left

    def _accept(self, data: bytes) -> None:
        """Take what was written, however much it is."""
        if len(data) > self._size and not self._behind and not self._out:
            self._out = data
        else:
            self._behind += data

    def _write_out(self, after: Callable[[int], None]) -> FileOp[int]:
        place = os.lseek(self._fd, 0, os.SEEK_CUR) if self._seekable else None
        return self._begin(self._context().write(self._fd, self._out, place), after)

    def _sent(self, count: int) -> None:
        if count > 0 and self._seekable:
            with contextlib.suppress(OSError):  # closed behind the file
                os.lseek(self._fd, *(0, os.SEEK_END) if self._appends else (count, os.SEEK_CUR))
        self._out = memoryview(self._out)[count:] if count < len(self._out) else b""

    def _sent_or_not(self, count: int) -> None:
        self._sent(count)
        if count == 0:
            self._out = b""

    async def pwrite(self, data: _Buffer, offset: int, /) -> int:
        """Write at an offset, beside everything else."""
        self._check_writable()
        if self._seekable:
            self._rewind()
        return await self._context().write(self._fd, data, offset)

    async def flush(self) -> None:
        """Bring what was written to the file; what a failure left unwritten stays for the next flush."""
        if self._closed:
            raise ValueError("flush of closed file")
        if self._writable:
            await self._flush()
            if self._readable and self._seekable:
                self._rewind()

    async def _flush(self) -> None:
        while True:
            if self._running is not None:
                await self._settle()
            elif self._out:
                await self._end(self._write_out(self._sent))
            elif self._behind:
                self._out, self._behind = self._behind, bytearray()
            else:
                return

    async def sync(self, *, data_only: bool = False) -> None:
        """Flush, then bring the file to the disk."""
        await self.flush()
        files = self._context()
        await (files.fdatasync(self._fd) if data_only else files.fsync(self._fd))

    # the position

    async def tell(self) -> int:
        """Return the position."""
        self._check_open()
        if self._running is not None:
            await self._settle()
        if self._device:
            await self._settle_reading()
        place = self._place if self._place >= 0 else os.lseek(self._fd, 0, os.SEEK_CUR)
        return max(0, place - self._have()) + len(self._out) + len(self._behind)

    async def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Set the position, from the start, the position or the end; return it."""
        self._check_open()
        if not self._raw:
            if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END, os.SEEK_DATA, os.SEEK_HOLE):
                raise ValueError(f"whence value {whence} unsupported")
            self._check_seekable()
        offset = operator.index(offset)
        if self._device:
            await self._settle_reading()
        await self._flush()
        if whence == os.SEEK_END and self._seekable:
            size = (await self._stat()).st_size
            # Files of /proc have no size, and many no end.
            if size > 0:
                return self._seek(size + offset, os.SEEK_SET)
        if whence not in (os.SEEK_SET, os.SEEK_CUR):
            return self._seek(offset, whence)
        place = self._place if self._place >= 0 else os.lseek(self._fd, 0, os.SEEK_CUR)
        first = place - self._have() - self._at
        target = offset if whence == os.SEEK_SET else first + self._at + offset
        if self._raw or not first <= target <= first + len(self._ahead):
            return self._seek(target, os.SEEK_SET)
        self._at = target - first
        return target

    def _seek(self, offset: int, whence: int) -> int:
        position = os.lseek(self._fd, offset, whence)
        self._place = -1
        self._forget()
        return position

    async def _stat(self) -> os.stat_result:
        try:
            return await self._files.stat(self._fd)
        except RuntimeError:
            if not self._moved():
                raise
            return await self._stat()

    async def truncate(self, size: int | None = None, /) -> int:
        """Set the size of the file, to the position if none is given; return it."""
        self._check_open()
        self._check_writable()
        if self._device:
            await self._settle_reading()
        await self._flush()
        if self._readable and self._seekable:
            self._rewind()
        target = os.lseek(self._fd, 0, os.SEEK_CUR) if size is None else size
        if target < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._writes = False
        await self._end(self._begin(self._context()._file_truncate(self._fd, target), None))
        return target

    # the end

    async def close(self) -> None:
        """Flush and close; if it is cancelled while it flushes, the file stays open."""
        if self._closed:
            if self._closing is not None and not self._closing.done():
                self._check_loop(self._closing)
                await self._closing
            return
        try:
            await self._flush()
        except Exception:
            await self._close()
            raise
        await self._close()

    async def _close(self) -> None:
        if self._closed:
            return
        self._end_of_use()
        if self._reading is not None and not self._reading.done():
            if self._seekable or self._device:
                await self._settle_reading()
            else:
                self._files.cancel(self._reading)
        if not self._closefd:
            return
        # What was only read is closed without a wait; what was written may still have to be told to a server.
        # A close that is an operation goes behind what still uses the descriptor, such as a pread(), and is
        # made even if the loop ends first.
        if not self._writable and not self._files._uses(self._fd):
            os.close(self._fd)
            return
        op = self._closing = self._context().close_fd(self._fd).keep()
        try:
            await op
        except BaseException:
            if not op.done():
                self._hold(op)
            raise

    def _end_of_use(self) -> None:
        if self._place >= 0 and not self._closefd:
            self._tell_kernel()
        self._closed = True
        self._reads = self._writes = False
        self._forget()

    def __del__(self) -> None:
        if self._closed:
            return
        try:
            if self._closefd:
                warnings.warn(f"unclosed file {self!r}", ResourceWarning, stacklevel=2, source=self)
        finally:
            try:
                self._flush_now()
            finally:
                self._end_of_use()
                if self._closefd:
                    os.close(self._fd)

    def _flush_now(self) -> None:
        """Flush without a loop, as the built-in files do when they are dropped."""
        if any(op is not None and not op.done() for op in (self._running, self._reading)):
            self._files.close()  # it is dropped too: a file is kept by what runs for it
        if self._running is not None:
            self._finish(self._running)
        # A stream that takes nothing now would wait for another program.
        flags = 0 if self._seekable or self._device else os.RWF_NOWAIT
        for data in (self._out, self._behind):
            left = memoryview(data)
            while len(left) > 0:
                left = left[os.pwritev(self._fd, [left], -1, flags) if flags else os.write(self._fd, left):]

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} name={self.name!r} mode={self.mode!r}>"


def _has_position(fd: int) -> bool:
    try:
        os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        return False
    return True
