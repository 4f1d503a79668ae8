"""File contexts: the same operations on each engine and in each mode, in asyncio's loop, treadle's, and
uvloop's if it is there."""
import asyncio
import contextlib
import ctypes
import errno
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
import weakref
from collections import Counter

import pytest

import treadle
from treadle import fileio
from treadle.fileio import FileContext
from twin import open_fds

ENGINES = ["linux_uring", "linux_aio", "threads"]
MODES = ["adaptive", "deferred", "immediate"]
RUNNERS = [asyncio.run, treadle.run]
with contextlib.suppress(ImportError):
    import uvloop

    RUNNERS.append(uvloop.run)


def make(engine, **more):
    """A context that is really of this engine, or a skip by name."""
    files = FileContext(engine=engine, **more)
    try:
        caps = files.caps()
    except OSError as exc:
        pytest.skip(f"{engine} is not to be had here: {exc}")
    assert caps["engine"] == engine
    assert caps["mode"] == more.get("mode", "adaptive")
    if more.get("sqpoll") and not caps["sqpoll"]:
        pytest.skip("no polling thread is granted here")
    return files


@pytest.fixture
def data(tmp_path):
    content = os.urandom(1 << 20)
    (tmp_path / "data").write_bytes(content)
    fd = os.open(tmp_path / "data", os.O_RDWR)
    yield fd, content
    with contextlib.suppress(OSError):
        os.close(fd)


@pytest.fixture(params=RUNNERS, ids=lambda run: run.__module__)
def run(request):
    return request.param


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("limit", [1, 2, 3, 128])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("engine", ENGINES)
def test_many_reads_give_their_own_bytes(engine, mode, limit, inline, data):
    fd, content = data

    async def main():
        files = make(engine, mode=mode, max_requests=limit, inline=inline)
        parts = await asyncio.gather(*[files.read(fd, 1000, i * 3000) for i in range(200)])
        assert parts == [content[i * 3000: i * 3000 + 1000] for i in range(200)]
        files.close()

    asyncio.run(main())


def test_each_operation_gives_what_os_gives(run, tmp_path):
    async def main():
        files = FileContext()
        path = tmp_path / "f"
        fd = await files.open(path, os.O_RDWR | os.O_CREAT, 0o640)
        assert os.get_inheritable(fd) is False
        assert await files.write(fd, b"hello world", 0) == 11
        assert await files.writev(fd, [b"ab", bytearray(b"cd")], 11) == 4
        assert await files.read(fd, 100, 6) == b"worldabcd"
        buffer = bytearray(5)
        assert await files.readinto(fd, buffer, 0) == 5 and buffer == b"hello"
        one, two = bytearray(2), bytearray(20)
        assert await files.readv(fd, [one, two], 1) == 14 and one == b"el" and two[:3] == b"lo "
        assert await files.fsync(fd) is None and await files.fdatasync(fd) is None
        assert await files.truncate(fd, 4) is None
        assert await files.stat(fd) == os.stat(fd) and await files.stat(path) == os.stat(path)
        assert await files.fallocate(fd, 0, 0, 100) is None and os.fstat(fd).st_size == 100
        assert await files.rename(path, tmp_path / "g") is None
        assert await files.mkdir(tmp_path / "d", 0o700) is None
        assert await files.unlink(tmp_path / "g") is None
        assert os.listdir(tmp_path) == ["d"]
        assert await files.close_fd(fd) is None
        with pytest.raises(OSError):
            os.fstat(fd)
        files.close()

    run(main())


