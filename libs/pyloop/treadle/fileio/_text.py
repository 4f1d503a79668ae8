"""The asynchronous text file: codecs and newlines over a binary file, by the rules of io.TextIOWrapper.

Bytes that came are decoded and put behind the characters at hand at once, and a method takes what it gives
away only at its end; so a cancelled one has not happened. What is written is encoded and accepted before
anything waits; so a cancelled write has happened.
"""

from __future__ import annotations

import codecs
import io
import locale
import operator
import os
from typing import NamedTuple

from ._binary import BinaryFile
from ._lines import LineFile

_CHUNK = 8192
# A position between two characters is one number: byte offset, decoder flags, and characters behind the
# offset.
_FLAGS_SHIFT = 64
_SKIP_SHIFT = 128
_MASK = (1 << 64) - 1


class _Chunk(NamedTuple):
    """Where characters came from: the decoder's state before, and the bytes it was fed."""

    pending: bytes
    flags: int
    data: bytes


def _encoding_of(encoding: str | None) -> str:
    name = io.text_encoding(encoding)
    return locale.getencoding() if name == "locale" else name


class TextFile(LineFile[str, str]):
    """A text file; each method that touches the file is awaited. Use open() to get one."""

    def __init__(
        self,
        buffer: BinaryFile,
        mode: str,
        encoding: str | None,
        errors: str | None,
        newline: str | None,
        line_buffering: bool,
    ) -> None:
        if newline not in (None, "", "\n", "\r", "\r\n"):
            raise ValueError(f"illegal newline value: {newline!r}")
        self.encoding = _encoding_of(encoding)
        info = codecs.lookup(self.encoding)
        if not getattr(info, "_is_text_encoding", True):
            raise LookupError(
                f"{self.encoding!r} is not a text encoding; use codecs.open() to handle arbitrary codecs"
            )
        self.buffer = buffer
        self.mode = mode
        self.errors = errors if errors is not None else "strict"
        self._newline = newline
        self._line_buffering = line_buffering
        self._encoder = (
            info.incrementalencoder(self.errors) if buffer._writable and info.incrementalencoder else None
        )
        self._decoder: codecs.IncrementalDecoder | io.IncrementalNewlineDecoder | None = None
        if buffer._readable and info.incrementaldecoder is not None:
            self._decoder = info.incrementaldecoder(self.errors)
            if newline in (None, ""):
                self._decoder = io.IncrementalNewlineDecoder(self._decoder, newline is None)
        # What was decoded and not taken: _chars from _used on, then those of _later. Each has the chunk it
        # came from, if known.
        self._chars = ""
        self._used = 0
        self._chunk: _Chunk | None = None
        self._later: list[tuple[str, _Chunk]] = []
        self._skip = 0  # characters that seek() has still to go past
        if self._encoder is not None and buffer._seekable and os.lseek(buffer._fd, 0, os.SEEK_CUR) != 0:
            self._encoder.setstate(0)

    # what it is

    @property
    def name(self) -> str | bytes | int | os.PathLike[str]:
        """What open() was given."""
        return self.buffer.name

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self.buffer.closed

    @property
    def line_buffering(self) -> bool:
        """Whether each line is flushed."""
        return self._line_buffering

    @property
    def write_through(self) -> bool:
        """Whether writes go around the write-behind."""
        return False

    @property
    def newlines(self) -> str | tuple[str, ...] | None:
        """The kinds of line ends that were read so far."""
        return getattr(self._decoder, "newlines", None)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.buffer.fileno()

    def readable(self) -> bool:
        """Tell whether it can be read."""
        return self.buffer.readable()

    def writable(self) -> bool:
        """Tell whether it can be written."""
        return self.buffer.writable()

    def seekable(self) -> bool:
        """Tell whether it has a position that can be set."""
        return self.buffer.seekable()

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""
        return self.buffer.isatty()

    def _check_open(self) -> None:
        self.buffer._check_open()

    def _check_readable(self) -> None:
        self.buffer._check_open()
        if self._decoder is None:
            raise io.UnsupportedOperation("not readable")

    # reading

    async def _begin_reading(self) -> None:
        self._check_readable()
        await self.buffer._begin_reading()
        while self._skip > 0:
            more = await self._more()
            passed = min(self._skip, self._have())
            self._take(passed)
            self._skip = self._skip - passed if more else 0

    def _restart(self) -> None:
        """Forget what was decoded and not taken."""
        self._chars = ""
        self._used = 0
        self._chunk = None
        self._later.clear()
        self._skip = 0

    def _have(self) -> int:
        """How many characters are at hand."""
        have = len(self._chars) - self._used
        return have + sum(len(chars) for chars, _ in self._later) if self._later else have

    def _take(self, size: int) -> str:
        """Give away as many of them."""
        start = self._used
        end = start + size
        chars = self._chars
        if end <= len(chars):
            self._used = end
            return chars[start:end]
        parts = [chars[start:]]
        size -= len(parts[0])
        while True:
            self._chars, self._chunk = self._later.pop(0)
            if size <= len(self._chars):
                break
            parts.append(self._chars)
            size -= len(self._chars)
        self._used = size
        parts.append(self._chars[:size])
        return "".join(parts)

    async def _more(self) -> bool:
        """Decode one more chunk; False at the end of the file."""
        data = await self.buffer.read1(_CHUNK)
        decoder = self._decoder
        assert decoder is not None
        pending, flags = decoder.getstate()
        chars = decoder.decode(data, not data)
        if self._used == len(self._chars) and not self._later:
            self._chars = chars
            self._used = 0
            self._chunk = _Chunk(pending, flags, data)
        elif data or chars:
            self._later.append((chars, _Chunk(pending, flags, data)))
        return bool(data)

    async def read(self, size: int | None = -1, /) -> str:
        """Read up to size characters, all that is left for None or a negative size."""
        if size.__class__ is not int:
            size = -1 if size is None else operator.index(size)
        if self._skip or not self.buffer._reads:
            await self._begin_reading()
        if size < 0:
            return await self._read_all()
        while self._have() < size and await self._more():
            pass
        return self._take(min(size, self._have()))

    async def _read_all(self) -> str:
        data = await self.buffer.read()
        assert self._decoder is not None
        rest = self._decoder.decode(data, True)
        text = self._take(self._have()) + rest
        self._restart()
        return text

    def _line_end(self, text: str, start: int) -> int:
        """The index behind the first line end from start on; 0 for none."""
        if self._newline in (None, "\n"):
            return text.find("\n", start) + 1
        if self._newline:
            found = text.find(self._newline, start)
            return found + len(self._newline) if found >= 0 else 0
        unix, mac = text.find("\n", start), text.find("\r", start)
        if mac < 0 or 0 <= unix < mac:
            return unix + 1
        return mac + 2 if text[mac + 1: mac + 2] == "\n" else mac + 1

    async def readline(self, size: int = -1, /) -> str:
        """Read to the end of a line, or up to size characters of it."""
        if size.__class__ is not int:
            size = operator.index(size)
        if self._skip or not self.buffer._reads:
            await self._begin_reading()
        if size < 0:
            start = self._used
            end = self._line_end(self._chars, start)
            if end > 0 and not self._later:
                self._used = end
                return self._chars[start:end]
        return await self._read_line(size)

    async def _read_line(self, limit: int) -> str:
        first, used, joined, looked = self._chars, -1, 0, 0
        line = ""
        while True:
            if first is not self._chars or used != self._used:
                # The first look, or another task took something meanwhile.
                first, used, joined, looked = self._chars, self._used, 0, 0
                line = first[used:]
            for chars, _ in self._later[joined:]:
                line += chars
            joined = len(self._later)
            # The end of a line may be two characters, the first of which came before.
            end = self._line_end(line, max(0, looked - 1)) or len(line) * (0 <= limit <= len(line))
            if end > 0 or limit == 0:
                return self._take(min(end, limit) if limit >= 0 else end)
            looked = len(line)
            if self._used == len(first) and not self._later:
                used = -1
            if not await self._more():
                rest = self._chars[self._used:] + "".join(chars for chars, _ in self._later)
                end = self._line_end(rest, 0) or len(rest)
                line = self._take(min(end, limit) if limit >= 0 else end)
                if self._have() == 0:
                    self._chunk = None
                return line

    # writing

    async def write(self, text: str, /) -> int:
        """Write text; it reaches the file with flush(), close() or a full buffer."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        buffer = self.buffer
        if not buffer._writes:
            buffer._check_open()
            if self._encoder is None:
                raise io.UnsupportedOperation("not writable")
        encoder = self._encoder
        assert encoder is not None
        count = len(text)
        has_line = self._line_buffering and ("\n" in text or "\r" in text)
        if self._newline in ("\r", "\r\n"):
            text = text.replace("\n", self._newline)
        if not buffer._writes:
            await buffer._begin_writing()
        buffer._accept(encoder.encode(text))
        if self._decoder is not None:
            self._restart()
            self._decoder.reset()
        if has_line or len(buffer._behind) > buffer._size or (buffer._out and buffer._running is None):
            await buffer._flush()
        return count

    async def flush(self) -> None:
        """Bring what was written to the file."""
        await self.buffer.flush()

    async def sync(self, *, data_only: bool = False) -> None:
        """Flush, then bring the file to the disk."""
        await self.buffer.sync(data_only=data_only)

    # the position

    async def tell(self) -> int:
        """Return a number for the position that seek() takes."""
        self.buffer._check_seekable()
        await self.flush()
        if self._skip:
            await self._begin_reading()
        end = await self.buffer.tell() - sum(len(chunk.data) for _, chunk in self._later)
        if self._decoder is None or self._chunk is None:
            return end
        pending, flags, data = self._chunk
        data = pending + data
        start = end - len(data)
        if self._used == 0:
            return start | flags << _FLAGS_SHIFT
        return self._position_in(start, flags, data)

    def _position_in(self, start: int, flags: int, data: bytes) -> int:
        """Decode the chunk again up to the characters used, to find the last clean point before them."""
        assert self._decoder is not None
        kept = self._decoder.getstate()
        try:
            safe, chars, flags = self._clean_point(data, flags)
            skipped = chars
            for index in range(safe, len(data)):
                if chars >= self._used:
                    break
                chars += len(self._decoder.decode(data[index: index + 1]))
                pending, now = self._decoder.getstate()
                if not pending and chars <= self._used:
                    safe, flags, skipped = index + 1, now, chars
        finally:
            self._decoder.setstate(kept)
        return (start + safe) | flags << _FLAGS_SHIFT | (self._used - skipped) << _SKIP_SHIFT

    def _clean_point(self, data: bytes, flags: int) -> tuple[int, int, int]:
        """A guess from the average length of a character, taken back until it lies before the characters
        used.

        Returns bytes, characters and flags there, with the decoder set to it.
        """
        assert self._decoder is not None
        guess = self._used * len(data) // max(len(self._chars), 1)
        back = 1
        while guess > 0:
            self._decoder.setstate((b"", flags))
            chars = len(self._decoder.decode(data[:guess]))
            pending, now = self._decoder.getstate()
            if not pending and chars <= self._used:
                return guess, chars, now
            guess -= back
            back *= 2
        self._decoder.setstate((b"", flags))
        return 0, 0, flags

    async def seek(self, cookie: int, whence: int = os.SEEK_SET, /) -> int:
        """Set the position to what tell() returned, to the start, or to the end."""
        self.buffer._check_seekable()
        if whence == os.SEEK_CUR:
            if cookie != 0:
                raise io.UnsupportedOperation("can't do nonzero cur-relative seeks")
            cookie, whence = await self.tell(), os.SEEK_SET
        if whence == os.SEEK_END:
            if cookie != 0:
                raise io.UnsupportedOperation("can't do nonzero end-relative seeks")
            position = await self.buffer.seek(0, os.SEEK_END)
            self._restart()
            if self._decoder is not None:
                self._decoder.reset()
            self._restart_encoder(position == 0)
            return position
        if whence != os.SEEK_SET:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        if cookie < 0:
            raise ValueError(f"negative seek position {cookie}")
        position, flags, skip = cookie & _MASK, cookie >> _FLAGS_SHIFT & _MASK, cookie >> _SKIP_SHIFT
        await self.buffer.seek(position)
        self._restart()
        if self._decoder is not None:
            if cookie == 0:
                self._decoder.reset()
            else:
                self._decoder.setstate((b"", flags))
            self._skip = skip
        self._restart_encoder(cookie == 0)
        if self._skip:
            await self._begin_reading()
        return cookie

    def _restart_encoder(self, at_start: bool) -> None:
        """Only at the start of the file a mark of the byte order is written."""
        if self._encoder is not None:
            if at_start:
                self._encoder.reset()
            else:
                self._encoder.setstate(0)

    async def truncate(self, size: int | None = None, /) -> int:
        """Set the size of the file in bytes, to the position of the buffer if none is given; return it."""
        return await self.buffer.truncate(size)

    # the end

    async def close(self) -> None:
        """Flush and close; if it is cancelled while it flushes, the file stays open."""
        await self.buffer.close()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__module__}.{type(self).__name__} name={self.name!r} mode={self.mode!r} "
            f"encoding={self.encoding!r}>"
        )
