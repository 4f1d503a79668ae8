"""Random sequences of every method on a file of treadle.fileio and on one of io.open: each step must give the
same on both.

TREADLE_TEST_EXAMPLES is how many sequences of each kind are run.
"""
import asyncio
import contextlib
import io
import operator
import os
import sys
import warnings

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from treadle import fileio
from treadle.fileio import FileContext, _contexts

EXAMPLES = int(os.environ.get("TREADLE_TEST_EXAMPLES", "200"))
COMMON = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
pytestmark = pytest.mark.timeout(60 + EXAMPLES)
ENGINES = []
for _engine in ("linux_uring", "linux_aio", "threads"):
    try:
        _files = FileContext(engine=_engine)
        _files.caps()
        _files.close()
        ENGINES.append(_engine)
    except OSError:
        pass
# Before 3.13 io itself mixed up what was written and what was read ahead in files open for both; in files
# open for reading and appending it still does, so those are compared with its unbuffered ones.
MODES = ["r", "w", "a", "x", *(["r+", "w+", "x+"] if sys.version_info >= (3, 13) else [])]

#: What treadle's binary files have more than io's unbuffered ones is in docs/fileio.md.
ERRORS = (OSError, ValueError, TypeError, AttributeError, StopIteration, StopAsyncIteration, OverflowError)


def kind(exc):
    if isinstance(exc, (StopIteration, StopAsyncIteration)):
        return "the end"
    if isinstance(exc, (io.UnsupportedOperation, TypeError)):
        # Where both are true, which it is differs within io, by the argument and the version.
        return "refused", None
    return type(exc), getattr(exc, "errno", None)


def call(function):
    try:
        return function()
    except ERRORS as exc:
        return kind(exc)


async def call_async(function):
    try:
        result = function()
        return await result if asyncio.iscoroutine(result) else result
    except ERRORS as exc:
        return kind(exc)


