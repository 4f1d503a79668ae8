"""Every await of the package, canceled at every suspension and behind every completion, and its descriptors
given to others at once.

A case makes its world (sockets, files), names an operation, what makes it end, and what must hold behind it.
The driver cancels the operation's task at its k-th suspension at one of several moments (WHEN), closes what
the case owns as soon as the task has ended, and opens victims, which get the numbers that became free then or
in the next turns: files and socket pairs that hold a known pattern. Afterwards no victim has changed, no byte
was lost or came twice, and no descriptor or task is left.

TREADLE_CANCEL_CASES=100000 runs as many cases (a sample runs without it), TREADLE_CANCEL_SEED chooses others,
and TREADLE_CANCEL_FOLDER keeps their files elsewhere: in a file system in memory they run ten times as fast.
"""
import asyncio
import asyncio.subprocess as sp
import os
import random
import socket
import ssl
import threading

import pytest

from test_tls import certificate, client_context, server_context  # noqa: F401
from treadle import fileio
from treadle.fileio import FileContext
from twin import MODES, SANITIZED, reference_loop, subject_loop

CASES = int(os.environ.get("TREADLE_CANCEL_CASES", "0"))
SEED = int(os.environ.get("TREADLE_CANCEL_SEED", "1"))
PATTERN = b"VICTIM.." * 8
ENGINES = ("linux_uring", "linux_aio", "threads")
# When the cancel comes, for a task that is suspended for the k-th time.
WHEN = (
    "in its own step",
    "in the same turn",
    "in the next turn",
    "two turns later",
    "three turns later",
    "with the result",  # in the turn in which what it waits for is done, before its step
    "behind the result",  # and in the same turn behind its step is scheduled
)


class Step:
    """Runs a coroutine inside a task, and tells a hook what it is suspended on."""

    def __init__(self, coroutine, hook):
        self.inner, self.hook = coroutine, hook

    def __await__(self):
        inner, value, error = self.inner.__await__(), None, None
        while True:
            try:
                waits_for = inner.send(value) if error is None else inner.throw(error)
            except StopIteration as stop:
                return stop.value
            try:
                self.hook(waits_for)
                value, error = (yield waits_for), None
            except BaseException as exc:
                error = exc


