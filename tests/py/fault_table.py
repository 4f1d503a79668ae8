"""Fails each system call of small scenarios with each errno, on asyncio and on treadle, and judges what came
of it.

    fault_table.py [--all | --seconds N] [--seed S] [--only SCENARIO] [--call NAME] [-v]

Needs tests/preload/fault.c preloaded. A cell is one scenario in a forked child, in which the k-th call of one
function fails with one errno. Its outcome is a set of labels:

    ok      the scenario did what it should: the failure was survived
    told    the errno reached the program: raised, or given to the exception handler, a protocol or a done
    future
    lost    a connection of the scenario ended; both of its ends see that
    other X another exception: named
    stuck   the scenario did not end, and nothing was told
    leak    descriptors are open that were not before
    twice   a descriptor was closed that was not open, and so might have been another's
    crash N the process was killed by a signal, or hung and was

On treadle `ok`, `told` and `lost` are right anywhere. Anything else is wrong unless asyncio's cells of the
same scenario, function and errno have it too, or EXPLAINED says why.
"""
import argparse
import asyncio
import contextlib
import ctypes
import errno
import gc
import os
import random
import select
import shutil
import signal
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time
import warnings

STUCK_S = 2.5  # longer than the second that accepting rests without descriptors
NO_DESCRIPTOR = ("EMFILE", "ENFILE", "ENOMEM")
TRY_AGAIN = ("EINTR", "EAGAIN")

ERRNOS = {
    "accept4": (*NO_DESCRIPTOR, *TRY_AGAIN, "ENOBUFS", "ECONNABORTED", "EPERM"),
    "bind": ("EADDRINUSE", "EACCES", "ENOMEM"),
    "close": ("EINTR", "EIO"),
    "connect": ("ECONNREFUSED", "EINTR", "EPERM", "ENOBUFS", "EAGAIN"),
    "copy_file_range": ("EIO", "ENOSPC", "ENOMEM", "EXDEV"),
    "dup": NO_DESCRIPTOR,
    "epoll_add": ("ENOMEM", "ENOSPC", "EPERM", "EBADF"),
    "epoll_create1": NO_DESCRIPTOR,
    "epoll_del": ("ENOMEM", "EBADF", "ENOENT"),
    "epoll_mod": ("ENOMEM", "EBADF", "ENOENT"),
    "epoll_wait": ("EINTR",),
    "eventfd": NO_DESCRIPTOR,
    "fcntl": ("EMFILE", "EBADF"),
    "fdatasync": ("EIO",),
    "fstat": ("EIO", "ENOMEM"),
    "fsync": ("EIO",),
    "ftruncate": ("EIO", "EINTR"),
    "getpeername": ("ENOTCONN", "ENOBUFS"),
    "getsockname": ("ENOBUFS",),
    "getsockopt": ("ENOMEM", "ENOBUFS"),
    "io_getevents": ("EINTR",),
    "io_setup": ("EAGAIN", "ENOMEM", "ENOSYS"),
    "io_submit": ("EAGAIN", "ENOMEM"),
    "ioctl": ("EBADF", "ENOMEM"),
    "io_uring_enter": ("EINTR", "EAGAIN", "EBUSY", "ENOMEM"),
    "io_uring_register": ("ENOMEM", "EINVAL"),
    "io_uring_setup": (*NO_DESCRIPTOR, "EPERM", "ENOSYS"),
    "listen": ("EADDRINUSE",),
    "mmap": ("ENOMEM", "EAGAIN"),
    "open": (*NO_DESCRIPTOR, "EINTR", "EACCES"),
    "openat2": (*NO_DESCRIPTOR, "EAGAIN", "ENOSYS"),
    "pidfd_open": (*NO_DESCRIPTOR, "ENOSYS", "EPERM"),
    "pipe2": NO_DESCRIPTOR,
    "poll": ("EINTR", "ENOMEM"),
    "pread": ("EIO", "EINTR"),
    "preadv2": ("EIO", "EINTR", "EAGAIN", "EOPNOTSUPP"),
    "pthread_create": ("EAGAIN",),
    "pwrite": ("EIO", "ENOSPC", "EINTR"),
    "read": ("EIO", "EINTR", "ENOMEM"),
    "readv": ("EIO", "EINTR"),
    "recv": (*TRY_AGAIN, "ECONNRESET", "ENOMEM", "ENOBUFS"),
    "recvfrom": (*TRY_AGAIN, "ECONNREFUSED", "ENOMEM"),
    "recvmmsg": (*TRY_AGAIN, "ECONNREFUSED", "ENOMEM"),
    "send": (*TRY_AGAIN, "EPIPE", "ENOBUFS", "EPERM"),
    "sendfile": (*TRY_AGAIN, "EIO", "EPIPE", "ENOMEM"),
    "sendmsg": (*TRY_AGAIN, "EPIPE", "ENOBUFS", "EPERM"),
    "sendto": (*TRY_AGAIN, "EPERM", "ENOBUFS", "ECONNREFUSED"),
    "setsockopt": ("ENOMEM", "EPERM"),
    "shutdown": ("ENOTCONN",),
    "socket": (*NO_DESCRIPTOR, "ENOBUFS", "EACCES"),
    "socketpair": NO_DESCRIPTOR,
    "statx": ("EIO", "ENOMEM"),
    "write": ("EIO", "EINTR", "ENOSPC", "EAGAIN"),
    "writev": ("EIO", "EINTR", "ENOSPC"),
}

