"""What is there to read is read to its end, though the kernel tells of it once: TCP transports and `sock_*`,
against asyncio."""
import array
import asyncio
import contextlib
import os
import resource
import socket
import threading

import pytest

from sockets import reset, tcp_pair
from twin import twin


async def raw(t, protocol):
    """A TCP transport on the case's loop and the plain socket at its other end."""
    listener = socket.create_server(("127.0.0.1", 0))
    transport, _ = await t.loop.create_connection(lambda: protocol, *listener.getsockname())
    peer, _ = listener.accept()
    listener.close()
    await t.turns(2)
    return transport, peer


def nonblocking_pair():
    a, b = tcp_pair()
    a.setblocking(False)
    b.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return a, b


async def closed(transport, peer, protocol):
    peer.close()
    transport.close()
    await protocol.done


@pytest.fixture(params=["stream", 1, 7, 64])
def size(request):
    """Of a BufferedProtocol's buffer; "stream" is a Protocol."""
    return request.param


def reader(t, size):
    return t.recorder("p") if size == "stream" else t.buffered("p", size)


@twin
async def test_data_and_the_end_in_one_event_are_both_told(t, size):
    protocol = reader(t, size)
    transport, peer = await raw(t, protocol)
    peer.sendall(b"0123456789" * 30)
    peer.close()
    await protocol.done
    t.log(len(protocol.received))


URGENT = [
    [b"abc", "!", b"def"],
    ["!", b"def"],
    [b"a" * 4000, "!", b"b" * 4000],
    [b"abc", "!", b"def", "!", b"ghi", "!", b"jkl"],
    [b"a", "!", "!", b"b" * 5000, "!", b"c"],
]


def send_with_urgent(peer, parts):
    """Send every part: a "!" as urgent data, which stops a recv at its mark whatever lies behind it."""
    for part in parts:
        if part == "!":
            peer.send(b"!", socket.MSG_OOB)
        else:
            peer.sendall(part)


def ordinary(received):
    """What was not urgent. How many urgent bytes of several are skipped depends on when the next one came."""
    return bytes(received).replace(b"!", b"")


@pytest.mark.parametrize("parts", URGENT)
@pytest.mark.parametrize("inline, early", [(False, False), (False, True), (True, False)])
@twin(modes=("plain",))
async def test_what_lies_behind_urgent_data_is_read(t, size, parts, inline, early):
    """Early: all of it lies in the kernel before the first recv."""
    a, peer = nonblocking_pair()
    a.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, inline)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sender = threading.Thread(target=send_with_urgent, args=(peer, parts))
    if early:
        sender.start()
        sender.join()
    protocol = reader(t, size)
    transport, _ = await t.loop.create_connection(lambda: protocol, sock=a)
    if not early:
        await t.turns(3)
        sender.start()
    expected = b"".join(part for part in parts if part != "!")
    while len(ordinary(protocol.received)) < len(expected):
        await asyncio.sleep(0.001)
    t.log(ordinary(protocol.received) == expected)
    sender.join()
    peer.sendall(b"ordinary again")
    while not protocol.received.endswith(b"ordinary again"):
        await asyncio.sleep(0.001)
    await closed(transport, peer, protocol)
    t.channels["p"] = []


@pytest.mark.parametrize("parts", URGENT)
@twin
async def test_sock_recv_reads_behind_urgent_data(t, parts):
    a, peer = nonblocking_pair()
    sender = threading.Thread(target=send_with_urgent, args=(peer, [*parts, b"end"]))
    sender.start()
    got = b""
    while not got.endswith(b"end"):
        got += await t.loop.sock_recv(a, 1000)
    t.log(ordinary(got) == b"".join(part for part in parts if part != "!") + b"end")
    sender.join()
    a.close()
    peer.close()


