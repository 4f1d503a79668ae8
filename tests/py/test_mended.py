"""What a newer Python mended in asyncio holds on treadle on every Python: the table of
docs/asyncio-compat.md, row by row.

Each case asserts the mended behaviour, on treadle, and on asyncio itself where the running Python has the
fix.
"""
import asyncio
import asyncio.subprocess as sp
import contextlib
import contextvars
import functools
import gc
import inspect
import io
import os
import signal
import socket
import ssl
import sys
import threading
import warnings
import weakref

import pytest

from test_tls import certificate, client_context, server_context  # noqa: F401
from twin import MODES, reference_loop, run_arm, subject_loop

VAR = contextvars.ContextVar("VAR", default="unset")
NEVER = (99,)  # no asyncio has it yet


def mended(since):
    """Makes a test of a case that asserts what asyncio does from this version on."""
    arms = ["treadle", "asyncio"] if sys.version_info >= since else ["treadle"]

    def make(function):
        params = list(inspect.signature(function).parameters.values())[1:]

        def test(arm, mode, **fixtures):
            factory = reference_loop if arm == "asyncio" else subject_loop
            run_arm(
                factory,
                mode == "debug",
                function,
                tuple(fixtures[p.name] for p in params),
                subject=arm == "treadle",
            )

        functools.update_wrapper(test, function)
        del test.__wrapped__
        first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("arm", "mode")]
        test.__signature__ = inspect.Signature([*first, *params])
        marks = list(getattr(function, "pytestmark", []))
        test.pytestmark = [
            *marks,
            pytest.mark.parametrize("arm", arms).mark,
            pytest.mark.parametrize("mode", MODES).mark,
        ]
        return test

    return make


def listening():
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    return listener


def canceled_after(t, task, turns):
    """Cancels the task that many callbacks of callbacks from now: before, with and behind what the poll
    finds."""
    if turns == 0:
        task.cancel()
    else:
        t.loop.call_soon(canceled_after, t, task, turns - 1)


async def ended(task):
    await asyncio.wait([task])
    return None if task.cancelled() else task.result()


# Socket operations


@pytest.mark.parametrize("turns", range(5))
@mended(NEVER)
async def test_a_canceled_accept_leaves_the_connection_to_the_next(t, turns):
    listener = listening()
    task = t.loop.create_task(t.loop.sock_accept(listener))
    await t.turns(1)
    client = socket.create_connection(listener.getsockname())
    canceled_after(t, task, turns)
    accepted = await ended(task) or await t.loop.sock_accept(listener)
    client.sendall(b"x")
    assert await t.loop.sock_recv(accepted[0], 9) == b"x"
    for sock in (listener, client, accepted[0]):
        sock.close()


def receivers(loop, sock):
    buffer = bytearray(64)

    async def into():
        return bytes(buffer[:await loop.sock_recv_into(sock, buffer)])

    async def from_into():
        return bytes(buffer[:(await loop.sock_recvfrom_into(sock, buffer))[0]])

    async def whence():
        return (await loop.sock_recvfrom(sock, 64))[0]

    return {
        "recv": lambda: loop.sock_recv(sock, 64),
        "recv_into": into,
        "recvfrom": whence,
        "recvfrom_into": from_into,
    }


@pytest.mark.parametrize("name", ["recv", "recv_into", "recvfrom", "recvfrom_into"])
@pytest.mark.parametrize("turns", range(5))
@mended(NEVER)
async def test_a_canceled_receive_leaves_the_bytes_in_the_socket(t, name, turns):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM if "from" in name else socket.SOCK_STREAM)
    for sock in (a, b):
        sock.setblocking(False)
    receive = receivers(t.loop, a)[name]

    async def wait():
        return await receive()

    task = t.loop.create_task(wait())
    await t.turns(1)
    b.send(b"kept")
    canceled_after(t, task, turns)
    got = await ended(task)
    assert (got or await receive()) == b"kept"
    a.close()
    b.close()


@mended((3, 15))
async def test_a_sendfile_of_nothing_leaves_the_file_at_its_offset(t, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"0123456789")
    a, b = socket.socketpair()
    a.setblocking(False)
    with open(path, "rb", buffering=0) as file:
        assert await t.loop.sock_sendfile(a, file, 100, None) == 0
        assert file.tell() == 100
    a.close()
    b.close()