# (scenario or *, function, errno or *, label): why treadle's outcome is right though asyncio's is another.
EXPLAINED = {
    # A ring that cannot be mapped is out of memory, whatever mmap() calls it.
    ("*", "mmap", "EAGAIN", "other OSError"),
    # create_server() without any socket: what newer asyncio raises, on every Python; 3.11's gives a server
    # that serves nothing.
    *(
        (name, "socket", "*", "other OSError")
        for name in ("tcp", "tcp_large", "accepts", "accepts_audited", "sendfile", "tls")
    ),
}


class Shim:
    """The preloaded library."""

    def __init__(self):
        self.library = ctypes.CDLL(None)
        self.library.tdl_fault_name.restype = ctypes.c_char_p
        count = self.library.tdl_fault_count()
        self.numbers = {self.library.tdl_fault_name(i).decode(): i for i in range(count)}

    def arm(self, name=None, at=0, error=0):
        self.library.tdl_fault_arm(self.numbers[name] if name else -1, at, error)

    def disarm(self):
        self.library.tdl_fault_disarm()

    def closed_twice(self):
        return self.library.tdl_fault_closed_twice()

    def calls(self):
        return {name: self.library.tdl_fault_calls(number) for name, number in self.numbers.items()}

    def __enter__(self):
        """The calls of this thread are somebody else's for a while: a peer's, the test's."""
        self.library.tdl_fault_exempt(1)

    def __exit__(self, *args):
        self.library.tdl_fault_exempt(0)


class Lost(Exception):
    """A connection ended before its data was through."""


class Told:
    """Where exceptions end up that nobody raises to the scenario."""

    def __init__(self):
        self.exceptions = []

    def handler(self, loop, context):
        self.exceptions.append(context.get("exception") or RuntimeError(context["message"]))


@contextlib.contextmanager
def scratch(shim):
    """A folder. What removes it is not looked at: shutil closes a descriptor again whose close failed."""
    with shim:
        folder = tempfile.mkdtemp()
    try:
        yield folder
    finally:
        with shim:
            shutil.rmtree(folder)


# Scenarios: each is given the shim and a place for exceptions; it raises, or returns when all is as it should
# be.

DATA = b"0123456789" * 10


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


class Client(asyncio.Protocol):
    def __init__(self, told, size=len(DATA)):
        loop = asyncio.get_running_loop()
        self.told, self.size, self.got = told, size, 0
        self.done, self.lost = loop.create_future(), loop.create_future()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.got += len(data)
        if self.got >= self.size and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc):
        if exc is not None:
            self.told.exceptions.append(exc)
        if not self.done.done():
            self.done.set_exception(Lost())
        self.done.exception() if self.done.done() else None
        if not self.lost.done():
            self.lost.set_result(None)