@pytest.mark.parametrize("low_water", [2, 100, 500])
@twin(modes=("plain",))
async def test_a_low_water_mark_of_receiving_keeps_nothing_back_for_ever(t, size, low_water):
    protocol = reader(t, size)
    a, peer = nonblocking_pair()
    a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)
    transport, _ = await t.loop.create_connection(lambda: protocol, sock=a)
    await t.turns(3)
    for _ in range(50):
        peer.sendall(b"x" * (low_water // 3 + 1))
        await t.turns(2)
    peer.shutdown(socket.SHUT_WR)
    await protocol.done
    t.log(len(protocol.received))
    peer.close()
    t.channels["p"] = []


@twin
async def test_a_message_in_the_error_queue_hides_no_data(t, size):
    protocol = reader(t, size)
    a, peer = nonblocking_pair()
    # SO_TIMESTAMPING: software, of what is sent.
    a.setsockopt(socket.SOL_SOCKET, 37, 0b10 | 0b10000 | 0b10000000)
    transport, _ = await t.loop.create_connection(lambda: protocol, sock=a)
    await t.turns(3)
    for i in range(20):
        transport.write(b"gives a timestamp")
        peer.sendall(b"%3d" % i)
        await t.turns(3)
        peer.sendall(b"%3d" % i)
        while len(protocol.received) < 6 * (i + 1):
            await asyncio.sleep(0.001)
    with contextlib.suppress(BlockingIOError):
        while True:
            a.recvmsg(1000, 1000, socket.MSG_ERRQUEUE)
    await closed(transport, peer, protocol)
    t.log(bytes(protocol.received))
    t.channels["p"] = []


@twin
async def test_a_socket_that_another_process_reads_too_is_read_to_its_end(t, size):
    protocol = reader(t, size)
    a, peer = nonblocking_pair()
    other = a.dup()  # as a child would have it
    transport, _ = await t.loop.create_connection(lambda: protocol, sock=a)
    await t.turns(3)
    taken = b""
    for i in range(50):
        peer.sendall(b"%4d" % i)
        if i % 3 == 0:
            with contextlib.suppress(BlockingIOError):
                taken += other.recv(2, socket.MSG_PEEK if i % 2 else 0)[:0 if i % 2 else None]
        await t.turns(2)
    while len(protocol.received) < 200 - len(taken):
        await asyncio.sleep(0.001)
    other.close()
    await closed(transport, peer, protocol)
    t.channels["p"] = []


@twin
async def test_the_end_behind_a_pause_is_told_when_reading_goes_on(t, size):
    protocol = reader(t, size)
    transport, peer = await raw(t, protocol)
    transport.pause_reading()
    await t.turns(2)
    peer.sendall(b"0123456789" * 30)
    peer.close()
    await t.turns(3)
    transport.resume_reading()
    await protocol.done
    t.log(len(protocol.received))


@twin
async def test_a_reset_behind_data_is_told(t, size):
    protocol = reader(t, size)
    transport, peer = await raw(t, protocol)
    peer.sendall(b"0123456789" * 10)
    reset(peer)
    await protocol.done


@twin
async def test_more_than_a_buffer_is_read_while_the_peer_is_silent(t, size):
    protocol = reader(t, size)
    transport, peer = await raw(t, protocol)
    whole = t.loop.create_future()
    total = 2_000_000 if size == "stream" else 3_000

    def look():
        if len(protocol.received) < total:
            t.loop.call_soon(look)
        else:
            whole.set_result(None)

    sender = t.loop.run_in_executor(None, peer.sendall, b"x" * total)
    look()
    await whole
    await sender
    t.log(set(protocol.received) == {ord("x")}, len(protocol.received))
    await closed(transport, peer, protocol)


@twin
async def test_a_loop_that_sleeps_wakes_for_the_rest(t):
    """Nothing but the rest itself makes the loop go on."""
    protocol = t.buffered("p", 10)
    transport, peer = await raw(t, protocol)
    whole = t.loop.create_future()
    buffer_updated = protocol.buffer_updated

    def updated(count):
        buffer_updated(count)
        if len(protocol.received) == 1_000:
            whole.set_result(None)

    protocol.buffer_updated = updated
    peer.sendall(b"x" * 1_000)
    await whole
    await closed(transport, peer, protocol)


@twin
async def test_a_pause_and_a_resume_around_a_read_that_was_due_lose_nothing(t, size):
    protocol = reader(t, size)
    transport, peer = await raw(t, protocol)
    for round_ in range(1, 6):
        ran = t.loop.create_future()
        # In the turn that finds the socket readable: the pause, the read, and the resume, since timers come
        # last.
        t.loop.call_soon(transport.pause_reading)
        t.loop.call_later(0, lambda ran=ran: (transport.resume_reading(), ran.set_result(None)))
        peer.sendall(b"0123456789")
        await ran
        while len(protocol.received) < 10 * round_:
            await asyncio.sleep(0)
    t.log(len(protocol.received))
    await closed(transport, peer, protocol)


@twin
async def test_a_protocol_that_pauses_in_each_callback_gets_all(t):
    protocol = t.buffered("p", 8)
    transport, peer = await raw(t, protocol)
    buffer_updated = protocol.buffer_updated

    def updated(count):
        buffer_updated(count)
        transport.pause_reading()
        if len(protocol.received) % 3 == 0:
            transport.resume_reading()
        else:
            t.loop.call_soon(transport.resume_reading)

    protocol.buffer_updated = updated
    peer.sendall(b"x" * 500)
    while len(protocol.received) < 500:
        await asyncio.sleep(0)
    await closed(transport, peer, protocol)


@twin
def test_an_exit_in_get_buffer_leaves_the_data_to_the_next_run(t):
    class Leaves(asyncio.BufferedProtocol):
        def __init__(self):
            self.buffer, self.calls = bytearray(100), 0

        def get_buffer(self, hint):
            self.calls += 1
            if self.calls == 1:
                raise SystemExit(3)
            return self.buffer

        def buffer_updated(self, count):
            t.log(bytes(self.buffer[:count]))
            t.loop.stop()

    ours, peer = nonblocking_pair()
    transport, _ = t.run(t.loop.create_connection(Leaves, sock=ours))
    peer.send(b"data")
    t.call(t.loop.run_forever)
    t.call(t.loop.run_forever)
    transport.abort()
    t.run(asyncio.sleep(0))
    peer.close()


@twin
async def test_a_writer_that_waits_does_not_hide_what_is_readable(t):
    protocol = t.buffered("p", 16)
    transport, peer = await raw(t, protocol)
    transport.write(b"y" * 8_000_000)
    peer.sendall(b"x" * 400)
    while len(protocol.received) < 400:
        await asyncio.sleep(0)
    t.log(transport.get_write_buffer_size() > 0)
    transport.abort()
    await protocol.done
    peer.close()


@twin
async def test_descriptors_in_a_unix_stream_do_not_end_the_reading(t):
    a, b = socket.socketpair()
    protocol = t.recorder("p")
    transport, _ = await t.loop.create_connection(lambda: protocol, sock=a)
    await t.turns(2)
    with open(os.devnull) as file:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))]
        b.sendall(b"a" * 10)
        for letter in (b"b", b"c"):
            b.sendmsg([letter * 10], rights)
        b.sendall(b"d" * 10)
    await protocol.got(40)
    await closed(transport, b, protocol)