@mended((3, 15))
async def test_a_sendfile_without_the_system_call_starts_at_its_offset_though_it_is_0(t):
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    file = io.BytesIO(b"0123456789")
    file.seek(5)
    assert await t.loop.sock_sendfile(a, file) == 10
    reader, writer = await asyncio.open_connection(sock=b)
    file.seek(7)
    assert await t.loop.sendfile(writer.transport, file) == 10
    assert a.recv(64) == b"0123456789"
    writer.close()
    await writer.wait_closed()
    a.close()


@mended((3, 14))
async def test_a_sendfile_without_the_system_call_returns_when_the_transport_takes_more(t):
    a, b = socket.socketpair()
    a.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=a)
    writer.transport.set_write_buffer_limits(high=0)
    writer.write(b"x" * 1_000_000)
    got = bytearray()

    def drain():
        while len(got) < 1_000_010:
            got.extend(b.recv(65536))

    send = t.loop.create_task(t.loop.sendfile(writer.transport, io.BytesIO(b"y" * 10)))
    await t.turns(5)
    await t.loop.run_in_executor(None, drain)
    assert await send == 10
    assert writer.transport.get_write_buffer_size() == 0
    writer.close()
    await writer.wait_closed()
    b.close()


# Connections being made


def refuse():
    raise ZeroDivisionError("in factory")


def ways_to_connect(t, listener, path, mine):
    loop, address = t.loop, listener.getsockname()
    return {
        "numeric": lambda: loop.create_connection(refuse, *address),
        "name": lambda: loop.create_connection(refuse, "localhost", address[1]),
        "race": lambda: loop.create_connection(refuse, "localhost", address[1], happy_eyeballs_delay=0.2),
        "sock": lambda: loop.create_connection(refuse, sock=mine),
        "unix": lambda: loop.create_unix_connection(refuse, path),
        "accepted": lambda: loop.connect_accepted_socket(refuse, mine),
        "tls": lambda: loop.create_connection(refuse, *address, ssl=ssl.create_default_context()),
    }


@pytest.mark.parametrize("way", ["numeric", "name", "race", "sock", "unix", "accepted", "tls"])
@mended((3, 15))
async def test_a_factory_that_raises_leaves_no_descriptor(t, way, tmp_path):
    listener = listening()
    path = str(tmp_path / "s")
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(path)
    unix.listen()
    mine = socket.create_connection(listener.getsockname())
    connect = ways_to_connect(t, listener, path, mine)[way]
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ZeroDivisionError) as kept:
        await connect()
    assert len(os.listdir("/proc/self/fd")) == before - (mine.fileno() == -1)
    assert (mine.fileno() == -1) == (way in ("sock", "accepted"))
    for sock in (listener, unix, mine):
        sock.close()
    del kept


@mended(NEVER)
async def test_a_factory_of_datagrams_that_raises_leaves_no_descriptor(t):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ZeroDivisionError) as kept:
        await t.loop.create_datagram_endpoint(refuse, local_addr=("127.0.0.1", 0))
    assert len(os.listdir("/proc/self/fd")) == before
    del kept


@mended(NEVER)
async def test_a_servers_factory_that_raises_is_told(t):
    server = await t.loop.create_server(refuse, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    client.setblocking(False)
    assert await t.loop.sock_recv(client, 10) == b""
    assert [e[:2] for e in t.channels["handler"]] == [
        ("Error on transport creation for incoming connection", ("builtins.ZeroDivisionError", "in factory"))]
    client.close()
    server.close()


def no_listener():
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    sock.close()
    return port


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
@mended((3, 14))
async def test_happy_eyeballs_connect_under_eager_tasks(t):
    t.loop.set_task_factory(asyncio.eager_task_factory)
    listener = listening()
    transport, protocol = await t.loop.create_connection(
        lambda: t.recorder("p"), "localhost", listener.getsockname()[1], happy_eyeballs_delay=0.2)
    transport.close()
    await protocol.done
    with pytest.raises(OSError):
        await t.loop.create_connection(asyncio.Protocol, "localhost", no_listener(), happy_eyeballs_delay=0.2)
    t.loop.set_task_factory(None)
    listener.close()


class Racing:
    """Replaces the loop's lookups by rows, and its connects by what a test says."""

    def __init__(self, loop, *outcomes):
        self.loop, self.outcomes, self.sockets = loop, list(outcomes), []
        self.rows = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", 1))
            for n in range(1, len(outcomes) + 1)
        ]

    async def lookup(self, *args, **kwargs):
        return self.rows

    async def connect(self, sock, address):
        self.sockets.append(sock)
        outcome = self.outcomes[int(address[0][-1]) - 1]
        if isinstance(outcome, asyncio.Event):
            await outcome.wait()
        elif outcome is not None:
            raise outcome

    def __enter__(self):
        self.loop.getaddrinfo, self.loop.sock_connect = self.lookup, self.connect

    def __exit__(self, *exc):
        del self.loop.getaddrinfo, self.loop.sock_connect