async def talk(transport, client):
    transport.write(DATA)
    await client.done
    transport.close()
    await client.lost


async def idle(shim, told):
    await asyncio.sleep(0)


async def sleeps(shim, told):
    loop = asyncio.get_running_loop()
    for _ in range(3):
        await asyncio.sleep(0.001)
    woken = loop.create_future()
    thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(woken.set_result, None))
    thread.start()
    await woken
    thread.join()


async def spins(shim, told):
    for _ in range(40):  # long enough for the ring that tells of readiness to be armed
        await asyncio.sleep(0)
    await asyncio.sleep(0.001)


async def tcp(shim, told):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        transport, client = await loop.create_connection(lambda: Client(told), "127.0.0.1", port)
        await talk(transport, client)
    finally:
        server.close()


async def tcp_large(shim, told):
    """More than the kernel takes at once, both ways."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    size = 8_000_000
    try:
        address = server.sockets[0].getsockname()
        transport, client = await loop.create_connection(lambda: Client(told, size), *address)
        transport.write(bytes(size))
        await client.done
        transport.pause_reading()
        await asyncio.sleep(0)
        transport.resume_reading()
        transport.close()
        await client.lost
    finally:
        server.close()


async def streams(shim, told):
    async def serve(reader, writer):
        try:
            writer.write(await reader.readexactly(len(DATA)))
            await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    with scratch(shim) as folder:
        path = folder + "/s"
        server = await asyncio.start_unix_server(serve, path)
        try:
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(DATA)
                await writer.drain()
                await reader.readexactly(len(DATA))
            finally:
                writer.close()
                await writer.wait_closed()
        finally:
            server.close()


async def accepts(shim, told):
    """Peers that are not part of it."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    peers = []
    try:
        address = server.sockets[0].getsockname()
        with shim:
            for _ in range(3):
                peer = socket.create_connection(address)
                peers.append(peer)
                peer.sendall(DATA)
                peer.setblocking(False)
        for peer in peers:
            got = b""
            while len(got) < len(DATA):
                with shim:
                    try:
                        piece = peer.recv(1000)
                        if not piece:
                            raise Lost
                        got += piece
                        continue
                    except BlockingIOError:
                        pass
                    except ConnectionError:
                        raise Lost from None
                await asyncio.sleep(0.002)
    finally:
        server.close()
        with shim:
            for peer in peers:
                peer.close()
        await asyncio.sleep(0.01)


async def accepts_audited(shim, told):
    """With somebody who hears of each socket: an accepted one has its object at once."""
    sys.addaudithook(lambda event, args: None)
    await accepts(shim, told)


async def udp(shim, told):
    loop = asyncio.get_running_loop()
    got = loop.create_future()

    class Receiver(asyncio.DatagramProtocol):
        def datagram_received(self, data, addr):
            if not got.done():
                got.set_result(data)

        def error_received(self, exc):
            told.exceptions.append(exc)

        def connection_lost(self, exc):
            if exc is not None:
                told.exceptions.append(exc)

    a, _ = await loop.create_datagram_endpoint(Receiver, local_addr=("127.0.0.1", 0))
    try:
        address = a.get_extra_info("sockname") or a.get_extra_info("socket").getsockname()
        b, _ = await loop.create_datagram_endpoint(Receiver, remote_addr=address)
        try:
            for _ in range(3):
                b.sendto(DATA)
            await got
            b.sendto(DATA)
            await asyncio.sleep(0)
        finally:
            b.close()
    finally:
        a.close()
        await asyncio.sleep(0)


async def child(shim, told):
    process = await asyncio.create_subprocess_exec(
        "/bin/cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        out, _ = await process.communicate(DATA)
        if out != DATA or await process.wait() != 0:
            raise Lost
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def signals(shim, told):
    loop = asyncio.get_running_loop()
    came = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, lambda: came.done() or came.set_result(None))
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        await came
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)


