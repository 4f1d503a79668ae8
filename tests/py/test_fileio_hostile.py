"""File contexts and operations among objects that fight back, threads that come in between, and descriptors
that are gone."""
import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import textwrap
import threading

import pytest

import treadle
from treadle import fileio
from treadle.fileio import FileContext

ENGINES = ["linux_uring", "linux_aio", "threads"]
HUGE = [1 << 31, 1 << 32, -(1 << 31) - 1, 1 << 62, 1 << 63, 1 << 64, -(1 << 63) - 1, 1 << 100]


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def pending(files, reader):
    """An operation that waits for the pipe."""
    op = files.read(reader, 10)
    op.send(None)
    return op


class Callback:
    def __call__(self, *args):
        pass


@pytest.mark.parametrize("what", ["cancel", "remove", "close", "add"])
@pytest.mark.parametrize("nth", range(5))
def test_a_comparison_that_changes_what_is_compared(what, nth, pipe):
    async def main():
        files = FileContext()
        op = pending(files, pipe[0])

        class Evil:
            count = 0

            def __call__(self, *args):
                pass

            def __eq__(self, other):
                Evil.count += 1
                if Evil.count == nth + 1:
                    if what == "cancel":
                        op.cancel()
                    elif what == "remove":
                        for one in others:
                            op.remove_done_callback(one)
                    elif what == "close":
                        files.close()
                    else:
                        op.add_done_callback(Callback())
                    gc.collect()
                return True

        others = [Callback() for _ in range(4)]
        for one in others:
            op.add_done_callback(one)
        del one
        assert op.remove_done_callback(Evil()) <= 5
        with contextlib.suppress(RuntimeError):
            files.close()
        await asyncio.sleep(0)

    treadle.run(main())


def test_callbacks_are_removed_as_those_of_a_future(pipe):
    async def main():
        files = FileContext()
        op, future = pending(files, pipe[0]), asyncio.get_running_loop().create_future()
        one, other = Callback(), Callback()
        for callback in (one, other, one, one, other):
            op.add_done_callback(callback)
            future.add_done_callback(callback)
        for callback in (one, one, Callback(), other, other):
            assert op.remove_done_callback(callback) == future.remove_done_callback(callback)
        with pytest.raises(TypeError):
            op.add_done_callback(one, other=None)
        files.close()

    treadle.run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="__buffer__ came with 3.12")
@pytest.mark.parametrize("name", ["readv", "writev"])
def test_a_buffer_that_empties_the_list_it_is_in(name):
    class Evil:
        def __buffer__(self, flags):
            buffers.clear()
            gc.collect()
            return memoryview(bytearray(10))

    files = FileContext()
    buffers = [Evil(), bytearray(10), bytearray(10), bytearray(10)]
    getattr(files, name)(0, buffers).close()
    assert buffers == []
    files.close()


def test_a_path_that_closes_the_context(tmp_path):
    class Evil:
        def __fspath__(self):
            files.close()
            return str(tmp_path)

    async def main():
        with pytest.raises(RuntimeError):
            await files.open(Evil(), os.O_RDONLY)

    files = FileContext()
    treadle.run(main())


def test_integers_out_of_range_are_refused_and_never_cut(tmp_path):
    files = FileContext()
    path = str(tmp_path / "f")
    calls = [
        lambda n: files.open(path, n),
        lambda n: files.open(path, 0, n),
        lambda n: files.mkdir(path, n),
        lambda n: files.unlink(path, n),
        lambda n: files.rename(path, path, n),
        lambda n: files.stat(path, n),
        lambda n: files.fallocate(0, n, 0, 1),
        lambda n: files.read(n, 1),
        lambda n: files.readinto(n, bytearray(1)),
        lambda n: files.readv(n, [bytearray(1)]),
        lambda n: files.write(n, b""),
        lambda n: files.writev(n, [b""]),
        lambda n: files.fsync(n),
        lambda n: files.fdatasync(n),
        lambda n: files.close_fd(n),
        lambda n: files.stat(n),
        lambda n: files.truncate(n, 0),
        lambda n: files.splice(n, None, 0, None, 1),
        lambda n: files.copy(0, 0, n, 0, 1),
        lambda n: FileContext(max_requests=n),
        lambda n: FileContext(threads=n),
    ]
    for call in calls:
        for number in HUGE:
            with pytest.raises((OverflowError, ValueError)):
                call(number)
    for number in HUGE[5:]:
        for call in (
            lambda n: files.read(0, 1, n),
            lambda n: files.read(0, n),
            lambda n: files.truncate(0, n),
            lambda n: files.fallocate(0, 0, n, 1),
            lambda n: files.fallocate(0, 0, 0, n),
        ):
            with pytest.raises((OverflowError, ValueError, MemoryError)):
                call(number)
    for seconds in (0, 0.0, -0.0):
        assert files.wait(seconds) is False
    files.close()