class Victims:
    """Files and socket pairs that get the numbers which others gave up."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "victim")
        if not os.path.exists(self.path):
            with open(self.path, "wb") as file:
                file.write(PATTERN)
        self.files, self.pairs = [], []

    def open(self, count):
        for _ in range(count):
            self.files.append(os.open(self.path, os.O_RDWR))
            pair = socket.socketpair()
            for sock in pair:
                sock.setblocking(False)
                sock.send(PATTERN)
            self.pairs.append(pair)

    def check(self):
        """Asserts that nobody touched them, and closes them."""
        wrong = []
        for fd in self.files:
            try:
                if os.lseek(fd, 0, os.SEEK_CUR) != 0 or os.pread(fd, 4096, 0) != PATTERN:
                    wrong.append(f"file {fd} has {os.pread(fd, 4096, 0)!r}")
                os.close(fd)
            except OSError as exc:
                wrong.append(f"file {fd}: {exc}")
        for pair in self.pairs:
            for sock in pair:
                try:
                    got = sock.recv(4096)
                    if got != PATTERN:
                        wrong.append(f"socket {sock.fileno()} has {got!r}")
                except OSError as exc:
                    wrong.append(f"socket {sock.fileno()}: {exc}")
            for sock in pair:
                try:
                    sock.close()
                except OSError as exc:
                    wrong.append(f"socket: {exc}")
        self.files, self.pairs = [], []
        assert not wrong, wrong


class World:
    """What a case works with. What it makes by own() is closed as soon as the task has ended; what keep()
    gets, at the end."""

    def __init__(self, loop, folder, certificate, rng, contexts):
        self.loop, self.folder, self.certificate, self.rng = loop, str(folder), certificate, rng
        self.contexts = contexts
        self.owned, self.kept, self.behind = [], [], []

    def own(self, thing):
        self.owned.append(thing)
        return thing

    def keep(self, thing):
        self.kept.append(thing)
        return thing

    def pair(self, kind=socket.SOCK_STREAM):
        """(own, other's)"""
        a, b = socket.socketpair(socket.AF_UNIX, kind)
        for sock in (a, b):
            sock.setblocking(False)
        return self.own(a), self.keep(b)

    def view(self, sock):
        """The same socket under another number, to see what is left in it."""
        return self.keep(sock.dup())

    def listener(self):
        sock = socket.create_server(("127.0.0.1", 0))
        sock.setblocking(False)
        return sock

    def file(self, content=b"", name="data"):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def descriptor(self, path, flags=os.O_RDWR):
        return self.own(os.open(path, flags))

    def context(self, engine):
        """Mostly the runner's: ending one of linux_aio takes the kernel tens of milliseconds."""
        if self.rng.random() < 0.1:
            return self.keep(FileContext(engine=engine, max_requests=self.rng.choice((1, 8))))
        return self.contexts[engine]

    def bytes_of(self, path):
        with open(path, "rb") as file:
            return file.read()


def close(thing):
    if isinstance(thing, int):
        os.close(thing)
    else:
        thing.close()


def rest_of(sock):
    """What can be received now."""
    got = bytearray()
    while True:
        try:
            data = sock.recv(65536)
        except (BlockingIOError, ConnectionError):
            return bytes(got)
        if not data:
            return bytes(got)
        got += data


class Plan:
    """operation(): a coroutine; act(): lets it end; check(got): what must hold, got is None if it was
    canceled."""

    def __init__(self, operation, act=None, check=None, end=None):
        self.operation, self.act, self.check, self.end = operation, act, check, end


ON_BOTH, OWN = {}, {}


def case(function):
    ON_BOTH[function.__name__] = function
    return function


def own_case(function):
    """What asyncio has no answer to."""
    OWN[function.__name__] = function
    return function


# Sockets


def receiving(w, make, kind=socket.SOCK_STREAM):
    a, b = w.pair(kind)
    view = w.view(a)
    sent = b"0123456789"

    def check(got):
        assert (got or b"") + rest_of(view) == sent

    return Plan(make(a), lambda: b.send(sent), check)


@case
async def sock_recv(w):
    return receiving(w, lambda a: lambda: w.loop.sock_recv(a, w.rng.choice((4, 100, 1 << 20))))


@case
async def sock_recv_into(w):
    def make(a):
        async def operation():
            buffer = bytearray(w.rng.choice((4, 100)))
            return bytes(buffer[:await w.loop.sock_recv_into(a, buffer)])
        return operation
    return receiving(w, make)


@case
async def sock_recvfrom(w):
    def make(a):
        async def operation():
            return (await w.loop.sock_recvfrom(a, 100))[0]
        return operation
    return receiving(w, make, socket.SOCK_DGRAM)


@case
async def sock_recvfrom_into(w):
    def make(a):
        async def operation():
            buffer = bytearray(100)
            return bytes(buffer[:(await w.loop.sock_recvfrom_into(a, buffer))[0]])
        return operation
    return receiving(w, make, socket.SOCK_DGRAM)


@case
async def sock_sendall(w):
    a, b = w.pair()
    data = random.Random(1).randbytes(400_000)
    received = bytearray()

    def act():
        received.extend(rest_of(b))

    async def until_done():
        while len(received) < len(data):
            act()
            await asyncio.sleep(0)

    def check(got):
        act()
        assert data.startswith(bytes(received))
        assert got is None or len(received) == len(data)

    async def operation():
        await w.loop.sock_sendall(a, data)
        return True

    return Plan(operation, until_done, check)


@case
async def sock_sendto(w):
    a, b = w.pair(socket.SOCK_DGRAM)
    path = os.path.join(w.folder, "to")
    target = w.keep(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    target.bind(path)
    target.setblocking(False)
    filled = 0
    source = w.own(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    source.setblocking(False)
    while True:
        try:
            source.sendto(b"fill", path)
            filled += 1
        except BlockingIOError:
            break
    seen = []

    def act():
        try:
            while True:
                seen.append(target.recv(100))
        except BlockingIOError:
            pass

    def check(got):
        act()
        os.unlink(path)
        assert seen[filled:] in ([b"the one"], [] if got is None else None)

    return Plan(lambda: w.loop.sock_sendto(source, b"the one", path), act, check)


@case
async def sock_accept(w):
    listener = w.own(w.listener())
    view = w.view(listener)
    clients = []

    def act():
        clients.append(w.keep(socket.create_connection(view.getsockname())))

    def check(got):
        if got is None:
            got = view.accept()
        got[0].setblocking(False)
        clients[0].sendall(b"x")
        assert got[0].recv(9) == b"x"
        got[0].close()

    return Plan(lambda: w.loop.sock_accept(listener), act, check)


@case
async def sock_connect(w):
    listener = w.keep(w.listener())
    sock = w.own(socket.socket())
    sock.setblocking(False)
    return Plan(lambda: w.loop.sock_connect(sock, listener.getsockname()))


@case
async def sock_sendfile(w):
    a, b = w.pair()
    content = random.Random(2).randbytes(400_000)
    file = w.own(open(w.file(content), "rb"))
    received = bytearray()

    async def until_done():
        while len(received) < len(content):
            received.extend(rest_of(b))
            await asyncio.sleep(0)

    def check(got):
        received.extend(rest_of(b))
        assert content.startswith(bytes(received)) and (got is None or len(received) == got)

    return Plan(lambda: w.loop.sock_sendfile(a, file), until_done, check)


# Connections


def connecting(w, operation, act=None):
    """What is made is closed by who gets it; what was canceled closes itself."""
    made = []

    def check(got):
        if got is not None:
            transport = got[0] if isinstance(got, tuple) else got
            if isinstance(transport, asyncio.StreamReader):
                transport = got[1].transport
            if isinstance(transport, asyncio.AbstractServer):
                transport.close()
            else:
                transport.abort() if hasattr(transport, "abort") else transport.close()
        del made[:]

    return Plan(operation, act, check)


@case
async def create_connection_numeric(w):
    address = w.keep(w.listener()).getsockname()
    return connecting(w, lambda: w.loop.create_connection(asyncio.Protocol, *address))


@case
async def create_connection_by_name(w):
    port = w.keep(w.listener()).getsockname()[1]
    return connecting(w, lambda: w.loop.create_connection(asyncio.Protocol, "localhost", port))


@case
async def create_connection_raced(w):
    port = w.keep(w.listener()).getsockname()[1]
    return connecting(
        w, lambda: w.loop.create_connection(asyncio.Protocol, "localhost", port, happy_eyeballs_delay=0.001)
    )


@case
async def create_connection_of_a_socket(w):
    a, b = socket.socketpair()
    w.keep(b)
    w.keep(a)
    return connecting(w, lambda: w.loop.create_connection(asyncio.Protocol, sock=a))


@case
async def connect_accepted_socket(w):
    a, b = socket.socketpair()
    w.keep(b)
    w.keep(a)
    return connecting(w, lambda: w.loop.connect_accepted_socket(asyncio.Protocol, a))


@case
async def open_connection(w):
    address = w.keep(w.listener()).getsockname()
    return connecting(w, lambda: asyncio.open_connection(*address))


@case
async def create_unix_connection(w):
    path = os.path.join(w.folder, "listens")
    listener = w.keep(socket.socket(socket.AF_UNIX))
    listener.bind(path)
    listener.listen()
    plan = connecting(w, lambda: w.loop.create_unix_connection(asyncio.Protocol, path))
    plan.end = lambda: os.unlink(path)
    return plan


@case
async def create_server(w):
    return connecting(w, lambda: w.loop.create_server(asyncio.Protocol, "localhost", 0))


@case
async def start_server(w):
    return connecting(w, lambda: asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0))


@case
async def create_unix_server(w):
    path = os.path.join(w.folder, "server")
    plan = connecting(w, lambda: w.loop.create_unix_server(asyncio.Protocol, path))
    plan.end = lambda: os.path.exists(path) and os.unlink(path)
    return plan


@case
async def create_datagram_endpoint(w):
    return connecting(w, lambda: w.loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, ("127.0.0.1", 0), ("127.0.0.1", 9)))


@case
async def connect_read_pipe(w):
    r, wr = os.pipe()
    w.keep(wr)
    pipe = w.keep(open(r, "rb", 0))
    return connecting(w, lambda: w.loop.connect_read_pipe(asyncio.Protocol, pipe))


@case
async def connect_write_pipe(w):
    r, wr = os.pipe()
    w.keep(r)
    pipe = w.keep(open(wr, "wb", 0))
    return connecting(w, lambda: w.loop.connect_write_pipe(asyncio.BaseProtocol, pipe))


@case
async def getaddrinfo(w):
    return Plan(lambda: w.loop.getaddrinfo("localhost", 80, family=w.rng.choice((0, socket.AF_INET))))


@case
async def getnameinfo(w):
    return Plan(lambda: w.loop.getnameinfo(("127.0.0.1", 80)))


@case
async def run_in_executor(w):
    go = threading.Event()
    return Plan(lambda: w.loop.run_in_executor(None, go.wait), go.set)


# Streams


async def stream(w, sent=b""):
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=a)
    w.keep(b)
    w.keep(writer)
    return reader, writer, b


