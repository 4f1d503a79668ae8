"""Random sequences of transport calls against a peer that reads, stalls, half-closes or resets, as on
asyncio."""
import asyncio
import contextlib
import inspect
import os
import socket
import sys

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import twin
from sockets import made_by_loop, reset

EXAMPLES = int(os.environ.get("TREADLE_TEST_TRANSPORT_EXAMPLES", "2500"))
SETTLE = 5

SIZES = st.sampled_from([0, 1, 10, 1000, 70_000, 300_000])
# From 3.12 on asyncio's kept empty pieces for good, never paused and wrote after the end, until that was
# mended.
WRITELINES_MENDED = sys.version_info < (3, 12) or \
    "_conn_lost" in inspect.getsource(asyncio.selector_events._SelectorSocketTransport.writelines)
WRITELINES = st.tuples(st.just("writelines"), st.lists(SIZES, max_size=3))
if not WRITELINES_MENDED:
    WRITELINES = st.tuples(st.just("write"), SIZES)
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), SIZES),
    WRITELINES,
    st.tuples(st.just("pause")), st.tuples(st.just("resume")),
    st.tuples(st.just("limits"), st.sampled_from([None, 0, 5, 1000, 100_000])),
    st.tuples(st.just("write_eof")), st.tuples(st.just("abort")), st.tuples(st.just("close")),
    st.tuples(st.just("peer_read"), SIZES), st.tuples(st.just("peer_drain")),
    st.tuples(st.just("peer_write"), st.sampled_from([1, 100, 5000])),
    st.tuples(st.just("peer_eof")), st.tuples(st.just("peer_reset")), st.tuples(st.just("settle")),
)
# What a program does in one turn, without letting the loop poll in between.
AT_ONCE = st.tuples(st.just("at_once"), st.lists(st.one_of(
    st.tuples(st.just("write"), SIZES), st.tuples(st.just("write"), st.sampled_from([1, 10, 1000])),
    WRITELINES,
    st.tuples(st.just("size")), st.tuples(st.just("socket")),
    st.tuples(st.just("limits"), st.sampled_from([None, 0, 5, 1000, 100_000])),
    st.tuples(st.just("pause")), st.tuples(st.just("write_eof")), st.tuples(st.just("abort")),
    st.tuples(st.just("close")),
), min_size=2, max_size=5))
SEQUENCES = st.lists(st.one_of(OPERATIONS, AT_ONCE), max_size=10)


class Protocol(asyncio.Protocol):
    def __init__(self, log, eof):
        self.log, self.eof, self.lost = log, eof, False

    def connection_made(self, transport):
        self.log.append("made")

    def data_received(self, data):
        if self.log and isinstance(self.log[-1], tuple) and self.log[-1][0] == "data":
            self.log[-1] = ("data", self.log[-1][1] + len(data))
        else:
            self.log.append(("data", len(data)))

    def eof_received(self):
        self.log.append("eof")
        return self.eof

    def pause_writing(self):
        self.log.append("pause")

    def resume_writing(self):
        self.log.append("resume")

    def connection_lost(self, exc):
        self.lost = True
        self.log.append(("lost", type(exc).__name__ if exc else None))


class Peer:
    """The plain socket at the other end."""

    def __init__(self, sock):
        self.sock, self.was_reset = sock, False
        sock.setblocking(False)

    def read(self, size):
        try:
            return len(self.sock.recv(size)) if size else 0
        except OSError as exc:
            # Which takes from it what it had not read.
            self.was_reset |= isinstance(exc, ConnectionResetError)
            return type(exc).__name__

    def drain(self):
        total = 0
        while True:
            got = self.read(1 << 20)
            if not isinstance(got, int) or got == 0:
                return total, got
            total += got


async def settle():
    for _ in range(SETTLE):
        await asyncio.sleep(0)


def forgotten():
    """Around each call: after a close that had to drain first asyncio forgets that the connection is lost,
    and stumbles."""
    return contextlib.suppress(AttributeError)


