"""TCP and Unix stream transports, against asyncio: callbacks in order, flow control, close, abort, errors."""
import asyncio
import contextvars
import gc
import os
import socket

import pytest

from sockets import reset, tcp_pair
from twin import LOOP_MODULE, norm, run_arm, subject_loop, twin

VAR = contextvars.ContextVar("VAR", default="unset")


@pytest.fixture(params=["tcp", "unix"])
def family(request):
    return request.param


async def connected(t, family="tcp", server=None, client=None):
    """A connected pair of transports on the case's loop, with the two protocols."""
    made = t.loop.create_future()

    def factory():
        protocol = (server or (lambda: t.recorder("server")))()
        made.set_result(protocol)
        return protocol

    client = client or (lambda: t.recorder("client"))
    if family == "tcp":
        srv = await t.loop.create_server(factory, "127.0.0.1", 0)
        transport, protocol = await t.loop.create_connection(client, *srv.sockets[0].getsockname())
        peer = await made
        srv.close()
    else:
        a, b = socket.socketpair()
        peer = factory()
        await t.loop.create_connection(lambda: peer, sock=b)
        transport, protocol = await t.loop.create_connection(client, sock=a)
    await t.turns(3)
    return transport, protocol, peer.transport, peer


async def raw(t, family="tcp"):
    """A transport on the case's loop and the plain socket at its other end."""
    if family == "tcp":
        listener = socket.create_server(("127.0.0.1", 0))
        transport, protocol = await t.loop.create_connection(lambda: t.recorder("p"), *listener.getsockname())
        peer, _ = listener.accept()
        listener.close()
    else:
        a, peer = socket.socketpair()
        transport, protocol = await t.loop.create_connection(lambda: t.recorder("p"), sock=a)
    peer.setblocking(False)
    await t.turns(2)
    return transport, protocol, peer


@twin
async def test_echo_and_close(t, family):
    transport, protocol, peer_transport, peer = await connected(t, family)
    peer.on_data = peer_transport.write
    transport.write(b"hello")
    await protocol.got(5)
    transport.close()
    t.log(transport.is_closing())
    await protocol.done
    await peer.done


@twin
async def test_much_data_arrives_whole(t, family):
    transport, protocol, peer_transport, peer = await connected(t, family)
    data = os.urandom(3_000_000)
    transport.write(data)
    transport.close()
    await peer.done
    t.log(bytes(peer.received) == data)
    t.channels["server"] = [e if e[0] != "data" else ("data", len(e[1])) for e in t.channels["server"]]


@twin
async def test_every_kind_of_buffer_can_be_written(t, family):
    transport, protocol, peer_transport, peer = await connected(t, family)
    import array
    for data in (b"bytes", bytearray(b"bytearray"), memoryview(b"view"), memoryview(b"x-y-z")[::1], b"",
                 memoryview(array.array("I", [1, 2, 3])) if t.debug is None else memoryview(b"q")):
        transport.write(data)
    for bad in ("text", None, 5, [b"x"]):
        t.call(transport.write, bad)
    transport.writelines([b"a", bytearray(b"b"), memoryview(b"c"), b""])
    transport.writelines([])
    transport.writelines(x for x in (b"g", b"h"))
    transport.close()
    await peer.done


def own(case, *args):
    """Runs a case on treadle alone, where asyncio of some Pythons is known to be wrong; returns its
    channels."""
    if LOOP_MODULE == "asyncio":
        pytest.skip("asyncio is wrong here in some Pythons")
    return run_arm(subject_loop, False, case, args)[0]


def test_a_bytearray_may_change_after_write(family):
    """asyncio 3.12 and later keep a view of it, so the peer gets what was written over."""
    async def case(t, family):
        transport, protocol, peer_transport, peer = await connected(t, family)
        data = bytearray(b"a" * 4_000_000)
        transport.write(data)
        data[:] = b"b" * len(data)
        transport.close()
        await peer.done
        t.log(set(peer.received) == {ord("a")}, len(peer.received))

    assert own(case, family)["main"] == [(True, 4_000_000)]


