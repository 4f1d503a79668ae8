"""Datagram endpoints in C: batches, address forms, refusals and ends, against asyncio where asyncio defines
them."""
import asyncio
import copy
import gc
import os
import pickle
import random
import socket
import struct
import sys
import warnings

import pytest

from twin import compare, subject_loop, twin

CASES = int(os.environ.get("TREADLE_TEST_UDP_CASES", "40"))


class Log(asyncio.DatagramProtocol):
    def __init__(self, t, channel):
        self.t, self.channel, self.seen, self.waiters = t, channel, [], []
        self.done = t.loop.create_future()
        self.on_datagram = None

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.seen.append((data, addr))
        self.wake()
        if self.on_datagram:
            self.on_datagram(data, addr)

    def error_received(self, exc):
        self.t.log("error", type(exc).__name__, exc.errno, channel=self.channel)

    def pause_writing(self):
        self.t.log("pause", channel=self.channel)

    def resume_writing(self):
        self.t.log("resume", channel=self.channel)

    def connection_lost(self, exc):
        self.t.log("lost", exc, channel=self.channel)
        self.done.set_result(None)

    def wake(self):
        for waiter in [w for w in self.waiters if len(self.seen) >= w[0]]:
            self.waiters.remove(waiter)
            waiter[1].set_result(None)

    async def got(self, count):
        if len(self.seen) < count:
            self.waiters.append((count, self.t.loop.create_future()))
            await self.waiters[-1][1]


async def endpoint(t, channel="a", **kwargs):
    kwargs = kwargs or {"local_addr": ("127.0.0.1", 0)}
    return await t.loop.create_datagram_endpoint(lambda: Log(t, channel), **kwargs)


def senders(count, family=socket.AF_INET, host="127.0.0.1"):
    socks = [socket.socket(family, socket.SOCK_DGRAM) for _ in range(count)]
    for sock in socks:
        sock.bind((host, 0))
        sock.setblocking(False)
    return socks


@pytest.mark.parametrize("way", ["pair", "named", "connected late"])
def test_a_datagram_without_an_address_goes_to_the_peer_of_a_unix_socket(loop, tmp_path, way):
    """asyncio takes the empty name of an unnamed peer for none, raises a TypeError and closes."""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    if way != "pair":
        a.close()
        b.close()
        a, b = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
        b.bind(str(tmp_path / "b"))
    if way == "named":
        a.connect(str(tmp_path / "b"))
    a.setblocking(False)
    b.setblocking(False)

    async def main():
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=a)
        if way == "connected late":
            a.connect(str(tmp_path / "b"))
        transport.sendto(b"x")
        transport.sendto(bytearray(b"y"), None)
        assert [b.recv(10), b.recv(10)] == [b"x", b"y"]
        sent = 2
        while not transport.get_write_buffer_size():
            transport.sendto(b"z%d" % sent)
            sent += 1
        transport.sendto(b"last")
        transport.close()
        got = b""
        while got != b"last":
            got = await loop.sock_recv(b, 10)

    loop.run_until_complete(main())
    b.close()


@twin
async def test_asyncios_inherited_flow_control_works_on_the_marks_in_force(t):
    """The slots of asyncio's mixin lie over no other field, and say what C goes by."""
    kinds = [await endpoint(t)]
    server = await t.loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    kinds.append(await t.loop.create_connection(lambda: t.recorder("s"), *server.sockets[0].getsockname()))
    for transport, protocol in kinds:
        mixin = asyncio.transports._FlowControlMixin
        t.log(
            transport._low_water, transport._high_water, transport._protocol_paused, transport._loop is t.loop
        )
        mixin._set_write_buffer_limits(transport, high=4000)
        t.log(transport._low_water, transport._high_water, transport.get_write_buffer_limits())
        mixin.set_write_buffer_limits(transport, 100, 50)
        t.log(transport._low_water, transport._high_water, mixin.get_write_buffer_limits(transport))
        t.call(mixin._set_write_buffer_limits, transport, 1, 2)
        mixin._maybe_pause_protocol(transport)
        mixin._maybe_resume_protocol(transport)
        transport._protocol_paused = True
        mixin._maybe_resume_protocol(transport)
        t.log(transport._protocol_paused, transport.is_closing())
        transport.close()
        await protocol.done
    server.close()