def reading(reader, send, operation, sent=b"one\ntwo\nthree"):
    async def check(got):
        got = got or b""
        while len(got) + len(reader._buffer) < len(sent):
            await asyncio.sleep(0)
        assert got + bytes(reader._buffer) == sent

    return Plan(operation, lambda: send(sent), check)


@case
async def stream_read(w):
    reader, writer, b = await stream(w)
    return reading(reader, b.send, lambda: reader.read(100))


@case
async def stream_readline(w):
    reader, writer, b = await stream(w)
    return reading(reader, b.send, reader.readline)


@case
async def stream_readexactly(w):
    reader, writer, b = await stream(w)
    return reading(reader, b.send, lambda: reader.readexactly(9))


@case
async def stream_readuntil(w):
    reader, writer, b = await stream(w)
    return reading(reader, b.send, lambda: reader.readuntil(b"thr"))


@case
async def stream_write_and_drain(w):
    reader, writer, b = await stream(w)
    data = random.Random(3).randbytes(600_000)
    received = bytearray()

    async def operation():
        writer.write(data)
        await writer.drain()
        return True

    async def until_done():
        while len(received) < len(data):
            received.extend(rest_of(b))
            await asyncio.sleep(0)

    async def check(got):
        if writer.transport.get_write_buffer_size() or received or got:  # it was written: all of it arrives
            await until_done()
            assert bytes(received) == data

    return Plan(operation, until_done, check)


