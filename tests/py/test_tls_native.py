"""TLS records in C: sizes, ends, errors and refusals against asyncio, openssl's own client and server, and a
fuzz of the record stream (TREADLE_TEST_TLS_FUZZ sets the number of its cases, TREADLE_TEST_TLS_SEED the first
seed)."""
import asyncio
import os
import random
import socket
import ssl
import subprocess
import threading

import pytest

from test_tls import certificate, client_context, server_context, started
from twin import subject_loop, twin

__all__ = ["certificate"]

FUZZ_CASES = int(os.environ.get("TREADLE_TEST_TLS_FUZZ", "300"))
FUZZ_SEED = int(os.environ.get("TREADLE_TEST_TLS_SEED", "1"))
FUZZ_AT_ONCE = 50
FUZZ_TIMEOUTS = {"ssl_handshake_timeout": 1, "ssl_shutdown_timeout": 0.3}


async def pair(
    t,
    certificate,
    server_protocol=None,
    client_protocol=None,
    server_side_context=None,
    client=None,
    **kwargs,
):
    """A TLS connection over a socket pair: (client transport, client protocol, server transport, server
    protocol)."""
    a, b = socket.socketpair()
    accepting = t.loop.create_task(t.loop.connect_accepted_socket(
        server_protocol or (lambda: t.recorder("server")), a,
        ssl=server_side_context or server_context(certificate), **kwargs))
    ct, cp = await t.loop.create_connection(
        client_protocol or (lambda: t.recorder("client")),
        sock=b,
        ssl=client or client_context(certificate),
        server_hostname="localhost",
        **kwargs,
    )
    st, sp = await accepting
    return ct, cp, st, sp


@twin
async def test_sizes_around_a_record(t, certificate):
    ct, cp, st, sp = await pair(t, certificate)
    total = 0
    for size in (1, 2, 16383, 16384, 16385, 32768, 100_000, 262_144, 262_145, 700_001):
        data = os.urandom(size)
        ct.write(data)
        total += size
        await sp.got(total)
        t.log(size, bytes(sp.received[-size:]) == data)
    t.channels["server"] = [(e[0], len(e[1])) if e[0] == "data" else e for e in t.channels["server"]]
    ct.close()
    await cp.done
    await sp.done


@twin
async def test_what_write_takes_and_refuses(t, certificate):
    ct, cp, st, sp = await pair(t, certificate)
    array = bytearray(b"array")
    ct.write(array)
    array[:] = b"XXXXX"
    ct.write(memoryview(b"__view__")[2:6])
    ct.write(b"")
    ct.writelines([b"one", bytearray(b"two"), memoryview(b"three")])
    ct.writelines([])
    for bad in ("text", None, 5, [b"x"]):
        t.call(ct.write, bad)
    t.log(ct.can_write_eof(), ct.get_write_buffer_size(), ct.get_write_buffer_limits())
    t.call(ct.write_eof)
    await sp.got(20)
    t.log(bytes(sp.received))
    ct.close()
    for _ in range(7):
        t.call(ct.write, b"late")
    await cp.done
    await sp.done
    t.call(ct.write, b"later")
    t.log(ct.is_closing())


@twin
async def test_writes_before_the_handshake_is_over(t, certificate):
    class Early(asyncio.Protocol):
        def connection_made(self, transport):
            transport.write(b"early")
            transport.writelines([b" bird", b"!"])

    ct, cp, st, sp = await pair(t, certificate, client_protocol=Early)
    await sp.got(11)
    t.log(bytes(sp.received))
    ct.abort()
    await sp.done


