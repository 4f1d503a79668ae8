"""treadle.fileio.open() and the whole-file functions against io.open: the same sequence must give the same results."""
import asyncio
import io
import os
import shutil
import stat
import subprocess
import sys
import textwrap
import threading

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from treadle import fileio
import treadle

RUNNERS = [asyncio.run, treadle.run]


def kind(exc):
    """Which of its classes refuses what a file cannot do differs within io itself, by the argument."""
    if isinstance(exc, (io.UnsupportedOperation, TypeError)):
        return "refused", None
    return type(exc), getattr(exc, "errno", None)


def outcome(function):
    """What a call gives, or the kind of what it raises."""
    try:
        return function()
    except (OSError, ValueError, TypeError, UnicodeError) as exc:
        return kind(exc)


async def outcome_of(awaitable):
    try:
        return await awaitable
    except (OSError, ValueError, TypeError, UnicodeError) as exc:
        return kind(exc)


SIZES = st.one_of(st.none(), st.integers(-1, 40))
BINARY_STEPS = st.lists(st.one_of(
    st.tuples(st.just("read"), SIZES),
    st.tuples(st.just("readline"), st.one_of(st.just(-1), st.integers(1, 20))),
    st.tuples(st.just("readinto"), st.integers(0, 30)),
    st.tuples(st.just("write"), st.binary(max_size=30)),
    st.tuples(st.just("seek"), st.integers(-5, 80), st.integers(0, 3)),
    st.tuples(st.just("truncate"), st.one_of(st.none(), st.integers(-1, 60))),
    st.tuples(st.just("tell")),
    st.tuples(st.just("flush")),
), max_size=12)
# Before 3.13 io itself mixed up what was written and what was read ahead in files open for both; in files open for reading
# and appending it still does.
BOTH = sys.version_info >= (3, 13)
BINARY_MODES = st.sampled_from(["rb", "wb", "ab", "xb", *(["rb+", "wb+"] if BOTH else [])])


def binary_reference(path, mode, steps, buffering):
    results = []
    file = outcome(lambda: io.open(path, mode, buffering=buffering))
    if isinstance(file, tuple):
        return [file]
    with file:
        for name, *args in steps:
            if name == "readinto":
                buffer = bytearray(args[0])
                results.append((outcome(lambda: file.readinto(buffer)), bytes(buffer)))
            else:
                results.append(outcome(lambda: getattr(file, name)(*args)))
    return results


async def binary_subject(path, mode, steps, buffering):
    results = []
    file = await outcome_of(fileio.open(path, mode, buffering=buffering))
    if isinstance(file, tuple):
        return [file]
    async with file:
        for name, *args in steps:
            if name == "readinto":
                buffer = bytearray(args[0])
                results.append((await outcome_of(file.readinto(buffer)), bytes(buffer)))
            else:
                results.append(await outcome_of(getattr(file, name)(*args)))
    return results