@case
async def stream_wait_closed(w):
    reader, writer, b = await stream(w)

    async def operation():
        writer.close()
        await writer.wait_closed()
        return True

    return Plan(operation)


@case
async def stream_start_tls(w):
    address = w.keep(w.listener())
    reader, writer = await asyncio.open_connection(*address.getsockname())
    w.keep(writer)
    peer = address.accept()[0]
    peer.setblocking(False)
    other, protocol = await w.loop.create_connection(asyncio.Protocol, sock=peer)
    other.pause_reading()
    w.behind.append(lambda: other.abort())

    async def both():
        await w.loop.start_tls(other, protocol, server_context(w.certificate), server_side=True)

    async def operation():
        await writer.start_tls(client_context(w.certificate), server_hostname="localhost")
        return True

    return Plan(operation, both)


async def tls_streams(w):
    """Both ends, each (reader, writer)."""
    a, b = socket.socketpair()
    accepted = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(accepted)
    (reader, writer), (transport, _) = await asyncio.gather(
        asyncio.open_connection(sock=a, ssl=client_context(w.certificate), server_hostname="localhost"),
        w.loop.connect_accepted_socket(lambda: protocol, b, ssl=server_context(w.certificate)))
    peer = asyncio.StreamWriter(transport, protocol, accepted, w.loop)
    # A writer that is dropped closes.
    w.behind += [lambda end=end: end.transport.abort() for end in (writer, peer)]
    return (reader, writer), (accepted, peer)


@case
async def tls_read(w):
    (reader, _), (_, peer) = await tls_streams(w)
    return reading(reader, peer.write, lambda: reader.read(w.rng.choice((4, 100))))


@case
async def tls_readline(w):
    (reader, _), (_, peer) = await tls_streams(w)
    return reading(reader, peer.write, reader.readline)


@case
async def tls_write_and_drain(w):
    (_, writer), (peer, _) = await tls_streams(w)
    data = random.Random(5).randbytes(600_000)

    async def operation():
        writer.write(data)
        await writer.drain()
        return True

    received = bytearray()

    async def until_done():
        while len(received) < len(data):
            received.extend(await peer.read(1 << 20))

    async def check(got):
        if writer.transport.get_write_buffer_size() or received or peer._buffer or got:
            await until_done()
            assert bytes(received) == data

    return Plan(operation, until_done, check)