class Pair:
    """The same file twice, each with its own way of being used."""

    def __init__(self, reference, subject, paths):
        self.reference = reference
        self.subject = subject
        self.paths = paths
        self.fds = reference.fileno(), subject.fileno()
        self.cookies = [(0, 0)]
        self.raw = isinstance(reference, io.RawIOBase)

    async def step(self, name, args):
        """Do it on both; returns what both gave."""
        special = getattr(self, f"step_{name}", None)
        if special is not None:
            return await special(*args)
        if not hasattr(self.reference, name):
            return None, None
        one, other = getattr(self.reference, name), getattr(self.subject, name)
        if not callable(one):
            return one, other
        return call(lambda: one(*args)), await call_async(lambda: other(*args))

    async def step_peek(self, size):
        """How much is shown is each one's own."""
        if not hasattr(self.reference, "peek"):
            return None, None
        found = call(lambda: self.reference.peek(size)), await call_async(lambda: self.subject.peek(size))
        return [part[:1] for part in found]

    async def step_readinto(self, size, name="readinto"):
        if not hasattr(self.reference, name):
            return None, None
        one, other = bytearray(size), bytearray(size)
        count = call(lambda: getattr(self.reference, name)(one))
        return (count, one), (await call_async(lambda: getattr(self.subject, name)(other)), other)

    async def step_read1(self, size=-1):
        """How much of what it could give it gives is each one's own, as long as it gives something."""
        if not hasattr(self.reference, "read1"):
            return None, None
        return await self.level(
            call(lambda: self.reference.read1(size)), await call_async(lambda: self.subject.read1(size))
        )

    async def step_readline(self, *args):
        if args == (0,) and isinstance(self.reference, (io.BufferedWriter, io.RawIOBase)):
            return None, None  # io's common readline() does nothing then, not even look whether it may
        return call(lambda: self.reference.readline(*args)), await call_async(
            lambda: self.subject.readline(*args)
        )

    async def step_readinto1(self, size):
        found = await self.step_readinto(size, "readinto1")
        parts = [
            bytes(part[1][: part[0]]) if isinstance(part[0], int) else part
            for part in found
            if part is not None
        ]
        return await self.level(*parts) if parts else found

    async def level(self, one, other):
        if isinstance(one, bytes) and isinstance(other, bytes) and one and other:
            one += self.reference.read(max(0, len(other) - len(one)))
            other += await self.subject.read(max(0, len(one) - len(other)))
        return one, other

    def line(self):
        """The next line of the reference. A text file of io remembers that next() was called: its tell()
        refuses, and what was read with a line outlives a write."""
        if not isinstance(self.reference, io.TextIOBase):
            return next(self.reference)
        found = self.reference.readline()
        if not found:
            raise StopIteration
        return found

    def lines(self, hint=-1):
        limit = 0 if hint is None else operator.index(hint)
        iter(self.reference)
        found = []
        while not 0 < limit < sum(map(len, found)):
            try:
                found.append(self.line())
            except StopIteration:
                break
        return found

    async def step_next(self):
        return call(self.line), await call_async(self.subject.__anext__)

    async def step_readlines(self, *args):
        if isinstance(self.reference, io.TextIOBase):
            return call(lambda: self.lines(*args)), await call_async(lambda: self.subject.readlines(*args))
        return call(lambda: self.reference.readlines(*args)), await call_async(
            lambda: self.subject.readlines(*args)
        )

    async def step_iter(self):
        return call(lambda: iter(self.reference) is self.reference), await call_async(
            lambda: aiter(self.subject) is self.subject
        )

    async def step_name(self):
        return [os.path.dirname(file.name) == os.path.dirname(path)
                for file, path in zip((self.reference, self.subject), self.paths)]

    async def step_fileno(self):
        return call(lambda: self.reference.fileno() == self.fds[0]), await call_async(
            lambda: self.subject.fileno() == self.fds[1]
        )

    async def step_flush(self):
        """What a flush brings, and where the kernel is then, others can see."""
        found = call(self.reference.flush), await call_async(self.subject.flush)
        if found[0] is not None or not self.reference.writable():
            return found
        return [(result, self.seen(fd)) for result, fd in zip(found, self.fds)]

    async def step_tell_text(self):
        """A position is each one's own number."""
        found = call(self.reference.tell), await call_async(self.subject.tell)
        if not isinstance(found[0], int):
            return found
        self.cookies.append(found)
        return int, type(found[1])

    async def step_back(self, index):
        """Go to where one was, by the number that tell() gave then."""
        one, other = self.cookies[index % len(self.cookies)]
        return (
            call(lambda: self.reference.seek(one) == one),
            await call_async(lambda: self.subject.seek(other) if self.subject.closed else self.same(other)),
        )

    async def same(self, cookie):
        return await self.subject.seek(cookie) == cookie

    async def step_seek_text(self, offset, whence):
        found = call(lambda: self.reference.seek(offset, whence)), await call_async(
            lambda: self.subject.seek(offset, whence)
        )
        return [part & (1 << 64) - 1 if isinstance(part, int) else part for part in found]

    async def step_use(self):
        """`with` and `async with` refuse a closed file."""
        return call(lambda: self.reference.__enter__() is self.reference), await call_async(self.entered)

    async def entered(self):
        return await self.subject.__aenter__() is self.subject

    def seen(self, fd):
        with open(f"/proc/self/fd/{fd}", "rb") as file:
            return os.lseek(fd, 0, os.SEEK_CUR), file.read()

    def positions(self):
        """Where the kernel is; only an unbuffered file is always there too."""
        if not self.raw or not self.subject._raw or self.reference.closed:
            return None, None
        return [os.lseek(fd, 0, os.SEEK_CUR) for fd in self.fds]


@pytest.fixture(scope="module")
def runners():
    """For each engine a loop whose files use it; the kernel is slow in giving back what linux_aio takes for a
    context."""
    with contextlib.ExitStack() as stack:
        made = {}
        for engine in ENGINES:
            made[engine] = stack.enter_context(asyncio.Runner())
            files = FileContext(engine=engine)
            stack.callback(files.close)
            _contexts.adopt(made[engine].get_loop(), files)
        yield made


