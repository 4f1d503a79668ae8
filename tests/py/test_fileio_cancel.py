"""A method of a file that is cancelled has happened or has not: nothing is lost, nothing comes twice, nothing
is half done."""
import asyncio
import fcntl
import io
import itertools
import os
import random

import pytest

import treadle
from treadle import fileio
from treadle.fileio import FileContext, _contexts
from test_fileio_io import ENGINES
from twin import open_fds

RUNNERS = [asyncio.run, treadle.run]
SEQUENCES = int(os.environ.get("TREADLE_TEST_EXAMPLES", "200")) // 10


@pytest.fixture(params=RUNNERS, ids=lambda run: run.__module__)
def run(request):
    return request.param


def adopt(engine):
    """Have the loop's files use an engine that answers nothing at once, so that everything waits and can be
    cancelled."""
    files = FileContext(engine=engine, inline=False)
    _contexts.adopt(asyncio.get_running_loop(), files)
    return files


class Cancelled(Exception):
    pass


async def cut(dice, files, coroutine):
    """Run it in a task that may be cancelled: at once, some turns later, or when the kernel is done and the
    loop does not know."""
    task = asyncio.ensure_future(coroutine)
    turns = dice.choice([None, None, 0, 1, 1, 2, 3])
    if turns is None:
        return await task
    for _ in range(turns):
        await asyncio.sleep(0)
    if not task.done() and turns == 1 and dice.random() < 0.7:
        files.wait(0.05)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        raise Cancelled from None


def some_step(dice):
    """A method, and what it does to a file in memory."""
    name = dice.choice(
        [
            "read",
            "read",
            "read1",
            "readinto",
            "readline",
            "write",
            "write",
            "write",
            "flush",
            "seek",
            "truncate",
            "tell",
        ]
    )
    size = dice.choice([0, 1, 3, 10, 40, 200])
    if name == "write":
        return name, (bytes(dice.choices(b"abc\n", k=size)),)
    if name in ("read", "readline", "read1"):
        return name, (dice.choice([size, -1]),)
    if name == "readinto":
        return name, (size,)
    if name == "seek":
        return name, (dice.randrange(60), 0)
    return name, ((dice.randrange(60),) if name == "truncate" else ())


def in_memory(model, name, args):
    if name == "readinto":
        return model.read(*args)
    if name == "truncate":  # which makes nothing longer in memory
        place = model.tell()
        missing = args[0] - model.seek(0, io.SEEK_END)
        if missing > 0:
            model.write(bytes(missing))
        model.seek(place)
    return getattr(model, name)(*args)


async def on_file(file, name, args):
    if name == "readinto":
        buffer = bytearray(args[0])
        return bytes(buffer[:await file.readinto(buffer)])
    return await getattr(file, name)(*args)


def copied(model):
    other = io.BytesIO(model.getvalue())
    other.seek(model.tell())
    return other


