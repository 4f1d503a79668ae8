"""What becomes of files and contexts when loops, processes and references end."""
import asyncio
import contextlib
import errno
import fcntl
import gc
import os
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

import treadle
from treadle import fileio
from treadle.fileio import FileContext, _contexts
from test_fileio_io import ENGINES
from twin import open_fds

FACTORIES = [asyncio.SelectorEventLoop, treadle.new_event_loop]
with contextlib.suppress(ImportError):
    import uvloop

    FACTORIES.append(uvloop.new_event_loop)


@pytest.fixture(params=FACTORIES, ids=lambda factory: factory.__module__)
def make_loop(request):
    return request.param


def run(make_loop, coroutine):
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(coroutine)


def slow(engine="auto"):
    """Have the running loop's files wait for everything."""
    files = FileContext(engine=engine, inline=False)
    _contexts.adopt(asyncio.get_running_loop(), files)
    return files


def test_loops_that_touched_files_leave_nothing(make_loop, tmp_path):
    async def main():
        slow()
        await fileio.write_bytes(tmp_path / "file", b"x" * 1000)
        async with fileio.open(tmp_path / "file") as file:
            await file.read()

    refs = []
    run(make_loop, main())
    gc.collect()
    before = open_fds()
    for _ in range(40):
        with asyncio.Runner(loop_factory=make_loop) as runner:
            refs.append(weakref.ref(runner.get_loop()))
            runner.run(main())
    # Only one that nobody could tell of its end may still be there, until the next one comes or the
    # collector.
    assert len(open_fds()) <= len(before) + 6
    gc.collect()
    assert [ref() for ref in refs if ref() is not None] == []
    assert len(open_fds()) <= len(before)


def test_a_loop_takes_its_context_along_when_it_is_closed(tmp_path):
    async def main():
        await fileio.write_bytes(tmp_path / "file", b"x")
        return fileio.context()

    files = run(treadle.new_event_loop, main())
    assert files.closed
    files = run(asyncio.SelectorEventLoop, main())
    assert not files.closed
    run(asyncio.SelectorEventLoop, main())
    assert files.closed


def test_a_file_works_on_in_another_loop(make_loop, tmp_path):
    path = tmp_path / "file"

    async def first():
        file = await fileio.open(path, "w+")
        await file.write("one\n")
        return file

    async def second(file):
        await file.write("two\n")
        await file.seek(0)
        assert await file.readline() == "one\n"
        return file

    async def third(file):
        assert await file.read() == "two\n"
        await file.write("three\n")
        await file.close()

    file = run(make_loop, first())
    file = run(asyncio.SelectorEventLoop, second(file))
    run(make_loop, third(file))
    assert path.read_text() == "one\ntwo\nthree\n"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_what_a_loop_left_unfinished_is_finished_in_the_next(make_loop, tmp_path, engine, turns):
    path = tmp_path / "file"

    async def first():
        slow(engine)
        file = await fileio.open(path, "ab")
        for word in (b"one ", b"two "):
            await file.write(word)
            task = asyncio.ensure_future(file.flush())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        return file

    async def second(file):
        await file.write(b"three")
        await file.close()

    run(make_loop, second(run(make_loop, first())))
    assert path.read_bytes() == b"one two three"


def test_another_running_loop_is_refused_while_something_runs(make_loop):
    read_end, write_end = os.pipe()

    async def read(file):
        return await file.read1(3)

    async def main():
        slow()
        file = await fileio.open(read_end, "rb")
        task = asyncio.ensure_future(file.read1(3))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(run, make_loop, read(file))
        os.write(write_end, b"abc")
        assert await task == b"abc"
        os.write(write_end, b"def")
        # Nothing runs, so any loop may go on.
        assert await asyncio.to_thread(run, make_loop, read(file)) == b"def"
        os.write(write_end, b"ghi")
        assert await file.read1(3) == b"ghi"
        await file.close()

    run(make_loop, main())
    os.close(write_end)