@twin
async def test_sock_recv_in_small_steps_reads_to_the_end(t):
    a, b = nonblocking_pair()
    waiting = t.loop.create_task(t.loop.sock_recv(a, 2))
    await t.turns(3)
    b.sendall(b"abcdefgh")
    b.close()
    t.log(await waiting)
    while data := await t.loop.sock_recv(a, 2):
        t.log(data)
    a.close()


@twin
async def test_a_reader_added_behind_sock_recv_is_called_while_data_is_there(t):
    a, b = nonblocking_pair()
    waiting = t.loop.create_task(t.loop.sock_recv(a, 2))
    await t.turns(3)
    b.sendall(b"abcdefgh")
    t.log(await waiting)
    done = t.loop.create_future()
    calls = []

    def readable():
        calls.append(None)
        if len(calls) > 3:
            t.log(a.recv(2))
        if len(calls) == 6:
            t.loop.remove_reader(a)
            done.set_result(None)

    t.loop.add_reader(a, readable)
    await done
    t.log(len(calls))
    a.close()
    b.close()


@twin
async def test_a_reader_that_replaces_a_waiting_sock_recv_is_called_while_data_is_there(t):
    a, b = nonblocking_pair()
    waiting = t.loop.create_task(t.loop.sock_recv(a, 2))
    await t.turns(3)
    done = t.loop.create_future()
    calls = []

    def readable():
        calls.append(None)
        if len(calls) == 4:
            t.log(a.recv(8))
            t.loop.remove_reader(a)
            done.set_result(None)

    t.loop.add_reader(a, readable)
    b.sendall(b"abcdefgh")
    await done
    waiting.cancel()
    await asyncio.wait([waiting])
    a.close()
    b.close()