@case
async def tls_wait_closed(w):
    (_, writer), (peer, _) = await tls_streams(w)

    async def operation():
        writer.write(b"last")
        writer.close()
        await writer.wait_closed()
        return True

    async def check(got):
        if got:
            assert await peer.read() == b"last"

    return Plan(operation, None, check)


@case
async def sendfile(w):
    reader, writer, b = await stream(w)
    content = random.Random(4).randbytes(400_000)
    file = w.own(open(w.file(content), "rb"))
    received = bytearray()

    async def until_done():
        while len(received) < len(content):
            received.extend(rest_of(b))
            await asyncio.sleep(0)

    def check(got):
        received.extend(rest_of(b))
        assert content.startswith(bytes(received)) and (got is None or len(received) == got)

    return Plan(lambda: w.loop.sendfile(writer.transport, file), until_done, check)


@case
async def server_wait_closed(w):
    server = await w.loop.create_server(asyncio.Protocol, "127.0.0.1", 0)

    async def operation():
        server.close()
        await server.wait_closed()
        return True

    return Plan(operation, end=server.close)


# Processes


@case
async def subprocess_exec(w):
    async def check(process):
        if process is not None:
            await process.communicate()

    return Plan(lambda: asyncio.create_subprocess_exec("true", stdin=sp.PIPE, stdout=sp.PIPE), None, check)


async def cat(w):
    process = await asyncio.create_subprocess_exec("cat", stdin=sp.PIPE, stdout=sp.PIPE)

    async def end():
        if process.returncode is None:
            process.kill()
        process._transport.close()
        await process.wait()

    w.behind.append(end)
    return process


@case
async def subprocess_communicate(w):
    process = await cat(w)
    return Plan(lambda: process.communicate(b"x" * 100_000))


@case
async def subprocess_wait(w):
    process = await cat(w)
    return Plan(process.wait, process.kill)


# Files


CONTENT = b"".join(b"line %d\n" % n for n in range(3000))


@own_case
async def read_bytes(w):
    path = w.file(CONTENT)
    return Plan(lambda: fileio.read_bytes(path))


@own_case
async def read_text(w):
    path = w.file(CONTENT)
    return Plan(lambda: fileio.read_text(path))


@own_case
async def write_bytes(w):
    path = os.path.join(w.folder, "written")

    def check(got):
        assert got is None or w.bytes_of(path) == CONTENT

    return Plan(lambda: fileio.write_bytes(path, CONTENT), None, check)


@own_case
async def write_text(w):
    path = os.path.join(w.folder, "written")
    return Plan(lambda: fileio.write_text(path, CONTENT.decode()))


@own_case
async def copy(w):
    source, target = w.file(CONTENT), os.path.join(w.folder, "copy")

    def check(got):
        assert got is None or w.bytes_of(target) == CONTENT

    return Plan(lambda: fileio.copy(source, target), None, check)


@own_case
async def open_file(w):
    path = w.file(CONTENT)

    async def check(file):
        if file is not None:
            await file.close()

    async def operation():
        return await fileio.open(path, "r+b")

    return Plan(operation, None, check)


def reader_of(name, mode, operate, size=len(CONTENT)):
    """A file object reads on behind a cancel as if the operation had happened, or had not."""
    async def make(w):
        path = w.file(CONTENT)
        file = await fileio.open(
            path, mode, buffering=w.rng.choice((-1, 16)), **({} if "b" in mode else {"encoding": "ascii"})
        )
        w.behind.append(file.close)
        before = await file.read(w.rng.choice((0, 5)))
        whole = CONTENT if "b" in mode else CONTENT.decode()

        async def check(got):
            assert before + (got if got is not None else before[:0]) + await file.read() == whole

        return Plan(lambda: operate(file), None, check)

    make.__name__ = name
    own_case(make)


async def read_into(file, method):
    buffer = bytearray(3000)
    return bytes(buffer[:await getattr(file, method)(buffer)])


reader_of("file_read", "rb", lambda file: file.read(1000))
reader_of("file_read_all", "rb", lambda file: file.read())
reader_of("file_read1", "rb", lambda file: file.read1(500))
reader_of("file_readline", "rb", lambda file: file.readline())
reader_of("file_readinto", "rb", lambda file: read_into(file, "readinto"))
reader_of("file_readinto1", "rb", lambda file: read_into(file, "readinto1"))
reader_of("text_read", "r", lambda file: file.read(1000))
reader_of("text_read_all", "r", lambda file: file.read())
reader_of("text_readline", "r", lambda file: file.readline())


