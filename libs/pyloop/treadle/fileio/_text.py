"""The asynchronous text file: codecs and newlines over a binary file, by the rules of io.TextIOWrapper."""

from __future__ import annotations

import codecs
import io
import locale
import os

from ._binary import BinaryFile
from ._lines import LineFile

_CHUNK = 8192
# A position between two characters is one number: byte offset, decoder flags, and characters behind the offset.
_FLAGS_SHIFT = 64
_SKIP_SHIFT = 128
_MASK = (1 << 64) - 1


class TextFile(LineFile[str, str]):
    """A text file; each method that touches the file is awaited. Use open() to get one."""

    def __init__(self, buffer: BinaryFile, encoding: str | None, errors: str | None, newline: str | None,
                 line_buffering: bool) -> None:
        if newline not in (None, "", "\n", "\r", "\r\n"):
            raise ValueError(f"illegal newline value: {newline!r}")
        name = locale.getencoding() if encoding is None or encoding == "locale" else encoding
        info = codecs.lookup(name)
        self.buffer = buffer
        self.encoding = name
        self.errors = errors if errors is not None else "strict"
        self._newline = newline
        self._line_buffering = line_buffering
        self._encoder = info.incrementalencoder(self.errors) if buffer._writable and info.incrementalencoder else None
        self._decoder: codecs.IncrementalDecoder | io.IncrementalNewlineDecoder | None = None
        if buffer._readable and info.incrementaldecoder is not None:
            self._decoder = info.incrementaldecoder(self.errors)
            if newline in (None, ""):
                self._decoder = io.IncrementalNewlineDecoder(self._decoder, newline is None)
        self._chars = ""
        self._used = 0
        # Where the chunk behind _chars began: byte offset, decoder state before it, its bytes.
        self._chunk: tuple[int, tuple[bytes, int], bytes] | None = None
        if self._encoder is not None and buffer._seekable and buffer._position != 0:
            self._encoder.setstate(0)

    # what it is

    @property
    def name(self) -> str | bytes | int | os.PathLike[str]:
        """What open() was given."""
        return self.buffer.name

    @property
    def mode(self) -> str:
        """The mode that open() was given."""
        return self.buffer.mode.replace("b", "") or "r"

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self.buffer.closed

    @property
    def line_buffering(self) -> bool:
        """Whether each line is flushed."""
        return self._line_buffering

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

    def _set_chars(self, chars: str) -> None:
        self._chars = chars
        self._used = 0

    def _rest(self, size: int = -1) -> str:
        rest = self._chars[self._used:] if size < 0 else self._chars[self._used: self._used + size]
        self._used += len(rest)
        return rest

    async def _read_chunk(self) -> bool:
        """Decode one more chunk; False at the end of the file."""
        assert self._decoder is not None
        if self.buffer._behind:
            await self.buffer.flush()
        state = self._decoder.getstate()
        start = self.buffer._position
        data = await self.buffer.read1(_CHUNK)
        self._set_chars(self._decoder.decode(data, not data))
        self._chunk = (start - len(state[0]), state, state[0] + data)
        return bool(data)

    async def read(self, size: int | None = -1, /) -> str:
        """Read up to size characters, all that is left for None or a negative size."""
        self._check_readable()
        assert self._decoder is not None
        if size is None or size < 0:
            text = self._rest() + self._decoder.decode(await self.buffer.read(), True)
            self._set_chars("")
            self._chunk = None
            return text
        parts = [self._rest(size)]
        missing = size - len(parts[0])
        more = True
        while missing > 0 and more:
            more = await self._read_chunk()
            parts.append(self._rest(missing))
            missing -= len(parts[-1])
        return "".join(parts)

    def _line_end(self, text: str) -> int:
        """The index behind the first line end; 0 for none."""
        if self._newline in (None, "\n"):
            return text.find("\n") + 1
        if self._newline:
            found = text.find(self._newline)
            return found + len(self._newline) if found >= 0 else 0
        unix, mac = text.find("\n"), text.find("\r")
        if mac < 0 or 0 <= unix < mac:
            return unix + 1
        return mac + 2 if text[mac + 1: mac + 2] == "\n" else mac + 1

    async def readline(self, size: int | None = -1, /) -> str:
        """Read to the end of a line, or up to size characters of it."""
        self._check_readable()
        limit = -1 if size is None else size
        line = self._chars[self._used:]
        carried = -1
        while not (end := self._line_end(line)) and not 0 <= limit <= len(line):
            carried = len(line)
            more = await self._read_chunk()
            line += self._chars
            if not more and not self._chars:
                self._chunk = None
                break
        end = end or len(line)
        if 0 <= limit < end:
            end = limit
        self._used = self._used + end if carried < 0 else end - carried
        return line[:end]

    # writing

    async def write(self, text: str, /) -> int:
        """Write text; it reaches the file with flush(), close() or a full buffer."""
        self.buffer._check_open()
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self._encoder is None:
            raise io.UnsupportedOperation("not writable")
        count = len(text)
        has_line = self._line_buffering and ("\n" in text or "\r" in text)
        if self._newline in ("\r", "\r\n"):
            text = text.replace("\n", self._newline)
        await self.buffer.write(self._encoder.encode(text))
        if has_line:
            await self.buffer.flush()
        self._set_chars("")
        self._chunk = None
        if self._decoder is not None:
            self._decoder.reset()
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
        if self._decoder is None or self._chunk is None:
            return await self.buffer.tell()
        start, state, data = self._chunk
        if self._used == 0:
            return start | state[1] << _FLAGS_SHIFT
        pending, flags = self._decoder.getstate()
        if self._used == len(self._chars) and not pending:
            return await self.buffer.tell() | flags << _FLAGS_SHIFT
        return self._position_in(start, state[1], data)

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
        """A guess from the average length of a character, taken back until it lies before the characters used.

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
            self._restart(0, position == 0)
            return position
        if whence != os.SEEK_SET:
            raise ValueError(f"unsupported whence ({whence})")
        if cookie < 0:
            raise ValueError(f"negative seek position {cookie}")
        position, flags, skip = cookie & _MASK, cookie >> _FLAGS_SHIFT & _MASK, cookie >> _SKIP_SHIFT
        await self.buffer.seek(position)
        self._restart(flags, cookie == 0)
        while skip > 0 and self._decoder is not None:
            more = await self._read_chunk()
            self._used = min(skip, len(self._chars))
            skip -= self._used
            if not more:
                break
        return cookie

    def _restart(self, flags: int, at_start: bool) -> None:
        """Codecs begin anew; only at the start of the file a mark of the byte order is written."""
        self._set_chars("")
        self._chunk = None
        if self._decoder is not None:
            if at_start:
                self._decoder.reset()
            else:
                self._decoder.setstate((b"", flags))
        if self._encoder is not None:
            if at_start:
                self._encoder.reset()
            else:
                self._encoder.setstate(0)

    async def truncate(self, size: int | None = None, /) -> int:
        """Set the size of the file in bytes, to the position if none is given; return it."""
        await self.flush()
        return await self.buffer.truncate(await self.tell() if size is None else size)

    # the end

    async def close(self) -> None:
        """Flush and close."""
        await self.buffer.close()

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} name={self.name!r} mode={self.mode!r} encoding={self.encoding!r}>"