def test_writelines_on_a_closed_transport_is_dropped():
    """asyncio 3.12 and 3.13.0 raise TypeError (gh-136234)."""
    async def case(t):
        transport, protocol, peer = await raw(t, "unix")
        transport.close()
        await protocol.done
        t.call(transport.writelines, [b"late"])
        t.log(transport.get_write_buffer_size())
        peer.close()

    assert own(case)["main"] == [("returned", None), (0,)]


@twin
async def test_half_close_and_answer(t, family):
    transport, protocol, peer_transport, peer = await connected(t, family)
    peer.eof_result = True
    t.log(transport.can_write_eof())
    transport.write(b"request")
    transport.write_eof()
    await peer.got(7)
    await t.turns(4)
    t.log(peer_transport.is_closing(), transport.is_closing())
    peer_transport.write(b"response")
    await protocol.got(8)
    peer_transport.close()
    await protocol.done
    await peer.done


@twin
async def test_eof_without_true_closes_the_transport(t, family):
    transport, protocol, peer_transport, peer = await connected(t, family)
    transport.write_eof()
    await peer.done
    await protocol.done


@twin
async def test_writes_after_write_eof_are_refused(t, family):
    transport, protocol, peer_transport, peer = await connected(t, family)
    peer.eof_result = True
    transport.write_eof()
    transport.write_eof()
    t.call(transport.write, b"x")
    t.call(transport.write, b"")
    t.call(transport.writelines, [b"x"])
    transport.abort()
    await protocol.done
    peer_transport.close()
    await peer.done


@twin
async def test_write_eof_waits_for_the_buffer(t, family):
    transport, protocol, peer_transport, peer = await connected(t, family)
    peer.eof_result = True
    transport.write(b"x" * 2_000_000)
    transport.write_eof()
    await peer.got(2_000_000)
    await t.turns(10)
    t.log(len(peer.received))
    t.channels["server"] = [e if e[0] != "data" else ("data", len(e[1])) for e in t.channels["server"]]
    transport.close()
    peer_transport.close()
    await protocol.done
    await peer.done


@twin
async def test_abort_drops_the_buffer_and_tells_the_protocol(t, family):
    transport, protocol, peer = await raw(t, family)
    transport.write(b"x" * 8_000_000)
    t.log(transport.get_write_buffer_size() > 0)
    transport.abort()
    t.log(transport.get_write_buffer_size(), transport.is_closing())
    await protocol.done
    transport.abort()
    transport.close()
    peer.close()


@twin
async def test_close_flushes_first(t, family):
    transport, protocol, peer = await raw(t, family)
    transport.write(b"x" * 4_000_000)
    transport.close()
    await t.turns(5)
    t.log("lost" in [e[0] for e in t.channels["p"]])
    got = 0
    while data := await t.loop.sock_recv(peer, 1 << 20):
        got += len(data)
    t.log(got)
    await protocol.done
    peer.close()


@twin
async def test_close_twice_and_calls_on_a_closed_transport(t, family):
    transport, protocol, peer = await raw(t, family)
    transport.close()
    transport.close()
    transport.pause_reading()
    transport.resume_reading()
    t.call(transport.write, b"dropped")
    await protocol.done
    for call in (transport.pause_reading, transport.resume_reading, transport.close, transport.abort):
        t.call(call)
    for _ in range(8):
        t.call(transport.write, b"late")
    t.log(transport.is_closing(), transport.get_write_buffer_size(), transport.is_reading())
    t.log(transport.get_extra_info("nothing", "default"))
    peer.close()


@twin
async def test_pause_and_resume_reading(t, family):
    transport, protocol, peer = await raw(t, family)
    t.log(transport.is_reading())
    transport.pause_reading()
    transport.pause_reading()
    t.log(transport.is_reading())
    peer.send(b"held")
    await t.turns(6)
    t.log(bytes(protocol.received))
    transport.resume_reading()
    transport.resume_reading()
    t.log(transport.is_reading())
    await protocol.got(4)
    transport.close()
    t.log(transport.is_reading())
    await protocol.done
    peer.close()