@twin
async def test_flow_control_of_both_directions(t, certificate):
    ct, cp, st, sp = await pair(t, certificate)
    st.pause_reading()
    t.log(st.is_reading(), ct.is_reading())
    ct.set_write_buffer_limits(high=1000, low=10)
    t.log(ct.get_write_buffer_limits())
    data = os.urandom(5 << 20)
    ct.write(data)
    await t.turns(50)
    t.log(t.channels["client"][-1], len(sp.received))
    st.resume_reading()
    await sp.got(len(data))
    await t.turns(20)
    t.log(bytes(sp.received) == data, t.channels["client"][-1], ct.get_write_buffer_size())
    t.call(ct.set_write_buffer_limits, high=1, low=2)
    t.call(ct.set_write_buffer_limits, high=float("inf"))
    t.call(st.set_read_buffer_limits, 100, 10)
    t.log(st.get_read_buffer_limits(), st.get_read_buffer_size())
    t.channels["server"] = [(e[0],) for e in t.channels["server"]]
    ct.close()
    await cp.done
    await sp.done


@twin
async def test_small_buffers_of_a_buffered_protocol(t, certificate):
    def make():
        protocol = t.buffered("server", 100)
        # Into a slice of a bytearray, which is a copy, asyncio loses data.
        protocol.buffer = memoryview(protocol.buffer)
        return protocol

    ct, cp, st, sp = await pair(t, certificate, server_protocol=make)
    data = os.urandom(50_000)
    ct.write(data)
    while len(sp.received) < len(data):
        await t.turns(1)
    t.log(bytes(sp.received) == data)
    st.set_protocol(t.recorder("other"))
    ct.write(b"for the other")
    other = st.get_protocol()
    await other.got(13)
    ct.close()
    await cp.done
    await other.done
    t.channels["server"] = [e for e in t.channels["server"] if e[0] not in ("get_buffer", "data")]


@twin
async def test_what_callbacks_raise(t, certificate):
    for name in ("data_received", "eof_received", "pause_writing", "connection_made", "connection_lost"):
        ct, cp, st, sp = await pair(t, certificate)

        def fail(*args, name=name):
            raise ZeroDivisionError(name)

        setattr(cp, name, fail)
        if name == "data_received":
            st.write(b"x")
        elif name == "eof_received":
            st.close()
        elif name == "pause_writing":
            ct.set_write_buffer_limits(0)
            ct.write(b"y")
        await t.turns(20)
        t.log(name, ct.is_closing())
        ct.abort()
        st.abort()
        await sp.done
        await t.turns(5)


@twin
async def test_abort_and_close_on_either_side(t, certificate):
    for end in ("abort", "close"):
        for who in (0, 2):
            sides = await pair(t, certificate)
            sides[who].write(b"last words")
            getattr(sides[who], end)()
            getattr(sides[who], end)()
            await sides[1].done
            await sides[3].done
            t.log(end, who, sides[0].is_closing(), sides[2].is_closing())
    t.channels = {"main": t.channels["main"]}


@twin
async def test_data_and_close_notify_and_fin_while_paused(t, certificate):
    ct, cp, st, sp = await pair(t, certificate)
    ct.pause_reading()
    st.write(b"data that must not be lost")
    st.close()
    await asyncio.sleep(0.02)
    t.log(bytes(cp.received))
    ct.resume_reading()
    await cp.done
    await sp.done


@twin
async def test_close_of_a_peer_that_never_answers(t, certificate):
    listener = socket.create_server(("127.0.0.1", 0))
    context = server_context(certificate)
    ready, over = threading.Event(), threading.Event()

    def serve():
        sock, _ = listener.accept()
        with context.wrap_socket(sock, server_side=True):
            ready.set()
            over.wait(10)

    thread = threading.Thread(target=serve)
    thread.start()
    transport, protocol = await t.loop.create_connection(
        lambda: t.recorder("client"), "localhost", listener.getsockname()[1], family=socket.AF_INET,
        ssl=client_context(certificate), ssl_shutdown_timeout=0.05)
    transport.close()
    await protocol.done
    over.set()
    thread.join()
    listener.close()


@twin
async def test_client_certificates(t, certificate):
    context = server_context(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate[0])
    with_cert = client_context(certificate)
    with_cert.load_cert_chain(*certificate)
    ct, cp, st, sp = await pair(t, certificate, server_side_context=context, client=with_cert)
    t.log(st.get_extra_info("peercert")["subject"], ct.get_extra_info("peercert")["subject"])
    t.log(st.get_extra_info("ssl_object").server_side, st.get_extra_info("nothing", 5))
    ct.close()
    await cp.done
    await sp.done


