"""treadle.fileio.open() on special files, the whole-file functions, and what becomes of files: see
test_fileio_io.py for the rest."""
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


# Before 3.13 io itself says of a device that has no position that the read-ahead is in front of it.
BOTH = sys.version_info >= (3, 13)


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
    cases = [
        ("none", "r"),
        (".", "r"),
        (".", "w"),
        ("none/below", "w"),
        ("readonly/below", "r"),
        ("readonly", "x"),
        ("readonly", "z"),
        ("readonly", "rw"),
        ("readonly", "rbt"),
        ("bad\0name", "r"),
    ]

    async def main():
        for name, mode in cases:
            path = os.path.join(tmp_path, name)
            expected = outcome(lambda: io.open(path, mode))

            async def subject():
                return await fileio.open(path, mode)

            assert await outcome_of(subject()) == expected, (name, mode)

    asyncio.run(main())


#: Every step is one that does not wait for another program.
READS = [
    ("read", 5),
    ("readline",),
    ("tell",),
    ("seek", 0),
    ("read", 3),
    ("seek", 2),
    ("seek", -1),
    ("seek", 0, 2),
    ("read",),
]
WRITES = [("write", b"x"), ("flush",), ("truncate", 0), ("truncate", -1)]
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
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        found.append(at_position(os.write(fd, PATTERN), fd))
        os.close(fd)
        os.unlink(path)
        return found

    PATTERN = bytes(range(1, 251)) * 1200

    def at_position(written, fd):
        return written, os.lseek(fd, 0, os.SEEK_CUR), os.pread(fd, 300_000, 0) == PATTERN[:written]

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
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        found.append(at_position(await files.write(fd, PATTERN), fd))
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
    if (
        shutil.which("unshare") is None
        or subprocess.run([*enter, "true"], capture_output=True, check=False).returncode != 0
    ):
        pytest.skip("no tmpfs can be mounted here")
    try:
        fileio.FileContext(engine=engine).caps()
    except OSError as exc:
        pytest.skip(f"{engine} is not to be had here: {exc}")
    done = subprocess.run(
        [*enter, sys.executable, "-c", FULL_DISK, str(tmp_path), engine],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("engine", ["linux_uring", "linux_aio", "threads"])
def test_transfers_at_the_position_begun_together_move_each_byte_once(tmp_path, engine):
    pieces = [bytes([i]) * 65536 for i in range(32)]
    (tmp_path / "in").write_bytes(b"".join(pieces))

    async def main():
        files = fileio.FileContext(engine=engine)
        try:
            files.caps()
        except OSError as exc:
            pytest.skip(f"{engine} is not to be had here: {exc}")
        with open(tmp_path / "in", "rb", buffering=0) as file:
            os.fsync(file.fileno())
            # So that the kernel has to wait for them.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            got = await asyncio.gather(*[files.read(file.fileno(), 65536) for _ in pieces])
            assert sorted(got) == pieces
            assert file.tell() == 65536 * len(pieces)
        with open(tmp_path / "out", "w+b", buffering=0) as file:
            assert await asyncio.gather(*[files.write(file.fileno(), piece) for piece in pieces]) == [
                65536
            ] * len(pieces)
            got = (tmp_path / "out").read_bytes()
            assert sorted(got[i:i + 65536] for i in range(0, len(got), 65536)) == pieces
        files.close()

    asyncio.run(main())


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