def any_error(found):
    """What io's classes refuse alike by different exceptions."""
    if isinstance(found, (tuple, list)):
        if len(found) == 2 and (
            isinstance(found[0], type) and issubclass(found[0], Exception) or found[0] == "refused"
        ):
            return "an error"
        return [any_error(part) for part in found]
    return found


async def walk(folder, content, mode, steps, options, reference_options=None):
    """Open both, do the steps on both, and say what differed first."""
    paths = both(folder, mode, content)
    done = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        reference = call(lambda: io.open(paths[0], mode, **(reference_options or options)))
        subject = await call_async(lambda: opened(paths[1], mode, options))
    if isinstance(reference, tuple):
        assert subject == reference
        return
    reference.seekable()  # before 3.13 a first seek that failed made io think that there can be none
    pair = Pair(reference, subject, paths)
    try:
        for name, *args in [*steps, ("close",), ("close",), ("read", 1)]:
            # Where it is appended shows when a buffer is full: each one's own.
            if "a" in mode and name in ("tell", "seek"):
                call(reference.flush), await call_async(subject.flush)
            one, other = await pair.step(name, args)
            done.append((name, args, one))
            if reference_options is not None:
                one, other = any_error(one), any_error(other)
            assert other == one, (done, other)
            one, other = pair.positions()
            assert other == one, (done, "the kernel's position", one, other)
        with open(paths[0], "rb") as one, open(paths[1], "rb") as other:
            assert other.read() == one.read(), done
    finally:
        reference.close()
        await subject.close()


async def opened(path, mode, options):
    return await fileio.open(path, mode, **options)


def both(folder, mode, content):
    """Two new paths, with a file at each if the mode wants one."""
    paths = folder / "reference", folder / "subject"
    for path in paths:
        path.unlink(missing_ok=True)
        if "x" not in mode:
            path.write_bytes(content)
    return [os.fspath(path) for path in paths]


def names(*these):
    return st.sampled_from([(name,) for name in these])