def test_errors_have_number_and_name(run, tmp_path):
    async def main():
        files = FileContext()
        with pytest.raises(FileNotFoundError) as caught:
            await files.open(tmp_path / "none", os.O_RDONLY)
        assert caught.value.filename == str(tmp_path / "none")
        with pytest.raises(FileNotFoundError) as caught:
            await files.rename(tmp_path / "none", tmp_path / "other")
        assert caught.value.filename2 == str(tmp_path / "other")
        with pytest.raises(OSError) as caught:
            await files.read(1_000_000, 1, 0)
        assert caught.value.errno == errno.EBADF
        with pytest.raises(IsADirectoryError):
            fd = os.open(tmp_path, os.O_RDONLY)
            try:
                await files.read(fd, 10, 0)
            finally:
                os.close(fd)
        for bad in (
            lambda: files.read("x", 1),
            lambda: files.read(0),
            lambda: files.write(0, "text"),
            lambda: files.open(3, 0),
        ):
            with pytest.raises(TypeError):
                bad()
        with pytest.raises(ValueError):
            files.read(0, -1)
        with pytest.raises(ValueError):
            FileContext(engine="tapes")
        files.close()

    run(main())


def test_one_bad_descriptor_fails_alone(run, data):
    fd, content = data

    async def main():
        files = FileContext(mode="deferred", inline=False)
        results = await asyncio.gather(
            *[files.read(1_000_000 if i == 7 else fd, 10, i * 10) for i in range(64)], return_exceptions=True
        )
        assert isinstance(results.pop(7), OSError)
        assert all(isinstance(part, bytes) and len(part) == 10 for part in results)
        files.close()

    run(main())


def test_what_is_staged_in_one_turn_is_one_system_call(run, data):
    fd, _ = data

    async def main():
        files = make("linux_uring", mode="deferred", inline=False)
        before = files.caps()["submit_calls"]
        await asyncio.gather(*[files.read(fd, 10, i) for i in range(100)])
        assert files.caps()["submit_calls"] - before == 1
        files.close()

    run(main())


def test_an_operation_is_a_coroutine_until_it_waits(run, data):
    fd, content = data

    async def main():
        files = FileContext(inline=False)
        assert asyncio.iscoroutine(files.read(fd, 1)) and not asyncio.isfuture(files.read(fd, 1))
        task = asyncio.create_task(files.read(fd, 5, 0))
        assert await task == content[:5]
        assert await asyncio.wait_for(files.read(fd, 5, 5), 5) == content[5:10]
        op = files.read(fd, 1, 0)
        await op
        with pytest.raises(RuntimeError):
            await op
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(files.read(fd, 1, i)) for i in range(10)]
        assert b"".join(task.result() for task in tasks) == content[:10]
        files.close()

    if sys.version_info >= (3, 11):
        run(main())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cancelled_read_lets_go_at_once(run, engine):
    reader, writer = os.pipe()

    async def main():
        files = make(engine)
        task = asyncio.create_task(files.read(reader, 10))
        while files.caps()["submissions"] == 0:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(files.read(reader, 10), 0.02)
        os.write(writer, b"x" * 30)
        files.close()

    run(main())
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("engine", ENGINES)
def test_closing_does_not_wait_for_another_program(run, engine, tmp_path):
    reader, writer = os.pipe()
    os.mkfifo(tmp_path / "fifo")

    async def main():
        files = make(engine)
        tasks = [
            asyncio.create_task(op)
            for op in (
                files.read(reader, 10),
                files.write(writer, b"x" * (1 << 20)),
                files.read_file(tmp_path / "fifo", 10),
            )
        ]
        while files.caps()["submissions"] < 3:
            await asyncio.sleep(0)
        files.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, (int, bytes, OSError, RuntimeError)) for result in results)

    run(main())
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("engine", ENGINES)
def test_registered_memory_is_read_into_and_kept(run, engine, data):
    fd, content = data

    async def main():
        files = make(engine, inline=False)
        memory = bytearray(1 << 16)
        held = files.register(memory)
        assert held in ((True, False) if engine == "linux_uring" else (False,))
        assert await files.readinto(fd, memoryview(memory)[100:9000], 50) == 8900
        assert memory[100:9000] == content[50:8950]
        assert await files.write(fd, memoryview(memory)[100:200], 0) == 100
        assert await files.read(fd, 100, 0) == content[50:150]
        if held:
            with pytest.raises(BufferError):
                memory.clear()
            with pytest.raises(OSError):
                files.register(bytearray(10))
        with pytest.raises((TypeError, BufferError)):
            files.register(b"read-only")
        files.close()
        memory.clear()

    run(main())