@twin
async def test_pausing_in_data_received_stops_the_next_chunk(t, family):
    transport, protocol, peer = await raw(t, family)
    protocol.on_data = lambda data: transport.pause_reading()
    peer.send(b"first")
    await protocol.got(5)
    peer.send(b"second")
    await t.turns(6)
    t.log(bytes(protocol.received))
    protocol.on_data = None
    transport.resume_reading()
    await protocol.got(11)
    transport.close()
    await protocol.done
    peer.close()


@twin
async def test_water_marks_pause_and_resume_the_writer(t, family):
    transport, protocol, peer = await raw(t, family)
    t.log(transport.get_write_buffer_limits())
    transport.set_write_buffer_limits(high=1000, low=100)
    t.log(transport.get_write_buffer_limits())
    transport.write(b"x" * 8_000_000)
    t.log("written")
    await t.turns(3)
    got = 0
    while got < 8_000_000:
        got += len(await t.loop.sock_recv(peer, 1 << 20))
    while transport.get_write_buffer_size():
        await t.turns(1)
    await t.turns(3)
    t.log(transport.get_write_buffer_size())
    transport.close()
    await protocol.done
    peer.close()


@twin
async def test_limits_are_checked_as_by_asyncio(t):
    transport, protocol, peer = await raw(t, "unix")
    for kwargs in ({"high": 10}, {"low": 10}, {"high": 0}, {"high": 5, "low": 10}, {"low": -1, "high": 4}, {},
                   {"high": 1 << 20, "low": 0}, {"high": -1}):
        t.call(transport.set_write_buffer_limits, **kwargs)
        t.log(transport.get_write_buffer_limits())
    transport.close()
    await protocol.done
    peer.close()


@twin
async def test_lowering_the_limit_below_the_buffer_pauses(t):
    transport, protocol, peer = await raw(t, "unix")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    transport.set_write_buffer_limits(high=1 << 30)
    transport.write(b"x" * 4_000_000)
    await t.turns(2)
    t.log("not paused")
    transport.set_write_buffer_limits(high=10)
    t.log("limits set")
    transport.write(b"y")
    transport.abort()
    await protocol.done
    peer.close()


@twin
async def test_abort_inside_pause_writing_gets_no_resume(t, family):
    transport, protocol, peer = await raw(t, family)
    protocol.pause_writing = lambda: (protocol.log("pause"), transport.abort())
    transport.write(b"x" * 8_000_000)
    await protocol.done
    peer.close()


@twin
async def test_pause_writing_that_raises_is_reported(t):
    transport, protocol, peer = await raw(t, "unix")

    def fail():
        raise ValueError("in pause_writing")

    protocol.pause_writing = fail
    protocol.resume_writing = fail
    transport.write(b"x" * 4_000_000)
    got = 0
    while got < 4_000_000:
        got += len(await t.loop.sock_recv(peer, 1 << 20))
    await t.turns(5)
    transport.close()
    await protocol.done
    peer.close()


def test_close_inside_resume_writing_is_one_connection_lost():
    """asyncio calls connection_lost twice here (gh-156512); once is right."""
    async def case(t):
        transport, protocol, peer = await raw(t, "unix")
        protocol.resume_writing = lambda: (protocol.log("resume"), transport.close())
        transport.write(b"x" * 4_000_000)
        got = 0
        while got < 4_000_000:
            got += len(await t.loop.sock_recv(peer, 1 << 20))
        await protocol.done
        await t.turns(5)
        peer.close()

    assert own(case) == {"p": [("made",), ("pause",), ("resume",), ("lost", None)]}