async def executor(shim, told):
    loop = asyncio.get_running_loop()
    await asyncio.gather(*[loop.run_in_executor(None, time.sleep, 0.001) for _ in range(3)])
    await loop.shutdown_default_executor()


async def lookups(shim, told):
    loop = asyncio.get_running_loop()
    await loop.getaddrinfo("localhost", 80)
    await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
    await loop.shutdown_default_executor()


async def readers(shim, told):
    loop = asyncio.get_running_loop()
    with shim:
        a, b = socket.socketpair()
        a.setblocking(False)
    with a, b:
        readable, writable = loop.create_future(), loop.create_future()
        loop.add_reader(a, lambda: readable.done() or readable.set_result(None))
        try:
            loop.add_writer(a, lambda: writable.done() or writable.set_result(None))
            try:
                await writable
                with shim:
                    b.send(b"x")
                await readable
            finally:
                loop.remove_writer(a)
        finally:
            loop.remove_reader(a)


async def sock_calls(shim, told):
    loop = asyncio.get_running_loop()
    with socket.socket() as listener, socket.socket() as a:
        for sock in (listener, a):
            sock.setblocking(False)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        accepting = asyncio.ensure_future(loop.sock_accept(listener))
        try:
            await loop.sock_connect(a, listener.getsockname())
            b, _ = await accepting
        finally:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
        with b:
            receiving = asyncio.ensure_future(loop.sock_recv(b, 1000))
            await asyncio.sleep(0)
            try:
                await loop.sock_sendall(a, DATA)
                if await receiving != DATA:
                    raise Lost
            finally:
                receiving.cancel()
                await asyncio.gather(receiving, return_exceptions=True)
            sending = asyncio.ensure_future(loop.sock_sendall(a, bytes(5_000_000)))
            try:
                buffer, got = bytearray(1 << 20), 0
                while got < 5_000_000:
                    n = await loop.sock_recv_into(b, buffer)
                    if n == 0:
                        raise Lost
                    got += n
                await sending
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)


async def sendfile(shim, told):
    loop = asyncio.get_running_loop()
    with shim:
        file = tempfile.TemporaryFile()
        file.write(bytes(300_000))
        file.seek(0)
    with file:
        server = await loop.create_server(lambda: Sends(file, told), "127.0.0.1", 0)
        try:
            transport, client = await loop.create_connection(
                lambda: Client(told, 300_000), *server.sockets[0].getsockname()
            )
            await client.done
            transport.close()
            await client.lost
        finally:
            server.close()


class Sends(asyncio.Protocol):
    def __init__(self, file, told):
        self.file, self.told = file, told

    def connection_made(self, transport):
        self.task = asyncio.get_running_loop().create_task(self.send(transport))

    async def send(self, transport):
        try:
            await asyncio.get_running_loop().sendfile(transport, self.file)
        except Exception as exc:
            self.told.exceptions.append(exc)
            transport.abort()


async def pipes(shim, told):
    loop = asyncio.get_running_loop()
    with shim:
        r, w = os.pipe()
        read_end, write_end = open(r, "rb", 0), open(w, "wb", 0)
    try:
        transport, client = await loop.connect_read_pipe(lambda: Client(told), read_end)
        writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, write_end)
        try:
            writer.write(DATA)
            await client.done
        finally:
            writer.close()
        await client.lost
    finally:
        with shim:
            read_end.close()
            write_end.close()


def tls_contexts():
    """Anonymous keys: no certificate is needed."""
    contexts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in contexts:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")
    return contexts


CONTEXTS = tls_contexts()


async def tls(shim, told):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=CONTEXTS[0])
    try:
        transport, client = await loop.create_connection(
            lambda: Client(told), *server.sockets[0].getsockname(), ssl=CONTEXTS[1]
        )
        await talk(transport, client)
    finally:
        server.close()