@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_transports_are_made_by_their_loop_and_by_nothing_else(loop, kind):
    async def main():
        if kind == "udp":
            return (
                await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
            )[0]
        a, peer = socket.socketpair()
        peer.close()
        return (await loop.create_connection(asyncio.Protocol, sock=a))[0]

    transport = loop.run_until_complete(main())
    cls = type(transport)
    makers = [
        cls,
        lambda: cls.__new__(cls),
        lambda: object.__new__(cls),
        lambda: asyncio.transports._FlowControlMixin.__new__(cls),
        lambda: type("Sub", (cls,), {}),
        lambda: copy.copy(transport),
        lambda: copy.deepcopy(transport),
        lambda: pickle.loads(pickle.dumps(transport)),
        transport.__init__,
        lambda: transport.__init__(None, loop),
        lambda: asyncio.transports._FlowControlMixin.__init__(transport, None, loop),
    ]
    for maker in makers:
        with pytest.raises((TypeError, AttributeError)):
            maker()
    for name in ("_low_water", "_high_water", "_protocol_paused"):
        with pytest.raises(AttributeError):
            delattr(transport, name)
    for value in (-1, "x", None, 2**200):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            transport._high_water = value
    transport.close()
    loop.run_until_complete(asyncio.sleep(0))
    assert transport._loop is None


@twin
async def test_each_of_many_peers_is_named_and_answered(t):
    a, pa = await endpoint(t)
    pa.on_datagram = a.sendto
    socks = senders(100)
    for turn in range(3):
        for sock in socks:
            sock.sendto(b"%d" % turn, a.get_extra_info("sockname"))
        await pa.got(100 * (turn + 1))
        t.log([(await t.loop.sock_recv(sock, 10)) for sock in socks] == [b"%d" % turn] * 100)
    t.log([addr for _, addr in pa.seen] == [sock.getsockname() for sock in socks] * 3)
    t.log({type(addr).__name__ for _, addr in pa.seen})
    a.close()
    await pa.done
    for sock in socks:
        sock.close()