@mended((3, 11))
async def test_a_race_refuses_the_arguments_that_create_connection_refuses(t):
    for name in ["misspelled", *(["all_errors"] if sys.version_info < (3, 12) else [])]:
        with pytest.raises(
            TypeError,
            match=rf"BaseEventLoop\.create_connection\(\) got an unexpected keyword argument '{name}'",
        ):
            await t.loop.create_connection(
                asyncio.Protocol, "127.0.0.1", 1, happy_eyeballs_delay=1, **{name: True}
            )


@mended((3, 15))
async def test_happy_eyeballs_that_lose_are_closed_and_none_is_left(t):
    blocked = asyncio.Event()
    race = Racing(t.loop, blocked, OSError(1, "refused"), None)
    with race:
        with pytest.raises(OSError):  # the socket that won is connected to nothing
            await t.loop.create_connection(asyncio.Protocol, "host", 1, happy_eyeballs_delay=0.01, ssl=True,
                                           ssl_handshake_timeout=0.001)
    assert len(race.sockets) == 3 and all(sock.fileno() == -1 for sock in race.sockets)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@mended((3, 15))
async def test_a_canceled_race_closes_every_socket_and_ends_every_task(t):
    race = Racing(t.loop, asyncio.Event(), asyncio.Event())
    with race:
        task = t.loop.create_task(
            t.loop.create_connection(asyncio.Protocol, "host", 1, happy_eyeballs_delay=0.001)
        )
        while len(race.sockets) < 2:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled() and all(sock.fileno() == -1 for sock in race.sockets)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@mended((3, 15))
async def test_a_race_whose_attempts_fail_oddly_raises_a_timeout(t):
    with Racing(t.loop, ValueError("odd"), KeyError("odd")):
        with pytest.raises(TimeoutError, match="create_connection failed"):
            await t.loop.create_connection(asyncio.Protocol, "host", 1, happy_eyeballs_delay=0.01)


@mended((3, 15))
async def test_a_failed_race_raises_what_its_attempts_raised(t):
    for errors, text in (
        ((OSError(1, "one"), OSError(2, "two")), "Multiple exceptions: .Errno 1. one, .Errno 2. two"),
        ((OSError(1, "one"), OSError(1, "one")), "one"),
        ((OSError(3, "three"),), "three"),
    ):
        with Racing(t.loop, *errors):
            with pytest.raises(OSError, match=text):
                await t.loop.create_connection(asyncio.Protocol, "host", 1, happy_eyeballs_delay=0.01)


@mended((3, 15))
async def test_the_arguments_of_a_race_are_checked_first(t):
    connect = functools.partial(t.loop.create_connection, asyncio.Protocol, happy_eyeballs_delay=1)
    for kwargs in ({"server_hostname": "h"}, {"ssl_handshake_timeout": 1}, {"ssl_shutdown_timeout": 1}):
        with pytest.raises(ValueError, match=f"{[*kwargs][0]} is only meaningful with ssl"):
            await connect("localhost", 1, **kwargs)
    with pytest.raises(ValueError, match="You must set server_hostname"):
        await connect("", 1, ssl=True)
    with pytest.raises(ValueError):
        await connect("localhost", 1, sock=socket)
    with pytest.raises(TypeError):
        await connect("localhost", 1, nothing=1)