@twin
async def test_data_received_that_raises_closes_the_transport(t, family):
    transport, protocol, peer = await raw(t, family)

    def fail(data):
        raise ZeroDivisionError("in data_received")

    protocol.on_data = fail
    peer.send(b"x")
    await protocol.done
    peer.close()


@twin
async def test_eof_received_that_raises_closes_the_transport(t, family):
    transport, protocol, peer = await raw(t, family)

    def fail():
        raise ZeroDivisionError("in eof_received")

    protocol.eof_received = fail
    peer.close()
    await protocol.done


@twin
def test_an_exit_in_eof_received_leaves_the_end_to_be_told_again(t, family):
    class Leaves(asyncio.Protocol):
        def eof_received(self):
            t.log("eof")
            ends.append(None)
            if len(ends) == 1:
                raise SystemExit(3)

        def connection_lost(self, exc):
            t.log("lost", exc)
            t.loop.stop()

    ends = []
    ours, peer = socket.socketpair() if family == "unix" else tcp_pair()
    t.run(t.loop.create_connection(Leaves, sock=ours))
    peer.shutdown(socket.SHUT_WR)
    t.call(t.loop.run_forever)
    t.call(t.loop.run_forever)
    peer.close()


@twin
async def test_who_reads_on_behind_the_end_is_told_of_it_again(t, family):
    transport, protocol, peer = await raw(t, family)
    protocol.eof_result = True
    peer.shutdown(socket.SHUT_WR)
    for _ in range(3):
        transport.resume_reading()
        await t.turns(5)
        transport.pause_reading()
        await t.turns(5)
    transport.close()
    await protocol.done
    peer.close()


@twin
async def test_what_get_buffer_closed_is_read_once_more(t):
    class Closes(asyncio.BufferedProtocol):
        def __init__(self, how):
            self.how, self.done = how, t.loop.create_future()

        def get_buffer(self, hint):
            getattr(transport, self.how)()
            return bytearray(10)

        def buffer_updated(self, count):
            t.log("updated", count)

        def eof_received(self):
            t.log("eof")
            return True

        def connection_lost(self, exc):
            t.log("lost", exc)
            self.done.set_result(None)

    for how in ("close", "abort"):
        for sent in (b"x", b""):
            ours, peer = socket.socketpair()
            transport, protocol = await t.loop.create_connection(lambda: Closes(how), sock=ours)
            peer.send(sent)
            peer.close()
            await protocol.done


@twin
async def test_a_factory_that_makes_no_protocol_hears_of_no_loss(t):
    class LosesOnly:
        def connection_lost(self, exc):
            t.log("must not run")

    for made in (None, 5, LosesOnly()):
        ours, peer = socket.socketpair()
        listener = socket.create_server(("127.0.0.1", 0))
        for attempt in (lambda: t.loop.create_connection(lambda: made, sock=ours),
                        lambda: t.loop.create_connection(lambda: made, *listener.getsockname()),
                        lambda: t.loop.create_datagram_endpoint(lambda: made, local_addr=("127.0.0.1", 0))):
            await t.acall(attempt())
            gc.collect()  # what asyncio left behind has the number still
        await t.turns(3)
        for sock in (ours, peer, listener):
            sock.close()


@twin
async def test_connection_made_that_raises_is_reported(t):
    class Bad(asyncio.Protocol):
        def connection_made(self, transport):
            transports.append(transport)
            raise ZeroDivisionError("in connection_made")

    transports = []
    a, b = socket.socketpair()
    await t.acall(t.loop.create_connection(Bad, sock=a))
    await t.turns(5)
    for transport in transports:
        transport.close()
    await t.turns(3)
    b.close()


@twin
async def test_connection_lost_that_raises_is_reported(t, family):
    transport, protocol, peer = await raw(t, family)

    def fail(exc):
        raise ZeroDivisionError("in connection_lost")

    protocol.connection_lost = fail
    transport.close()
    await t.turns(5)
    peer.close()
    t.channels["handler"] = [(e[0].split("(")[0], e[1]) for e in t.channels["handler"]]