def writer_of(name, mode, operate):
    """What was written is there once, and in order."""
    writes = operate in (write_piece, write_and_flush)

    async def make(w):
        path = w.file(b"")
        file = await fileio.open(path, mode, buffering=w.rng.choice((16, 4096)) if "b" in mode else -1)
        piece = (lambda n: b"piece %d\n" % n) if "b" in mode else (lambda n: "piece %d\n" % n)
        for n in range(3):
            await file.write(piece(n))

        async def check(got):
            await file.write(piece(9))
            await file.close()
            lines = w.bytes_of(path).splitlines()
            assert lines[:3] == [b"piece 0", b"piece 1", b"piece 2"] and lines[-1] == b"piece 9", lines
            middle = lines[3:-1]
            assert middle == [b"piece 3"] or middle == [] and (got is None or not writes), lines

        return Plan(lambda: operate(file, piece(3)), None, check)

    make.__name__ = name
    own_case(make)


async def write_and_flush(file, piece):
    await file.write(piece)
    await file.flush()
    return True


async def flush(file, piece):
    await file.flush()


async def sync(file, piece):
    await file.sync()


async def truncate(file, piece):
    await file.flush()
    await file.truncate()


async def seek_to_end(file, piece):
    await file.seek(0, os.SEEK_END)


async def tell(file, piece):
    await file.tell()


async def write_piece(file, piece):
    return await file.write(piece)


for _mode, _kind in (("wb", "file"), ("w", "text"), ("ab", "appended")):
    for _operate in (write_piece, write_and_flush, flush, sync, truncate, seek_to_end, tell):
        writer_of(f"{_kind}_{_operate.__name__}", _mode, _operate)


@own_case
async def file_close(w):
    path = w.file(b"")
    file = await fileio.open(path, "wb")
    await file.write(b"kept")

    async def check(got):
        await file.close()
        assert w.bytes_of(path) == b"kept"

    return Plan(file.close, None, check)


def context_of(name, operate, prepare=None):
    """A single operation of a context, on each engine; its descriptors are closed as soon as its task has
    ended."""
    for engine in ENGINES:
        async def make(w, engine=engine):
            files = w.context(engine)
            path = w.file(CONTENT)
            fd, other = w.descriptor(path), w.descriptor(w.file(b"", "other"))
            crowd = [w.loop.create_task(_awaited(files.read(fd, 10, n))) for n in range(w.rng.choice((0, 3)))]
            w.behind.extend(crowd)

            async def operation():
                return await operate(files, w, fd, other)

            async def check(got):
                if name == "context_open" and got is not None:
                    os.close(got)

            return Plan(operation, None, check)

        make.__name__ = f"{name}_{engine}"
        own_case(make)


async def _awaited(operation):
    return await operation


context_of("context_read", lambda c, w, fd, other: c.read(fd, 20_000, 0))
context_of("context_readinto", lambda c, w, fd, other: c.readinto(fd, bytearray(20_000), 0))
context_of("context_readv", lambda c, w, fd, other: c.readv(fd, [bytearray(100), bytearray(10_000)], 0))
context_of("context_write", lambda c, w, fd, other: c.write(other, b"x" * 20_000, 0))
context_of("context_writev", lambda c, w, fd, other: c.writev(other, [b"x" * 20_000, b"y"], 0))
context_of("context_fsync", lambda c, w, fd, other: c.fsync(other))
context_of("context_fdatasync", lambda c, w, fd, other: c.fdatasync(other))
context_of("context_open", lambda c, w, fd, other: c.open(os.path.join(w.folder, "data"), os.O_RDWR))
context_of("context_read_file", lambda c, w, fd, other: c.read_file(os.path.join(w.folder, "data"), 1 << 20))
context_of("context_truncate", lambda c, w, fd, other: c.truncate(other, 10))
context_of("context_copy", lambda c, w, fd, other: c.copy(fd, 0, other, 0, len(CONTENT)))
context_of("context_stat", lambda c, w, fd, other: c.stat(os.path.join(w.folder, "data")))