def perform(transport, peer, op, log):
    kind, *args = op
    if kind == "at_once":
        for each in args[0]:
            with forgotten():
                perform(transport, peer, each, log)
    elif kind == "size":
        transport.get_write_buffer_size()
    elif kind == "socket":
        transport.get_extra_info("socket")
    elif kind == "write":
        transport.write(b"x" * args[0])
    elif kind == "writelines":
        transport.writelines([b"y" * n for n in args[0]])
    elif kind == "pause":
        transport.pause_reading()
    elif kind == "resume":
        transport.resume_reading()
    elif kind == "limits":
        transport.set_write_buffer_limits(high=args[0])
    elif kind in ("write_eof", "abort", "close"):
        getattr(transport, kind)()
    elif kind == "peer_write":
        try:
            peer.sock.send(b"z" * args[0])
        except OSError as exc:
            log.append(type(exc).__name__)
    elif kind == "peer_eof":
        try:
            peer.sock.shutdown(socket.SHUT_WR)
        except OSError as exc:
            log.append(type(exc).__name__)
    elif kind == "peer_reset":
        reset(peer.sock)


async def drive(family, eof, sequence):
    """Performs the sequence; only what cannot depend on the kernel's buffering is logged."""
    loop = asyncio.get_running_loop()
    log = []
    loop.set_exception_handler(lambda loop, context: log.append(context.get("message")))
    transport, protocol, sock = await made_by_loop(loop, lambda: Protocol(log, eof), family)
    peer = Peer(sock)
    received = 0
    for op in sequence:
        if op[0] == "peer_read":
            got = peer.read(op[1])
            received += got if isinstance(got, int) else 0
        elif op[0] == "peer_drain":
            while True:
                total, last = peer.drain()
                received += total
                await settle()
                if not total:
                    break
            log.append(("drained", last if not isinstance(last, int) else 0))
        else:
            try:
                with forgotten():
                    perform(transport, peer, op, log)
            except Exception as exc:
                log.append((op[0], type(exc).__name__, str(exc)))
        if op[0] != "settle":
            await settle()
        log.append((op[0], transport.is_closing(), transport.is_reading() if not protocol.lost else None))
    if not protocol.lost:
        log.append(("empty", transport.get_write_buffer_size() == 0))
    while peer.sock.fileno() >= 0:
        total, last = peer.drain()
        received += total
        await settle()
        if not total:
            log.append(("last", last if not isinstance(last, int) else 0))
            break
    transport.close()
    await settle()
    peer.sock.close()
    cut = not protocol.lost
    while not protocol.lost:
        transport.abort()
        await asyncio.sleep(0)
    log += [("reset", peer.was_reset), ("received", received, cut)]
    return log


def run(factory, *args):
    loop = factory()
    try:
        return loop.run_until_complete(drive(*args))
    finally:
        loop.close()


def holds(subject, sequence):
    """Whether a transport may hold a write for the step's end: it was told to, or saw two in one step."""
    return subject is twin.gathering_loop or twin.GATHER_ALL or any(
        op[0] == "at_once" and sum(each[0] == "write" for each in op[1]) > 1 for op in sequence)


def flat(sequence):
    for op in sequence:
        yield from flat(op[1]) if op[0] == "at_once" else (op,)


def cuts(sequence):
    return any(op[0] in ("abort", "peer_reset") for op in flat(sequence))


def overflows(sequence):
    """Whether more is written than a peer surely takes unread: when the kernel moves the rest is a matter of
    its timing."""
    return (
        sum(
            op[1] if op[0] == "write" else sum(op[1])
            for op in flat(sequence)
            if op[0] in ("write", "writelines")
        )
        > 50_000
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", ["unix", "tcp"])
@pytest.mark.parametrize("subject", [twin.subject_loop, twin.gathering_loop])
def test_transports_behave_as_asyncios(subject, family):
    @settings(max_examples=EXAMPLES, deadline=None, print_blob=True, database=None,
              suppress_health_check=list(HealthCheck))
    @given(st.booleans(), SEQUENCES)
    def check(eof, sequence):
        got, expected = [run(factory, family, eof, sequence) for factory in (subject, twin.reference_loop)]
        if (holds(subject, sequence) or overflows(sequence)) and (
            cuts(sequence) or expected[-1][-1] or expected[-2][-1]
        ):
            got, expected = got[:-1], expected[:-1]  # what had arrived when the connection was cut
        assert got == expected

    check()