@pytest.mark.parametrize("where", ["in the run", "behind it"])
@pytest.mark.parametrize("how", ["written", "flush cancelled", "unbuffered"])
@pytest.mark.parametrize("mode", ["w", "wb"])
def test_a_dropped_file_is_flushed_and_closed_and_says_so(make_loop, tmp_path, where, how, mode):
    path = tmp_path / "file"
    if how == "unbuffered" and mode == "w":
        pytest.skip("text is always buffered")

    async def main():
        slow()
        file = await fileio.open(path, mode, buffering=0 if how == "unbuffered" else -1)
        await file.write("data" if mode == "w" else b"data")
        if how == "flush cancelled":
            task = asyncio.ensure_future(file.flush())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            del task
        if where == "behind it":
            return file
        del file
        while os.fspath(path) in open_fds().values():
            gc.collect()
            await asyncio.sleep(0)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        file = run(make_loop, main())
        del file
        gc.collect()
        assert os.fspath(path) not in open_fds().values()
    assert [w.category for w in caught if "unclosed file" in str(w.message)] == [ResourceWarning]
    assert path.read_bytes() == b"data"


def test_a_dropped_file_whose_descriptor_is_not_its_own_is_flushed(tmp_path):
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)

    async def main():
        file = await fileio.open(fd, "wb", closefd=False)
        await file.write(b"data")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == b"data"


def test_a_dropped_pipe_that_takes_nothing_does_not_wait(make_loop):
    read_end, write_end = os.pipe()
    room = fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
    os.write(write_end, b"x" * room)

    async def main():
        file = await fileio.open(write_end, "wb")
        await file.write(b"data")

    seen = []
    hook, sys.unraisablehook = sys.unraisablehook, seen.append
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            run(make_loop, main())
            gc.collect()
    finally:
        sys.unraisablehook = hook
    assert [hooked.exc_value.errno for hooked in seen] == [errno.EAGAIN]
    assert os.read(read_end, 10000) == b"x" * room and os.read(read_end, 1) == b""
    os.close(read_end)


AT_EXIT = textwrap.dedent("""
    import asyncio, sys, treadle
    from treadle import fileio

    async def main(name):
        global kept
        kept = await fileio.open(name, "w")
        await kept.write("data")
        cycle = [await fileio.open(name + "2", "wb")]
        cycle.append(cycle)
        await cycle[0].write(b"data")
        if sys.argv[3] == "inside":
            sys.exit(3)

    with asyncio.Runner(loop_factory=eval(sys.argv[2])) as runner:
        runner.run(main(sys.argv[1]))
""")


@pytest.mark.parametrize("where", ["inside", "behind"])
@pytest.mark.parametrize("factory", ["asyncio.SelectorEventLoop", "treadle.new_event_loop"])
def test_files_that_are_open_at_exit_are_flushed(python, tmp_path, factory, where):
    done = python("-W", "always", "-c", AT_EXIT, os.fspath(tmp_path / "file"), factory, where)
    assert done.returncode == (3 if where == "inside" else 0), done.stderr
    assert (tmp_path / "file").read_text() == (tmp_path / "file2").read_text() == "data"
    assert done.stderr.count("ResourceWarning: unclosed file <treadle") == 2, done.stderr


FORK = textwrap.dedent("""
    import asyncio, os, sys, treadle
    from treadle import fileio

    make_loop = eval(sys.argv[2])

    async def child(file):
        assert await file.read(4) == b"5678"
        assert await file.tell() == 9
        async with fileio.open(sys.argv[1] + ".child", "wb") as other:
            await other.write(b"child")

    async def main():
        with open(sys.argv[1], "wb") as made:
            made.write(b"0123456789")
        file = await fileio.open(sys.argv[1], "rb", buffering=4)
        files = fileio.FileContext(inline=False)
        fileio._contexts.adopt(asyncio.get_running_loop(), files)
        assert await file.read(5) == b"01234"
        loop = asyncio.get_running_loop()
        pid = os.fork()
        if pid == 0:
            try:
                if sys.argv[3] == "another":
                    asyncio._set_running_loop(None)
                    with asyncio.Runner(loop_factory=make_loop) as runner:
                        runner.run(child(file))
                else:
                    asyncio._set_running_loop(loop)  # asyncio forgets it with the fork
                    await child(file)
            except BaseException as exc:
                print(repr(exc), file=sys.stderr)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert (await file.read(100)).startswith(b"5")
        await file.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())
""")


@pytest.mark.parametrize(
    "factory, which",
    [
        ("asyncio.SelectorEventLoop", "another"),
        ("treadle.new_event_loop", "another"),
        ("treadle.new_event_loop", "the same"),
    ],
)
def test_a_forked_child_goes_on_with_the_file(python, tmp_path, factory, which):
    done = python("-c", FORK, os.fspath(tmp_path / "file"), factory, which, timeout=30)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "file.child").read_bytes() == b"child"


# where the kernel is