def both_paths(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("io")
    paths = folder / "reference", folder / "subject"
    for path in paths:
        path.write_bytes(content)
    return paths


COMMON = settings(max_examples=int(os.environ.get("TREADLE_TEST_EXAMPLES", "200")), deadline=None,
                  suppress_health_check=[HealthCheck.function_scoped_fixture])


@COMMON
@given(content=st.binary(max_size=100), mode=BINARY_MODES, steps=BINARY_STEPS, buffering=st.sampled_from([-1, 2, 16]))
def test_binary_files_do_what_io_does(tmp_path_factory, content, mode, steps, buffering):
    reference, subject = both_paths(tmp_path_factory, content)
    expected = binary_reference(reference, mode, steps, -1)
    if "a" in mode:
        # Where a seek and an append meet, the position depends on when the buffer was written, in io as here.
        buffering = -1
    assert asyncio.run(binary_subject(subject, mode, steps, buffering)) == expected
    assert subject.read_bytes() == reference.read_bytes()


TEXT = st.text(alphabet="aé\n\r€😀 z", max_size=40)
TEXT_STEPS = st.lists(st.one_of(
    st.tuples(st.just("read"), SIZES),
    st.tuples(st.just("readline"), st.one_of(st.just(-1), st.integers(1, 20))),
    st.tuples(st.just("write"), TEXT),
    st.tuples(st.just("seek"), st.just(0), st.sampled_from([0, 2])),
    st.tuples(st.just("seek"), st.integers(-1, 1), st.integers(1, 3)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("back")),
), max_size=10)


def place(name, result):
    """Only the byte offset of a position is comparable: the rest is each implementation's own."""
    return result & (1 << 64) - 1 if name == "seek" and isinstance(result, int) else result


def text_reference(path, mode, steps, **more):
    results = []
    file = outcome(lambda: io.open(path, mode, **more))
    if isinstance(file, tuple):
        return [file]
    try:
        for name, *args in steps:
            if name == "back":
                cookie = outcome(file.tell)
                first = outcome(lambda: file.read(3))
                results.append((first, outcome(lambda: file.seek(cookie)) == cookie, outcome(lambda: file.read(3))))
            else:
                results.append(place(name, outcome(lambda: getattr(file, name)(*args))))
    finally:
        results.append(outcome(file.close))
    return results


async def text_subject(path, mode, steps, **more):
    results = []
    file = await outcome_of(fileio.open(path, mode, **more))
    if isinstance(file, tuple):
        return [file]
    try:
        for name, *args in steps:
            if name == "back":
                cookie = await outcome_of(file.tell())
                first = await outcome_of(file.read(3))
                same = await outcome_of(file.seek(cookie)) == cookie
                results.append((first, same, await outcome_of(file.read(3))))
            else:
                results.append(place(name, await outcome_of(getattr(file, name)(*args))))
    finally:
        results.append(await outcome_of(file.close()))
    return results


@COMMON
@given(content=TEXT, mode=st.sampled_from(["r", "w", "a", *(["r+", "w+"] if BOTH else [])]), steps=TEXT_STEPS,
       encoding=st.sampled_from(["utf-8", "utf-16", "utf-8-sig", "latin-1"]),
       newline=st.sampled_from([None, "", "\n", "\r", "\r\n"]), errors=st.sampled_from(["strict", "replace"]))
def test_text_files_do_what_io_does(tmp_path_factory, content, mode, steps, encoding, newline, errors):
    more = {"encoding": encoding, "newline": newline, "errors": errors}
    reference, subject = both_paths(tmp_path_factory, content.encode(encoding, "replace"))
    expected = text_reference(reference, mode, steps, **more)
    assert asyncio.run(text_subject(subject, mode, steps, **more)) == expected
    assert subject.read_bytes() == reference.read_bytes()


@pytest.mark.parametrize("newline", [None, "", "\n", "\r\n"])
def test_lines_longer_than_a_chunk_come_whole(tmp_path, newline):
    path = tmp_path / "long"
    path.write_bytes(b"".join(b"x" * n + b"\r\n" for n in (1, 8190, 8191, 8192, 20000)) + b"end")
    with io.open(path, newline=newline) as file:
        expected = file.readlines()

    async def main():
        async with fileio.open(path, newline=newline) as file:
            return [line async for line in file]

    assert asyncio.run(main()) == expected


@pytest.mark.parametrize("run", RUNNERS)
def test_whole_files_go_round(tmp_path, run):
    async def main():
        for size in (0, 1, 65535, 65536, 65537, 1_000_000):
            data = os.urandom(size)
            assert await fileio.write_bytes(tmp_path / "a", data, sync=size == 1) == size
            assert await fileio.read_bytes(tmp_path / "a") == data
            assert await fileio.copy(tmp_path / "a", tmp_path / "b") == size
            assert (tmp_path / "b").read_bytes() == data
        assert await fileio.write_text(tmp_path / "t", "ä\nb\n", encoding="utf-8") == 4
        assert await fileio.read_text(tmp_path / "t", encoding="utf-8") == "ä\nb\n"
        (tmp_path / "t").write_bytes(b"a\r\nb\rc")
        assert await fileio.read_text(tmp_path / "t", encoding="utf-8") == "a\nb\nc"
        assert await fileio.read_bytes("/proc/self/maps") != b""

    run(main())


def test_failures_are_those_of_io(tmp_path):
    (tmp_path / "readonly").write_bytes(b"x")
    cases = [("none", "r"), (".", "r"), (".", "w"), ("none/below", "w"), ("readonly/below", "r"), ("readonly", "x"),
             ("readonly", "z"), ("readonly", "rw"), ("readonly", "rbt"), ("bad\0name", "r")]

    async def main():
        for name, mode in cases:
            path = os.path.join(tmp_path, name)
            expected = outcome(lambda: io.open(path, mode))

            async def subject():
                return await fileio.open(path, mode)

            assert await outcome_of(subject()) == expected, (name, mode)

    asyncio.run(main())


#: Every step is one that does not wait for another program.
READS = [("read", 5), ("readline",), ("tell",), ("seek", 0), ("read", 3), ("seek", 2), ("seek", -1), ("seek", 0, 2), ("read",)]
WRITES = [("write", b"x"), ("flush",), ("truncate", 0), ("truncate", -1)]
# Before 3.13 io says of a device that has no position that the read-ahead is in front of it.
ENDLESS = [("read", 5), *([("tell",), ("seek", 3)] if BOTH else []), ("read", 3)]
SPECIAL = [
    ("fifo", "wb", [*WRITES, ("tell",), ("seek", 0)]), ("fifo", "ab", WRITES),
    ("fifo", "r+b", []), ("fifo", "r+", []), ("fifo", "a+b", []),
    ("/proc/version", "rb", READS + WRITES), ("/proc/version", "r+b", []), ("/proc/version", "wb", []),
    ("/proc/self", "rb", []), ("/proc/self/nothing", "rb", []),
    ("/dev/null", "rb", READS + WRITES), ("/dev/null", "r+b", WRITES + READS), ("/dev/zero", "rb", ENDLESS),
    ("/dev/full", "wb", WRITES), ("/dev/full", "rb", [("read", 5), ("write", b"x")]),
    ("locked", "rb", READS + WRITES), ("locked", "wb", []), ("locked", "ab", []), ("unreadable", "rb", []),
]


@pytest.mark.parametrize("buffering", [-1, 0])
@pytest.mark.parametrize("name, mode, steps", SPECIAL)
def test_special_files_do_what_io_does(tmp_path, name, mode, steps, buffering):
    (tmp_path / "locked").write_bytes(b"one\ntwo\n")
    (tmp_path / "locked").chmod(0o444)
    (tmp_path / "unreadable").write_bytes(b"x")
    (tmp_path / "unreadable").chmod(0)
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    path = os.path.join(tmp_path, name)

    def reference():
        with io.open(path, mode, buffering=buffering) as file:
            return [outcome(lambda: getattr(file, step)(*args)) for step, *args in steps]

    async def subject():
        async with fileio.open(path, mode, buffering=buffering) as file:
            return [await outcome_of(getattr(file, step)(*args)) for step, *args in steps]

    if buffering == 0 and "b" not in mode:
        pytest.skip("text is always buffered")
    try:
        assert asyncio.run(outcome_of(subject())) == outcome(reference)
    finally:
        os.close(reader)


def test_a_full_disk_says_so_and_a_closed_file_too():
    async def main():
        file = await fileio.open("/dev/full", "wb")
        await file.write(b"x")
        with pytest.raises(OSError) as caught:
            await file.flush()
        assert caught.value.errno == 28
        with pytest.raises(OSError):
            await file.close()
        assert file.closed
        with pytest.raises(ValueError):
            await file.read()
        await file.close()

    asyncio.run(main())


FULL_DISK = textwrap.dedent("""
    import asyncio, io, os, sys
    from treadle import fileio

    folder, engine = sys.argv[1:]

    def number(exc):
        return type(exc), exc.errno

    def reference(path):
        found = []
        try:
            with io.open(path, "wb") as file:
                file.write(b"x" * 300_000)
        except OSError as exc:
            found.append(number(exc))
        os.unlink(path)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        found.append(os.pwrite(fd, b"x" * 300_000, 0))
        try:
            os.pwrite(fd, b"x", found[-1])
        except OSError as exc:
            found.append(number(exc))
        os.close(fd)
        os.unlink(path)
        return found

    async def subject(path):
        found = []
        try:
            async with fileio.open(path, "wb") as file:
                await file.write(b"x" * 300_000)
        except OSError as exc:
            found.append(number(exc))
        os.unlink(path)
        files = fileio.FileContext(engine=engine)
        fd = await files.open(path, os.O_WRONLY | os.O_CREAT)
        found.append(await files.write(fd, b"x" * 300_000, 0))
        try:
            await files.write(fd, b"x", found[-1])
        except OSError as exc:
            found.append(number(exc))
        os.close(fd)
        os.unlink(path)
        files.close()
        try:
            await fileio.write_bytes(path, b"x" * 300_000)
        except OSError as exc:
            assert exc.errno == 28
        else:
            raise AssertionError("the disk took more than it has")
        return found

    path = os.path.join(folder, "f")
    expected, found = reference(path), asyncio.run(subject(path))
    assert found == expected, (found, expected)
""")


@pytest.mark.parametrize("engine", ["linux_uring", "linux_aio", "threads"])
def test_a_small_disk_fills_up_as_it_does_for_io(tmp_path, engine):
    enter = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"]), "sh", "-c",
             'mount -t tmpfs -o size=64k none "$0" && exec "$@"', str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run([*enter, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        fileio.FileContext(engine=engine).caps()
    except OSError as exc:
        pytest.skip(f"{engine} is not to be had here: {exc}")
    done = subprocess.run([*enter, sys.executable, "-c", FULL_DISK, str(tmp_path), engine], capture_output=True, text=True,
                          timeout=30, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stderr


def test_a_descriptor_closed_behind_the_file_is_noticed(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")

    async def main():
        file = await fileio.open(tmp_path / "a", "rb")
        os.close(file.fileno())
        with pytest.raises(OSError) as caught:
            await file.read(1)
        assert caught.value.errno == 9
        with pytest.raises(OSError):
            await file.close()

    asyncio.run(main())


def test_a_removed_file_is_read_on(tmp_path):
    (tmp_path / "a").write_bytes(b"abc" * 100000)

    async def main():
        async with fileio.open(tmp_path / "a", "rb") as file:
            assert await file.read(3) == b"abc"
            os.unlink(tmp_path / "a")
            assert len(await file.read()) == 299997

    asyncio.run(main())


@pytest.mark.parametrize("run", RUNNERS)
def test_a_fifo_is_read_while_it_is_written(tmp_path, run):
    path = tmp_path / "fifo"
    os.mkfifo(path)

    def writer():
        with open(path, "wb") as file:
            file.write(b"one\ntwo\n")

    async def main():
        thread = threading.Thread(target=writer)
        thread.start()
        async with fileio.open(path, "rb") as file:
            assert not file.seekable()
            assert stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
            assert [line async for line in file] == [b"one\n", b"two\n"]
            with pytest.raises(io.UnsupportedOperation):
                await file.seek(0)
        thread.join()

    run(main())


def test_parallel_reads_and_writes_need_no_position(tmp_path):
    async def main():
        async with fileio.open(tmp_path / "a", "wb+") as file:
            await asyncio.gather(*[file.pwrite(bytes([i]) * 100, i * 100) for i in range(50)])
            parts = await asyncio.gather(*[file.pread(100, i * 100) for i in range(50)])
            assert parts == [bytes([i]) * 100 for i in range(50)]
            assert await file.tell() == 0

    asyncio.run(main())
