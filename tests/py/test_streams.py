"""asyncio's streams, which treadle serves in C where they are asyncio's own: what a program sees is what it
sees on asyncio."""
import asyncio
import contextlib
import copy
import gc
import inspect
import pickle
import socket
import sys
import types
import warnings
import weakref
from unittest import mock

import pytest

from sockets import reset, tcp_pair
from test_cancel import WHEN, Step
from twin import subject_loop, twin

READS = {
    "read": lambda reader: reader.read(4),
    "read all": lambda reader: reader.read(),
    "read -1": lambda reader: reader.read(-1),
    "read by name": lambda reader: reader.read(n=4),
    "read none": lambda reader: reader.read(0),
    "readexactly": lambda reader: reader.readexactly(4),
    "readexactly none": lambda reader: reader.readexactly(0),
    "readexactly less": lambda reader: reader.readexactly(-1),
    "readline": lambda reader: reader.readline(),
    "readuntil": lambda reader: reader.readuntil(),
    "readuntil two": lambda reader: reader.readuntil(b"ab"),
    "readuntil nothing": lambda reader: reader.readuntil(b""),
    "readuntil view": lambda reader: reader.readuntil(bytearray(b"ab")),
    "next": lambda reader: reader.__anext__(),
    "wrong": lambda reader: reader.read("4"),
}


SERVED_AT = 3  # the message with which C begins to serve a connection
WRITER_AT_ONCE = sys.version_info >= (3, 13)  # a server's, which its protocol does not keep


async def hear(reader, other, messages):
    for _ in range(messages):
        other.send(b".")
        assert await reader.readexactly(1) == b"."


async def connect(t, limit=16, messages=SERVED_AT):
    """A reader and a writer of open_connection() that got so many messages, and the other end's socket."""
    a, b = tcp_pair()
    b.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=a, limit=limit)
    await hear(reader, b, messages)
    return reader, writer, b


async def end(writer, other):
    other.close()
    writer.close()
    with contextlib.suppress(OSError, AssertionError, BufferError):
        await writer.wait_closed()


def state(reader):
    """What of a reader can be seen; a transport that is paused may have got more or less by then."""
    return (
        bytes(reader._buffer),
        reader._waiter is None,
        reader._paused,
        reader.at_eof(),
        repr(reader.exception()),
    )


def served(reader):
    """Whether C serves this object: its class is one of treadle's that says it is asyncio's."""
    return type(reader) is not reader.__class__


async def try_read(t, reader, name, seen):
    try:
        coroutine = READS[name](reader)
    except TypeError as exc:
        return seen.append(("refused", str(exc)))
    try:
        seen.append((name, await coroutine))
    except Exception as exc:
        context = type(exc.__context__).__name__
        seen.append(
            (
                name,
                type(exc),
                str(exc),
                context,
                getattr(exc, "partial", None),
                getattr(exc, "consumed", None),
            )
        )


@twin
@pytest.mark.parametrize("messages", [0, SERVED_AT - 1, SERVED_AT], ids=["first", "changes", "served"])
@pytest.mark.parametrize("name", READS)
async def test_a_read_gives_what_it_gives_on_asyncio(t, name, messages):
    for pieces in (
        [b"x"],
        [b"xyz\nab"],
        [b"x", b"ya", b"b\n", b"cd\nefg"],
        [b"\n"],
        [b"a" * 17],
        [b"a" * 40 + b"\n", b"c"],
        [b"a" * 15, b"b\n"],
        [b"z" * 16 + b"\nx"],
        [],
    ):
        reader, writer, other = await connect(t, messages=messages)
        seen = []
        task = asyncio.ensure_future(try_read(t, reader, name, seen))
        for piece in pieces:
            await t.turns(5)
            t.log(state(reader), list(seen))
            other.send(piece)
        await t.turns(5)
        t.log(state(reader), list(seen))
        other.shutdown(socket.SHUT_WR)
        await task
        for _ in range(3):
            await try_read(t, reader, name, seen)
        t.log(seen, state(reader))
        await end(writer, other)


