"""Transports that write more than once in a step of the program: the writes leave together at the step's end,
or after two milliseconds, and nobody can tell otherwise: order, errors, flow control and what follows a write
are asyncio's."""
import asyncio
import ctypes
import os
import random
import select
import signal
import socket
import struct
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import twin
from sockets import made_by_loop, reset
from test_tls import certificate, client_context, server_context  # noqa: F401
from twin import run_arm

pytestmark = pytest.mark.skipif(twin.LOOP_MODULE != "treadle", reason="asyncio sends every write at once")
TCP_INFO_DATA_SEGS_OUT = 156
UNLEARN_STEPS = 8
USUAL_NS = 10**6


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


def hasty_loop():
    """A loop whose transports all hold, no longer than is usual."""
    loop = twin.subject_loop()
    loop._shape_holds(True, USUAL_NS)
    return loop


def same(case, *args, factory=twin.gathering_loop):
    """Runs a case on asyncio and on treadle with every transport gathering, and asserts that both recorded
    the same."""
    for debug in (False, True):
        assert run_arm(factory, debug, case, args) == run_arm(twin.reference_loop, debug, case, args)


@pytest.fixture(params=["tcp", "unix"])
def family(request):
    return request.param


async def raw(t, family="tcp"):
    """A transport whose socket its loop has made, and the plain socket at its other end."""
    transport, protocol, peer = await made_by_loop(t.loop, lambda: t.recorder("p"), family)
    peer.setblocking(False)
    await t.turns(2)
    return transport, protocol, peer


async def learnt(t, family="tcp"):
    transport, protocol, peer = await raw(t, family)
    transport.write(b"1")
    transport.write(b"2")
    await t.turns(1)
    assert take(peer, 2) == b"12"
    return transport, protocol, peer


async def end(protocol, transport, peer):
    transport.abort()
    await protocol.done
    peer.close()


def test_two_writes_of_a_step_leave_in_one_system_call_once_learnt():
    async def case(t):
        transport, protocol, peer = await learnt(t)
        before = segments(transport)
        transport.write(b"head")
        transport.write(b"body")
        t.log(take(peer))
        await t.turns(1)
        t.log(take(peer, 8), segments(transport) - before)
        await end(protocol, transport, peer)

    assert alone(case, factory=twin.patient_loop) == [(b"",), (b"headbody", 1)]


def test_a_transport_that_writes_once_a_step_sends_at_once(family):
    async def case(t, family):
        transport, protocol, peer = await raw(t, family)
        for _ in range(3):
            transport.write(b"x")
            t.log(take(peer, 1))
            await t.turns(1)
        await end(protocol, transport, peer)

    assert alone(case, family, factory=twin.patient_loop) == [(b"x",)] * 3


def test_what_was_learnt_is_forgotten_after_steps_with_one_write(family):
    async def case(t, family):
        transport, protocol, peer = await learnt(t, family)
        for _ in range(UNLEARN_STEPS):
            transport.write(b"x")
            t.log(take(peer))
            await t.turns(1)
            assert take(peer, 1) == b"x"
        transport.write(b"x")
        t.log(take(peer, 1))
        await end(protocol, transport, peer)

    assert alone(case, family, factory=twin.patient_loop) == [(b"",)] * UNLEARN_STEPS + [(b"x",)]


def test_two_tls_writes_of_a_step_leave_in_one_system_call(certificate):
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

    assert alone(case, factory=twin.patient_loop) == [(1,)]


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


@pytest.mark.parametrize(
    "last",
    [
        "abort",
        "close",
        "write_eof",
        "get_write_buffer_size",
        "set_write_buffer_limits",
        "socket",
        "_sock",
        "writelines",
        "much",
        "thread",
        "fork",
    ],
)
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


@pytest.mark.parametrize(
    "use", ["shutdown", "setsockopt", "getsockopt", "fileno", "getpeername", "dup", "repr"]
)
def test_who_has_the_socket_already_finds_the_writes_sent(family, use):
    async def case(t, family):
        transport, protocol, peer = await raw(t, family)
        sock = transport.get_extra_info("socket")
        transport.write(b"head")
        transport.write(b"body")
        if use == "shutdown":
            sock.shutdown(socket.SHUT_WR)
        elif use == "setsockopt":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes(8))
        elif use == "getsockopt":
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        elif use == "dup":
            sock.dup().close()
        elif use == "repr":
            repr(sock)
        else:
            getattr(sock, use)()
        t.log(take(peer, 8))
        await t.turns(1)
        t.log(transport.is_closing())
        await end(protocol, transport, peer)

    same(case, family)