@twin
async def test_a_factory_that_raises_leaves_nothing(t):
    def fail():
        raise ZeroDivisionError("in factory")

    listener = socket.create_server(("127.0.0.1", 0))
    await t.acall(t.loop.create_connection(fail, *listener.getsockname()))
    listener.close()


@twin
async def test_a_reset_by_the_peer_is_told_with_its_error(t):
    transport, protocol, peer = await raw(t, "tcp")
    reset(peer)
    await protocol.done


@twin
async def test_a_reset_with_data_queued_drops_the_data(t):
    transport, protocol, peer = await raw(t, "tcp")

    chunk = memoryview(b"x" * 8_000_000)
    t.watch(chunk)
    transport.write(chunk)
    del chunk
    reset(peer)
    await protocol.done
    gc.collect()
    t.log(transport.get_write_buffer_size())


@twin
async def test_writes_to_a_closed_peer_end_in_connection_lost(t, family):
    transport, protocol, peer = await raw(t, family)
    transport.pause_reading()
    peer.close()
    for _ in range(50):
        if protocol.done.done():
            break
        transport.write(b"x" * 1000)
        await asyncio.sleep(0.001)
    await protocol.done
    if "lost" in t.channels["p"][-1]:
        t.channels["p"][-1] = ("lost", t.channels["p"][-1][1][0] if t.channels["p"][-1][1] else None)