def test_a_cancelled_open_leaves_no_descriptor(tmp_path):
    gc.collect()
    before = open_fds()

    async def main():
        files = FileContext(mode="deferred")
        tasks = [
            asyncio.create_task(files.open(tmp_path / f"f{i}", os.O_CREAT | os.O_WRONLY)) for i in range(20)
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        files.close()

    asyncio.run(main())
    gc.collect()
    assert open_fds() == before


@pytest.mark.parametrize("limit", [128, 1000])
@pytest.mark.parametrize("engine", ENGINES)
def test_closing_with_a_thousand_in_flight_leaves_nobody_waiting(run, engine, limit, data):
    fd, _ = data

    async def main():
        files = make(engine, max_requests=limit, inline=False)
        tasks = [asyncio.create_task(files.read(fd, 4096, i * 1000)) for i in range(1000)]
        await asyncio.sleep(0)
        files.close()
        files.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, (bytes, OSError, RuntimeError)) for result in results)
        with pytest.raises(RuntimeError):
            await files.read(fd, 1, 0)

    run(main())


def test_close_works_on_a_stopped_and_on_a_closed_loop():
    reader, writer = os.pipe()
    for when in ("stopped", "closed"):
        loop = treadle.new_event_loop()
        files = FileContext()

        async def begin():
            task = asyncio.ensure_future(files.read(reader, 1))
            await asyncio.sleep(0)
            return task

        task = loop.run_until_complete(begin())
        if when == "closed":
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            loop.close()
        files.close()
        if when == "stopped":
            assert isinstance(
                loop.run_until_complete(asyncio.gather(task, return_exceptions=True))[0], OSError
            )
            loop.close()
    os.close(reader)
    os.close(writer)


# 128 woken; or 291 hits of 601 ns and some woken.
@pytest.mark.parametrize("inline, most", [(False, 128), (True, 400)])
def test_a_crowd_goes_on_in_parts_that_let_others_run(run, inline, most, data):
    fd, content = data

    async def main():
        files = FileContext(max_requests=600, inline=inline)
        turn = 0
        answered = []

        async def reader(i):
            for _ in range(20):
                assert await files.read(fd, 10, 10 * i) == content[10 * i: 10 * i + 10]
                answered.append(turn)

        readers = asyncio.gather(*[reader(i) for i in range(300)])
        while not readers.done():
            turn += 1
            await asyncio.sleep(0)
        await readers
        files.close()
        return answered

    answered = run(main())
    assert len(answered) == 6000
    assert max(Counter(answered).values()) <= most


def test_a_crowd_whose_first_ends_the_run_goes_on_in_the_next(data):
    fd, content = data
    loop = treadle.new_event_loop()
    files = FileContext(mode="deferred", max_requests=600, inline=False)

    async def reader(i):
        part = await files.read(fd, 10, 10 * i)
        if i == 0:
            raise KeyboardInterrupt
        return part

    async def begin():
        return [asyncio.ensure_future(reader(i)) for i in range(600)]

    readers = loop.run_until_complete(begin())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.gather(*readers[1:]))
    parts = loop.run_until_complete(asyncio.gather(*readers[1:]))
    assert parts == [content[10 * i: 10 * i + 10] for i in range(1, 600)]
    assert isinstance(readers[0].exception(), KeyboardInterrupt)
    files.close()
    loop.close()


