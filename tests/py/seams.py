"""What agents and tests replace: every public method that asyncio's own path calls, and scenarios that call
them.

A seam is a function that a program can put another in the place of: a method of asyncio's loop, handles,
transports or servers, of socket.socket or of a thread pool. The list is made from the classes themselves, so
that a new Python's new methods are on it.
"""
import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading

from asyncio import base_events, events, transports

from sockets import tcp_pair
from twin import norm

SOCKET_CALLS = (
    "accept",
    "bind",
    "close",
    "connect",
    "connect_ex",
    "detach",
    "getpeername",
    "getsockname",
    "getsockopt",
    "listen",
    "recv",
    "recv_into",
    "recvfrom",
    "recvfrom_into",
    "send",
    "sendall",
    "sendmsg",
    "sendto",
    "setblocking",
    "setsockopt",
    "shutdown",
)
POOL_CALLS = ("submit", "shutdown", "_adjust_thread_count")
# asyncio's loop wakes itself through a pair of sockets.
OF_SELF_PIPE = {((b"\0",), ()), ((4096,), ())}
TLS_RECORDS = {b"\x14\x03": "cipher", b"\x15\x03": "alert", b"\x16\x03": "handshake", b"\x17\x03": "data"}
# How often these are called says how the loop is built, not what the program does with it.
COUNTLESS = {"_run", "time", "get_debug", "is_closed", "is_running", "getsockopt", "cancelled"}


def _public(cls, *more):
    return [name for name, value in vars(cls).items()
            if (not name.startswith("_") or name in more) and inspect.isfunction(value)]


def targets():
    """Every (class, name) that may be replaced."""
    found = [
        (cls, name)
        for cls in asyncio.SelectorEventLoop.__mro__[:-1]
        if cls.__module__ != "asyncio.events"
        for name in _public(cls)
    ]
    found += [(cls, name) for cls in (events.Handle, events.TimerHandle) for name in _public(cls, "_run")]
    found += [
        (cls, name)
        for cls in (
            transports.BaseTransport,
            transports.ReadTransport,
            transports.WriteTransport,
            transports.Transport,
            transports.DatagramTransport,
        )
        for name in _public(cls)
    ]
    found += [(base_events.Server, name) for name in _public(base_events.Server)]
    found += [(socket.socket, name) for name in SOCKET_CALLS]
    found += [(concurrent.futures.ThreadPoolExecutor, name) for name in POOL_CALLS]
    return found


def label(cls, name):
    return f"{cls.__name__}.{name}"


def _kind(value):
    """What is the same in two runs of one call: a function's name, else a type and what is plain."""
    if type(value) is int and value != 4096:  # what the self-pipe is asked for
        return "int"
    if isinstance(value, bytes) and value[:2] in TLS_RECORDS:
        return _records(value)
    if isinstance(value, functools.partial):  # from Python 3.14 on a routine too, but without a name
        return "partial", _kind(value.func)
    if inspect.isroutine(value):
        return value.__qualname__
    if isinstance(value, (bool, int, str, bytes, type(None))) and not (
        isinstance(value, str) and os.path.isabs(value)
    ):
        return norm(value)
    return norm(type(value).__name__)


def _records(data):
    """Which TLS records these are: what they hold is new in each run."""
    found = []
    while data:
        found.append(TLS_RECORDS[data[:2]])
        data = data[5 + int.from_bytes(data[3:5], "big"):]
    return tuple(found)


def recorder(original, seen):
    """A function that notes each call and goes on."""
    if inspect.iscoroutinefunction(original):
        @functools.wraps(original)
        async def replaced(self, *args, **kwargs):
            seen.append((tuple(map(_kind, args)), tuple(sorted(kwargs))))
            return await original(self, *args, **kwargs)
    else:
        @functools.wraps(original)
        def replaced(self, *args, **kwargs):
            seen.append((tuple(map(_kind, args)), tuple(sorted(kwargs))))
            return original(self, *args, **kwargs)
    return replaced