GIVEN = ("create_connection", "create_unix_connection", "connect_accepted_socket")
GOT = ("fileno", "dup", "hidden", "hidden of the transport")


def use_socket(how, sock):
    if how == "send":
        sock.send(b"behind")
    elif how == "write":
        os.write(sock.fileno(), b"behind")
    elif how == "shutdown":
        sock.shutdown(socket.SHUT_WR)
    elif how == "close":
        sock.close()
    else:
        os.close(sock.detach())


@pytest.mark.parametrize("how", ["send", "write", "shutdown", "close", "detach"])
@pytest.mark.parametrize("given", GIVEN)
def test_who_gave_the_socket_may_use_it_behind_the_writes(given, how):
    async def case(t, given, how):
        ours, peer = socket.socketpair()
        transport, protocol = await getattr(t.loop, given)(lambda: t.recorder("p"), sock=ours)
        for _ in range(2):
            transport.write(b"head")
            transport.write(b"body")
            await t.turns(1)
        transport.write(b"1")
        transport.write(b"2")
        use_socket(how, ours)
        peer.setblocking(False)
        t.log(take(peer))
        transport.abort()
        await protocol.done
        peer.close()

    same(case, given, how)


@pytest.mark.parametrize("how", ["send", "write", "shutdown"])
@pytest.mark.parametrize("got", GOT)
def test_who_got_the_socket_or_its_number_may_use_it_behind_the_writes(family, got, how):
    async def case(t, family, got, how):
        transport, protocol, peer = await raw(t, family)
        sock = transport.get_extra_info("socket")
        if got == "fileno":
            mine = socket.socket(fileno=sock.fileno())
        elif got == "dup":
            mine = sock.dup()
        else:
            mine = sock._sock if got == "hidden" else transport._sock
        transport.write(b"head")
        transport.write(b"body")
        use_socket(how, mine)
        t.log(take(peer, 8))
        await t.turns(1)
        t.log(take(peer))
        if got == "fileno":
            mine.detach()
        elif got == "dup":
            mine.close()
        del mine, sock
        await end(protocol, transport, peer)

    same(case, family, got, how)


def test_who_asks_the_socket_for_its_peer_or_options_gets_the_writes_together_all_the_same():
    async def case(t):
        transport, protocol, peer = await learnt(t)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.getpeername(), sock.family, repr(sock)
        before = segments(transport)
        transport.write(b"head")
        transport.write(b"body")
        await t.turns(1)
        t.log(take(peer, 8), segments(transport) - before)
        await end(protocol, transport, peer)

    assert alone(case, factory=twin.patient_loop) == [(b"headbody", 1)]


def test_a_write_leaves_before_turns_run_inside_of_its_step(family):
    async def case(t, family):
        transport, protocol, peer = await raw(t, family)
        transport.write(b"asked")
        t.loop.call_soon(lambda: t.log(take(peer)))
        t.loop._run_nested()
        transport.write(b"behind")
        t.log(take(peer))
        await t.turns(1)
        t.log(take(peer, 6))
        await end(protocol, transport, peer)

    assert alone(case, family) == [(b"asked",), (b"",), (b"behind",)]


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
    """The step may wait for the thread, and the thread for the answer."""
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
def test_a_run_that_ends_has_sent_what_its_last_step_wrote(family, end_by):
    def case(t, family):
        transport, protocol, peer = t.run(raw(t, family))

        def last_step():
            transport.write(b"head")
            transport.write(b"body")
            if end_by == "exit":
                raise SystemExit
            t.loop.stop()

        if end_by == "outside":
            transport.write(b"head")
            transport.write(b"body")
        else:
            t.loop.call_soon(last_step)
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

    assert alone(case, family, held) == [((b"head" if held else b"") + b"child's",)]
    same(case, family, held)


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_failure_at_the_steps_end_is_told_as_asyncio_tells_a_failed_write(family, writes):
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

    # Asyncio's keeps the lines before the wrong one there, and sends nothing from then on.
    if sys.version_info < (3, 15):
        same(case, family)
    assert alone(case, family, factory=twin.patient_loop) == [("refused", 0), (b"x", b"")] * 2


