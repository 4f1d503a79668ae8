"""Transports that write more than once a turn: the writes leave together at the turn's end, and nobody can tell
otherwise: order, errors, flow control and what follows a write are asyncio's."""
import asyncio
import ctypes
import os
import random
import socket
import struct
import threading

import pytest

import twin
from sockets import reset
from test_tcp import raw
from test_tls import certificate, client_context, server_context  # noqa: F401
from twin import run_arm

pytestmark = pytest.mark.skipif(twin.LOOP_MODULE != "treadle", reason="asyncio sends every write at once")
TCP_INFO_DATA_SEGS_OUT = 156
UNLEARN_TURNS = 8


def segments(transport):
    """Data segments that the socket has sent; without Nagle's algorithm, one for each small send."""
    info = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    return struct.unpack_from("I", info, TCP_INFO_DATA_SEGS_OUT)[0]


def take(peer, size=None):
    """What has arrived; or `size` bytes, waited for without the loop: they were sent before."""
    if size is None:
        try:
            return peer.recv(1 << 20)
        except BlockingIOError:
            return b""
    peer.settimeout(10)
    data = b""
    while len(data) < size and (more := peer.recv(size - len(data))):
        data += more
    peer.setblocking(False)
    return data


def alone(case, *args, factory=twin.gathering_loop):
    """Runs a case on treadle alone; returns what it logged."""
    return run_arm(factory, False, case, args)[0].get("main", [])


def same(case, *args):
    """Runs a case on asyncio and on treadle with every transport gathering, and asserts that both recorded the same."""
    for debug in (False, True):
        assert run_arm(twin.gathering_loop, debug, case, args) == run_arm(twin.reference_loop, debug, case, args)


@pytest.fixture(params=["tcp", "unix"])
def family(request):
    return request.param


async def learnt(t, family="tcp"):
    transport, protocol, peer = await raw(t, family)
    transport.write(b"1")
    transport.write(b"2")
    assert take(peer, 2) == b"12"
    return transport, protocol, peer


async def end(protocol, transport, peer):
    transport.abort()
    await protocol.done
    peer.close()


def test_two_writes_of_a_turn_leave_in_one_system_call_once_learnt():
    async def case(t):
        transport, protocol, peer = await learnt(t)
        before = segments(transport)
        transport.write(b"head")
        transport.write(b"body")
        t.log(take(peer))
        await t.turns(1)
        t.log(take(peer, 8), segments(transport) - before)
        await end(protocol, transport, peer)

    assert alone(case, factory=twin.subject_loop) == [(b"",), (b"headbody", 1)]


def test_a_transport_that_writes_once_a_turn_sends_at_once(family):
    async def case(t, family):
        transport, protocol, peer = await raw(t, family)
        for _ in range(3):
            transport.write(b"x")
            t.log(take(peer, 1))
            await t.turns(1)
        await end(protocol, transport, peer)

    assert alone(case, family, factory=twin.subject_loop) == [(b"x",)] * 3


def test_what_was_learnt_is_forgotten_after_turns_with_one_write(family):
    async def case(t, family):
        transport, protocol, peer = await learnt(t, family)
        for _ in range(UNLEARN_TURNS):
            transport.write(b"x")
            t.log(take(peer))
            await t.turns(1)
            assert take(peer, 1) == b"x"
        transport.write(b"x")
        t.log(take(peer, 1))
        await end(protocol, transport, peer)

    assert alone(case, family, factory=twin.subject_loop) == [(b"",)] * UNLEARN_TURNS + [(b"x",)]