def test_a_context_that_one_of_a_crowd_closes_leaves_nobody_waiting(run, data):
    fd, content = data

    async def main():
        files = FileContext(mode="deferred", max_requests=600, inline=False)

        async def reader(i):
            part = await files.read(fd, 10, 10 * i)
            files.close()
            return part

        parts = await asyncio.gather(*[reader(i) for i in range(600)], return_exceptions=True)
        assert parts[0] == content[:10]
        assert all(
            part == content[10 * i : 10 * i + 10] or isinstance(part, OSError) for i, part in enumerate(parts)
        )

    run(main())


@pytest.mark.parametrize("end", ["loop first", "context first", "context, then cancel", "cancel"])
@pytest.mark.parametrize("how", ["stop", KeyboardInterrupt])
@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, treadle.new_event_loop])
def test_descriptors_that_a_crowd_never_takes_are_closed(make_loop, how, end, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    gc.collect()
    before = open_fds()
    loop = make_loop()
    files = FileContext(max_requests=200, inline=False)

    async def opener(i):
        fd = await files.open(tmp_path / "file", os.O_RDONLY)
        try:
            if i == 3 and how == "stop":
                loop.stop()
            elif i == 3:
                raise how
        finally:
            os.close(fd)

    tasks = [loop.create_task(opener(i)) for i in range(200)]
    if how == "stop":
        loop.run_forever()
    else:
        with pytest.raises(how):
            loop.run_forever()
    if end in ("context first", "context, then cancel"):
        files.close()
    if "cancel" in end:
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.set_exception_handler(lambda loop, context: None)
    loop.close()
    files.close()
    for task in tasks:
        task._log_destroy_pending = False
        if task.done() and not task.cancelled():
            task.exception()
    del tasks, task, files, opener, loop
    gc.collect()
    assert open_fds() == before


def test_reap_by_hand_leaves_awaited_operations_to_their_tasks(run, data):
    fd, content = data

    async def main():
        files = FileContext(mode="deferred", max_requests=600, inline=False)
        reaped = []

        async def reader(i):
            part = await files.read(fd, 10, 10 * i)
            if i == 5:
                asyncio.get_running_loop().call_soon(lambda: reaped.extend(files.reap()))
            return part

        parts = await asyncio.gather(*[reader(i) for i in range(300)])
        assert parts == [content[10 * i: 10 * i + 10] for i in range(300)] and reaped == []
        files.close()

    run(main())


@pytest.mark.parametrize("engine", ENGINES)
def test_an_open_that_is_done_may_be_canceled_twice(engine, tmp_path):
    gc.collect()
    before = open_fds()
    files = make(engine)
    op = files.open(tmp_path / "new", os.O_CREAT | os.O_WRONLY)
    files.submit(op)
    files.flush()
    files.wait(10)
    files.cancel(op)
    files.cancel(op)
    files.close()
    del op, files
    gc.collect()
    assert open_fds() == before


def test_each_callback_of_an_operation_is_called_whatever_the_others_raise(run, data):
    fd, content = data

    async def main():
        files = FileContext(inline=False)
        told = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))

        def bad(op):
            raise ValueError("bad")

        def worse(op):
            raise asyncio.CancelledError

        op = files.read(fd, 10, 0)
        op.add_done_callback(bad)
        op.add_done_callback(worse)
        op.add_done_callback(lambda op: told.append("called"))
        assert await asyncio.wait_for(op, 10) == content[:10]
        files.close()
        return told

    told = run(main())
    assert [type(t["exception"]) if isinstance(t, dict) else t for t in told] == [
        ValueError,
        asyncio.CancelledError,
        "called",
    ]
    assert told[0]["message"].startswith("Exception in callback ")