def readable(peer):
    """Whether something arrives at the peer, waited for without giving the GIL to anybody."""
    wanted = struct.pack("ihh", peer.fileno(), select.POLLIN, 0)
    poll = ctypes.PyDLL(None, use_errno=True).poll
    return poll(ctypes.create_string_buffer(wanted), 1, 20_000) == 1


def test_a_write_leaves_when_the_step_that_made_it_ends(family):
    """The few other steps of its turn see it: callbacks, steps of tasks, protocols, exceptions."""
    async def case(t, family):
        transport, protocol, peer = await learnt(t, family)

        async def task():
            transport.write(b"b")
            await asyncio.sleep(0)

        def data_received(data):
            transport.write(b"c")
            t.loop.call_soon(look)

        def failing():
            transport.write(b"d")
            raise ValueError

        def look():
            t.log(take(peer))

        protocol.data_received = data_received
        t.loop.call_soon(transport.write, b"a")
        t.loop.call_soon(look)
        made = t.loop.create_task(task())
        t.loop.call_soon(look)
        t.loop.call_soon(failing)
        t.loop.call_soon(look)
        await made
        peer.send(b"x")
        await t.turns(5)
        await end(protocol, transport, peer)

    assert alone(case, family, factory=twin.patient_loop) == [(b"a",), (b"b",), (b"d",), (b"c",)]
    same(case, family)


def test_the_writes_of_eight_steps_of_a_busy_turn_leave_together():
    async def case(t):
        made = [await learnt(t) for _ in range(9)]

        def step(transport):
            transport.write(b"head")
            transport.write(b"body")

        def look(*sizes):
            t.log(*[take(peer, size) for (_, _, peer), size in zip(made, sizes)])

        for transport, _, _ in made[:7]:
            t.loop.call_soon(step, transport)
        t.loop.call_soon(look, *[None] * 9)
        t.loop.call_soon(step, made[7][0])
        t.loop.call_soon(look, *[8] * 8, None)
        t.loop.call_soon(step, made[8][0])
        t.loop.call_soon(look, *[None] * 8, 8)
        await t.turns(1)
        for transport, protocol, peer in made:
            await end(protocol, transport, peer)

    both = b"headbody"
    assert alone(case, factory=twin.patient_loop) == [(b"",) * 9, (both,) * 8 + (b"",), (b"",) * 8 + (both,)]


def test_what_a_busy_turn_holds_leaves_when_it_ends_and_before_what_is_written_later():
    async def case(t):
        first, first_protocol, first_peer = await learnt(t)
        other, other_protocol, other_peer = await raw(t)

        def write_both():
            other.write(b"other")
            t.log(take(other_peer, 5), take(first_peer, 5))

        def nothing():
            pass

        for after in (write_both, nothing):
            t.loop.call_soon(first.write, b"first")
            t.loop.call_soon(after)
            for _ in range(8):
                t.loop.call_soon(nothing)
            await t.turns(2)
        t.log(take(first_peer, 5))
        await end(first_protocol, first, first_peer)
        await end(other_protocol, other, other_peer)

    assert alone(case, factory=twin.patient_loop) == [(b"other", b"first"), (b"first",)]


@pytest.mark.parametrize("gil", ["given", "kept"])
def test_a_write_leaves_while_its_step_goes_on(family, gil):
    async def case(t, family, gil):
        transport, protocol, peer = await learnt(t, family)
        for word in (b"progress", b"more", b"most"):
            transport.write(word)
            if gil == "kept":
                assert readable(peer)
            else:
                assert select.select([peer], [], [], 20)[0]
            t.log(take(peer))
        await t.turns(1)
        transport.write(b"head")  # another step, and as before
        transport.write(b"body")
        await t.turns(1)
        t.log(take(peer, 8))
        await end(protocol, transport, peer)

    same(case, family, gil, factory=hasty_loop)
    same(case, family, gil, factory=twin.subject_loop)