class NoCycle:
    """Nothing that a failure leaves behind needs the collector."""

    def __enter__(self):
        gc.collect()
        gc.disable()
        return self

    def watch(self, error):
        """Remembers the frames' objects that only the error's traceback keeps."""
        marker = type("Marker", (), {})()
        error.marker = marker
        return weakref.ref(marker)

    def __exit__(self, *exc):
        gc.enable()


@pytest.mark.parametrize("kwargs", [{}, {"happy_eyeballs_delay": 0.2}])
@mended((3, 15))
async def test_a_failed_connect_leaves_no_cycle(t, kwargs):
    port = no_listener()
    with NoCycle() as cycles:
        try:
            await t.loop.create_connection(asyncio.Protocol, "localhost", port, **kwargs)
        except OSError as exc:
            ref = cycles.watch(exc)
        await t.turns(3)
        assert ref() is None


@mended((3, 15))
async def test_a_close_that_fails_hides_no_other_error(t, monkeypatch):
    def close(self):
        os.close(socket.socket.detach(self))
        raise OSError("from close")

    with Racing(t.loop, ValueError("the reason")) as race:
        monkeypatch.setattr(socket.socket, "close", close)
        try:
            with pytest.raises(ValueError, match="the reason"):
                await t.loop.create_connection(asyncio.Protocol, "host", 1)
        finally:
            monkeypatch.undo()
    del race


@mended((3, 13))
async def test_an_address_that_no_interface_has_is_left_out_of_a_servers(t):
    server = await t.loop.create_server(asyncio.Protocol, ["127.0.0.1", "2001:db8::1"], 0)
    assert [s.getsockname()[0] for s in server.sockets] == ["127.0.0.1"]
    server.close()
    with pytest.raises(OSError, match="could not bind on any address"):
        await t.loop.create_server(asyncio.Protocol, "2001:db8::1", 0)


@mended((3, 13))
async def test_an_endpoint_of_a_socket_of_another_kind(t):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    got = t.loop.create_future()

    class Protocol(asyncio.DatagramProtocol):
        def datagram_received(self, data, address):
            got.set_result(data)

    transport, protocol = await t.loop.create_datagram_endpoint(Protocol, sock=a)
    b.send(b"message")
    assert await got == b"message"
    transport.close()
    await t.turns(3)
    b.close()
    stream, other = socket.socketpair()
    with pytest.raises(ValueError):
        await t.loop.create_datagram_endpoint(Protocol, sock=stream)
    stream.close()
    other.close()


# Contexts


class Contextual(asyncio.Protocol):
    def __init__(self, seen):
        self.seen = seen
        seen.append(("factory", VAR.get()))
        VAR.set("factory")

    def connection_made(self, transport):
        self.transport = transport
        self.seen.append(("made", VAR.get()))
        VAR.set("made")

    def data_received(self, data):
        self.seen.append(("data", VAR.get()))
        self.transport.close()

    def connection_lost(self, exc):
        self.seen.append(("lost", VAR.get()))


@mended((3, 15))
async def test_each_connection_of_a_server_has_its_own_copy_of_the_servers_context(t):
    seen = []
    VAR.set("server")
    server = await t.loop.create_server(lambda: Contextual(seen), "127.0.0.1", 0)
    VAR.set("later")
    for _ in range(2):
        client = socket.create_connection(server.sockets[0].getsockname())
        client.sendall(b"x")
        client.setblocking(False)
        assert await t.loop.sock_recv(client, 10) == b""
        client.close()
        await t.turns(3)
    once = [("factory", "server"), ("made", "factory"), ("data", "made"), ("lost", "made")]
    assert seen == [*once, *once]
    server.close()


@pytest.mark.parametrize("way", ["numeric", "name", "unix", "accepted"])
@mended((3, 15))
async def test_a_connections_callbacks_run_in_a_copy_from_before_the_factory(t, way, tmp_path):
    seen = []
    VAR.set("caller")
    if way == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "s"))
        listener.listen()
    else:
        listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    make = functools.partial(Contextual, seen)
    mine = None
    if way == "numeric":
        await t.loop.create_connection(make, *address)
    elif way == "name":
        await t.loop.create_connection(make, "localhost", address[1])
    elif way == "unix":
        await t.loop.create_unix_connection(make, address)
    else:
        mine = socket.create_connection(address)
        await t.loop.connect_accepted_socket(make, mine)
    peer = listener.accept()[0]
    peer.sendall(b"x")
    peer.setblocking(False)
    assert await t.loop.sock_recv(peer, 10) == b""
    await t.turns(3)
    assert seen == [("factory", "caller"), ("made", "caller"), ("data", "made"), ("lost", "made")]
    assert VAR.get() == "factory"
    peer.close()
    listener.close()