def test_two_tls_writes_of_a_turn_leave_in_one_system_call(certificate):
    async def case(t):
        got = []
        made = t.loop.create_future()

        class Server(asyncio.Protocol):
            def connection_made(self, transport):
                self.transport = transport

            def data_received(self, data):
                got.append(data)

            def connection_lost(self, exc):
                made.set_result(None)

        server = await t.loop.create_server(Server, "127.0.0.1", 0, ssl=server_context(certificate))
        transport, protocol = await t.loop.create_connection(
            lambda: t.recorder("p"), *server.sockets[0].getsockname(), ssl=client_context(certificate),
            server_hostname="localhost")
        for _ in range(2):
            before = segments(transport)
            transport.write(b"head")
            transport.write(b"body")
            await t.turns(2)
            sent = segments(transport) - before
        t.log(sent)
        while b"".join(got) != b"headbody" * 2:
            await t.turns(1)
        transport.close()
        await protocol.done
        await made
        server.close()
        await server.wait_closed()

    assert alone(case, factory=twin.subject_loop) == [(1,)]


def test_order_is_kept_with_large_writes_of_every_kind_between(family):
    async def case(t, family):
        rng = random.Random(5)
        transport, protocol, peer = await raw(t, family)
        sent, got = bytearray(), bytearray()
        for _ in range(300):
            for _ in range(rng.randrange(5)):
                data = rng.randbytes(rng.choice([0, 1, 10, 5000, 20_000, 100_000]))
                kind = rng.randrange(4)
                sent += data
                if kind == 0:
                    transport.writelines([data[:3], bytearray(data[3:])])
                else:
                    buffer = (bytes, bytearray, memoryview)[kind - 1](data)
                    transport.write(buffer)
                    if kind == 2:
                        buffer[:] = bytes(len(buffer))
            got += take(peer)
            await t.turns(rng.randrange(2))
        while len(got) < len(sent):
            got += take(peer)
            await t.turns(1)
        t.log(got == sent)
        await end(protocol, transport, peer)

    assert alone(case, family) == [(True,)]


@pytest.mark.parametrize("last", ["abort", "close", "write_eof", "get_write_buffer_size", "set_write_buffer_limits",
                                  "socket", "_sock", "writelines", "much", "thread", "fork"])
def test_what_could_tell_the_difference_finds_the_writes_sent(family, last):
    async def case(t, family):
        transport, protocol, peer = await raw(t, family)
        transport.write(b"head")
        transport.write(bytearray(b"body"))
        if last == "socket":
            transport.get_extra_info("socket")
        elif last == "_sock":
            transport._sock
        elif last == "writelines":
            transport.writelines([b"."])
        elif last == "much":
            transport.write(b"." * 16384)
        elif last == "thread":
            thread = threading.Thread(target=transport.write, args=(b"x" * 20_000,))
            thread.start()
            thread.join()
        elif last == "fork":
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        else:
            getattr(transport, last)()
        t.log(take(peer, 8))
        await end(protocol, transport, peer)

    assert alone(case, family) == [(b"headbody",)]
    if last != "_sock":
        same(case, family)


def test_another_threads_write_leaves_at_once(family):
    async def case(t, family):
        transport, protocol, peer = await raw(t, family)
        thread = threading.Thread(target=transport.write, args=(b"x",))
        thread.start()
        thread.join()
        t.log(take(peer, 1))
        await end(protocol, transport, peer)

    assert alone(case, family) == [(b"x",)]
    same(case, family)


def test_another_threads_write_takes_what_is_held_along(family):
    """The turn may wait for the thread, and the thread for the answer."""
    async def case(t, family):
        transport, protocol, peer = await raw(t, family)
        transport.write(b"head")
        thread = threading.Thread(target=transport.write, args=(b"body",))
        thread.start()
        thread.join()
        t.log(take(peer, 8))
        await end(protocol, transport, peer)

    same(case, family)