@twin
async def test_a_failed_handshake_of_a_server(t, certificate):
    made = []
    server = await t.loop.create_server(lambda: made.append(1) or t.recorder("server"), "127.0.0.1", 0,
                                        ssl=server_context(certificate))
    for greeting in (b"GET / HTTP/1.0\r\n\r\n", b"", b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(greeting)
        writer.write_eof()
        t.log(len(await reader.read()) >= 0)
        writer.close()
        await writer.wait_closed()
    await asyncio.sleep(0.02)
    t.log(len(made), t.channels.get("server"))
    server.close()
    await server.wait_closed()
    t.channels["handler"] = [(e[0], e[1] and e[1][0], e[2]) for e in t.channels.get("handler", [])]


@twin
async def test_records_behind_a_line_that_a_stream_reader_took(t, certificate):
    if not t.subject:  # asyncio learned it in 3.14
        t.log(b"PROXY x\r\n", b"SECRET\n")
        return

    async def serve(reader, writer):
        line = await reader.readline()
        await writer.start_tls(server_context(certificate))
        t.log(line, (await reader.readline()).upper())
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    sock = socket.create_connection(server.sockets[0].getsockname())
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    obj = client_context(certificate).wrap_bio(incoming, outgoing, server_hostname="localhost")
    sock.setblocking(False)
    prefix = b"PROXY x\r\n"
    while True:
        try:
            obj.do_handshake()
            break
        except ssl.SSLWantReadError:
            await t.loop.sock_sendall(sock, prefix + outgoing.read())
            prefix = b""
            incoming.write(await t.loop.sock_recv(sock, 65536))
    obj.write(b"secret\n")
    await t.loop.sock_sendall(sock, outgoing.read())
    try:
        while await t.loop.sock_recv(sock, 65536):
            pass
    except ConnectionResetError:
        pass
    sock.close()
    server.close()
    await server.wait_closed()


@twin
async def test_tls_inside_tls(t, certificate):
    ct, cp, st, sp = await pair(
        t, certificate, server_protocol=asyncio.Protocol, client_protocol=asyncio.Protocol
    )
    inner = [t.recorder("inner server"), t.recorder("inner client")]
    upgrade = t.loop.create_task(
        t.loop.start_tls(st, inner[0], server_context(certificate), server_side=True)
    )
    client = await t.loop.start_tls(ct, inner[1], client_context(certificate), server_hostname="localhost")
    server = await upgrade
    data = os.urandom(200_000)
    server.write(data)
    await inner[1].got(len(data))
    t.log(bytes(inner[1].received) == data)
    client.close()
    await inner[0].done
    await inner[1].done
    t.channels = {"main": t.channels["main"]}


@twin
async def test_calls_of_get_buffer_at_the_peers_end(t, certificate):
    class Calls(asyncio.BufferedProtocol):
        def __init__(self):
            self.names, self.done = [], t.loop.create_future()

        def get_buffer(self, hint):
            while self.names:
                getattr(ct, self.names.pop(0))()
            return bytearray(100)

        def eof_received(self):
            t.log("eof")

        def connection_lost(self, exc):
            t.log("lost", exc)
            self.done.set_result(None)

    for names in ([], ["close"], ["abort"], ["pause_reading", "close"], ["close", "close"]):
        ct, cp, st, sp = await pair(t, certificate, client_protocol=Calls)
        await t.turns(5)  # what the handshake left to read
        cp.names += names
        st.abort()
        await cp.done
        await sp.done


@twin
async def test_refusals_of_start_tls(t, certificate):
    ct, cp, st, sp = await pair(t, certificate)
    await t.acall(started(t.loop.start_tls, ct, cp, None))
    await t.acall(started(t.loop.start_tls, object(), cp, ssl.create_default_context()))
    for transport in (ct, st):
        transport.close()
    await cp.done
    await sp.done
    t.channels["main"] = [(e[0], e[1][0] if e[0] == "raised" else e[1]) for e in t.channels["main"]]


@twin
async def test_tls_1_2(t, certificate):
    context = client_context(certificate)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    ct, cp, st, sp = await pair(t, certificate, client=context)
    t.log(ct.get_extra_info("ssl_object").version())
    for data in (b"a", b"b" * 70_000):
        ct.write(data)
        st.write(data)
    await sp.got(70_001)
    await cp.got(70_001)
    t.log(bytes(sp.received) == bytes(cp.received))
    ct.close()
    await cp.done
    await sp.done


def test_cancel_start_tls_anywhere(certificate):
    """Nothing stays behind, at whichever turn the cancellation comes."""
    loop = subject_loop()

    async def main():
        for at in range(int(os.environ.get("TREADLE_TEST_TLS_CANCEL", "60"))):
            a, b = socket.socketpair()
            ta, _ = await loop.create_connection(asyncio.Protocol, sock=a)
            tb, _ = await loop.create_connection(asyncio.Protocol, sock=b)
            tasks = [
                loop.create_task(
                    loop.start_tls(ta, asyncio.Protocol(), server_context(certificate), server_side=True)
                ),
                loop.create_task(
                    loop.start_tls(
                        tb, asyncio.Protocol(), client_context(certificate), server_hostname="localhost"
                    )
                ),
            ]
            for _ in range(at % 15):
                await asyncio.sleep(0)
            tasks[at % 2].cancel()
            await asyncio.wait([tasks[at % 2]])
            (ta, tb)[at % 2].abort()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for transport in (ta, tb, *(r for r in results if isinstance(r, asyncio.Transport))):
                transport.abort()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert a.fileno() == -1 and b.fileno() == -1
        assert asyncio.all_tasks() == {asyncio.current_task()}

    before = len(os.listdir("/proc/self/fd"))
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_loops_of_two_threads_at_once(certificate):
    """ssl gives the GIL away inside a read: each loop has its own memory for records."""
    failures = []

    def run(seed):
        loop = subject_loop()

        class T:
            pass

        async def main():
            t = T()
            t.loop = loop
            rng = random.Random(seed)
            ct, cp, st, sp = await pair(t, certificate, server_protocol=Echo, client_protocol=Collect)
            for _ in range(60):
                data = rng.randbytes(rng.randrange(1, 60_000))
                cp.expect(len(data))
                ct.write(data)
                if await cp.full != data:
                    failures.append(seed)
            ct.close()
            await asyncio.sleep(0)

        try:
            loop.run_until_complete(asyncio.wait_for(main(), 60))
        except BaseException as exc:
            failures.append(exc)
        finally:
            loop.close()

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


class Collect(asyncio.Protocol):
    def expect(self, size):
        self.size, self.data, self.full = size, b"", asyncio.get_running_loop().create_future()

    def data_received(self, data):
        self.data += data
        if len(self.data) >= self.size:
            self.full.set_result(self.data)


def test_calls_after_two_closes_do_nothing(certificate):
    loop = subject_loop()

    class T:
        pass

    async def main():
        t = T()
        t.loop = loop
        ct, cp, st, sp = await pair(t, certificate, server_protocol=Echo, client_protocol=Collect)
        ct.close()
        ct.close()
        ct.write(b"x")
        ct.writelines([b"x"])
        ct.pause_reading()
        ct.resume_reading()
        assert not ct.is_reading() and ct.get_extra_info("socket", 5) == 5 and ct.get_write_buffer_size() == 0
        ct.abort()
        st.abort()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert ct.is_closing() and st.is_closing()

    loop.run_until_complete(main())
    loop.close()


def test_close_after_the_peers_end_came_while_paused(certificate):
    loop = subject_loop()

    class T:
        pass

    async def main():
        t = T()
        t.loop = loop
        ct, cp, st, sp = await pair(
            t, certificate, server_protocol=Echo, client_protocol=lambda: Side(loop, False)
        )
        ct.pause_reading()
        st.write(b"never read")
        st._ssl_protocol._transport.close()
        while ct._ssl_protocol._state.name != "FLUSHING":
            await asyncio.sleep(0)
        ct.close()
        await cp.lost

    loop.run_until_complete(asyncio.wait_for(main(), 5))
    loop.close()


def test_no_connection_keeps_a_read_buffer(certificate):
    loop = subject_loop()

    class T:
        pass

    async def main():
        t = T()
        t.loop = loop
        ct, cp, st, sp = await pair(t, certificate, server_protocol=Echo, client_protocol=Collect)
        assert len(ct._ssl_protocol._ssl_buffer) <= 1
        ct.abort()
        st.abort()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    loop.close()


def echo_over(loop, port, certificate, sizes):
    async def main():
        reader, writer = await asyncio.open_connection("localhost", port, family=socket.AF_INET,
                                                       ssl=client_context(certificate))
        for size in sizes:
            data = os.urandom(size // 2).hex().encode() + b"\n"
            writer.write(data)
            if await reader.readexactly(len(data)) != data[-2::-1] + b"\n":
                return False
        writer.close()
        await writer.wait_closed()
        return True

    return loop.run_until_complete(asyncio.wait_for(main(), 30))


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_echo_with_openssls_server(certificate):
    """s_server -rev answers each line with the line reversed."""
    port = free_port()
    with subprocess.Popen(
        [
            "openssl",
            "s_server",
            "-accept",
            f"127.0.0.1:{port}",
            "-cert",
            certificate[0],
            "-key",
            certificate[1],
            "-rev",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as server:
        for line in server.stdout:
            if line.startswith(b"ACCEPT"):
                break
        loop = subject_loop()
        try:
            assert echo_over(loop, port, certificate, [64] * 50 + [8000])
        finally:
            loop.close()
            server.kill()


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_echo_of_a_mebibyte_with_openssls_client(certificate, version):
    loop = subject_loop()

    async def main():
        server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=server_context(certificate))
        process = await asyncio.create_subprocess_exec(
            "openssl",
            "s_client",
            "-quiet",
            version,
            "-connect",
            "127.0.0.1:%d" % server.sockets[0].getsockname()[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        data = os.urandom(1 << 19).hex().encode()

        async def send():
            for at in range(0, len(data), 65536):
                process.stdin.write(data[at:at + 65536])
                await process.stdin.drain()

        task = loop.create_task(send())
        got = await process.stdout.readexactly(len(data))
        await task
        process.kill()
        await process.wait()
        server.close()
        return got == data

    try:
        assert loop.run_until_complete(asyncio.wait_for(main(), 60))
    finally:
        loop.close()


# The fuzz: a man in the middle changes the stream of records.

class Side(asyncio.Protocol):
    """Keeps what it got; tells when it is over."""

    def __init__(self, loop, echo):
        self.echo, self.received, self.lost = echo, bytearray(), loop.create_future()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data
        if self.echo:
            self.transport.write(data)

    def connection_lost(self, exc):
        self.lost.set_result(None)


def mangle(rng, data):
    """The same bytes with one fault, or another: bits, lengths, types, order, pieces."""
    data = bytearray(data)
    kind = rng.choice(("flip", "cut", "insert", "double", "zero", "type", "length", "swap", "random"))
    at = rng.randrange(len(data))
    if kind == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[at:at + rng.randrange(1, 50)]
    elif kind == "insert":
        data[at:at] = rng.randbytes(rng.randrange(1, 50))
    elif kind == "double":
        data += data
    elif kind == "zero":
        data[at:at + 8] = bytes(len(data[at:at + 8]))
    elif kind == "type":
        data[0] = rng.choice((0, 20, 21, 22, 23, 24, 255))
    elif kind == "length" and len(data) > 5:
        data[3:5] = rng.choice((b"\0\0", b"\0\1", b"\x40\0", b"\x48\0", b"\xff\xff"))
    elif kind == "swap":
        data = data[at:] + data[:at]
    elif kind == "random":
        data = bytearray(rng.randbytes(rng.randrange(1, 600)))
    return bytes(data)


async def pump(loop, rng, source, target, fault_at):
    """Carry bytes in pieces; from the fault on, change some."""
    carried = 0
    try:
        while data := await loop.sock_recv(source, rng.choice((10, 100, 1000, 65536))):
            if carried + len(data) > fault_at and rng.random() < 0.7:
                data = mangle(rng, data)
                if rng.random() < 0.1:
                    break
            carried += len(data)
            if data:
                await loop.sock_sendall(target, data)
    except OSError:
        pass
    finally:
        hang_up(source, target)


def hang_up(*socks):
    for sock in socks:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


async def connect_over(awaitable):
    try:
        return await awaitable
    except (OSError, ssl.SSLError):
        return None, None


async def fuzz_case(loop, seed, contexts):
    rng = random.Random(seed)
    a, mid_a = socket.socketpair()
    mid_b, b = socket.socketpair()
    for sock in (mid_a, mid_b):
        sock.setblocking(False)
    fault_at = [rng.choice((0, 100, 500, 1500, 3000, 20_000, 1 << 30)) for _ in range(2)]
    pumps = [loop.create_task(pump(loop, rng, mid_a, mid_b, fault_at[0])),
             loop.create_task(pump(loop, rng, mid_b, mid_a, fault_at[1]))]
    sides = [Side(loop, False), Side(loop, True)]
    (ct, _), (st, _) = await asyncio.gather(
        connect_over(
            loop.create_connection(
                lambda: sides[0], sock=a, ssl=contexts[0], server_hostname="localhost", **FUZZ_TIMEOUTS
            )
        ),
        connect_over(loop.connect_accepted_socket(lambda: sides[1], b, ssl=contexts[1], **FUZZ_TIMEOUTS)),
    )
    sent = bytearray()
    if ct is not None:
        for _ in range(rng.randrange(1, 6)):
            data = rng.randbytes(rng.choice((1, 64, 5000, 40_000)))
            sent += data
            ct.write(data)
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
            if rng.random() < 0.1:
                ct.pause_reading()
                loop.call_soon(ct.resume_reading)
        if rng.random() < 0.8:
            ct.close()
    if rng.random() < 0.3:
        pumps[rng.randrange(2)].cancel()
    if ct is None or not ct.is_closing():
        hang_up(mid_a, mid_b)
    await asyncio.wait(
        [*pumps, *(side.lost for side, transport in zip(sides, (ct, st)) if transport is not None)]
    )
    for sock in (mid_a, mid_b):
        sock.close()
    for transport in (ct, st):
        if transport is not None:
            assert transport.is_closing()
    assert bytes(sent).startswith(bytes(sides[1].received)), f"seed {seed}: the server read what was not sent"
    assert bytes(sent).startswith(bytes(sides[0].received)), f"seed {seed}: the client read what was not sent"
    await asyncio.gather(*pumps, return_exceptions=True)


@pytest.mark.parametrize("block", range(max(1, FUZZ_CASES // 100)))
def test_fuzz_of_the_record_stream(certificate, block):
    """The process lives, no future stays pending, and no byte arrives that was not sent."""
    first = FUZZ_SEED + block * 100
    count = min(100, FUZZ_CASES)
    print("seeds", first, "to", first + count - 1)
    loop = subject_loop()
    contexts = client_context(certificate), server_context(certificate)
    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context))

    async def main():
        for at in range(first, first + count, FUZZ_AT_ONCE):
            running = {loop.create_task(fuzz_case(loop, seed, contexts)): seed
                       for seed in range(at, min(at + FUZZ_AT_ONCE, first + count))}
            done, pending = await asyncio.wait(running, timeout=60)
            assert not pending, f"pending: seeds {sorted(running[task] for task in pending)}"
            for task in done:
                task.result()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    before = len(os.listdir("/proc/self/fd"))
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert len(os.listdir("/proc/self/fd")) <= before
    assert not [r for r in reports if not isinstance(r.get("exception"), (ssl.SSLError, OSError))], reports
