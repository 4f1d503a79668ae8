"""Random sequences of what a program, its peer and a meddler do to asyncio's streams, as on asyncio.

TREADLE_TEST_EXAMPLES=20000 tries as many sequences; a few hundred run without it.
"""
import asyncio
import contextlib
import os
import socket

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import twin
from test_property_transport import WRITELINES_MENDED

EXAMPLES = int(os.environ.get("TREADLE_TEST_EXAMPLES", "300"))
SETTLE = 5

PIECES = st.one_of(
    st.sampled_from(
        [b"a", b"\n", b"ab", b"b\n", b"ab\nab", b"aab", b"a" * 7, b"a" * 8, b"a" * 9 + b"\n", b"b" * 30]
    ),
    st.lists(st.sampled_from([b"a", b"b", b"\n"]), min_size=1, max_size=24).map(b"".join),
)
READS = st.one_of(
    st.tuples(st.just("read"), st.sampled_from([-1, 0, 1, 3, 8, 100])),
    st.tuples(st.just("readexactly"), st.sampled_from([-1, 0, 1, 3, 8, 20])),
    st.tuples(
        st.just("readuntil"),
        st.sampled_from([b"\n", b"ab", b"", b"b", b"aab", b"a\nb", bytearray(b"ab"), (b"b", b"\n")]),
    ),
    st.tuples(st.just("readline")),
    st.tuples(st.just("__anext__")),
)
OPERATIONS = st.one_of(
    READS,
    READS,
    st.tuples(st.just("send"), PIECES),
    st.tuples(st.just("send"), PIECES),
    st.tuples(st.just("feed"), PIECES),
    st.tuples(st.just("write"), PIECES),
    st.tuples(st.just("writelines"), st.lists(PIECES, max_size=3))
    if WRITELINES_MENDED
    else st.tuples(st.just("write"), PIECES),
    st.tuples(st.just("drain")),
    st.tuples(st.just("cancel"), st.integers(0, 2)),
    st.tuples(st.just("settle")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("put"), PIECES),
    st.tuples(st.just("replace"), PIECES),
    st.tuples(st.just("limit"), st.sampled_from([1, 8, 100])),
    st.tuples(
        st.just("patch"),
        st.sampled_from(
            [
                "_wait_for_data",
                "readuntil",
                "feed_data",
                "_wakeup_waiter",
                "read",
                "_maybe_resume_transport",
                "exception",
            ]
        ),
    ),
    st.tuples(st.just("unpatch")),
    st.tuples(st.just("subclass")),
    st.tuples(st.just("plain")),
    st.tuples(st.just("pause_writing")),
    st.tuples(st.just("resume_writing")),
    st.tuples(st.just("peer_eof")),
    st.tuples(st.just("feed_eof")),
    st.tuples(st.just("set_exception")),
    st.tuples(st.just("close")),
)
SEQUENCES = st.lists(OPERATIONS, max_size=14)


class Sub(asyncio.StreamReader):
    async def read(self, n=-1):
        return await super().read(n)


async def settle(turns=SETTLE):
    for _ in range(turns):
        await asyncio.sleep(0)