PATTERNS = st.lists(st.lists(st.one_of(
    st.tuples(st.just("write"), st.integers(0, 2), st.sampled_from([1, 100, 3000])),
    st.sampled_from(["sleep", "compute", "fork", "spawn"]),
), max_size=6), max_size=6)


def arrives(peers, sent, compute):
    """All that was written, waited for with the GIL kept or given away."""
    for peer, data in zip(peers, sent):
        got = b""
        while len(got) < len(data):
            assert readable(peer) if compute else select.select([peer], [], [], 20)[0]
            got += take(peer)
        assert got == data
        data.clear()


def is_there(peers, sent):
    """All that was written, at once."""
    for peer, data in zip(peers, sent):
        assert not data or take(peer) == data
        data.clear()


def work(op, peers, sent):
    if op in ("sleep", "compute"):
        arrives(peers, sent, op == "compute")
        return
    if op == "fork":
        pid = os.fork()
        if pid == 0:
            os._exit(0)
    else:
        pid = os.posix_spawn("/bin/true", ["true"], {})
    is_there(peers, sent)
    os.waitpid(pid, 0)


@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(steps=PATTERNS)
def test_in_any_pattern_of_writes_and_work_every_message_leaves_while_the_work_goes_on(steps):
    """The work ends when all that was written before it has arrived; what starts a process finds all of it
    sent."""
    async def case(t):
        connections = [await raw(t, family) for family in ("tcp", "unix", "unix")]
        peers, sent = [peer for _, _, peer in connections], [bytearray() for _ in connections]
        for step in steps:
            for op in step:
                if isinstance(op, tuple):
                    _, at, size = op
                    sent[at] += bytes([65 + at]) * size
                    connections[at][0].write(bytes([65 + at]) * size)
                else:
                    work(op, peers, sent)
            await t.turns(1)
            is_there(peers, sent)
        for transport, protocol, peer in connections:
            await end(protocol, transport, peer)

    run_arm(hasty_loop, False, case)


def test_what_a_slow_step_writes_is_sent_once_and_in_order_by_whoever_sends(family):
    async def case(t, family):
        transport, protocol, peer = await learnt(t, family)
        rng = random.Random(7)
        sent, got = bytearray(), bytearray()
        for _ in range(60):
            for _ in range(rng.randrange(1, 6)):
                data = rng.randbytes(rng.choice([1, 100, 3000, 40_000]))
                sent += data
                if rng.randrange(5):
                    transport.write(data)
                else:
                    transport.writelines([data, b""])
                if not rng.randrange(3):
                    # As long as the thread waits, or half, or twice.
                    select.select([], [], [], rng.random() / 500)
            got += take(peer)
            await t.turns(1)
        while len(got) < len(sent):
            got += take(peer)
            await t.turns(1)
        t.log(got == sent)
        await end(protocol, transport, peer)

    assert alone(case, family, factory=hasty_loop) == [(True,)]


def test_a_connection_that_ends_while_its_step_goes_on_is_told_as_asyncios(family):
    async def case(t, family):
        transport, protocol, peer = await raw(t, family)
        peer.send(b"unread")
        t.loop.call_soon(transport.pause_reading)
        await t.turns(2)
        reset(peer)
        transport.write(b"x")
        select.select([], [], [], 0.003)
        transport.write(b"y")
        await protocol.done
        t.log(transport.is_closing(), transport.get_write_buffer_size())

    same(case, family, factory=hasty_loop)


REPLACED = """
import asyncio, os, signal, socket, subprocess, sys, threading
import twin
from sockets import made_by_loop
PROGRAM = [sys.executable, "-S", "-c", ""]

def end(how):
    if how == "execv":
        os.execv(sys.executable, PROGRAM)
    elif how == "execve":
        os.execve(sys.executable, PROGRAM, {})
    elif how == "execlp":
        os.execlp("true", "true")
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "pthread_kill":
        signal.pthread_kill(threading.get_ident(), signal.SIGKILL)
    elif how == "raise_signal kill":
        signal.raise_signal(signal.SIGKILL)
    elif how == "abort":
        os.abort()
    elif how == "_exit":
        os._exit(5)
    elif how == "fork":
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    elif how == "posix_spawn":
        os.waitpid(os.posix_spawn(sys.executable, PROGRAM, {}), 0)
    elif how == "system":
        os.system("true")
    else:
        subprocess.run(PROGRAM)

async def main(control, how):
    transport, _, peer = await made_by_loop(loop, asyncio.Protocol, "unix")
    socket.send_fds(control, [b"peer"], [peer.fileno()])
    transport.write(b"1")
    transport.write(b"2")
    await asyncio.sleep(0)
    transport.write(b"last")
    transport.write(b"words")
    end(how)
    # Whoever starts a program has sent before it began.
    peer.setblocking(False)
    os._exit(0 if peer.recv(20, socket.MSG_PEEK) == b"12lastwords" else 1)

loop = twin.patient_loop()
loop.run_until_complete(main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]))
"""