@pytest.mark.parametrize("mode", ["w", "a", "w+"])
def test_a_child_writes_behind_what_was_flushed_and_the_parent_behind_the_child(make_loop, tmp_path, mode):
    async def main():
        async with fileio.open(tmp_path / "log", mode) as file:
            await file.write("header\n")
            await file.flush()
            subprocess.run(["echo", "child"], stdout=file.fileno(), check=True)
            await file.write("footer\n")

    run(make_loop, main())
    assert (tmp_path / "log").read_text() == "header\nchild\nfooter\n"


def test_a_child_reads_behind_what_an_unbuffered_file_read(make_loop, tmp_path):
    (tmp_path / "lines").write_bytes(b"one\ntwo\nthree\n")

    async def main():
        async with fileio.open(tmp_path / "lines", "rb", buffering=0) as file:
            assert await file.readline() == b"one\n"
            done = subprocess.run(
                ["head", "-c", "4"], stdin=file.fileno(), stdout=subprocess.PIPE, check=True
            )
            assert done.stdout == b"two\n"
            os.lseek(file.fileno(), 8, os.SEEK_SET)
            assert await file.readline() == b"three\n"

    run(make_loop, main())


def test_a_descriptor_that_is_asked_for_stands_behind_what_was_read(make_loop, tmp_path):
    (tmp_path / "lines").write_bytes(b"x" * 100)

    async def main():
        async with fileio.open(tmp_path / "lines", "rb", buffering=16) as file:
            await file.read(20)
            place = os.lseek(file.fileno(), 0, os.SEEK_CUR)
            assert 20 <= place <= 36
            assert await file.tell() == 20 and await file.read() == b"x" * 80

    run(make_loop, main())


def test_a_descriptor_that_appends_is_known_whatever_the_mode_says(make_loop, tmp_path):
    (tmp_path / "file").write_bytes(b"old ")
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_APPEND)

    async def main():
        async with fileio.open(fd, "wb") as file:
            await file.write(b"new ")
            await file.flush()
            assert await file.tell() == 8
            await file.write(b"more")

    run(make_loop, main())
    assert (tmp_path / "file").read_bytes() == b"old new more"


@pytest.mark.parametrize("buffering, expected", [(0, [b"ab", b"c", b"defg"]), (-1, [b"abcdefg"])])
def test_an_unbuffered_read_of_a_pipe_gives_what_is_there(make_loop, buffering, expected):
    read_end, write_end = os.pipe()

    async def main():
        found = []
        async with fileio.open(read_end, "rb", buffering=buffering) as file:
            if buffering == 0:
                for piece in expected:
                    os.write(write_end, piece)
                    found.append(await file.read(100))
            else:
                threading.Timer(
                    0,
                    lambda: [os.write(write_end, b"abc"), os.write(write_end, b"defg"), os.close(write_end)],
                ).start()
                found.append(await file.read(100))
        return found

    assert run(make_loop, main()) == expected
    if buffering == 0:
        os.close(write_end)


def test_an_unbuffered_file_is_written_while_its_reader_waits(make_loop):
    master, slave = os.openpty()

    async def main():
        async with fileio.open(master, "r+b", buffering=0) as file:
            task = asyncio.ensure_future(file.read(100))
            await asyncio.sleep(0)
            assert await file.write(b"ping\n") == 5
            assert os.read(slave, 100) == b"ping\n"
            assert b"ping\r\n".startswith(await task)  # the terminal's echo
        os.close(slave)

    run(make_loop, main())


def test_a_text_file_is_cut_where_its_buffer_is(make_loop, tmp_path):
    text = "é" * 10 + "\n"
    (tmp_path / "text").write_text(text, encoding="utf-8")

    async def main():
        async with fileio.open(tmp_path / "text", "r+", encoding="utf-8") as file:
            assert await file.read(3) == "ééé"
            await file.tell()
            assert await file.truncate() == 21
            await file.seek(4)
            assert await file.truncate() == 4

    run(make_loop, main())
    assert (tmp_path / "text").read_text(encoding="utf-8") == "éé"


def test_threads_adopt_contexts_at_the_same_time():
    """Loops that are not treadle's are looked through when another gets its context, in whatever thread that
    is."""
    class Open:
        def is_closed(self):
            return False

    class Context:
        def close(self):
            pass

    kept = []
    start = threading.Barrier(4)

    def adopt_many(_):
        start.wait()
        for _ in range(500):
            loop = Open()
            kept.append(loop)
            _contexts.adopt(loop, Context())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(adopt_many, range(4)))
    finally:
        sys.setswitchinterval(interval)