@twin
async def test_ipv6_addresses_have_four_parts(t):
    try:
        a, pa = await endpoint(t, local_addr=("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    pa.on_datagram = a.sendto
    (sock,) = senders(1, socket.AF_INET6, "::1")
    sock.sendto(b"x", a.get_extra_info("sockname"))
    t.log(await t.loop.sock_recv(sock, 10), pa.seen[0][1] == sock.getsockname(), len(pa.seen[0][1]))
    for addr in (sock.getsockname()[:2], sock.getsockname()[:3], ("localhost", sock.getsockname()[1], 0, 0)):
        a.sendto(b"y", addr)
    t.log([await t.loop.sock_recv(sock, 10) for _ in range(2)])
    a.close()
    await pa.done
    sock.close()


@twin
async def test_pause_inside_datagram_received_holds_the_rest(t):
    a, pa = await endpoint(t)
    pa.on_datagram = lambda data, addr: a.pause_reading() if data in (b"1", b"2", b"9") else None
    (sock,) = senders(1)
    for i in range(12):
        sock.sendto(b"%d" % i, a.get_extra_info("sockname"))
    for stop in (2, 3, 10):
        await pa.got(stop)
        await t.turns(5)
        t.log(a.is_reading(), [data for data, _ in pa.seen])
        a.resume_reading()
    await pa.got(12)
    t.log([data for data, _ in pa.seen])
    a.close()
    await pa.done
    sock.close()


@twin
async def test_names_and_wrong_addresses(t):
    for addr in (
        ("127.0.0.1",),
        ("127.0.0.1", 70_000),
        ("127.0.0.1", "9"),
        ("127.0.0.1", 9, 0),
        None,
        "text",
        5,
        (5, 5),
        ("a\0b", 9),
        ("256.1.1.1.1.1", 9),
    ):
        a, pa = await endpoint(t)
        try:
            t.call(a.sendto, b"x", addr)
        except BaseException as exc:
            t.log(exc)
        await t.turns(3)
        t.log(addr, a.is_closing())
        a.close()
        await pa.done
    a, pa = await endpoint(t)
    (sock,) = senders(1)
    for host in ("localhost", "127.1"):
        a.sendto(host.encode(), (host, sock.getsockname()[1]))
        t.log(await t.loop.sock_recv(sock, 20))
    a.close()
    await pa.done
    sock.close()


@twin
async def test_arguments_of_sendto(t):
    a, pa = await endpoint(t)
    address = a.get_extra_info("sockname")
    a.sendto(data=b"k", addr=address)
    a.sendto(memoryview(b"abcdef")[2:4], addr=address)
    await pa.got(2)
    t.log([data for data, _ in pa.seen])
    for args, kwargs in (((), {}), ((b"x", address, 1), {}), ((b"x",), {"address": address}),
                         ((b"x", address), {"addr": address})):
        try:
            a.sendto(*args, **kwargs)
        except TypeError:
            t.log("TypeError")
    a.close()
    await pa.done


@twin
async def test_limits_protocol_and_reading_flags(t):
    a, pa = await endpoint(t)
    t.log(a.get_write_buffer_limits(), a.is_reading(), a.get_protocol() is pa, a.get_write_buffer_size())
    for kwargs in ({"high": 100}, {"low": 10}, {"high": 0}, {}, {"high": 5, "low": 6}, {"high": -1}):
        t.call(a.set_write_buffer_limits, **kwargs)
        t.log(a.get_write_buffer_limits())
    for method in ("pause_reading", "pause_reading", "resume_reading", "resume_reading", "close", "close",
                   "pause_reading", "resume_reading", "abort"):
        t.call(getattr(a, method))
        t.log(a.is_reading(), a.is_closing())
    await pa.done
    t.call(a.close)
    t.call(a.abort)
    t.log(a.get_extra_info("nothing", 5), a.get_extra_info("peername", 5))


@twin
async def test_the_protocol_can_be_exchanged(t):
    a, pa = await endpoint(t)
    other = Log(t, "b")
    a.set_protocol(other)
    a.sendto(b"x", a.get_extra_info("sockname"))
    await other.got(1)
    t.log(len(pa.seen), a.get_protocol() is other)
    a.close()
    await other.done


@twin
async def test_close_sends_what_is_queued_and_abort_drops_it(t, tmp_path):
    for end in ("close", "abort"):
        path = str(tmp_path / f"{end}{int(t.subject)}{int(t.debug)}")
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        peer.bind(path)
        peer.setblocking(False)
        a, pa = await endpoint(t, end, remote_addr=path, family=socket.AF_UNIX)
        while a.get_write_buffer_size() < 5000:
            a.sendto(b"z" * 1000)
        getattr(a, end)()
        # Asyncio still counts what it dropped.
        t.log(a.is_closing(), end == "abort" or a.get_write_buffer_size() > 0)
        if end == "close":
            while not pa.done.done():
                await t.loop.sock_recv(peer, 2000)
        await pa.done
        peer.close()


@twin
async def test_unix_datagrams_longer_than_64_kib(t, tmp_path):
    path = str(tmp_path / f"l{int(t.subject)}{int(t.debug)}")
    a, pa = await endpoint(t, local_addr=path, family=socket.AF_UNIX)
    b, pb = await endpoint(t, "b", remote_addr=path, family=socket.AF_UNIX)
    data = os.urandom(100_000)
    b.sendto(data)
    await pa.got(1)
    t.log(pa.seen[0] == (data, None), pa.seen[0][1])
    for x in (a, b):
        x.close()
    await pa.done
    await pb.done


@twin
async def test_another_family_goes_through_pythons_socket(t):
    try:
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 0)
        sock.bind((0, 0))
        a, pa = await endpoint(t, sock=sock)
    except OSError:
        pytest.skip("no netlink here")
    get_links = struct.pack("=IHHIIBxxxi", 17 + 3, 18, 0x301, 1, 0, 0, 0)[:20]
    a.sendto(get_links, (0, 0))
    await pa.got(1)
    t.log(len(pa.seen[0][0]) > 16, pa.seen[0][1])
    a.close()
    await pa.done


@pytest.fixture
def loop():
    loop = subject_loop()
    loop.errors = []
    loop.set_exception_handler(lambda loop, context: loop.errors.append(context))
    yield loop
    loop.close()


class Plain(asyncio.DatagramProtocol):
    def __init__(self):
        self.seen, self.made, self.on_datagram = [], None, lambda data: None

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.seen.append(data)
        self.on_datagram(data)


def open_plain(loop):
    return loop.run_until_complete(loop.create_datagram_endpoint(Plain, local_addr=("127.0.0.1", 0)))


def send(transport, *payloads):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for data in payloads:
            sock.sendto(data, transport.get_extra_info("sockname"))


async def until(condition):
    while not condition():
        await asyncio.sleep(0)


def test_one_wake_up_brings_several_datagrams(loop):
    transport, protocol = open_plain(loop)
    turns = []
    protocol.on_datagram = lambda data: turns.append(loop.info()["turns"])
    send(transport, *(b"%d" % i for i in range(30)))
    loop.run_until_complete(until(lambda: len(protocol.seen) == 30))
    assert protocol.seen == [b"%d" % i for i in range(30)]
    assert len(set(turns)) == 1
    transport.close()
    loop.run_until_complete(asyncio.sleep(0))


def test_a_flood_leaves_turns_to_others(loop):
    transport, protocol = open_plain(loop)
    address = transport.get_extra_info("sockname")
    protocol.on_datagram = lambda data: transport.sendto(data, address)  # for ever to itself
    send(transport, b"round", b"and", b"round")
    loop.run_until_complete(asyncio.sleep(0.02))
    assert len(protocol.seen) > 3
    transport.abort()
    loop.run_until_complete(asyncio.sleep(0))


def test_a_raising_protocol_is_reported_and_goes_on(loop):
    transport, protocol = open_plain(loop)
    protocol.on_datagram = lambda data: 1 / 0 if data == b"1" else None
    send(transport, b"0", b"1", b"2")
    loop.run_until_complete(until(lambda: len(protocol.seen) == 3))
    assert [type(context["exception"]) for context in loop.errors] == [ZeroDivisionError]
    assert loop.errors[0]["message"] == "Exception in callback UDPTransport._read_ready()"
    assert not transport.is_closing()
    transport.close()
    loop.run_until_complete(asyncio.sleep(0))


def test_an_exit_in_the_protocol_keeps_the_datagrams_behind_it(loop):
    transport, protocol = open_plain(loop)

    def leave(data):
        if data == b"1":
            raise SystemExit(3)

    protocol.on_datagram = leave
    send(transport, b"0", b"1", b"2", b"3")
    with pytest.raises(SystemExit):
        loop.run_until_complete(until(lambda: len(protocol.seen) == 4))
    assert protocol.seen == [b"0", b"1"]
    loop.run_until_complete(until(lambda: len(protocol.seen) == 4))
    assert protocol.seen == [b"0", b"1", b"2", b"3"] and not loop.errors
    transport.close()
    loop.run_until_complete(asyncio.sleep(0))


def test_sendto_after_the_end_is_dropped(loop):
    transport, protocol = open_plain(loop)
    transport.close()
    loop.run_until_complete(asyncio.sleep(0))
    assert transport.sendto(b"x", ("127.0.0.1", 9)) is None
    assert repr(transport) == "<UDPTransport closed fd=-1>"


def test_an_unclosed_endpoint_warns_and_closes_its_socket(loop):
    transport, protocol = open_plain(loop)
    fd = transport.get_extra_info("socket").fileno()
    send(transport, b"x")
    loop.run_until_complete(until(lambda: protocol.seen))
    assert repr(transport) == f"<UDPTransport fd={fd} read=polling write=<idle, bufsize=0>>"
    loop.close()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del transport, protocol
        gc.collect()
    assert f"unclosed transport <UDPTransport fd={fd}>" in [str(w.message) for w in seen]
    with pytest.raises(OSError):
        os.fstat(fd)


def test_the_type_is_asyncios(loop):
    transport, _ = open_plain(loop)
    assert isinstance(transport, asyncio.DatagramTransport) and isinstance(transport, asyncio.Transport)
    with pytest.raises(RuntimeError, match="is used by transport"):
        loop.add_reader(transport.get_extra_info("socket"), print)
    transport.user_attribute = 5
    transport.close()
    loop.run_until_complete(asyncio.sleep(0))


@pytest.mark.parametrize("seed", range(CASES))
def test_random_operations_end_alike(seed, tmp_path):
    """A peer on a Unix socket, which blocks when its queue is full, and random calls: both loops record the
    same."""
    print("seed", seed)

    async def case(t):
        rng = random.Random(seed)
        paths = [str(tmp_path / f"{seed}{name}{int(t.subject)}") for name in "ab"]
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        peer.bind(paths[1])
        peer.setblocking(False)
        connected = rng.random() < 0.5
        a, pa = await endpoint(t, local_addr=paths[0], family=socket.AF_UNIX,
                               **({"remote_addr": paths[1]} if connected else {}))
        pa.on_datagram = lambda data, addr: t.log("got", len(data), addr == paths[1], channel="a")
        for _ in range(rng.randrange(5, 60)):
            op = rng.choice(
                ("send", "send", "send", "send", "peer", "read", "pause", "resume", "limits", "turn", "end")
            )
            size = rng.choice((1, 10, 3000, 20_000))
            if op == "send" and not pa.done.done():  # asyncio raises AttributeError after connection_lost
                a.sendto(bytes([rng.randrange(256)]) * size, None if connected else paths[1])
            elif op == "peer":
                try:
                    peer.sendto(b"p" * rng.randrange(1, 9), paths[0])
                except OSError as exc:
                    t.log("peer", exc.errno)
            elif op == "read":
                try:
                    t.log("peer read", len(peer.recv(30_000)))
                except BlockingIOError:
                    t.log("peer would block")
            elif op in ("pause", "resume"):
                getattr(a, op + "_reading")()
            elif op == "limits":
                a.set_write_buffer_limits(rng.choice((0, 1000, 50_000)))
            elif op == "end" and rng.random() < 0.2:
                getattr(a, rng.choice(("close", "abort")))()
            await t.turns(3 if op == "turn" else 40)
            t.log(op, a.is_closing(), a.is_reading(),
                  None if a.is_closing() or sys.version_info[:2] == (3, 13) else a.get_write_buffer_size())
        a.abort()
        await pa.done
        peer.close()

    compare(case, False)