context_of("context_fallocate", lambda c, w, fd, other: c.fallocate(other, 0, 0, 100_000))


def splice_of(engine):
    async def make(w):
        """Each byte is in the file or still in the pipe."""
        files = w.context(engine)
        r, wr = os.pipe()
        w.own(r)
        w.keep(wr)
        view = w.keep(os.dup(r))
        path = w.file(b"", "other")
        target = w.descriptor(path)
        sent = b"0123456789"

        async def check(got):
            os.set_blocking(view, False)
            left = b""
            while len(left) + os.stat(path).st_size < len(sent):
                try:
                    left += os.read(view, 100)
                except BlockingIOError:
                    await asyncio.sleep(0)
            assert w.bytes_of(path) + left == sent

        return Plan(
            lambda: _awaited(files.splice(r, None, target, 0, 100)), lambda: os.write(wr, sent), check
        )

    make.__name__ = f"context_splice_{engine}"
    own_case(make)


for _engine in ENGINES:
    splice_of(_engine)


@own_case
async def context_read_of_a_pipe(w):
    files = w.context(w.rng.choice(ENGINES))
    r, wr = os.pipe()
    w.own(r)
    w.keep(wr)
    return Plan(lambda: _awaited(files.read(r, 10)), lambda: os.write(wr, b"0123456789"))


# The driver


def cancel_later(loop, task, turns):
    if turns == 0:
        task.cancel()
    else:
        loop.call_soon(cancel_later, loop, task, turns - 1)


class Canceler:
    """Cancels the task at its k-th suspension."""

    def __init__(self, loop, k, when):
        self.loop, self.k, self.when = loop, k, when
        self.count, self.task = 0, None

    def __call__(self, waits_for):
        self.count += 1
        if self.count != self.k:
            return
        when = WHEN.index(self.when)
        if when == 0:
            self.task.cancel()
        elif when < 5:
            cancel_later(self.loop, self.task, when)
        elif waits_for is None or not hasattr(waits_for, "add_done_callback"):
            self.loop.call_soon(self.task.cancel)
        elif self.when == "with the result":
            waits_for.add_done_callback(lambda _: self.task.cancel())
        # The task's own callback comes first, this one cancels before the step that it schedules, or behind.
        else:
            self.loop.call_soon(waits_for.add_done_callback, lambda _: self.task.cancel())


async def settle(loop, thing):
    if not isinstance(thing, asyncio.Future):
        thing = thing()
    if thing is not None and hasattr(thing, "__await__"):
        try:
            await thing
        except (OSError, asyncio.CancelledError, ssl.SSLError):
            pass


async def call(function, *args):
    if function is not None:
        result = function(*args)
        if result is not None and hasattr(result, "__await__"):
            return await result


async def run_case(loop, make, w, k, when, acts_in, victims):
    """Runs one case; returns how often the operation was suspended."""
    plan = await make(w)
    canceler = Canceler(loop, k, when)

    async def main():
        return await Step(_awaited(plan.operation()), canceler)

    canceler.task = task = loop.create_task(main())
    acting = None

    def act():
        nonlocal acting
        result = plan.act() if plan.act is not None else None
        acting = loop.create_task(result) if result is not None and hasattr(result, "__await__") else True

    for _ in range(acts_in):
        await asyncio.sleep(0)
    act()
    await asyncio.wait([task])
    for thing in w.owned:
        close(thing)
    for _ in range(3):
        victims.open(1)
        await asyncio.sleep(0)
    got = None
    if not task.cancelled():
        got = task.result()
        got = True if got is None else got
    if isinstance(acting, asyncio.Task):
        if task.cancelled():
            acting.cancel()
        await asyncio.wait([acting])
        if not acting.cancelled() and not task.cancelled():
            acting.result()
        elif not acting.cancelled():
            acting.exception()
    await call(plan.check, None if task.cancelled() else task.result() if task.result() is not None else got)
    for thing in w.behind:
        await settle(loop, thing)
    for thing in w.kept:
        close(thing)
    await call(plan.end)
    for _ in range(8):
        await asyncio.sleep(0)
    victims.check()
    return canceler.count


def descriptors():
    folder = os.open("/proc/self/fd", os.O_RDONLY)
    try:
        return {int(name) for name in os.listdir(folder)} - {folder}
    finally:
        os.close(folder)