SIZES = st.one_of(st.none(), st.integers(-2, 40), st.sampled_from([100, 5000, 9000, 70000]))
WRONG = st.sampled_from(["x", 1.5, b"", [], object()])
FLAT = names(
    "closed",
    "readable",
    "writable",
    "seekable",
    "isatty",
    "fileno",
    "name",
    "mode",
    "iter",
    "use",
    "next",
    "next",
)
BYTES = st.one_of(
    st.binary(max_size=30),
    st.lists(st.sampled_from([b"\n", b"ab", b"\r\n", b"longer"]), max_size=9).map(b"".join),
    st.integers(1, 70000).map(lambda size: b"0123456789abcde\n" * (size // 16)),
)
MANY = st.sampled_from([bytes, bytearray, memoryview])
BINARY_STEP = st.one_of(
    st.tuples(st.just("read"), SIZES),
    st.just(("read",)),
    st.just(("read1",)),
    st.tuples(st.sampled_from(["read1", "peek"]), st.integers(-1, 40)),
    st.tuples(st.sampled_from(["readinto", "readinto1"]), st.one_of(st.integers(0, 40), st.just(70000))),
    st.tuples(st.just("readline"), SIZES),
    st.just(("readline",)),
    st.tuples(st.just("readlines"), SIZES),
    st.just(("readlines",)),
    st.builds(lambda data, make: ("write", make(data)), BYTES, MANY),
    st.tuples(st.just("writelines"), st.lists(BYTES, max_size=4)),
    st.tuples(st.just("seek"), st.integers(-5, 80), st.integers(-1, 4)),
    st.tuples(st.just("seek"), st.integers(0, 20)),
    st.tuples(st.just("seek"), st.integers(-30, 5), st.sampled_from([1, 2])),
    st.tuples(st.just("truncate"), st.one_of(st.none(), st.integers(-1, 60))),
    st.just(("truncate",)),
    names("tell", "flush", "flush", "tell"),
    FLAT,
    st.tuples(st.sampled_from(["read", "readline", "readlines", "seek", "truncate"]), WRONG),
    st.tuples(st.just("write"), st.sampled_from(["x", 5, None, [1]])),
    st.tuples(st.just("writelines"), st.sampled_from(["x", 5, None, [1], b"xy"])),
)


def steps_of(step):
    """A few steps, rarely with a close before the end."""
    return st.builds(
        lambda first, second, closed: [*first, *([("close",), *second] if closed else second)],
        st.lists(step, max_size=12),
        st.lists(step, max_size=5),
        st.sampled_from([False] * 4 + [True]),
    )


@COMMON
@given(content=BYTES, mode=st.sampled_from(MODES), steps=steps_of(BINARY_STEP),
       buffering=st.sampled_from([-1, -1, 0, 0, 1, 2, 7, 16, 100]), engine=st.sampled_from(ENGINES))
def test_binary_files_do_what_io_does(runners, tmp_path, content, mode, steps, buffering, engine):
    runners[engine].run(walk(tmp_path, content, mode + "b", steps, {"buffering": buffering}))


@COMMON
@given(
    content=BYTES,
    steps=steps_of(BINARY_STEP),
    buffering=st.sampled_from([-1, 0, 2, 7, 16, 100]),
    engine=st.sampled_from(ENGINES),
)
def test_a_file_open_for_reading_and_appending_does_what_ios_does_without_its_buffer(
    runners, tmp_path, content, steps, buffering, engine
):
    # Which the buffered one refuses.
    steps = [("read", -1) if step == ("read", -2) else step for step in steps]
    runners[engine].run(walk(tmp_path, content, "a+b", steps, {"buffering": buffering}, {"buffering": 0}))


TEXT = st.one_of(st.text(alphabet="aé\n\r€😀 z", max_size=40), st.text(alphabet="ab\r\n", max_size=20),
                 st.integers(1, 20000).map(lambda size: "0123456789é\r\nx\n" * (size // 15)))
TEXT_STEP = st.one_of(
    st.tuples(st.just("read"), SIZES), st.just(("read",)),
    st.tuples(st.just("readline"), SIZES), st.just(("readline",)),
    st.tuples(st.just("readlines"), SIZES), st.just(("readlines",)),
    st.tuples(st.just("write"), TEXT), st.tuples(st.just("writelines"), st.lists(TEXT, max_size=4)),
    st.tuples(st.just("seek_text"), st.just(0), st.sampled_from([0, 1, 2])),
    st.tuples(st.just("seek_text"), st.integers(-1, 1), st.integers(-1, 5)),
    st.tuples(st.just("back"), st.integers(0, 5)), st.tuples(st.just("back"), st.integers(0, 5)),
    st.tuples(st.just("truncate"), st.one_of(st.none(), st.integers(-1, 60))), st.just(("truncate",)),
    names("tell_text", "flush", "tell_text"), FLAT,
    names("encoding", "errors", "newlines", "line_buffering", "write_through"),
    st.tuples(st.sampled_from(["read", "readline", "readlines", "truncate"]), WRONG), st.just(("seek", "x")),
    st.tuples(st.just("write"), st.sampled_from([b"x", 5, None])),
    st.tuples(st.just("writelines"), st.sampled_from(["xyz", 5, None, [1]])),
)
ENCODINGS = [
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "utf-16-be",
    "utf-32",
    "latin-1",
    "ascii",
    "utf-7",
    "gb18030",
    "iso2022_jp",
    None,
]


@COMMON
@given(
    content=TEXT,
    mode=st.sampled_from(MODES),
    steps=steps_of(TEXT_STEP),
    encoding=st.sampled_from(ENCODINGS),
    newline=st.sampled_from([None, "", "\n", "\r", "\r\n"]),
    buffering=st.sampled_from([-1, -1, 1, 2, 50]),
    errors=st.sampled_from([None, "strict", "replace", "surrogateescape"]),
    engine=st.sampled_from(ENGINES),
)
def test_text_files_do_what_io_does(
    runners, tmp_path, content, mode, steps, encoding, newline, buffering, errors, engine
):
    options = {"encoding": encoding, "newline": newline, "errors": errors, "buffering": buffering}
    runners[engine].run(walk(tmp_path, content.encode(encoding or "utf-8", "replace"), mode, steps, options))