@contextlib.contextmanager
def replaced(cls, name, seen):
    """The method replaced by a recorder for a while."""
    own = name in vars(cls)
    original = getattr(cls, name)
    setattr(cls, name, recorder(original, seen))
    try:
        yield
    finally:
        if own:
            setattr(cls, name, original)
        else:
            delattr(cls, name)


class Echo(asyncio.Protocol):
    def __init__(self):
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

    def connection_lost(self, exc):
        if not self.lost.done():
            self.lost.set_result(None)


async def _talk(reader, writer):
    writer.writelines([b"he", b"llo"])
    await reader.readexactly(5)
    writer.get_extra_info("peername")
    writer.transport.pause_reading()
    writer.transport.resume_reading()
    writer.close()
    await writer.wait_closed()


async def _served(loop, server, *address, **kwargs):
    made = []

    def factory():
        made.append(Echo())
        return made[-1]

    server = await server(factory, *address)
    reader, writer = await (asyncio.open_unix_connection(address[0]) if len(address) == 1
                            else asyncio.open_connection(*server.sockets[0].getsockname()[:2], **kwargs))
    await _talk(reader, writer)
    await made[0].lost
    server.close()
    await server.wait_closed()


async def tcp(loop):
    await _served(loop, loop.create_server, "127.0.0.1", 0)


async def tcp_by_name(loop):
    await _served(loop, loop.create_server, "127.0.0.1", 0, family=socket.AF_INET)


async def unix(loop):
    with tempfile.TemporaryDirectory() as folder:
        await _served(loop, loop.create_unix_server, os.path.join(folder, "s"))


async def own_socket(loop):
    listener = socket.create_server(("127.0.0.1", 0))
    sock = socket.create_connection(listener.getsockname())
    peer, _ = listener.accept()
    reader, writer = await asyncio.open_connection(sock=sock)
    peer.sendall(b"hello")
    await _talk(reader, writer)
    peer.close()
    listener.close()


@functools.cache
def contexts():
    """TLS contexts of a server and of a client that trusts it."""
    with tempfile.TemporaryDirectory() as folder:
        key, cert = os.path.join(folder, "key.pem"), os.path.join(folder, "cert.pem")
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "3650",
                "-keyout",
                key,
                "-out",
                cert,
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
            ],
            check=True,
            capture_output=True,
        )
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=cert)
        server.load_cert_chain(cert, key)
    client.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return server, client


async def _tls_talk(reader, writer):
    """What both sides say to each other, in turns, so that no piece joins another."""
    writer.write(b"hello")
    await reader.readexactly(5)
    writer.writelines([b"he", b"llo"])
    await reader.readexactly(5)
    writer.get_extra_info("peername"), writer.get_extra_info("cipher")
    writer.transport.pause_reading()
    writer.transport.resume_reading()
    writer.close()
    await writer.wait_closed()


async def tls(loop):
    server_context, context = contexts()
    made = []
    server = await loop.create_server(
        lambda: made.append(Echo()) or made[-1], "127.0.0.1", 0, ssl=server_context
    )
    await _tls_talk(*await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=context))
    await made[0].lost
    server.close()
    await server.wait_closed()


async def start_tls(loop):
    server_context, context = contexts()
    upgraded = loop.create_future()

    class Upgrade(Echo):
        def data_received(self, data):
            self.transport.write(b"go")
            self.upgrade = loop.create_task(self.start_tls())

        async def start_tls(self):
            echo = Echo()
            echo.transport = await loop.start_tls(self.transport, echo, server_context, server_side=True)
            upgraded.set_result(echo)

    server = await loop.create_server(Upgrade, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"up")
    await reader.readexactly(2)
    await writer.start_tls(context, server_hostname="127.0.0.1")
    echo = await upgraded
    await _tls_talk(reader, writer)
    await echo.lost
    server.close()
    await server.wait_closed()