class World:
    """One connection, what is done with it, and what comes of that."""

    def __init__(self, reader, writer, peer):
        self.reader, self.writer, self.peer = reader, writer, peer
        self.log, self.tasks, self.patched = [], [], set()

    async def watch(self, number, awaitable):
        try:
            got = await awaitable
        except asyncio.CancelledError:
            self.log.append((number, "canceled"))
            raise
        except Exception as exc:
            got = (
                type(exc).__name__,
                str(exc),
                getattr(exc, "partial", None),
                getattr(exc, "consumed", None),
            )
        self.log.append((number, got))

    def start(self, awaitable):
        self.tasks.append(asyncio.ensure_future(self.watch(len(self.tasks), awaitable)))

    def patch(self, name):
        original = getattr(asyncio.StreamReader, name)

        def method(*args):
            self.log.append(("patched", name))
            return original(self.reader, *args)
        setattr(self.reader, name, method)
        self.patched.add(name)

    def do(self, kind, *args):
        reader, writer = self.reader, self.writer
        if kind in ("read", "readexactly", "readuntil"):
            self.start(getattr_and_call(reader, kind, args[0]))
        elif kind == "readline":
            self.start(reader.readline())
        elif kind == "__anext__":
            self.start(anext(reader, b"no more"))
        elif kind == "drain":
            self.start(writer.drain())
        elif kind == "write":
            writer.write(args[0])
        elif kind == "writelines":
            writer.writelines(args[0])
        elif kind == "send":
            with contextlib.suppress(OSError):
                self.peer.send(args[0])
        elif kind == "feed":
            reader.feed_data(args[0])
        elif kind == "cancel" and self.tasks:
            self.tasks[-1 - args[0] % len(self.tasks)].cancel()
        elif kind == "put":
            reader._buffer.extend(args[0])
        elif kind == "replace":
            reader._buffer = bytearray(args[0])
        elif kind == "limit":
            reader._limit = args[0]
        elif kind == "patch" and all(task.done() for task in self.tasks):  # one that waits begins anew there
            self.patch(args[0])
        elif kind == "unpatch":
            for name in self.patched:
                delattr(reader, name)
            self.patched.clear()
        elif kind in ("subclass", "plain") and all(task.done() for task in self.tasks):
            reader.__class__ = Sub if kind == "subclass" else asyncio.StreamReader
        elif kind in ("pause_writing", "resume_writing"):
            protocol = writer._protocol
            if protocol._paused is (kind == "resume_writing"):
                getattr(protocol, kind)()
        elif kind == "peer_eof":
            self.peer.shutdown(socket.SHUT_WR)
        elif kind == "feed_eof":
            reader.feed_eof()
        elif kind == "set_exception":
            reader.set_exception(KeyError("set"))
        elif kind == "close":
            writer.close()

    def state(self):
        reader = self.reader
        return (
            bytes(reader._buffer),
            reader._waiter is None,
            reader._paused,
            reader._eof,
            reader.at_eof(),
            repr(reader._exception),
            [task.done() for task in self.tasks],
        )


def getattr_and_call(reader, kind, argument):
    """As a program calls it: C is where a method is called and not taken first."""
    if kind == "read":
        return reader.read(argument)
    return reader.readexactly(argument) if kind == "readexactly" else reader.readuntil(argument)


async def drive(sequence, server_side, messages):
    loop = asyncio.get_running_loop()
    a, b = socket.socketpair()
    b.setblocking(False)
    if server_side:
        made = loop.create_future()
        reader = asyncio.StreamReader(limit=8, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, lambda _, writer: made.set_result(writer), loop=loop)
        await loop.create_connection(lambda: protocol, sock=a)
        writer = await made
    else:
        reader, writer = await asyncio.open_connection(sock=a, limit=8)
    for _ in range(messages):  # C serves from the third on
        b.send(b".")
        await reader.readexactly(1)
    world = World(reader, writer, b)
    loop.set_exception_handler(
        lambda loop, context: world.log.append((context.get("message"), repr(context.get("exception"))))
    )
    for kind, *args in sequence:
        if kind == "settle":
            await settle()
        else:
            try:
                world.do(kind, *args)
            except Exception as exc:
                world.log.append((kind, type(exc).__name__, str(exc)))
            await settle(SETTLE if kind in ("send", "peer_eof", "close") else 1)
        world.log.append((kind, world.state()))
    for task in world.tasks:
        task.cancel()
    await asyncio.gather(*world.tasks, return_exceptions=True)
    world.log.append(world.state())
    writer.close()
    with contextlib.suppress(Exception):
        await writer.wait_closed()
    with contextlib.suppress(OSError):
        world.log.append(b.recv(1 << 16))
    b.close()
    return world.log


def run(factory, *args):
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(drive(*args))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("server_side", [False, True], ids=["client", "server"])
def test_streams_behave_as_asyncios(server_side):

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        print_blob=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(SEQUENCES, st.sampled_from([3, 2, 0]))
    def check(sequence, messages):
        args = (sequence, server_side, messages)
        assert run(twin.subject_loop, *args) == run(twin.reference_loop, *args)

    check()