STATUS = {"kill": -signal.SIGKILL, "pthread_kill": -signal.SIGKILL, "raise_signal kill": -signal.SIGKILL,
          "abort": -signal.SIGABRT, "_exit": 5}


@pytest.mark.parametrize(
    "how", ["execv", "execve", "execlp", "posix_spawn", "system", "subprocess", "fork", *STATUS]
)
def test_what_ends_or_replaces_the_process_finds_the_writes_sent(python, how):
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            done = python("-c", REPLACED, str(theirs.fileno()), how, pass_fds=(theirs.fileno(),))
        assert done.returncode == STATUS.get(how, 0), done.stderr
        _, (number,), _, _ = socket.recv_fds(ours, 16, 1)
        with socket.socket(fileno=number) as peer:
            assert take(peer, 11) == b"12lastwords"


def test_the_functions_that_end_a_process_look_as_before(python):
    """What is held is sent when they are called; nobody sees by what."""
    async def case(t):
        transport, protocol, peer = await learnt(t)
        transport.write(b"held")
        await t.turns(1)
        await end(protocol, transport, peer)

    look = ("import inspect, os, signal\n"
            "seen = [(repr(f), f.__doc__, f.__self__.__name__, str(inspect.signature(f)))"
            " for f in (os._exit, os.abort, signal.raise_signal)]")
    alone(case)
    here = {}
    exec(look, here)
    assert str(here["seen"]) == python("-c", f"{look}\nprint(seen)", check=True).stdout.strip()


REFUSED = """
import asyncio, posix, sys
import twin
from sockets import made_by_loop

def hook(event, args):
    if event == "sys.addaudithook":
        raise PermissionError("no hooks here")

async def main():
    transport, _, peer = await made_by_loop(loop, asyncio.Protocol, "unix")
    peer.setblocking(False)
    transport.write(b"1")
    transport.write(b"2")
    transport.write(b"3")
    print(peer.recv(10))
    transport.close()

if sys.argv[1:] == ["hooks"]:
    sys.addaudithook(hook)
else:
    posix._exit = print
loop = twin.patient_loop()
loop.run_until_complete(main())
loop.close()
"""


@pytest.mark.parametrize("hidden", ["hooks", "_exit"])
def test_nothing_is_held_where_what_replaces_the_process_cannot_be_heard_of(python, hidden):
    assert python("-c", REFUSED, hidden, check=True).stdout == "b'123'\n"


THREADS = """
import asyncio, os, sys, warnings
import twin
from sockets import made_by_loop
warnings.simplefilter("error")

def threads():
    return len(os.listdir("/proc/self/task"))

async def main():
    transport, _, peer = await made_by_loop(loop, asyncio.Protocol, "unix")
    for _ in range(3):
        transport.write(b"1")
        transport.write(b"2")
        await asyncio.sleep(0)
        counts.append(threads())
        pid = os.fork()
        if pid == 0:
            os._exit(0 if threads() == 1 else 1)
        counts.append(os.waitpid(pid, 0)[1])
        counts.append(threads())
    transport.close()
    peer.close()

counts = []
for _ in range(2):
    loop = twin.gathering_loop()
    loop.run_until_complete(main())
    loop.close()
    counts.append(threads())
print(counts == ([2, 0, 1] * 3 + [1]) * 2 or counts)
"""


def test_the_thread_that_sends_is_gone_with_the_loops_and_before_a_fork(python):
    """From 3.12 on Python warns of a fork while there are threads."""
    assert python(code=THREADS, check=True).stdout == "True\n"