class Runner:
    """Runs cases on one loop, each followed by a look at what is left."""

    def __init__(self, factory, debug, folder, certificate):
        self.loop, self.folder, self.certificate = factory(), folder, certificate
        self.loop.set_debug(debug)
        self.loop.slow_callback_duration = 3600
        self.told = []
        self.loop.set_exception_handler(lambda loop, context: self.told.append(context))
        self.suspensions = {}
        self.contexts = {engine: FileContext(engine=engine) for engine in ENGINES if factory is subject_loop}
        self.loop.run_until_complete(self._warm_up(factory is subject_loop))

    async def _warm_up(self, files):
        """Lets the loop open what it opens once."""
        await self.loop.run_in_executor(None, int)
        if files:
            path = os.path.join(self.folder, "first")
            await fileio.write_bytes(path, b"")
            await fileio.copy(path, path + "2")
            for context in self.contexts.values():
                await context.read_file(path, 10)
                await context.copy(0, 0, 0, 0, 0)
        for _ in range(300):
            await asyncio.sleep(0)
        await asyncio.sleep(0.001)

    def run(self, name, make, k, when, acts_in, seed):
        what = f"{name}, suspension {k}, {when}, acted in {acts_in}, seed {seed}"
        victims = Victims(self.folder)
        before = None

        async def main():
            nonlocal before
            before = descriptors()
            count = await asyncio.wait_for(
                run_case(
                    self.loop,
                    make,
                    World(self.loop, self.folder, self.certificate, random.Random(seed), self.contexts),
                    k,
                    when,
                    acts_in,
                    victims,
                ),
                30,
            )
            for _ in range(2000):  # a worker parts with a descriptor of its own a moment later
                if descriptors() <= before and asyncio.all_tasks() == {asyncio.current_task()}:
                    break
                await asyncio.sleep(0 if _ < 50 else 0.001)
            return count

        try:
            count = self.loop.run_until_complete(main())
            left = descriptors() - before
            assert not left, [(fd, os.readlink(f"/proc/self/fd/{fd}")) for fd in left]
            assert not asyncio.all_tasks(self.loop), asyncio.all_tasks(self.loop)
            assert not self.told, self.told
        except BaseException as exc:
            exc.add_note(what)
            raise
        self.suspensions[name] = max(self.suspensions.get(name, 0), count)

    def close(self):
        for context in self.contexts.values():
            context.close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


# What asyncio itself loses: docs/asyncio-compat.md has the reasons.
ASYNCIO_LOSES = {
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_accept",
    "create_connection_raced",
    "create_server",
    "start_server",
    "create_unix_server",
    "subprocess_exec",
    "sendfile",
    "sock_sendfile",
}
SAMPLE = 300 if SANITIZED else 1500


def cases_of(arm):
    if arm == "asyncio":
        return {name: make for name, make in ON_BOTH.items() if name not in ASYNCIO_LOSES}
    return {**ON_BOTH, **OWN}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("arm", ["asyncio", "treadle"])
def test_a_cancel_anywhere_loses_and_overwrites_nothing(arm, mode, tmp_path, certificate):
    """Every case at every suspension, a sample of the moments; or as many cases as the environment says, on
    treadle."""
    folder = os.environ.get("TREADLE_CANCEL_FOLDER", tmp_path)
    runner = Runner(
        reference_loop if arm == "asyncio" else subject_loop, mode == "debug", folder, certificate
    )
    rng = random.Random(SEED)
    cases = cases_of(arm)
    count = 0
    try:
        for name, make in cases.items():
            runner.run(name, make, 0, WHEN[0], 1, SEED)  # no cancel
        for name, make in cases.items():
            for k in range(1, runner.suspensions[name] + 1):
                for when in rng.sample(WHEN, 2):
                    runner.run(name, make, k, when, rng.randrange(3), rng.randrange(1 << 30))
                    count += 1
        while count < (max(CASES // 2, SAMPLE) if arm == "treadle" else SAMPLE // 4):
            name = rng.choice(list(cases))
            runner.run(
                name,
                cases[name],
                rng.randint(1, runner.suspensions[name] + 1),
                rng.choice(WHEN),
                rng.randrange(4),
                rng.randrange(1 << 30),
            )
            count += 1
            if count % 1000 == 0:
                print(count, "cases", flush=True)
        print(count, "cases")
    finally:
        runner.close()