@twin
@pytest.mark.parametrize("name", READS)
async def test_a_read_of_what_is_there_already(t, name):
    for data in (b"abcd", b"ab\ncd", b"abab\nababab\n", b"q" * 33 + b"\nab", b""):
        reader, writer, other = await connect(t)
        other.send(data or b"\n")
        await t.turns(5)
        seen = []
        task = asyncio.ensure_future(try_read(t, reader, name, seen))
        await t.turns(5)
        t.log(list(seen), state(reader))
        other.shutdown(socket.SHUT_WR)
        await task
        t.log(seen, state(reader))
        await end(writer, other)


@twin
async def test_a_second_reader_is_refused_while_one_waits(t):
    reader, writer, other = await connect(t)
    task = asyncio.create_task(reader.readline())
    await t.turns(2)
    for name in READS:
        seen = []
        if name not in ("read all", "read -1"):
            await try_read(t, reader, name, seen)
        t.log(seen, state(reader))
    other.send(b"line\n")
    t.log(await task, state(reader))
    await end(writer, other)


@twin
@pytest.mark.parametrize("when", WHEN[:5])
@pytest.mark.parametrize("messages", [SERVED_AT - 1, SERVED_AT], ids=["changes", "served"])
@pytest.mark.parametrize("name", ["read", "read all", "readexactly", "readline", "readuntil two", "next"])
async def test_a_canceled_read_leaves_what_came(t, name, messages, when):
    for data in (b"", b"a", b"abc\nd"):
        reader, writer, other = await connect(t, messages=messages)
        task = None

        def hook(_):
            if when == "in its own step":
                task.cancel()
            elif when == "in the same turn":
                t.loop.call_soon(task.cancel)

        seen = []
        task = asyncio.create_task(try_read_step(reader, name, hook, seen))
        await t.turns(1)
        if data:
            other.send(data)
        await t.turns({"in the next turn": 0, "two turns later": 1}.get(when, 2))
        if when not in WHEN[:2]:
            task.cancel()
        await t.turns(6)
        t.log(reader._waiter is None, task.done())
        other.shutdown(socket.SHUT_WR)
        await asyncio.wait([task])
        rest = await reader.read()
        t.log(b"".join(part for part in seen if isinstance(part, bytes)) + rest == data)
        await end(writer, other)


async def try_read_step(reader, name, hook, seen):
    try:
        seen.append(await Step(READS[name](reader), hook))
    except asyncio.IncompleteReadError as exc:
        seen.append(exc.partial)


@twin
@pytest.mark.parametrize(
    "kind", ["task", "ensure_future", "gather", "wait_for", "shield", "run_coroutine_threadsafe", "await"]
)
async def test_what_a_method_gives_is_taken_wherever_a_coroutine_is(t, kind):
    reader, writer, other = await connect(t)
    coroutine = reader.readline()
    t.log(
        asyncio.iscoroutine(coroutine),
        inspect.iscoroutine(coroutine),
        inspect.isawaitable(coroutine),
        isinstance(coroutine, types.CoroutineType),
        coroutine.__name__,
        coroutine.__qualname__,
        repr(coroutine),
        coroutine.cr_running,
        coroutine.cr_await,
        t.loop.get_debug() or coroutine.cr_origin,
    )
    other.send(b"line\n")
    if kind == "task":
        t.log(await asyncio.create_task(coroutine, name="reads"))
    elif kind == "ensure_future":
        t.log(await asyncio.ensure_future(coroutine))
    elif kind == "gather":
        t.log(await asyncio.gather(coroutine, asyncio.sleep(0, "slept")))
    elif kind == "wait_for":
        t.log(await asyncio.wait_for(coroutine, 10))
    elif kind == "shield":
        t.log(await asyncio.shield(coroutine))
    elif kind == "run_coroutine_threadsafe":
        t.log(await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, t.loop)))
    else:
        t.log(await coroutine)
    with pytest.raises(RuntimeError) as again:
        await coroutine
    t.log(str(again.value))
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(reader.readline(), 0.01)
    t.log(state(reader))
    await end(writer, other)