@twin
async def test_a_sock_recv_canceled_when_its_event_has_come_leaves_it_to_the_next(t):
    a, b = nonblocking_pair()
    for _ in range(5):
        waiting = t.loop.create_task(t.loop.sock_recv(a, 4))
        await t.turns(3)
        following = []
        t.loop.call_soon(waiting.cancel)
        t.loop.call_later(0, lambda: following.append(t.loop.create_task(t.loop.sock_recv(a, 4))))
        b.sendall(b"data")
        await asyncio.wait([waiting])
        while not following:
            await asyncio.sleep(0)
        t.log(waiting.cancelled(), await following[0] if waiting.cancelled() else None)
    a.close()
    b.close()


@twin
async def test_sock_accept_takes_all_that_came_together(t):
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    first = t.loop.create_task(t.loop.sock_accept(listener))
    await t.turns(3)
    clients = [socket.create_connection(listener.getsockname()) for _ in range(4)]
    accepted = [await first] + [await t.loop.sock_accept(listener) for _ in range(3)]
    t.log([conn.getpeername() == address for conn, address in accepted])
    for sock in (listener, *clients, *(conn for conn, _ in accepted)):
        sock.close()


@twin
async def test_handles_that_are_used_again_belong_to_their_new_descriptor(t):
    """More connections at once than a loop keeps handles for, twice."""
    for _ in range(2):
        pairs = []
        for _ in range(260):
            a, peer = socket.socketpair()
            protocol = t.recorder("p")
            transport, _ = await t.loop.create_connection(lambda protocol=protocol: protocol, sock=a)
            pairs.append((transport, peer, protocol))
        for i, (_, peer, _) in enumerate(pairs):
            peer.sendall(b"%03d" % i)
        for i, (_, _, protocol) in enumerate(pairs):
            await protocol.got(3)
            assert protocol.received == b"%03d" % i
        for transport, peer, protocol in pairs:
            await closed(transport, peer, protocol)
    t.channels.pop("p")


@twin
async def test_descriptors_are_watched_when_no_new_ones_can_be_made(t):
    pairs = [socket.socketpair() for _ in range(3)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, limits[0]), limits[1]))
    try:
        while True:
            fillers.append(os.dup(0))
    except OSError as exc:
        t.log(exc)
    try:
        for a, b in pairs:
            got = t.loop.create_future()
            t.loop.add_reader(a, got.set_result, None)
            b.send(b"x")
            await got
            t.log(a.recv(1), os.get_blocking(a.fileno()), t.loop.remove_reader(a))
    finally:
        for fd in fillers:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for a, b in pairs:
        a.close()
        b.close()