async def udp(loop):
    got = loop.create_future()

    class Receive(asyncio.DatagramProtocol):
        def datagram_received(self, data, addr):
            if not got.done():
                got.set_result(data)

    server, _ = await loop.create_datagram_endpoint(Receive, local_addr=("127.0.0.1", 0))
    client, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=server.get_extra_info("sockname")
    )
    client.sendto(b"x")
    await got
    client.close()
    server.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@contextlib.contextmanager
def busy(loop, pool):
    """A pool of one thread that begins with its next job when the loop runs: it is awaited by then, on fast
    machines too."""
    free = threading.Event()
    pool.submit(free.wait)
    loop.call_soon(free.set)
    try:
        yield
    finally:
        free.set()


async def executor(loop):
    pool = concurrent.futures.ThreadPoolExecutor(1)
    loop.set_default_executor(pool)
    with busy(loop, pool):
        await loop.run_in_executor(None, int)
    with busy(loop, pool):
        await loop.run_in_executor(pool, str, 5)


async def shutdown(loop):
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


async def timers(loop):
    done = loop.create_future()
    loop.call_later(0.001, done.set_result, None)
    loop.call_later(1000, print).cancel()
    handle = loop.call_at(loop.time() + 1000, print)
    handle.when(), handle.cancelled()
    handle.cancel()
    await done
    await asyncio.sleep(0.001)


async def tasks(loop):
    async def inner():
        await asyncio.sleep(0)

    await asyncio.gather(inner(), loop.create_task(inner()))
    await asyncio.wait_for(inner(), 5)
    handle = loop.call_soon(print)
    if hasattr(handle, "get_context"):  # new in Python 3.12
        handle.get_context()
    handle.cancel()
    loop.call_soon_threadsafe(int)
    await asyncio.sleep(0)


async def sock_calls(loop):
    a, b = tcp_pair()
    for sock in (a, b):
        sock.setblocking(False)
    await loop.sock_sendall(a, b"hello")
    await loop.sock_recv(b, 5)
    await loop.sock_sendall(b, b"x")
    await loop.sock_recv_into(a, bytearray(1))
    a.close()
    b.close()


async def sock_server(loop):
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    client = socket.socket()
    client.setblocking(False)
    await loop.sock_connect(client, listener.getsockname())
    conn, _ = await loop.sock_accept(listener)
    for sock in (conn, client, listener):
        sock.close()


async def readers(loop):
    a, b = socket.socketpair()
    ready = loop.create_future()
    loop.add_reader(a.fileno(), lambda: ready.done() or ready.set_result(None))
    b.send(b"x")
    await ready
    loop.remove_reader(a.fileno())
    written = loop.create_future()
    loop.add_writer(a.fileno(), lambda: written.done() or written.set_result(None))
    await written
    loop.remove_writer(a.fileno())
    a.close()
    b.close()


async def lookups(loop):
    pool = concurrent.futures.ThreadPoolExecutor(1)
    loop.set_default_executor(pool)
    with busy(loop, pool):
        await loop.getaddrinfo("127.0.0.1", 80)
    with busy(loop, pool):
        await loop.getaddrinfo("localhost", 80)
    with busy(loop, pool):
        await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)


async def process(loop):
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass", stdout=asyncio.subprocess.PIPE)
    await child.communicate()


async def signals(loop):
    got = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, got.set_result, None)
    os.kill(os.getpid(), signal.SIGUSR1)
    await got
    loop.remove_signal_handler(signal.SIGUSR1)


async def errors(loop):
    loop.set_exception_handler(lambda loop, context: None)
    loop.call_soon(lambda: 1 / 0)
    await asyncio.sleep(0)
    loop.set_exception_handler(None)
    loop.get_exception_handler(), loop.get_task_factory(), loop.set_task_factory(None)


SCENARIOS = {
    f.__name__: f
    for f in (
        tcp,
        tcp_by_name,
        unix,
        own_socket,
        tls,
        start_tls,
        udp,
        executor,
        shutdown,
        timers,
        tasks,
        sock_calls,
        sock_server,
        readers,
        lookups,
        process,
        signals,
        errors,
    )
}