def files(engine):
    async def scenario(shim, told):
        from treadle import fileio
        with scratch(shim) as folder:
            context = fileio.FileContext(engine=engine)
            try:
                fd = await context.open(folder + "/f", os.O_RDWR | os.O_CREAT)
                try:
                    await asyncio.gather(*[context.write(fd, DATA, i * len(DATA)) for i in range(4)])
                    await context.fdatasync(fd)
                    if (await context.read(fd, 4 * len(DATA), 0)) != DATA * 4:
                        raise Lost
                finally:
                    await context.close_fd(fd)
                if await context.read_file(folder + "/f", 1 << 20) != DATA * 4:
                    raise Lost
            finally:
                context.close()
    return scenario


async def file_object(shim, told):
    from treadle import fileio
    with scratch(shim) as folder:
        async with fileio.open(folder + "/f", "w") as file:
            await file.write("line\n" * 100)
        async with fileio.open(folder + "/f") as file:
            if len([line async for line in file]) != 100:
                raise Lost
        await fileio.copy(folder + "/f", folder + "/g")


SCENARIOS = {
    "idle": idle,
    "sleeps": sleeps,
    "spins": spins,
    "tcp": tcp,
    "tcp_large": tcp_large,
    "streams": streams,
    "accepts": accepts,
    "accepts_audited": accepts_audited,
    "udp": udp,
    "child": child,
    "signals": signals,
    "executor": executor,
    "lookups": lookups,
    "readers": readers,
    "sock_calls": sock_calls,
    "sendfile": sendfile,
    "pipes": pipes,
    "tls": tls,
    "files_threads": files("threads"),
    "files_uring": files("linux_uring"),
    "files_aio": files("linux_aio"),
    "file_object": file_object,
}
# Whose calls treadle.fileio makes, on any loop.
FILES = {name for name in SCENARIOS if name.startswith("file")}


def descriptors():
    return set(os.listdir("/proc/self/fd"))


def make_loop(arm):
    if arm == "asyncio":
        return asyncio.SelectorEventLoop()
    import treadle
    return treadle.Loop(io_uring=arm == "treadle")


def is_told(exc, error, seen=None):
    """Whether an exception, or what it is made of, says the errno."""
    while exc is not None:
        if getattr(exc, "errno", None) == error or os.strerror(error) in str(exc):
            return True
        if isinstance(exc, MemoryError) and error == errno.ENOMEM:
            return True
        if any(is_told(part, error) for part in getattr(exc, "exceptions", ())):
            return True
        exc = exc.__cause__ or exc.__context__
    return False


def judge(exc, told, error):
    """Labels for what the scenario raised and what was told beside it."""
    labels = set()
    if any(is_told(other, error) for other in (exc, *told.exceptions)):
        labels.add("told")
    if exc is None:
        labels.add("ok")
    elif isinstance(exc, (Lost, ConnectionError, EOFError)):
        labels.add("lost")
    elif isinstance(exc, (asyncio.TimeoutError, TimeoutError)) and getattr(exc, "errno", None) is None:
        if not labels:
            labels.add("stuck")
    elif not is_told(exc, error):
        labels.add("other " + type(exc).__name__)
    return labels


def run_cell(shim, arm, scenario, call, at, error):
    """In a child: its labels and the calls it made."""
    signal.alarm(int(STUCK_S * 3))
    warnings.simplefilter("ignore")
    import logging
    logging.disable(logging.CRITICAL)
    told = Told()
    sys.unraisablehook = lambda unraisable: told.exceptions.append(unraisable.exc_value)
    threading.excepthook = lambda args: told.exceptions.append(args.exc_value)
    before = descriptors()
    gc.disable()
    exc = None
    shim.arm(call, at, error)
    try:
        loop = make_loop(arm)
        loop.set_exception_handler(told.handler)
        try:
            loop.run_until_complete(asyncio.wait_for(SCENARIOS[scenario](shim, told), STUCK_S))
        finally:
            try:
                with_rest(loop)
            finally:
                calls = shim.calls()
                shim.disarm()
                loop.close()
    except Exception as raised:
        exc = raised
    calls = shim.calls()
    shim.disarm()
    labels = judge(exc, told, error)
    exc = told = loop = None
    gc.collect()
    left = descriptors() - before
    deadline = time.monotonic() + 1
    while left and time.monotonic() < deadline:  # threads may still be closing
        time.sleep(0.01)
        left = descriptors() - before
    if left:
        labels.add("leak")
    if shim.closed_twice():
        labels.add("twice")
    return labels, calls