@twin
async def test_extra_info(t, family):
    transport, protocol, peer_transport, peer = await connected(t, family)
    sock = transport.get_extra_info("socket")
    t.log(type(sock).__name__, isinstance(sock, asyncio.trsock.TransportSocket))
    t.log(transport.get_extra_info("sockname") == sock.getsockname(),
          transport.get_extra_info("peername") == sock.getpeername(),
          peer_transport.get_extra_info("peername") == sock.getsockname())
    for name in (
        "sslcontext",
        "cipher",
        "ssl_object",
        "peercert",
        "compression",
        "pipe",
        "subprocess",
        "addr",
    ):
        t.log(name, transport.get_extra_info(name))
    if family == "tcp":
        t.log(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
              peer_transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    t.log(sock.fileno() >= 0, sock.family.name, sock.type.name, sock.gettimeout())
    sock.shutdown(socket.SHUT_WR)
    await peer.done
    transport.close()
    await protocol.done
    t.log(sock.fileno())


@twin
async def test_transports_are_asyncios(t, family):
    transport, protocol, peer_transport, peer = await connected(t, family)
    for cls in (asyncio.Transport, asyncio.ReadTransport, asyncio.WriteTransport, asyncio.BaseTransport):
        t.log(isinstance(transport, cls), isinstance(peer_transport, cls))
    for name in dir(asyncio.Transport):
        if not name.startswith("_"):
            t.log(name, callable(getattr(transport, name)))
    transport.attribute = 3
    t.log(transport.attribute)
    t.log("closing" in repr(transport), "read=polling" in repr(transport), "write=<idle" in repr(transport))
    transport.close()
    t.log("closing" in repr(transport))
    await protocol.done
    await peer.done
    t.log("closed" in repr(transport))


@twin
async def test_set_protocol(t, family):
    transport, protocol, peer = await raw(t, family)
    other = t.recorder("other")
    t.log(transport.get_protocol() is protocol)
    transport.set_protocol(other)
    t.log(transport.get_protocol() is other)
    peer.send(b"to the other")
    await other.got(12)
    transport.close()
    await other.done
    t.log(protocol.done.done())
    peer.close()


@twin
async def test_set_protocol_inside_data_received(t, family):
    transport, protocol, peer = await raw(t, family)
    other = t.buffered("other")
    protocol.on_data = lambda data: transport.set_protocol(other)
    peer.send(b"first")
    await protocol.got(5)
    peer.send(b"second")
    while len(other.received) < 6:
        await t.turns(1)
    transport.close()
    await other.done
    peer.close()


@twin
async def test_buffered_protocols(t, family):
    transport, protocol, peer_transport, peer = await connected(
        t, family, server=lambda: t.buffered("server")
    )
    data = bytes(range(256)) * 20
    transport.write(data)
    transport.write_eof()
    await peer.done
    await protocol.done
    t.log(bytes(peer.received) == data)


@twin
async def test_wrong_buffers_of_a_buffered_protocol(t):
    class Bad(asyncio.BufferedProtocol):
        def __init__(self, value):
            self.value = value
            self.done = t.loop.create_future()

        def get_buffer(self, hint):
            if isinstance(self.value, Exception):
                raise self.value
            return self.value

        def buffer_updated(self, n):
            raise ZeroDivisionError("in buffer_updated")

        def connection_lost(self, exc):
            t.log("lost", exc)
            self.done.set_result(None)

    for value in (b"", bytearray(), b"read only", None, "text", ValueError("in get_buffer"), bytearray(10)):
        a, b = socket.socketpair()
        transport, protocol = await t.loop.create_connection(lambda: Bad(value), sock=a)
        b.send(b"x")
        await protocol.done
        b.close()


@twin
async def test_contexts_of_protocol_callbacks(t):
    class Show(asyncio.Protocol):
        def connection_made(self, transport):
            t.log("made", VAR.get())

        def data_received(self, data):
            t.log("data", VAR.get())

        def eof_received(self):
            t.log("eof", VAR.get())

        def connection_lost(self, exc):
            t.log("lost", VAR.get())
            done.set_result(None)

    done = t.loop.create_future()
    VAR.set("creator")
    a, b = socket.socketpair()
    await t.loop.create_connection(Show, sock=a)
    VAR.set("later")
    b.send(b"x")
    await t.turns(4)
    b.close()
    await done
    VAR.set("unset")


class Contexts(asyncio.Protocol):
    """Logs the variable that each callback finds, and the values that a factory or connection_made() has
    set."""

    def __init__(self, log, made=None):
        self.log, self.made = log, made
        self.log("factory", VAR.get())
        VAR.set("factory's")

    def connection_made(self, transport):
        self.transport = transport
        self.log("made", VAR.get())
        if self.made is not None:
            VAR.set(self.made)

    def data_received(self, data):
        self.log("data", VAR.get())
        self.transport.close()

    def connection_lost(self, exc):
        self.log("lost", VAR.get())


async def ask_twice(loop, factory):
    VAR.set("server's")
    server = await loop.create_server(factory, "127.0.0.1", 0)
    VAR.set("after")
    for _ in range(2):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x")
        await reader.read()
        writer.close()
        await writer.wait_closed()
    server.close()
    VAR.set("unset")


@twin
async def test_what_a_factory_sets_in_its_context_is_its_connections_own(t):
    await ask_twice(t.loop, lambda: Contexts(t.log))


@pytest.mark.skipif(
    LOOP_MODULE != "treadle", reason="asyncio's connections have one context from Python 3.15 on"
)
def test_the_callbacks_of_a_connection_share_a_context_as_on_python_3_15(loop):
    seen = []
    loop.run_until_complete(
        ask_twice(loop, lambda: Contexts(lambda *event: seen.append(event), made="connection's"))
    )
    assert seen == 2 * [
        ("factory", "server's"),
        ("made", "factory's"),
        ("data", "connection's"),
        ("lost", "connection's"),
    ]


@twin
async def test_create_connection_arguments_are_checked_as_by_asyncio(t):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    sock = socket.socket()
    dgram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    p = asyncio.Protocol
    cases = [{}, {"host": "127.0.0.1", "port": port, "sock": sock}, {"sock": dgram},
             {"host": "127.0.0.1", "port": port, "server_hostname": "x"},
             {"host": "127.0.0.1", "port": port, "ssl_handshake_timeout": 1},
             {"host": "127.0.0.1", "port": port, "ssl_shutdown_timeout": 1},
             {"host": "127.0.0.1", "port": port, "local_addr": ("203.0.113.1", 0)},
             {"host": "127.0.0.1", "port": port, "family": socket.AF_INET6},
             {"host": None, "port": None, "local_addr": None},
             {"port": port, "ssl": True}, {"host": "127.0.0.1", "port": port, "bogus": 1}]
    for kwargs in cases:
        await t.acall(_start(t.loop.create_connection, p, **kwargs))
    for kwargs in ({}, {"path": "/x", "sock": sock}, {"sock": sock}, {"path": "/nonexistent/x"},
                   {"path": "/x", "server_hostname": "x"}, {"path": "/x", "ssl_handshake_timeout": 1}):
        await t.acall(_start(t.loop.create_unix_connection, p, **kwargs))
    for s in (listener, sock, dgram):
        s.close()


async def _start(function, *args, **kwargs):
    return await function(*args, **kwargs)


@twin
async def test_connection_refused(t):
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    try:
        await t.loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
    except OSError as exc:
        t.log(type(exc).__name__, exc.errno, str(exc).replace(str(port), "PORT"))
    try:
        await t.loop.create_connection(
            asyncio.Protocol, "localhost", port, happy_eyeballs_delay=0.01, interleave=1
        )
    except OSError as exc:
        t.log(type(exc).__name__)


@twin
async def test_happy_eyeballs_and_local_addr(t):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    for kwargs in (
        {"happy_eyeballs_delay": 0.05},
        {"interleave": 1},
        {"happy_eyeballs_delay": 0.05, "interleave": 2},
        {"local_addr": ("127.0.0.1", 0)},
        {"local_addr": ("127.0.0.2", 0)},
        {"family": socket.AF_INET},
        {"flags": socket.AI_PASSIVE},
    ):
        transport, protocol = await t.loop.create_connection(
            lambda: t.recorder("p"), "127.0.0.1", port, **kwargs
        )
        t.log(transport.get_extra_info("sockname")[0])
        transport.close()
        await protocol.done
        listener.accept()[0].close()
    listener.close()


@pytest.mark.skipif("all_errors" not in asyncio.base_events.BaseEventLoop.create_connection.__kwdefaults__,
                    reason="all_errors is new in Python 3.12")
@twin
async def test_all_errors(t):
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    try:
        await t.loop.create_connection(asyncio.Protocol, "127.0.0.1", port, all_errors=True)
    except* OSError as group:
        t.log([type(e).__name__ for e in group.exceptions])


@twin
async def test_a_canceled_connect_leaves_no_socket_and_no_number(t):
    listener = socket.create_server(("127.0.0.1", 0))
    for at in range(6):
        task = t.loop.create_task(t.loop.create_connection(asyncio.Protocol, *listener.getsockname()))
        await t.turns(at)
        if task.done():
            break
        task.cancel()
        await asyncio.wait([task])
        t.log("canceled" if task.cancelled() else "done")
        if not task.cancelled():
            task.result()[0].abort()
    if task.done() and not task.cancelled():
        task.result()[0].abort()
    await t.turns(3)
    t.channels["main"] = ["at each await"]
    listener.close()


@twin
async def test_a_canceled_connection_of_a_given_socket_closes_it_as_asyncio_does(t):
    for at in range(4):
        a, b = socket.socketpair()
        task = t.loop.create_task(t.loop.create_connection(lambda: t.recorder(f"p{at}"), sock=a))
        await t.turns(at)
        task.cancel()
        await asyncio.wait([task])
        await t.turns(3)
        t.log(at, task.cancelled(), a.fileno() == -1)
        if not task.cancelled():
            task.result()[0].close()
            await t.turns(3)
        t.log(at, a.fileno() == -1)
        a.close()
        b.close()


@twin
async def test_connect_accepted_socket(t):
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    conn, _ = listener.accept()
    transport, protocol = await t.loop.connect_accepted_socket(lambda: t.recorder("p"), conn)
    client.send(b"hi")
    await protocol.got(2)
    transport.close()
    await protocol.done
    dgram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    await t.acall(_start(t.loop.connect_accepted_socket, asyncio.Protocol, dgram))
    await t.acall(_start(t.loop.connect_accepted_socket, asyncio.Protocol, client, ssl_handshake_timeout=1))
    for s in (listener, client, dgram):
        s.close()


@twin
async def test_a_protocol_that_keeps_its_transport_is_collected(t, family):
    class Keeper(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport
            self.again = self

        def connection_lost(self, exc):
            lost.append(1)

    lost = []
    transport, protocol, peer = await _keeper(t, family, Keeper)
    t.watch(protocol)
    transport.write(b"x")
    transport.close()
    while not lost:
        await t.turns(1)
    peer.close()
    del transport, protocol
    gc.collect()
    t.log([ref() is None for _, ref in t.watched])


async def _keeper(t, family, cls):
    a, peer = socket.socketpair()
    transport, protocol = await t.loop.create_connection(cls, sock=a)
    return transport, protocol, peer


@twin
async def test_an_unclosed_transport_warns_and_frees_its_socket(t):
    import warnings
    a, b = socket.socketpair()
    transport, protocol = await t.loop.create_connection(asyncio.Protocol, sock=a)
    await t.turns(2)
    transport.pause_reading()
    del protocol, a
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del transport
        gc.collect()
        await t.turns(2)
    t.log([norm(str(w.message)) for w in seen if "transport" in str(w.message)])
    b.setblocking(False)
    try:
        t.log(b.recv(10))
    except OSError as exc:
        t.log(exc)
    b.close()


@twin
async def test_streams_read_write_and_close(t, family):
    transport, protocol, peer = await raw(t, family)
    transport.abort()
    await protocol.done
    peer.close()

    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"one\ntwo\n")
    await writer.drain()
    t.log(await reader.readline(), await reader.readexactly(4))
    writer.write_eof()
    t.log(await reader.read())
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


@twin
async def test_stream_drain_waits_for_a_slow_reader(t):
    transport, protocol, peer = await raw(t, "unix")
    transport.abort()
    await protocol.done
    a, b = socket.socketpair()
    peer.close()
    b.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=a)
    writer.write(b"x" * 4_000_000)
    drain = t.loop.create_task(writer.drain())
    await t.turns(5)
    t.log(drain.done())
    got = 0
    while got < 4_000_000:
        got += len(await t.loop.sock_recv(b, 1 << 20))
    await drain
    writer.close()
    await writer.wait_closed()
    b.close()