@pytest.mark.parametrize("exit_type", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_exit_that_pause_writing_raises_leaves_the_write_and_ends_the_run(family, exit_type):
    def case(t, family, exit_type):
        transport, protocol, peer = t.run(raw(t, family))
        transport.set_write_buffer_limits(high=1000)
        paused = []

        def pause_writing():
            paused.append(True)
            raise exit_type

        def write():
            try:
                transport.write(b"x" * 600)
                transport.write(b"y" * 600)
            except BaseException as exc:
                t.log("write raised", exc)
                raise
            t.loop.call_soon(t.loop.stop if paused else write)

        protocol.pause_writing = pause_writing
        t.loop.call_soon(write)
        try:
            t.loop.run_forever()
        except BaseException as exc:
            t.log("run raised", exc)
        t.run(end(protocol, transport, peer))

    same(case, family, exit_type)


@pytest.mark.parametrize("end_by", ["stop", "exit", "outside"])
def test_a_run_that_ends_has_sent_what_its_last_turn_wrote(family, end_by):
    def case(t, family):
        transport, protocol, peer = t.run(raw(t, family))

        def last_turn():
            transport.write(b"head")
            transport.write(b"body")
            if end_by == "exit":
                raise SystemExit
            t.loop.stop()

        if end_by == "outside":
            transport.write(b"head")
            transport.write(b"body")
        else:
            t.loop.call_soon(last_turn)
            try:
                t.loop.run_forever()
            except SystemExit:
                pass
        t.log(take(peer, 8))
        t.run(end(protocol, transport, peer))

    assert alone(case, family) == [(b"headbody",)]
    same(case, family)


def test_a_forked_child_does_not_send_the_parents_writes_again(family):
    """fork(2) as a C library calls it, which Python's hooks do not see."""
    async def case(t, family):
        transport, protocol, peer = await raw(t, family)
        transport.write(b"head")
        transport.write(b"body")
        pid = ctypes.PyDLL(None).fork()
        if pid == 0:
            transport.get_write_buffer_size()
            os._exit(0)
        os.waitpid(pid, 0)
        await t.turns(1)
        t.log(take(peer, 8))
        transport.write_eof()
        t.log(take(peer, 1))
        await end(protocol, transport, peer)

    assert alone(case, family) == [(b"headbody",), (b"",)]


@pytest.mark.parametrize("held", [False, True])
def test_what_a_forked_child_writes_is_sent_by_the_child(family, held):
    async def case(t, family, held):
        transport, protocol, peer = await raw(t, family)
        if held:
            transport.write(b"head")
        pid = ctypes.PyDLL(None).fork()
        if pid == 0:
            transport.write(b"child")
            transport.write(b"'s")
            os._exit(0)
        os.waitpid(pid, 0)
        await t.turns(1)
        t.log(take(peer, 11 if held else 7))
        await end(protocol, transport, peer)

    assert alone(case, family, held) == [(b"child's" + (b"head" if held else b""),)]


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_failure_at_the_turns_end_is_told_as_asyncio_tells_a_failed_write(family, writes):
    async def case(t, family, writes):
        transport, protocol, peer = await raw(t, family)
        peer.send(b"unread")
        t.loop.call_soon(transport.pause_reading)
        await t.turns(2)
        reset(peer)
        for _ in range(writes):
            transport.write(b"x")
        await protocol.done
        t.log(transport.is_closing(), transport.get_write_buffer_size())
        transport.write(b"late")

    same(case, family, writes)


def test_a_full_kernel_buffer_pauses_and_resumes_as_asyncios(family):
    async def case(t, family):
        transport, protocol, peer = await raw(t, family)
        transport.set_write_buffer_limits(high=1000)
        for _ in range(20_000):
            transport.write(b"x" * 600)
            transport.write(b"y" * 600)
            await t.turns(1)
            if ("pause",) in t.channels["p"]:
                break
        while ("resume",) not in t.channels["p"]:
            take(peer)
            await t.turns(1)
        await end(protocol, transport, peer)

    same(case, family)


def test_writelines_with_a_wrong_line_sends_none_of_them(family):
    async def case(t, family):
        transport, protocol, peer = await raw(t, family)
        for bad in ([b"a", 5], [b"a", bytearray(b"b"), "text"]):
            try:
                transport.writelines(bad)
            except TypeError:
                t.log("refused", transport.get_write_buffer_size())
            transport.write(b"x")
            await t.turns(1)
            t.log(take(peer, 1), take(peer))
        await end(protocol, transport, peer)

    same(case, family)
    assert alone(case, family, factory=twin.subject_loop) == [("refused", 0), (b"x", b"")] * 2