def test_half_made_contexts_and_operations_are_refused():
    with pytest.raises(TypeError):
        fileio.FileOp()
    with pytest.raises(TypeError):
        fileio.FileOp.__new__(fileio.FileOp)
    with pytest.raises(TypeError):
        object.__new__(FileContext)
    with pytest.raises(TypeError):
        type("Sub", (FileContext,), {})
    files = FileContext.__new__(FileContext)
    with contextlib.suppress(TypeError):
        files.__init__(engine="threads")
    assert not files.closed
    files.close()


def test_a_long_chain_of_operations_and_contexts_ends():
    files = FileContext()
    last = None
    for _ in range(200_000):
        op = files.fsync(0)
        op.owner = last
        last = op
    del last, op
    files.close()
    last = None
    for _ in range(20_000):
        last = FileContext(error=last)
    del last
    gc.collect()


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_cancel_while_the_context_closes(engine):
    for _ in range(30):
        reader, writer = os.pipe()
        files = FileContext(engine=engine, any_thread=True)
        ops = [files.read(reader, 10) for _ in range(60)]

        async def begin(files=files, ops=ops):
            for op in ops:
                op.send(None)

        asyncio.run(begin())
        barrier = threading.Barrier(4)

        def cancel(part, files=files, barrier=barrier):
            barrier.wait()
            for op in part:
                with contextlib.suppress(RuntimeError):
                    op.cancel()
                    files.cancel(op)
                op.done()
                op.close()

        threads = [threading.Thread(target=cancel, args=(ops[i::3],)) for i in range(3)]
        for thread in threads:
            thread.start()
        barrier.wait()
        files.close()
        for thread in threads:
            thread.join()
        del ops
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_context_whose_descriptors_are_gone_closes(engine):
    code = f"""
        import asyncio, os
        from treadle.fileio import FileContext
        async def main():
            files = FileContext(engine={engine!r}, inline=False)
            reader, writer = os.pipe()
            fd = os.open(__file__, os.O_RDONLY)
            ops = [files.read(reader, 1)] + [files.read(fd, 100, 0) for _ in range(20)]
            for op in ops:
                op.send(None)
            files.flush()
            os.closerange(3, 1000)
            try:
                files.close()
            except OSError as exc:
                assert exc.errno == 9
            print("closed", files.closed)
            os._exit(0)
        asyncio.run(main())
    """
    path = os.path.join(os.path.dirname(__file__), "conftest.py")
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code).replace("__file__", repr(path))],
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "closed True\n"), done.stderr


def test_contexts_of_linux_aio_close_without_a_wait():
    """All 300 together take less than one grace period of the kernel each."""
    contexts = [FileContext(engine="linux_aio", max_requests=8) for _ in range(300)]
    try:
        for files in contexts:
            files.caps()
    except OSError as exc:
        pytest.skip(f"linux_aio is not to be had here: {exc}")
    for files in contexts:
        files.close()


@pytest.mark.parametrize(
    "module", [module for module in fileio.variants_asyncio], ids=lambda module: module.__name__
)
@pytest.mark.parametrize("offset", [-1, -2, -(1 << 63)])
def test_a_negative_offset_is_invalid_in_the_earlier_librarys_shape(module, offset, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"content")

    async def main():
        fd = os.open(path, os.O_RDWR)
        context = module.AsyncioContext()
        for call in (lambda: context.read(3, fd, offset), lambda: context.write(b"abc", fd, offset)):
            with pytest.raises(OSError) as caught:
                await call()
            assert caught.value.errno == 22
        closed = context.close()
        if closed is not None:
            await closed
        os.close(fd)

    asyncio.run(main())
    assert path.read_bytes() == b"content"