# Servers and transports


@mended((3, 15))
async def test_a_backlog_of_none_accepts(t):
    server = await t.loop.create_server(lambda: t.recorder("p"), "127.0.0.1", 0, backlog=0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.close()
    await writer.wait_closed()
    await t.turns(5)
    assert t.channels["p"][0] == ("made",)
    server.close()


async def connected(t, protocol):
    """A transport and the blocking socket at its other end."""
    a, b = socket.socketpair()
    transport, _ = await t.loop.create_connection(lambda: protocol, sock=a)
    return transport, b


async def drained(t, sock):
    """Reads what comes until the end."""
    got = bytearray()
    sock.setblocking(False)
    while data := await t.loop.sock_recv(sock, 65536):
        got += data
    return bytes(got)


@mended((3, 15))
async def test_writelines_whose_last_piece_is_empty_are_written(t):
    protocol = t.recorder("p")
    transport, peer = await connected(t, protocol)
    transport.writelines([b"x" * 1_000_000, b"", b"y", b""])
    transport.writelines([b""])
    transport.close()
    assert await drained(t, peer) == b"x" * 1_000_000 + b"y"
    await protocol.done
    peer.close()


@mended((3, 15))
async def test_a_resume_writing_that_closes_loses_the_connection_once(t):
    protocol = t.recorder("p")
    transport, peer = await connected(t, protocol)
    protocol.resume_writing = transport.close
    transport.write(b"x" * 1_000_000)
    assert len(await drained(t, peer)) == 1_000_000
    await t.turns(5)
    assert t.channels["p"].count(("lost", None)) == 1
    peer.close()


@mended((3, 15))
async def test_writelines_to_a_lost_connection_are_dropped(t):
    protocol = t.recorder("p")
    transport, peer = await connected(t, protocol)
    peer.close()
    for _ in range(10):
        transport.writelines([b"x", b"y"])
    transport.abort()
    transport.writelines([b"x"])
    await protocol.done
    transport.writelines([b"x"])


@mended((3, 14))
async def test_writelines_pause_the_protocol_at_the_high_water_mark(t):
    protocol = t.recorder("p")
    transport, peer = await connected(t, protocol)
    transport.writelines([b"x" * 100_000] * 30)
    assert ("pause",) in t.channels["p"]
    transport.abort()
    await protocol.done
    peer.close()


@mended((3, 14))
def test_a_run_inside_a_run_leaves_the_outer_one_alone(t):
    inner = t.new_loop()

    async def main():
        with pytest.raises(RuntimeError, match="Cannot run the event loop while another loop is running"):
            inner.run_forever()
        assert asyncio.get_running_loop() is t.loop
        await asyncio.sleep(0)

    t.run(main())


async def shut_down(t):
    """Lets the thread that nobody waits for any more say its last word."""
    for thread in threading.enumerate():
        if "_do_shutdown" in thread.name:
            thread.join()
    await t.turns(3)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the timeout is new in Python 3.12")
@mended((3, 13))
async def test_the_end_of_the_executor_is_waited_for_no_longer_than_asked(t):
    go, begun = threading.Event(), threading.Event()

    def job():
        begun.set()
        go.wait(60)

    future = t.loop.run_in_executor(None, job)
    begun.wait()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        await t.loop.shutdown_default_executor(0.01)
    assert [w.category for w in told] == [RuntimeWarning]
    go.set()
    await future
    await shut_down(t)


@mended((3, 13))
async def test_a_canceled_end_of_the_executor_blocks_nothing_and_fails_nothing(t):
    go, begun = threading.Event(), threading.Event()

    def job():
        begun.set()
        go.wait(60)

    future = t.loop.run_in_executor(None, job)
    begun.wait()
    task = t.loop.create_task(t.loop.shutdown_default_executor())
    await t.turns(2)
    task.cancel()
    await asyncio.wait([task])
    assert not go.is_set()
    go.set()
    await future
    await shut_down(t)
    assert "handler" not in t.channels


# TLS


@mended((3, 15))
async def test_start_tls_gives_the_reader_the_new_transport(t, certificate):
    got = t.loop.create_future()

    async def serve(reader, writer):
        await writer.start_tls(server_context(certificate))
        got.set_result(reader._transport is writer.transport)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await writer.start_tls(client_context(certificate), server_hostname="localhost")
    assert reader._transport is writer.transport
    assert await got
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    server.close()
    await asyncio.sleep(0.01)


class Blocking:
    """A TLS server on a blocking socket in a thread."""

    def __init__(self, certificate, then):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.context, self.then = server_context(certificate), then
        self.release = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        sock = self.listener.accept()[0]
        try:
            with self.context.wrap_socket(sock, server_side=True) as tls:
                self.then(self, tls)
        except OSError:
            sock.close()

    def close(self):
        self.release.set()
        self.thread.join()
        self.listener.close()


@mended((3, 15, 2))
async def test_the_shutdown_timeout_ends_a_connection_whose_peer_ended_and_does_not_read(t, certificate):
    def end(self, tls):
        tls.recv(1)
        self.listener.shutdown(socket.SHUT_RDWR)
        socket.socket.shutdown(tls, socket.SHUT_WR)
        self.release.wait(60)

    peer = Blocking(certificate, end)
    protocol = t.recorder("p")
    transport, _ = await t.loop.create_connection(
        lambda: protocol, *peer.address, ssl=client_context(certificate), server_hostname="localhost",
        ssl_shutdown_timeout=0.05)
    transport.write(b"x" * 20_000_000)
    await protocol.done
    assert [e for e in t.channels["p"] if e[0] == "lost"] == [
        ("lost", ("builtins.TimeoutError", "SSL shutdown timed out"))]
    await t.loop.run_in_executor(None, peer.close)


@pytest.mark.parametrize("way", ["create_connection", "start_tls"])
@mended((3, 15))
async def test_a_failed_handshake_leaves_no_cycle(t, certificate, way):
    peer = Blocking(certificate, lambda self, tls: None)
    context = client_context(certificate, trust=False)
    if way == "start_tls":
        transport, protocol = await t.loop.create_connection(asyncio.Protocol, *peer.address)
        connect = functools.partial(
            t.loop.start_tls, transport, protocol, context, server_hostname="localhost"
        )
    else:
        connect = functools.partial(t.loop.create_connection, asyncio.Protocol, *peer.address, ssl=context,
                                    server_hostname="localhost")
    with NoCycle() as cycles:
        try:
            await connect()
        except ssl.SSLError as exc:
            ref = cycles.watch(exc)
        await t.turns(5)
        assert ref() is None
    await t.loop.run_in_executor(None, peer.close)


@mended((3, 15))
async def test_a_context_that_checks_names_wants_one(t, certificate):
    context = client_context(certificate)
    a, b = socket.socketpair()
    with pytest.raises(ValueError, match="check_hostname requires server_hostname"):
        await t.loop.create_connection(asyncio.Protocol, sock=a, ssl=context, server_hostname="")
    c, d = socket.socketpair()
    transport, protocol = await t.loop.create_connection(asyncio.Protocol, sock=c)
    with pytest.raises(ValueError, match="check_hostname requires server_hostname"):
        await t.loop.start_tls(transport, protocol, context)
    transport.abort()
    await t.turns(3)
    for sock in (a, b, d):
        sock.close()


@mended((3, 14))
async def test_a_tls_transport_closes_with_the_one_below(t, certificate):
    peer = Blocking(certificate, lambda self, tls: tls.recv(1))
    protocol = t.recorder("p")
    transport, _ = await t.loop.create_connection(
        lambda: protocol, *peer.address, ssl=client_context(certificate), server_hostname="localhost")
    transport._ssl_protocol._transport.abort()
    assert transport.is_closing()
    await protocol.done
    transport.abort()
    await t.loop.run_in_executor(None, peer.close)


@mended((3, 14))
async def test_a_tls_transport_is_ended_with_the_error_of_the_one_above(t, certificate):
    peer = Blocking(certificate, lambda self, tls: tls.recv(1))
    protocol = t.recorder("p")
    transport, _ = await t.loop.create_connection(
        lambda: protocol, *peer.address, ssl=client_context(certificate), server_hostname="localhost")
    transport._force_close(OSError("from above"))
    await protocol.done
    assert ("lost", ("builtins.OSError", "from above")) in t.channels["p"]
    await t.loop.run_in_executor(None, peer.close)


# Subprocesses


@mended((3, 15))
async def test_wait_returns_at_exit_though_a_grandchild_holds_a_pipe(t):
    process = await asyncio.create_subprocess_exec("sh", "-c", "sleep 100 & echo $!", stdout=sp.PIPE)
    grandchild = int(await process.stdout.readline())
    try:
        assert await process.wait() == 0
    finally:
        os.kill(grandchild, signal.SIGKILL)
    assert await process.stdout.read() == b""


@pytest.mark.parametrize("turns", range(8))
@mended((3, 15))
async def test_a_canceled_start_of_a_process_ends_and_leaves_nothing(t, turns):
    task = t.loop.create_task(
        asyncio.create_subprocess_exec("sleep", "100", stdin=sp.PIPE, stdout=sp.PIPE, stderr=sp.PIPE)
    )
    await t.turns(turns)
    others = asyncio.all_tasks() - {task, asyncio.current_task()}
    for other in others:  # as a runner's end does
        other.cancel()
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result().kill()
        await task.result().wait()
    while asyncio.all_tasks() != {asyncio.current_task()}:
        await asyncio.sleep(0)
    await t.turns(5)
    assert not [e for e in t.channels.get("handler", []) if "InvalidState" in str(e)]


@mended(NEVER)  # it leaves the pidfd
def test_a_process_closed_behind_its_loop_is_silent(t):
    loop = t.new_loop()

    async def start():
        return await asyncio.create_subprocess_exec("cat", stdin=sp.PIPE, stdout=sp.PIPE)

    process = loop.run_until_complete(start())
    transport = process._transport
    loop.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transport.close()
        os.waitpid(process.pid, 0)
        del process, transport
        gc.collect()


@mended((3, 14))
async def test_a_signal_takes_no_exit_status(t):
    process = await asyncio.create_subprocess_exec("sleep", "100")
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    process.send_signal(signal.SIGTERM)
    assert process._transport._proc.returncode is None
    assert await process.wait() == -9


@mended((3, 13))
async def test_a_process_that_may_not_be_killed_is_closed(t):
    process = await asyncio.create_subprocess_exec("sleep", "100")
    popen = process._transport._proc

    def kill():
        raise PermissionError(1, "not yours")

    popen.kill = kill
    process._transport.close()
    del popen.kill
    os.kill(process.pid, signal.SIGKILL)
    assert await process.wait() == -9


def test_a_signal_behind_the_exit_reaches_nobody(loop, monkeypatch):
    """Once the loop took the exit status, the number may be another process's, though the transport is told a
    turn later."""
    waitpid, signals, asked = os.waitpid, [], []

    async def main():
        process = await asyncio.create_subprocess_exec("cat", stdin=sp.PIPE)

        def taken(pid, options):
            found = waitpid(pid, options)
            if pid == process.pid and found[0] == pid:
                loop.call_soon(send)
            return found

        def send():
            asked.append(True)
            with contextlib.suppress(ProcessLookupError):
                process.kill()

        monkeypatch.setattr(os, "waitpid", taken)
        monkeypatch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))
        process.stdin.close()  # its end
        return await process.wait()

    assert loop.run_until_complete(main()) == 0
    assert asked and signals == []


def test_a_thread_that_waits_for_a_child_leaves_its_status_to_the_loop(loop, monkeypatch):
    """Or a signal to the number could reach another process that got it meanwhile."""
    def no_descriptor(pid, flags=0):
        raise OSError(24, "no descriptor left")

    monkeypatch.setattr(os, "pidfd_open", no_descriptor)

    async def main():
        process = await asyncio.create_subprocess_exec("true")
        for thread in threading.enumerate():
            if thread.name == f"treadle-waitpid-{process.pid}":
                thread.join()
        if process.returncode is None:
            assert os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT).si_pid == process.pid
            process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0

    loop.run_until_complete(main())