async def walk(path, dice, engine, buffering):
    files = adopt(engine)
    model = io.BytesIO(bytes(dice.choices(b"xyz\n", k=80)))
    path.write_bytes(model.getvalue())
    done = []
    async with fileio.open(path, "r+b", buffering=buffering) as file:
        for _ in range(20):
            name, args = some_step(dice)
            after = copied(model)
            expected = in_memory(after, name, args)
            try:
                result = await cut(dice, files, on_file(file, name, args))
            except Cancelled:
                done.append((name, args, "cancelled"))
                reads = name.startswith("read")
                later = some_step(dice) if dice.random() < 0.5 else None
                if not reads:
                    await file.flush()
                    state = path.read_bytes(), await file.tell()
                    states = [(m.getvalue(), m.tell()) for m in (model, after)]
                    assert state in states, (done, state, states)
                    model = after if state == states[1] else model
                elif later is not None and not later[0].startswith("read1"):
                    one, other = in_memory(model, *later), await on_file(file, *later)
                    done.append((*later, other))
                    assert other == one, done
                continue
            done.append((name, args, result))
            if name == "read1" and (expected == b"") == (result == b""):
                model.seek(len(result), 1)
                assert expected.startswith(result), done
            elif name != "flush":
                model = after
                assert result == expected, done
    assert path.read_bytes() == model.getvalue(), done


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("buffering", [1 << 16, 16, 64])
def test_a_cancelled_method_of_a_binary_file_has_happened_or_not(tmp_path, run, engine, buffering):
    for seed in range(SEQUENCES):
        run(walk(tmp_path / "file", random.Random(f"{seed} {engine} {buffering}"), engine, buffering))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cancelled_read_of_a_text_file_takes_nothing(tmp_path, run, engine):
    text = "".join(f"line {n} é€\n" * (n % 3 + 1) for n in range(1500))
    (tmp_path / "text").write_text(text, encoding="utf-8")

    async def main(dice):
        files = adopt(engine)
        found = []
        async with fileio.open(tmp_path / "text", encoding="utf-8") as file:
            while len("".join(found)) < len(text):
                reads = dice.choice(
                    [lambda: file.read(dice.choice([1, 100, 9000, 20000])), file.readline, file.__anext__]
                )
                try:
                    found.append(await cut(dice, files, reads()))
                    if dice.random() < 0.2:
                        place = await cut(dice, files, file.tell())
                        await cut(dice, files, file.seek(0))
                        while True:
                            try:
                                await cut(dice, files, file.seek(place))
                                break
                            except Cancelled:
                                pass
                except Cancelled:
                    pass
                assert text.startswith("".join(found)) or await file.tell() == 0
                if await file.tell() == 0:  # a cancelled seek(0) that happened
                    found.clear()
        assert "".join(found) == text

    for seed in range(max(1, SEQUENCES // 5)):
        run(main(random.Random(seed)))


@pytest.mark.parametrize("mode", ["w", "a"])
@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_text_file_was_given_is_written_once(tmp_path, run, engine, mode):
    async def main(dice):
        files = adopt(engine)
        (tmp_path / "text").write_text("")
        expected = ""
        async with fileio.open(
            tmp_path / "text", mode, encoding="utf-16-le", buffering=dice.choice([-1, 1, 20])
        ) as file:
            for n in range(30):
                text = f"{n} €\n" * dice.choice([1, 5, 3000])
                task = asyncio.ensure_future(cut(dice, files, file.write(text)))
                await asyncio.wait([task])
                before = len(expected.encode("utf-16-le"))
                place = await file.tell()
                if task.exception() is None or place != before:
                    expected += text
                assert place == len(expected.encode("utf-16-le"))
                if dice.random() < 0.3:
                    try:
                        await cut(dice, files, file.flush())
                    except Cancelled:
                        pass
        assert (tmp_path / "text").read_bytes() == expected.encode("utf-16-le")

    for seed in range(max(1, SEQUENCES // 2)):
        run(main(random.Random(seed)))


@pytest.mark.parametrize("buffering", [-1, 0])
@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_cancelled_read_of_a_pipe_would_have_got_is_for_the_next(run, engine, buffering):
    async def main(dice):
        files = adopt(engine)
        read_end, write_end = os.pipe()
        sent = found = b""
        async with fileio.open(read_end, "rb", buffering=buffering) as file:
            while len(sent) < 3000 or len(found) < len(sent):
                if len(found) == len(sent) or dice.random() < 0.3:
                    # Before or after the reader is there, whole lines or not.
                    piece = bytes(dice.choices(b"ab\n", k=dice.choice([1, 5, 100])))
                    early = dice.random() < 0.5
                    task = (
                        asyncio.ensure_future(cut(dice, files, file.read1(dice.choice([1, 10, 1000]))))
                        if early
                        else None
                    )
                    await asyncio.sleep(0)
                    os.write(write_end, piece)
                    sent += piece
                    if task is not None:
                        try:
                            found += await task
                        except Cancelled:
                            pass
                        assert sent.startswith(found)
                        continue
                try:
                    found += await cut(dice, files, file.read1(dice.choice([1, 7, 1000])))
                except Cancelled:
                    pass
                assert sent.startswith(found)
            os.close(write_end)
            assert await file.read() == b""
        assert found == sent

    for seed in range(max(1, SEQUENCES // 4)):
        run(main(random.Random(seed)))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_was_written_to_a_pipe_comes_once_whoever_was_cancelled(run, engine):
    async def main(dice):
        files = adopt(engine)
        read_end, write_end = os.pipe()
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
        got = bytearray()
        os.set_blocking(read_end, False)

        def drain():
            while True:
                try:
                    data = os.read(read_end, dice.choice([100, 4096]))
                except BlockingIOError:
                    return
                if not data:
                    return
                got.extend(data)

        async def drained(task):
            while not task.done():
                drain()
                await asyncio.sleep(0)
            return await task

        expected = [b""]
        async with fileio.open(write_end, "wb", buffering=1000) as file:
            for n in range(20):
                data = b"%d-" % n * dice.choice([1, 30, 3000])
                try:
                    await drained(asyncio.ensure_future(cut(dice, files, file.write(data))))
                    expected = [before + data for before in expected]
                except Cancelled:
                    expected += [before + data for before in expected]
                try:
                    await drained(asyncio.ensure_future(cut(dice, files, file.flush())))
                except Cancelled:
                    pass
                await drained(asyncio.ensure_future(file.flush()))
                drain()
                expected = [one for one in expected if one == got]
                assert expected, "what the pipe got is none of what may have been written"
        os.close(read_end)

    for seed in range(max(1, SEQUENCES // 4)):
        run(main(random.Random(seed)))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_read_that_nobody_waits_for_does_not_keep_a_pipe_from_closing(run, engine):
    async def main():
        adopt(engine)
        read_end, write_end = os.pipe()
        file = await fileio.open(read_end, "rb")
        task = asyncio.ensure_future(file.read(10))
        other = asyncio.ensure_future(file.readline())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await file.close()
        with pytest.raises(ValueError):
            await file.read(1)
        if engine == "linux_uring":  # a worker hears of it when the pipe does
            with pytest.raises(ValueError):
                await other
        os.close(write_end)
        await asyncio.wait([other])
        with pytest.raises((OSError, ValueError)):
            if not await other:
                raise ValueError("ended with the pipe")

    run(main())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cancelled_close_leaves_an_open_file_or_a_closed_one(tmp_path, run, engine):
    path = tmp_path / "file"

    async def main():
        files = adopt(engine)
        states = set()
        for turns, late, data in itertools.product(range(4), (False, True), (b"data", b"")):
            file = await fileio.open(path, "wb")
            await file.write(data)
            task = asyncio.ensure_future(file.close())
            for _ in range(turns):
                await asyncio.sleep(0)
            if late and not task.done():
                files.wait(0.05)
            task.cancel()
            await asyncio.wait([task])
            states.add((task.cancelled(), file.closed))
            if not file.closed:
                await file.write(b"more")
                data += b"more"
            await file.close()
            assert path.read_bytes() == data
            assert os.fspath(path) not in open_fds().values()
        assert states >= {(True, False), (True, True)}

    run(main())


@pytest.mark.parametrize("engine", ENGINES)
def test_tasks_that_read_one_file_share_its_lines(tmp_path, run, engine):
    lines = [b"%d\n" % n for n in range(5000)]
    (tmp_path / "lines").write_bytes(b"".join(lines))

    async def main():
        adopt(engine)
        found = []

        async def take(file):
            async for line in file:
                found.append(line)

        async with fileio.open(tmp_path / "lines", "rb", buffering=100) as file:
            await asyncio.gather(*[take(file) for _ in range(5)])
        assert sorted(found, key=int) == lines

    run(main())


def test_memory_that_a_cancelled_read_filled_is_the_callers_again(tmp_path, run):
    (tmp_path / "file").write_bytes(b"f" * 300_000)

    async def main():
        for engine in ENGINES:
            adopt(engine)
            async with fileio.open(tmp_path / "file", "rb", buffering=100) as file:
                buffer = bytearray(200_000)
                task = asyncio.ensure_future(file.readinto(buffer))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                buffer[:] = b"mine"  # refused while the kernel has it
                assert await file.tell() == 0 and await file.read() == b"f" * 300_000

    run(main())