def with_rest(loop):
    """As asyncio.run() ends: tasks are canceled, and what closed is told."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()

    async def rest():
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)

    loop.run_until_complete(rest())


def fork_cell(shim, *cell):
    """The labels and calls of a cell, from a child of its own."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(r)
            labels, calls = run_cell(shim, *cell)
            os.write(w, repr((labels, calls)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(w)
    with open(r, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return {"crash hangs" if number == signal.SIGALRM else f"crash {signal.Signals(number).name}"}, {}
    if status != 0 or not text:
        return {"crash exit"}, {}
    return eval(text)


GOOD = {"ok", "told", "lost"}


class Table:
    def __init__(self, verbose):
        self.shim = Shim()
        self.verbose = verbose
        self.cells = 0
        self.wrong = []
        self.reference = {}
        self.as_asyncio = 0
        self.explained = 0

    def asyncio_labels(self, scenario, call, name):
        """What asyncio's cells come to, over every k."""
        key = scenario, call, name
        if key not in self.reference:
            labels = set()
            _, calls = fork_cell(self.shim, "asyncio", scenario, None, 0, 0)
            for at in range(min(calls.get(call, 0), 40)):
                labels |= fork_cell(self.shim, "asyncio", scenario, call, at, getattr(errno, name))[0]
            self.reference[key] = labels
        return self.reference[key]

    def check(self, arm, scenario, call, at, name):
        labels, calls = fork_cell(self.shim, arm, scenario, call, at, getattr(errno, name))
        self.cells += 1
        bad = {label for label in labels if label not in GOOD}
        if self.verbose:
            print(arm, scenario, call, at, name, sorted(labels), flush=True)
        for label in sorted(bad):
            if any(
                (place, call, error, label) in EXPLAINED for place in (scenario, "*") for error in (name, "*")
            ):
                self.explained += 1
                print("explained:", arm, scenario, f"{call}[{at}]", name, sorted(labels), flush=True)
            elif scenario not in FILES and label in self.asyncio_labels(scenario, call, name):
                self.as_asyncio += 1
            else:
                self.wrong.append((arm, scenario, call, at, name, label))
                print("wrong:", arm, scenario, f"{call}[{at}]", name, sorted(labels), flush=True)

    def list_cells(self, scenarios, call=None):
        cells = []
        for scenario in scenarios:
            for arm in ("treadle", "treadle without io_uring"):
                labels, calls = fork_cell(self.shim, arm, scenario, None, 0, 0)
                if labels != {"ok"}:
                    print("wrong:", arm, scenario, "without a fault:", labels)
                    self.wrong.append((arm, scenario, None, 0, None, str(labels)))
                for function, count in calls.items():
                    if call in (None, function):
                        for at in range(min(count + 1, 40)):
                            cells += [
                                (arm, scenario, function, at, name) for name in ERRNOS.get(function, ())
                            ]
        return cells


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="every cell, not a sample")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only")
    parser.add_argument("--call")
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    import treadle
    import treadle.fileio
    treadle.new_event_loop().close()
    table = Table(args.verbose)
    cells = table.list_cells([args.only] if args.only else SCENARIOS, args.call)
    total = len(cells)
    deadline = time.monotonic() + args.seconds
    if not args.all:
        random.Random(args.seed).shuffle(cells)
    for cell in cells:
        if not args.all and time.monotonic() > deadline:
            break
        table.check(*cell)
    print(
        f"fault table: {table.cells} of {total} cells, seed {args.seed}: {len(table.wrong)} wrong, {table.as_asyncio} as asyncio, "
        f"{table.explained} explained"
    )
    return 1 if table.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
