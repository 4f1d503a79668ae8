"""Cancelled file operations, closed descriptors and their next owners: nobody reads or writes what has become
another's."""
import asyncio
import contextlib
import ctypes
import fcntl
import gc
import os
import signal
import socket
import struct
import threading

import pytest

import treadle
from treadle import fileio
from treadle.fileio import FileContext

ENGINES = ["linux_uring", "linux_uring sqpoll", "linux_aio", "threads"]
TEXT = b"the victim's own text"
BYTES = 1 << 16


def make(engine, **more):
    """A context that is really of this engine, or a skip by name."""
    name, *sqpoll = engine.split()
    files = FileContext(engine=name, inline=False, sqpoll=bool(sqpoll), **more)
    try:
        caps = files.caps()
    except OSError as exc:
        pytest.skip(f"{engine} is not to be had here: {exc}")
    if caps["sqpoll"] != bool(sqpoll):
        pytest.skip("no polling thread is granted here")
    return files


class Victims:
    """A file and a connection with a text, ready to get a number that was just closed."""

    def __init__(self, folder):
        self.file = os.open(folder / "victim", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.write(self.file, TEXT)
        self.near, self.far = socket.socketpair()
        self.far.send(TEXT)

    def take(self, fd, connection):
        """The number fd, which was closed, is this victim's from here on."""
        os.dup2(self.near.fileno() if connection else self.file, fd)

    def check(self):
        assert os.pread(self.file, 1000, 0) == TEXT
        assert self.near.recv(1000, socket.MSG_DONTWAIT) == TEXT
        with pytest.raises(BlockingIOError):
            self.far.recv(1000, socket.MSG_DONTWAIT)

    def close(self):
        os.close(self.file)
        self.near.close()
        self.far.close()


class Work:
    """Descriptors of each kind, and an operation by name."""

    def __init__(self, folder):
        self.file = os.open(folder / "own", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.write(self.file, b"o" * BYTES)
        os.lseek(self.file, 0, os.SEEK_SET)
        self.other = os.open(folder / "other", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.reader, self.writer = os.pipe()
        self.near, self.far = socket.socketpair()

    KINDS = {
        "read": lambda w, files: (files.read(w.file, BYTES, 0), w.file),
        "read at the position": lambda w, files: (files.read(w.file, BYTES), w.file),
        "read of a pipe": lambda w, files: (files.read(w.reader, 100), w.reader),
        "read of a socket": lambda w, files: (files.read(w.near.fileno(), 100), w.near.fileno()),
        "readv": lambda w, files: (files.readv(w.file, [bytearray(100), bytearray(BYTES)], 0), w.file),
        "write": lambda w, files: (files.write(w.file, b"w" * BYTES, 0), w.file),
        "write to a pipe": lambda w, files: (files.write(w.writer, b"w" * (1 << 20)), w.writer),
        "writev": lambda w, files: (files.writev(w.file, [b"w" * BYTES, b"v" * 100], 0), w.file),
        "truncate": lambda w, files: (files.truncate(w.file, 3), w.file),
        "fallocate": lambda w, files: (files.fallocate(w.file, 0, 0, 2 * BYTES), w.file),
        "fsync": lambda w, files: (files.fsync(w.file), w.file),
        "splice": lambda w, files: (files.splice(w.reader, None, w.other, None, 100), w.reader),
        "copy": lambda w, files: (files.copy(w.file, 0, w.other, 0, BYTES), w.other),
    }

    def begin(self, kind, files):
        """The operation's task, and the descriptor whose number will go to another."""
        op, fd = self.KINDS[kind](self, files)

        async def wait():
            return await op

        return asyncio.create_task(wait()), fd

    def close(self, given):
        for fd in {self.file, self.other, self.reader, self.writer, given}:
            os.close(fd)
        if given == self.near.fileno():
            self.near.detach()
        self.near.close()
        self.far.close()


@pytest.mark.parametrize("kind", Work.KINDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_cancelled_operation_leaves_its_number_to_the_next_owner(engine, kind, tmp_path):
    async def main():
        files = make(engine)
        for turns in list(range(4)) * 12:
            work, victims = Work(tmp_path), Victims(tmp_path)
            task, fd = work.begin(kind, files)
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            victims.take(
                fd,
                connection=kind in ("read at the position", "read of a pipe", "read of a socket", "splice"),
            )
            await files.stat(fd)
            await asyncio.sleep(0)
            victims.check()
            victims.close()
            work.close(fd)
        files.close()

    treadle.run(main())


@pytest.mark.parametrize("append", [False, True], ids=["in the kernel", "by a buffer"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_copy_that_is_cancelled_stops_before_its_descriptors_are_closed(engine, append, tmp_path):
    async def main():
        files = make(engine)
        (tmp_path / "big").write_bytes(b"")
        os.truncate(tmp_path / "big", 8 << 30)
        source = os.open(tmp_path / "big", os.O_RDONLY)
        target = os.open(tmp_path / "copy", os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else 0))
        task = asyncio.create_task(files.copy(source, 0, target, 0, 8 << 30))
        while os.fstat(target).st_size == 0:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        size = os.fstat(target).st_size
        await files.stat(target)
        assert os.fstat(target).st_size == size < 8 << 30
        files.close()
        os.close(source)
        os.close(target)

    treadle.run(main())


@pytest.mark.parametrize("how", ["close", "throw"])
@pytest.mark.parametrize("engine", ["linux_uring", "threads"])
def test_a_coroutine_that_is_ended_parts_with_its_descriptors_first(engine, how, tmp_path):
    async def main():
        files = make(engine)
        for _ in range(20):
            work, victims = Work(tmp_path), Victims(tmp_path)
            op, fd = work.KINDS["splice"](work, files)

            async def wait(op=op):
                await op

            coroutine = wait()
            coroutine.send(None)
            files.flush()
            if how == "close":
                coroutine.close()
            else:
                with pytest.raises(KeyError):
                    coroutine.throw(KeyError())
            victims.take(fd, connection=True)
            await files.stat(fd)
            victims.check()
            victims.close()
            work.close(fd)
        files.close()

    treadle.run(main())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cancelled_wait_gives_its_worker_back(engine, tmp_path):
    (tmp_path / "file").write_bytes(b"content")

    async def main():
        files = make(engine, threads=1)
        reader, writer = os.pipe()
        fd = os.open(tmp_path / "file", os.O_RDONLY)
        for op in (files.read(reader, 1), files.splice(reader, None, fd, None, 1)):
            task = asyncio.ensure_future(op)
            await files.stat(fd)
            task.cancel()
            with pytest.raises((asyncio.CancelledError, OSError)):
                await task
        assert await files.read(fd, 100, 0) == b"content"
        files.close()
        for number in (reader, writer, fd):
            os.close(number)

    treadle.run(main())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cancelled_close_closes_once(engine, tmp_path):
    async def main():
        files = make(engine)
        for turns in list(range(4)) * 10:
            fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
            inode = os.fstat(fd).st_ino
            task = asyncio.create_task(files.close_fd(fd))
            for _ in range(turns):
                await asyncio.sleep(0)
            begun = turns > 0
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            while begun:
                try:
                    if os.fstat(fd).st_ino != inode:
                        break
                except OSError:
                    break
                await asyncio.sleep(0)
            if not begun:
                os.close(fd)
            # Nobody closes the number once more. The context's own descriptors may have it by now, so it is
            # not taken by force.
            others = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
            await files.stat(os.devnull)
            for other in others:
                os.fstat(other)
                os.close(other)
        files.close()

    treadle.run(main())


def test_a_context_that_closes_makes_the_closes_it_did_not_get_to(tmp_path):
    async def main():
        files = FileContext(mode="deferred")
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        task = asyncio.create_task(files.close_fd(fd))
        await asyncio.sleep(0)
        files.close()
        with contextlib.suppress(OSError, RuntimeError):
            await task
        with pytest.raises(OSError):
            os.fstat(fd)

    asyncio.run(main())


WAITS = {
    "splice from a pipe": lambda files, n: files.splice(n.reader, None, n.writer2, None, 100),
    "splice to a full pipe": lambda files, n: files.splice(n.full_reader, None, n.full_writer, None, 100),
    "read of a pipe": lambda files, n: files.read(n.reader, 10),
    "readv of a pipe": lambda files, n: files.readv(n.reader, [bytearray(10)]),
    "write to a full pipe": lambda files, n: files.write(n.full_writer, b"x" * (1 << 20)),
    "writev to a full pipe": lambda files, n: files.writev(n.full_writer, [b"", b"x" * (1 << 20)]),
    "read of a socket": lambda files, n: files.read(n.near.fileno(), 10),
    "write to a full socket": lambda files, n: files.write(n.near.fileno(), b"x" * (1 << 24)),
    "splice to a full socket": lambda files, n: files.splice(
        n.full_reader, None, n.full_socket.fileno(), None, 1 << 20
    ),
    "read of an eventfd": lambda files, n: files.read(n.eventfd, 8),
    "write to a full eventfd": lambda files, n: files.write(n.full_eventfd, struct.pack("Q", 100)),
    "read of a timerfd": lambda files, n: files.read(n.timerfd, 8),
    "read of an inotify": lambda files, n: files.read(n.inotify, 100),
    "read of a terminal": lambda files, n: files.read(n.terminal, 100),
    "write to a stopped terminal": lambda files, n: files.write(n.terminal, b"x" * (1 << 20)),
}


class Never:
    """Descriptors from which nothing comes, or that take nothing."""

    def __init__(self):
        libc = ctypes.CDLL(None)
        self.reader, self.writer = os.pipe()
        self.reader2, self.writer2 = os.pipe()
        self.full_reader, self.full_writer = os.pipe()
        os.set_blocking(self.full_writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.full_writer, b"x" * 4096)
        os.set_blocking(self.full_writer, True)
        self.near, self.far = socket.socketpair()
        self.full_socket, self.far_socket = socket.socketpair()
        self.full_socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.full_socket.send(b"x" * 4096)
        self.full_socket.setblocking(True)
        self.eventfd = os.eventfd(0)
        self.full_eventfd = os.eventfd(0)
        os.eventfd_write(self.full_eventfd, (1 << 64) - 2)
        self.timerfd = libc.timerfd_create(1, 0)
        self.inotify = libc.inotify_init()
        self.controller, self.terminal = os.openpty()

    def close(self):
        for one in (self.near, self.far, self.full_socket, self.far_socket):
            one.close()
        for fd in (
            self.reader,
            self.writer,
            self.reader2,
            self.writer2,
            self.full_reader,
            self.full_writer,
            self.eventfd,
            self.full_eventfd,
            self.timerfd,
            self.inotify,
            self.controller,
            self.terminal,
        ):
            os.close(fd)


@pytest.mark.parametrize("end", ["close", "cancel"])
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_waits_for_another_program_ends(engine, wait, end):
    never = Never()

    async def main():
        files = make(engine)
        task = asyncio.ensure_future(WAITS[wait](files, never))
        other = asyncio.ensure_future(files.stat(os.devnull))
        await other
        if end == "close":
            files.close()
        else:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError, RuntimeError):
            await task
        files.close()

    treadle.run(main())
    never.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_waiting_by_hand_ends_with_the_context(engine):
    files = make(engine, any_thread=True)
    reader, writer = os.pipe()
    files.submit(files.read(reader, 1))
    files.flush()
    raised = []

    def wait():
        try:
            while not files.wait(-1):
                pass
        except RuntimeError as exc:
            raised.append(exc)

    thread = threading.Thread(target=wait)
    thread.start()
    while thread.is_alive() and "poll" not in open(f"/proc/self/task/{thread.native_id}/wchan").read():
        pass
    files.close()
    thread.join(30)
    assert not thread.is_alive()
    assert "closed" in str(raised[0])
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_signal_that_raises_nothing_does_not_end_a_wait_by_hand(engine):
    files = make(engine)
    reader, writer = os.pipe()
    files.submit(files.read(reader, 1))
    files.flush()
    main = threading.main_thread()

    def interrupt():
        while "poll" not in open(f"/proc/self/task/{main.native_id}/wchan").read():
            pass
        signal.pthread_kill(main.ident, signal.SIGUSR1)

    former = signal.signal(signal.SIGUSR1, lambda *args: os.write(writer, b"x"))
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        assert files.wait(-1)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, former)
    assert len(files.reap()) == 1
    files.close()
    os.close(reader)
    os.close(writer)



def test_a_read_only_file_is_closed_behind_its_reads(tmp_path):
    (tmp_path / "file").write_bytes(b"o" * BYTES)

    async def main():
        for _ in range(20):
            file = await fileio.open(tmp_path / "file", "rb")
            reads = [asyncio.ensure_future(file.pread(BYTES, 0)) for _ in range(20)]
            await asyncio.sleep(0)
            await file.close()
            other = os.open(os.devnull, os.O_RDONLY)
            for read in reads:
                assert await read == b"o" * BYTES
            os.close(other)

    treadle.run(main())


@pytest.mark.parametrize("made", [True, False])
def test_a_close_that_the_loop_did_not_come_to_is_made_once(made, tmp_path):
    """Its number is a victim's when the file object is dropped."""
    loop = treadle.new_event_loop()

    async def main():
        file = await fileio.open(tmp_path / "file", "wb")
        task = asyncio.ensure_future(file.close())
        await asyncio.sleep(0)
        if made:
            await task
        return file, file._fd

    file, fd = loop.run_until_complete(main())
    for task in asyncio.all_tasks(loop):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
    loop.close()
    with pytest.raises(OSError):
        os.fstat(fd)
    other = os.open(os.devnull, os.O_RDONLY)
    os.dup2(other, fd)
    del file
    gc.collect()
    os.fstat(fd)
    os.close(fd)
    if other != fd:
        os.close(other)


def test_an_await_that_nobody_drives_says_so():
    reader, writer = os.pipe()

    async def main():
        files = FileContext()
        op = files.read(reader, 10)
        with pytest.raises(RuntimeError, match="await wasn't used with future"):
            list(op)
        future = asyncio.get_running_loop().create_future()
        with pytest.raises(RuntimeError, match="await wasn't used with future"):
            list(future)
        op.close()
        files.close()

    treadle.run(main())
    os.close(reader)
    os.close(writer)


OTHER_PROCESS = """
import fcntl, os, sys
try:
    fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("locked")
"""


async def awaited(operation):
    return await operation


@pytest.mark.parametrize("engine", ENGINES)
def test_a_record_lock_outlives_cancelled_operations(engine, python, tmp_path):
    """It is gone as soon as its process closes any descriptor of the file: nothing may have one of its
    own."""
    path = tmp_path / "locked"
    path.write_bytes(b"l" * 300_000)

    async def main():
        files = make(engine)
        fd, other = os.open(path, os.O_RDWR), os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
        fcntl.lockf(fd, fcntl.LOCK_EX)
        for turns in range(3):
            for operation in (
                lambda: files.read(fd, 300_000, 0),
                lambda: files.write(fd, b"w" * 300_000, 0),
                lambda: files.fsync(fd),
                lambda: files.truncate(fd, 300_000),
                lambda: files.copy(fd, 0, other, 0, 300_000),
                lambda: files.readinto(fd, bytearray(200_000), 0),
            ):
                task = asyncio.ensure_future(awaited(operation()))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
        files.close()
        assert python(str(path), code=OTHER_PROCESS).stdout == "locked\n"
        os.close(fd)
        os.close(other)
        assert python(str(path), code=OTHER_PROCESS).stdout == ""

    treadle.run(main())