def test_a_callback_of_a_finished_operation_comes_by_the_running_loop(run, data):
    fd, content = data

    async def main():
        seen = []
        files = FileContext()
        for op in (files.read(fd, 10, 0), files.read(fd, 0, 0)):
            await op
            op.add_done_callback(seen.append)
            assert seen == []
            await asyncio.sleep(0)
            assert seen == [op]
            seen.clear()
        files.close()
        raw = FileContext(inline=False)
        op = raw.read(fd, 10, 0)
        raw.submit(op)
        raw.flush()
        raw.wait(10)
        assert raw.reap() == [op]
        op.add_done_callback(seen.append)
        await asyncio.sleep(0)
        assert seen == [op]
        raw.close()
        return op

    op = run(main())
    with pytest.raises(RuntimeError, match="no running event loop"):
        op.add_done_callback(print)


def test_an_operation_that_its_context_cancels_wakes_its_task(run):
    reader, writer = os.pipe()

    async def main():
        files = FileContext(max_requests=1)
        first = asyncio.ensure_future(files.read(reader, 1))
        await asyncio.sleep(0)
        second = files.read(reader, 1)
        waits = asyncio.ensure_future(second)
        await asyncio.sleep(0)
        files.cancel(second)
        with pytest.raises(OSError) as caught:
            await asyncio.wait_for(waits, 10)
        assert caught.value.errno == errno.ECANCELED
        os.write(writer, b"x")
        assert await first == b"x"
        files.close()

    run(main())
    os.close(reader)
    os.close(writer)


def test_a_context_of_another_loop_refuses():
    reader, writer = os.pipe()
    files = FileContext()

    async def use():
        await asyncio.wait_for(files.read(reader, 1), 0.01)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(use())
    with pytest.raises(RuntimeError):
        asyncio.run(use())
    files.close()
    os.close(reader)
    os.close(writer)


def test_a_context_refuses_another_threads_loop_also_while_it_wakes_its_own(run, data):
    fd, _ = data
    seen = []

    async def intrude(files):
        try:
            seen.append(await files.read(fd, 1))
        except RuntimeError as exc:
            seen.append(str(exc))

    async def main():
        files = FileContext(inline=False)
        assert len(await files.read(fd, 1)) == 1
        other = threading.Thread(target=asyncio.run, args=(intrude(files),))
        other.start()
        other.join()
        files.close()

    run(main())
    assert seen == ["file context belongs to another event loop"]


def test_readers_of_the_cache_let_others_run(run, data):
    fd, _ = data

    async def main():
        files = FileContext()
        turns = 0
        done = False

        async def ticker():
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        async def reader():
            for i in range(5000):
                await files.read(fd, 4096, (i * 4096) % (1 << 20))

        task = asyncio.create_task(ticker())
        await reader()
        done = True
        await task
        files.close()
        return turns

    # About 90 hits fit into a turn's allowance.
    assert run(main()) > 30


@pytest.mark.parametrize("inline", [True, False])
def test_bytes_are_made_when_they_are_filled(run, inline, data):
    fd, content = data

    async def main():
        files = FileContext(mode="deferred", inline=inline)
        tracemalloc.start()
        try:
            waiting = [files.read(fd, 1 << 19, 0) for _ in range(64)]
            assert tracemalloc.get_traced_memory()[0] < 1 << 19
            assert await waiting[0] == content[:1 << 19]
            for size in (1 << 60, sys.maxsize - 100):
                with pytest.raises(MemoryError):
                    await files.read(fd, size, 0)
        finally:
            tracemalloc.stop()
        files.close()

    run(main())


def test_readers_share_what_the_cache_answers_at_once(run, data):
    fd, _ = data

    async def main():
        files = FileContext()
        counts = [0] * 16

        async def reader(me):
            while sum(counts) < 8000:
                await files.read(fd, 4096, 0)
                counts[me] += 1

        await asyncio.gather(*[reader(me) for me in range(16)])
        files.close()
        return counts

    counts = run(main())
    assert min(counts) > max(counts) / 4