@twin
async def test_a_coroutine_that_waits_is_driven_by_hand(t):
    reader, writer, other = await connect(t)
    coroutine = reader.read(4)
    t.call(coroutine.send, 1)
    future = coroutine.send(None)
    t.log(future is reader._waiter, coroutine.cr_suspended, coroutine.cr_await is None)
    t.call(coroutine.throw, KeyError("thrown"))
    t.log(state(reader))
    t.call(coroutine.send, None)
    coroutine = reader.read(4)
    coroutine.send(None)
    t.call(coroutine.close)
    t.log(state(reader))
    t.call(reader.read(4).throw, KeyError("thrown"))
    t.call(reader.read(4).close)
    other.send(b"data")
    await t.turns(5)
    t.call(reader.read(4).send, None)
    coroutine = reader.readline()
    coroutine.send(None)
    del coroutine
    gc.collect()
    t.log(state(reader))
    await end(writer, other)


@twin
async def test_who_forgets_to_await_is_warned(t):
    reader, writer, other = await connect(t)
    for make in (
        lambda: reader.read(1),
        lambda: reader.readline(),
        lambda: reader.readexactly(1),
        lambda: reader.readuntil(),
        lambda: writer.drain(),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make()
            gc.collect()
        t.log([(w.category, str(w.message).splitlines()[0]) for w in caught])
    await end(writer, other)


@twin
async def test_lines_are_iterated(t):
    reader, writer, other = await connect(t, limit=2**16)
    other.send(b"one\ntwo\n")
    lines = []

    async def collect():
        async for line in reader:
            lines.append(line)

    task = asyncio.create_task(collect())
    await t.turns(5)
    t.log(list(lines))
    other.send(b"th")
    await t.turns(5)
    task.cancel()
    await asyncio.wait([task])
    task = asyncio.create_task(anext(reader, b"no more"))
    await t.turns(5)
    task.cancel()
    await asyncio.wait([task])
    t.log(task.cancelled(), state(reader))
    task = asyncio.create_task(collect())
    other.send(b"ree\n\nrest")
    other.shutdown(socket.SHUT_WR)
    await task
    t.log(lines, state(reader), await anext(reader, b"no more"))
    await end(writer, other)


@twin
async def test_a_reader_stops_its_transport_and_lets_it_go_on(t):
    reader, writer, other = await connect(t)
    other.send(b"x" * 33)
    await t.turns(5)
    t.log(state(reader), writer.transport.is_reading())
    t.log(await reader.read(10), state(reader), writer.transport.is_reading())
    t.log(await reader.read(10), state(reader), writer.transport.is_reading())
    other.send(b"y" * 40)
    await t.turns(5)
    t.log(state(reader), writer.transport.is_reading())
    t.log(await reader.readexactly(50), state(reader), writer.transport.is_reading())
    await end(writer, other)


@twin
async def test_data_that_is_fed_by_hand(t):
    reader, writer, other = await connect(t)
    task = asyncio.create_task(reader.readline())
    await t.turns(2)
    reader.feed_data(b"by ")
    await t.turns(2)
    other.send(b"wire\n")
    t.log(await task, state(reader))
    reader.feed_data(b"")
    task = asyncio.create_task(reader.read(5))
    await t.turns(2)
    reader.feed_eof()
    t.log(await task, state(reader))
    other.send(b"behind the end")
    await t.turns(5)
    t.log(state(reader), writer.is_closing())
    await end(writer, other)


@twin
async def test_an_exception_that_is_set_is_raised_by_each_call(t):
    reader, writer, other = await connect(t)
    seen = []
    task = asyncio.create_task(try_read(t, reader, "readline", seen))
    await t.turns(2)
    reader.set_exception(KeyError("set"))
    await task
    for name in READS:
        await try_read(t, reader, name, seen)
    t.log(seen, state(reader))
    with pytest.raises(KeyError):
        await writer.drain()
    await end(writer, other)


@twin
async def test_a_lost_connection_ends_reads_and_drains(t):
    reader, writer, other = await connect(t)
    seen = []
    task = asyncio.create_task(try_read(t, reader, "readline", seen))
    await t.turns(2)
    reset(other)
    await task
    t.log(seen)
    for _ in range(2):
        writer.write(b"x")
        try:
            t.log(await writer.drain())
        except OSError as exc:
            t.log(type(exc))
    writer.close()
    with pytest.raises(ConnectionResetError):
        await writer.wait_closed()


@twin
async def test_what_was_begun_before_c_serves_goes_on(t):
    reader, writer, other = await connect(t, limit=2**16, messages=SERVED_AT - 1)
    writer.transport.set_write_buffer_limits(high=1000)
    while writer.transport.get_write_buffer_size() <= 1000:
        writer.write(b"x" * 100_000)
    bound = reader.readline
    started, unstarted = bound(), reader.readexactly(2)
    drains = [asyncio.create_task(writer.drain()) for _ in range(2)]
    future = started.send(None)
    other.send(b"li")
    await t.turns(5)
    t.log(future.done(), state(reader))
    other.send(b"ne\nab")
    await t.turns(5)
    t.log([task.done() for task in drains], await bound())
    t.log(await unstarted)
    while writer.transport.get_write_buffer_size():
        with contextlib.suppress(BlockingIOError):
            other.recv(1 << 20)
        await t.turns(1)
    t.log(await asyncio.gather(*drains), await writer.drain())
    started.close()
    await end(writer, other)


@twin
async def test_a_drain_waits_for_the_peer_and_may_be_canceled(t):
    for cancel in (False, True):
        reader, writer, other = await connect(t)
        writer.transport.set_write_buffer_limits(high=1000)
        while writer.transport.get_write_buffer_size() <= 1000:
            writer.write(b"x" * 100_000)
        tasks = [asyncio.create_task(writer.drain()) for _ in range(2)]
        await t.turns(3)
        t.log([task.done() for task in tasks])
        if cancel:
            tasks[0].cancel()
        while writer.transport.get_write_buffer_size():
            with contextlib.suppress(BlockingIOError):
                other.recv(1 << 20)
            await t.turns(1)
        t.log([type(r) for r in await asyncio.gather(*tasks, return_exceptions=True)], await writer.drain())
        await end(writer, other)


@twin
async def test_a_drain_behind_a_close_lets_the_loop_turn(t):
    reader, writer, other = await connect(t)
    other.close()
    writer.write(b"x")
    writer.close()
    turned = []
    t.loop.call_soon(turned.append, 1)
    try:
        t.log(await writer.drain())
    except ConnectionResetError as exc:
        t.log(str(exc))
    t.log(turned)
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def server(t, handler):
    served = await asyncio.start_server(handler, "127.0.0.1", 0)
    async with served:
        yield served.sockets[0].getsockname()


@twin
@pytest.mark.parametrize("messages", [0, SERVED_AT], ids=["at once", "later"])
async def test_a_servers_streams(t, messages):
    done = t.loop.create_future()

    async def echo(reader, writer):
        t.log(
            writer.get_extra_info("peername") is not None,
            repr(writer),
            type(writer.transport.get_protocol()).__name__,
        )
        while line := await reader.readline():
            writer.write(line)
            writer.writelines([b"(", memoryview(b"again"), b")\n"])
            t.log(await writer.drain())
        with pytest.raises(TypeError) as refused:
            writer.write("text")
        t.log(str(refused.value))
        t.call(writer.write)
        t.call(writer.write, b"", b"")
        t.call(writer.write, data=b"by name\n")
        writer.close()
        await writer.wait_closed()
        done.set_result(None)

    async with server(t, echo) as address:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(messages):
            writer.write(b".\n")
            t.log(await reader.readline(), await reader.readline())
        writer.write(b"one\n")
        t.log(await reader.readline(), await reader.readline())
        writer.write(b"two\n")
        writer.write_eof()
        t.log(await reader.read())
        writer.close()
        await writer.wait_closed()
        await done


@twin
async def test_a_plain_callback_that_raises_is_told(t):
    def connected(reader, writer):
        writer.write(b"hello")
        writer.close()  # which asyncio does from Python 3.14 on
        raise KeyError("raised")

    async with server(t, connected) as address:
        with socket.create_connection(address) as sock:
            sock.setblocking(False)
            await t.turns(10)
            t.log(sock.recv(100))
            gc.collect()


@twin
async def test_what_type_tells_and_what_class_tells(t):
    reader, writer, other = await connect(t)
    t.log(
        isinstance(reader, asyncio.StreamReader),
        reader.__class__ is asyncio.StreamReader,
        type(reader).__name__,
        type(reader).__module__,
        issubclass(type(reader), asyncio.StreamReader),
        sorted(vars(reader)),
        reader.read.__func__ is asyncio.StreamReader.read,
        inspect.iscoroutinefunction(reader.read),
        reader.read == reader.read,
        reader.read.__self__ is reader,
        str(inspect.signature(reader.readuntil)),
        "read" in dir(reader),
        repr(reader),
    )
    bound = reader.readline
    other.send(b"bound\nunbound\nnamed\n")
    t.log(await bound(), await asyncio.StreamReader.readline(reader), await getattr(reader, "readline")())
    with pytest.raises(TypeError):
        pickle.dumps(reader)
    twin_of_it = copy.copy(reader)
    t.log(type(twin_of_it) is asyncio.StreamReader, vars(twin_of_it) == vars(reader))
    reader.__class__ = asyncio.StreamReader
    other.send(b"asyncio's\n")
    t.log(await reader.readline(), type(reader) is asyncio.StreamReader)
    await end(writer, other)


@twin
async def test_nobody_keeps_a_reader(t):
    reader, writer, other = await connect(t)
    ref = weakref.ref(reader)
    coroutine = reader.read(1)
    coroutine.close()
    del coroutine
    writer._reader = None
    del reader
    t.log(ref() is None)
    other.send(b"for nobody")
    await t.turns(5)
    await end(writer, other)


# Seams: whatever is replaced, on the class, on the object, by a subclass, is called from that moment on


def recorded(seen, name, original):
    if inspect.iscoroutinefunction(original):
        async def method(self, *args, **kwargs):
            seen.append((name, args))
            return await original(self, *args, **kwargs)
    else:
        def method(self, *args, **kwargs):
            seen.append((name, args))
            return original(self, *args, **kwargs)
    return method


def methods_of(cls):
    return [
        name
        for name, value in vars(cls).items()
        if inspect.isfunction(value)
        and name not in ("__init__", "__del__", "__repr__", "_replace_writer", "_replace_transport")
    ]


SEAMS = [(cls, name) for cls in (asyncio.StreamReader, asyncio.StreamWriter, asyncio.StreamReaderProtocol,
                                 asyncio.streams.FlowControlMixin) for name in methods_of(cls)]


async def talk(reader, writer, other, turns):
    """Uses every method once; what it gave."""
    gave = []
    other.send(b"line\nuntil;exactlyread")
    gave += [
        await reader.readline(),
        await reader.readuntil(b";"),
        await reader.readexactly(7),
        await reader.read(4),
    ]
    task = asyncio.create_task(reader.__anext__())
    await turns(3)
    other.send(b"next\n" + b"x" * 40)
    gave.append(await task)
    await turns(5)
    gave += [reader.at_eof(), reader.exception(), await reader.read(40)]
    writer.write(b"written")
    writer.writelines([b"lines"])
    await writer.drain()
    gave.append(other.recv(100))
    other.shutdown(socket.SHUT_WR)
    gave.append(await reader.read())
    return gave


@twin
@pytest.mark.parametrize("late", [False, True], ids=["before", "meanwhile"])
async def test_what_replaces_a_method_of_a_class_is_called(t, late):
    for cls, name in SEAMS:
        seen, original = [], vars(cls)[name]
        with contextlib.ExitStack() as stack:
            patch = mock.patch.object(cls, name, recorded(seen, name, original))
            if not late:
                stack.enter_context(patch)
            reader, writer, other = await connect(t)
            if late:
                stack.enter_context(patch)
            gave = await talk(reader, writer, other, t.turns)
            await end(writer, other)
        t.log(
            cls.__name__,
            name,
            gave,
            [(n, [a if isinstance(a, bytes) else 0 for a in args]) for n, args in seen],
        )


@twin
@pytest.mark.parametrize("messages", [0, SERVED_AT], ids=["before c serves", "later"])
@pytest.mark.parametrize("of", ["reader", "writer", "protocol"])
async def test_what_replaces_a_method_of_an_object_is_called(t, of, messages):
    classes = {
        "reader": asyncio.StreamReader,
        "writer": asyncio.StreamWriter,
        "protocol": asyncio.StreamReaderProtocol,
    }
    for name in [n for c in classes[of].__mro__[:2] if c is not object for n in methods_of(c)]:
        if name.startswith("__"):
            continue
        seen = []
        reader, writer, other = await connect(t, messages=messages)
        target = {"reader": reader, "writer": writer, "protocol": writer._protocol}[of]
        setattr(target, name, types.MethodType(recorded(seen, name, getattr(classes[of], name)), target))
        gave = await talk(reader, writer, other, t.turns)
        await end(writer, other)
        t.log(name, gave, [(n, [a if isinstance(a, bytes) else 0 for a in args]) for n, args in seen])


@twin
async def test_a_method_that_is_replaced_in_the_middle_of_a_wait(t):
    reader, writer, other = await connect(t)
    seen = []
    task = asyncio.create_task(reader.readexactly(6))
    await t.turns(3)
    with mock.patch.object(asyncio.StreamReader, "_wait_for_data",
                           recorded(seen, "_wait_for_data", asyncio.StreamReader._wait_for_data)):
        other.send(b"abc")
        await t.turns(5)
        t.log(seen, state(reader))
        other.send(b"def")
        t.log(await task)
    task = asyncio.create_task(reader.read(6))
    await t.turns(3)
    other.send(b"ghi")
    t.log(await task, seen)
    await end(writer, other)


class Reader(asyncio.StreamReader):
    async def read(self, n=-1):
        return b"sub" + await super().read(n)


@twin
async def test_subclasses_and_other_protocols_are_python(t):
    for reader_class, protocol_class in (
        (Reader, asyncio.StreamReaderProtocol),
        (asyncio.StreamReader, type("Sub", (asyncio.StreamReaderProtocol,), {})),
    ):
        a, other = tcp_pair()
        reader = reader_class(loop=t.loop)
        protocol = protocol_class(reader, loop=t.loop)
        transport, _ = await t.loop.create_connection(lambda: protocol, sock=a)
        writer = asyncio.StreamWriter(transport, protocol, reader, t.loop)
        if reader_class is asyncio.StreamReader:
            await hear(reader, other, SERVED_AT)
        else:
            for _ in range(SERVED_AT):
                other.send(b".")
                t.log(await reader.read(1))
        t.log(served(reader), served(protocol))
        other.send(b"data")
        t.log(await reader.read(4))
        reader.__class__ = Reader
        other.send(b"data")
        t.log(await reader.read(4))
        await end(writer, other)


@twin
async def test_attributes_that_somebody_touches(t):
    reader, writer, other = await connect(t)
    reader.added = "by somebody"
    reader._buffer += b"put here"
    t.log(await reader.read(8))
    task = asyncio.create_task(reader.read(3))
    await t.turns(2)
    reader._buffer = type("Buffer", (bytearray,), {})(b"old")
    other.send(b"new")
    t.log(await task, await reader.read(3), state(reader))
    reader._limit = 3.5
    other.send(b"line\nli\n")
    await t.turns(5)
    seen = []
    await try_read(t, reader, "readline", seen)
    await try_read(t, reader, "readline", seen)
    t.log(seen, state(reader))
    reader._limit = 100
    reader._eof = 1
    t.log(await reader.read(3), state(reader))
    await end(writer, other)


@twin
async def test_a_buffer_that_somebody_looks_into_cannot_change(t):
    reader, writer, other = await connect(t)
    other.send(b"seen")
    await t.turns(5)
    with memoryview(reader._buffer):
        with pytest.raises(BufferError):
            await reader.read(2)
        t.log(state(reader))
        other.send(b"more")
        await t.turns(5)
        t.log(writer.is_closing())
    await end(writer, other)


def test_a_coroutine_in_c_has_no_frame():
    async def main():
        a, b = tcp_pair()
        reader, writer = await asyncio.open_connection(sock=a)
        await hear(reader, b, SERVED_AT)
        coroutine = reader.read(1)
        assert coroutine.cr_frame is None and not hasattr(coroutine, "cr_code")
        state = inspect.CORO_CREATED if sys.version_info >= (3, 15) else inspect.CORO_CLOSED
        assert inspect.getcoroutinestate(coroutine) == state
        task = asyncio.create_task(coroutine)
        await asyncio.sleep(0)
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_SUSPENDED
        assert task.get_stack() == [] and "StreamReader.read()" in repr(task)
        b.send(b"x")
        assert await task == b"x"
        await end(writer, b)

    with asyncio.Runner(loop_factory=subject_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("debug", [False, True])
def test_c_serves_asyncios_own_from_the_third_message_on_and_not_while_debugging(debug):
    async def main():
        streams = asyncio.get_running_loop().create_future()
        async with server(None, lambda *pair: streams.set_result(pair)) as address:
            with socket.create_connection(address) as sock:
                reader, writer = await streams
                for message in range(1, SERVED_AT + 2):
                    await hear(reader, sock, 1)
                    objects = (reader, writer.transport.get_protocol())
                    assert [served(o) for o in objects] == [message >= SERVED_AT and not debug] * 2, message
                    assert served(writer) is ((message >= SERVED_AT or WRITER_AT_ONCE) and not debug), message
                writer.close()
                await writer.wait_closed()

    with asyncio.Runner(loop_factory=subject_loop, debug=debug) as runner:
        runner.run(main())


def test_c_serves_who_writes_much():
    async def main():
        streams = asyncio.get_running_loop().create_future()
        async with server(None, lambda *pair: streams.set_result(pair)) as address:
            with socket.create_connection(address):
                reader, writer = await streams
                for write in range(8 * SERVED_AT):
                    assert not served(reader), write
                    writer.write(b".")
                    await writer.drain()
                assert served(writer) and served(reader) and served(writer.transport.get_protocol())
                writer.close()
                await writer.wait_closed()

    with asyncio.Runner(loop_factory=subject_loop) as runner:
        runner.run(main())


def test_c_serves_a_connection_once_the_loop_stops_debugging():
    async def main():
        a, b = tcp_pair()
        reader, writer = await asyncio.open_connection(sock=a)
        await hear(reader, b, SERVED_AT)
        assert not served(reader)
        asyncio.get_running_loop().set_debug(False)
        await hear(reader, b, SERVED_AT)
        assert served(reader)
        await end(writer, b)

    with asyncio.Runner(loop_factory=subject_loop, debug=True) as runner:
        runner.run(main())