@twin
async def test_connection_made_runs_before_data_and_close_callbacks_in_order(t):
    a, b = socket.socketpair()
    b.send(b"early")
    b.close()
    transport, protocol = await t.loop.create_connection(lambda: t.recorder("p"), sock=a)
    await protocol.done


@twin
async def test_write_in_connection_made_and_in_connection_lost(t):
    class P(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport
            transport.write(b"greeting")

        def connection_lost(self, exc):
            t.call(self.transport.write, b"late")
            done.set_result(None)

    done = t.loop.create_future()
    a, b = socket.socketpair()
    transport, _ = await t.loop.create_connection(P, sock=a)
    await t.turns(3)
    t.log(b.recv(100))
    transport.close()
    await done
    b.close()


@twin
async def test_writelines_of_many_pieces_under_backpressure(t, family):
    transport, protocol, peer = await raw(t, family)
    pieces = [bytes([i % 256]) * (i % 700) for i in range(3000)]
    transport.writelines(pieces)
    transport.writelines(pieces)
    transport.close()
    got = bytearray()
    while data := await t.loop.sock_recv(peer, 1 << 18):
        got += data
    t.log(bytes(got) == b"".join(pieces) * 2)
    await protocol.done
    peer.close()
    t.channels["p"] = [e for e in t.channels["p"] if e[0] not in ("pause", "resume")]