def test_an_idle_context_costs_no_time(data):
    fd, _ = data

    async def main():
        files = make("linux_uring", sqpoll=True)
        await files.read(fd, 10, 0)
        start = time.process_time()
        for i in range(8):
            await asyncio.sleep(0.05)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            await files.read(fd, 10, 4096 * i)
        files.close()
        return time.process_time() - start

    # The share is measured in perf/; here a thread that never sleeps would cost the whole 0.4 s.
    assert asyncio.run(main()) < 0.2


def test_contexts_and_operations_are_collected():
    async def main():
        files = FileContext(inline=False)
        fd = os.open(__file__, os.O_RDONLY)
        await files.read(fd, 10, 0)
        os.close(fd)
        return weakref.ref(files)

    ref = asyncio.run(main())
    gc.collect()
    assert ref() is None


def test_a_forked_child_reads_with_a_ring_of_its_own(data):
    fd, content = data
    code = textwrap.dedent("""
        import asyncio, os, sys
        from treadle.fileio import FileContext
        fd = int(sys.argv[1])
        files = FileContext(inline=False)
        async def main():
            return await files.read(fd, 10, 0)
        first = asyncio.run(main())
        child = os.fork()
        if child == 0:
            mine = FileContext(inline=False)
            async def again():
                return await mine.read(fd, 10, 0)
            os._exit(0 if asyncio.run(again()) == first else 1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(fd)],
        pass_fds=[fd],
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0


# the earlier library's shape


@pytest.mark.parametrize(
    "module", fileio.variants_asyncio, ids=lambda module: module.__name__.rpartition(".")[2]
)
def test_shaped_contexts_work_alike(run, module, data):
    fd, content = data

    async def main():
        async with module.AsyncioContext(max_requests=4) as context:
            assert isinstance(context.semaphore, asyncio.BoundedSemaphore)
            assert context.context.max_requests == 4
            parts = await asyncio.gather(*[context.read(100, fd, i * 100) for i in range(50)])
            assert b"".join(parts) == content[:5000]
            assert await context.write(b"abc", fd, 7) == 3
            await context.fsync(fd)
            await context.fdsync(fd)
            assert await context.submit(context.OPERATION_CLASS.read(3, fd, 7)) == b"abc"
            with pytest.raises(ValueError):
                await context.submit(object())
            with pytest.raises(OSError) as caught:
                await context.read(1, 1_000_000, 0)
            assert caught.value.errno == errno.EBADF
            if "python" not in module.__name__:
                assert isinstance(caught.value, SystemError)
        context.close()

    run(main())


@pytest.mark.parametrize("make_task", [asyncio.Task, asyncio.tasks._PyTask], ids=["in C", "in Python"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_kept_operation_outlives_a_cancelled_awaiter(run, engine, make_task):
    async def main():
        files = make(engine)
        read_end, write_end = os.pipe()
        op = files.read(read_end, 10).keep()

        async def wait():
            return await op

        loop = asyncio.get_running_loop()
        one, other, third = [make_task(wait(), loop=loop) for _ in range(3)]
        await asyncio.sleep(0)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        assert not op.done() and not other.done()
        os.write(write_end, b"bytes")
        assert await other == await third == await op == op.result() == b"bytes"
        late = make_task(wait(), loop=loop)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        assert await op == b"bytes"
        files.close()
        os.close(read_end)
        os.close(write_end)

    run(main())


def test_a_closed_context_ends_a_kept_operation(run):
    async def main():
        files = FileContext()
        read_end, write_end = os.pipe()
        op = files.read(read_end, 10).keep()

        async def wait():
            return await op

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        files.close()
        with pytest.raises(OSError) as caught:
            await task
        assert caught.value.errno == errno.ECANCELED and op.done() and op.code == -errno.ECANCELED
        os.close(read_end)
        os.close(write_end)

    run(main())


@pytest.mark.parametrize("offset", [-1, -5, -(1 << 70)])
@pytest.mark.parametrize("module", [*ENGINES, "thread_aio", "python_aio"])
def test_a_negative_offset_is_refused_by_the_kernel(run, module, offset, data):
    fd, content = data

    async def main():
        shaped = getattr(fileio, f"{module}_asyncio", None)
        if module in ENGINES:
            files = make(module)
            calls = [lambda: files.read(fd, 10, offset), lambda: files.write(fd, b"x", offset)]
        else:
            files = shaped.AsyncioContext()
            calls = [lambda: files.read(10, fd, offset), lambda: files.write(b"x", fd, offset)]
        for call in calls:
            with pytest.raises((OSError, OverflowError)) as caught:
                await call()
            assert getattr(caught.value, "errno", errno.EINVAL) == errno.EINVAL
        files.close()
        assert os.lseek(fd, 0, os.SEEK_CUR) == 0 and os.pread(fd, 10, 0) == content[:10]

    run(main())


@pytest.mark.parametrize("name", ["pread", "pwrite"])
def test_a_positioned_method_awaited_after_close_uses_no_number(run, name, tmp_path):
    (tmp_path / "a").write_bytes(b"a" * 10)
    (tmp_path / "victim").write_bytes(b"v" * 10)

    async def main():
        file = await fileio.open(tmp_path / "a", "r+b")
        waits = file.pread(10, 0) if name == "pread" else file.pwrite(b"x" * 10, 0)
        number = file.fileno()
        await file.close()
        victim = os.open(tmp_path / "victim", os.O_RDWR)
        try:
            assert victim == number
            with pytest.raises(ValueError, match="closed file"):
                await waits
        finally:
            os.close(victim)
        assert (tmp_path / "victim").read_bytes() == b"v" * 10

    run(main())


def test_a_cancelled_write_of_python_threads_is_over_when_its_awaiter_hears_of_it(run, monkeypatch, tmp_path):
    from treadle.fileio import python_aio_asyncio

    inside, go_on, real = threading.Event(), threading.Event(), os.pwrite
    written = []

    def slow(fd, data, offset):
        inside.set()
        go_on.wait(10)
        written.append(fd)
        return real(fd, data[:3], offset)

    monkeypatch.setattr(os, "pwrite", slow)

    async def main():
        loop = asyncio.get_running_loop()
        files = python_aio_asyncio.AsyncioContext(max_requests=2, pool_size=1)
        fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
        calls, waits = [loop.create_task(files.write(b"x" * 10, fd, 0)) for _ in range(2)]
        await loop.run_in_executor(None, inside.wait)
        calls.cancel()
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits  # no thread has begun it, and none will
        assert not calls.done()
        calls.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await calls
        assert written == [fd]  # one call, although it had not moved all
        assert await files.write(b"abc", fd, 0) == 3  # and the slots came back
        assert written == [fd, fd]
        os.close(fd)
        files.close()
        files.context.pool.join()

    run(main())


def test_an_operation_of_python_threads_submitted_again_keeps_its_first_awaiter(run, data):
    from treadle.fileio import python_aio, python_aio_asyncio

    async def main():
        files = python_aio_asyncio.AsyncioContext()
        fd, content = data
        op = python_aio.Operation.read(4, fd, 0)
        first = asyncio.ensure_future(files.submit(op))
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="submitted before"):
            await files.submit(op)
        assert await first == content[:4]
        files.close()
        files.context.pool.join()

    run(main())


def test_importing_starts_no_thread(python):
    """The C library's calls are cheaper in a process that never had a second one, and a fork is safe
    there."""
    code = textwrap.dedent("""
        import ctypes, treadle, treadle.fileio
        print(ctypes.c_char.in_dll(ctypes.CDLL(None), "__libc_single_threaded").value[0])
    """)
    if not hasattr(ctypes.CDLL(None), "__libc_single_threaded"):
        pytest.skip("the C library does not tell")
    assert python(code=code, check=True).stdout.split() == ["1"]
