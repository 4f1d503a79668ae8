"""Misuse that must end in an exception or in nothing, never in an abort, a hang, or another's descriptor."""
import asyncio
import contextlib
import contextvars
import ctypes
import errno
import gc
import os
import resource
import select
import socket
import sys
import threading
import weakref

import pytest

import treadle


def pair():
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    return a, b


def move_to(fd, number):
    """Make the file of fd be known by number too, as a reuse of a closed number would."""
    if fd != number:
        os.dup2(fd, number)
        os.close(fd)


def turns(loop, count=3):
    for _ in range(count):
        loop.call_soon(loop.stop)
        loop.run_forever()


def wait_child(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Unchecked(treadle.Loop):
    """A loop whose Python checks are off, as nest_asyncio leaves it."""

    def _check_running(self):
        pass


class Destructor:
    """A callback whose end runs code."""

    def __init__(self, action):
        self.action = action

    def __call__(self, *args):
        pass

    def __del__(self):
        self.action()


def test_a_nested_run_is_refused():
    loop = Unchecked()
    seen = []

    def nested():
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_forever()
        with pytest.raises(RuntimeError, match="already running"):
            loop._run(True)
        seen.append(True)

    loop.call_soon(nested)
    turns(loop)
    loop.close()
    assert seen


def test_closing_from_a_callback_is_refused_whatever_is_running_says(loop):
    seen = []

    def close():
        loop._thread_id = None
        with pytest.raises(RuntimeError, match="Cannot close a running event loop"):
            loop.close()
        seen.append(True)

    loop.call_soon(close)
    turns(loop)
    assert seen and not loop.is_closed()


def test_a_second_thread_cannot_run_or_close_a_sleeping_loop():
    loop = Unchecked()
    errors = []

    def other():
        for call in (lambda: loop._run(False), loop._close_native):
            try:
                call()
            except RuntimeError as exc:
                errors.append(str(exc))
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=other)
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()
    loop.close()
    assert errors == ["This event loop is already running", "Cannot close a running event loop"]


@pytest.mark.parametrize("path", ["/dev/null", __file__])
def test_a_number_that_became_a_file_before_the_poll_is_never_ready(loop, path):
    a, b = pair()
    number = a.fileno()
    called = []

    def watch():
        loop.add_reader(number, called.append, 1)
        a.close()
        move_to(os.open(path, os.O_RDONLY), number)

    loop.call_soon(watch)
    turns(loop, 5)
    loop.remove_reader(number)
    os.close(number)
    b.close()
    assert not called


def test_a_watched_number_may_become_a_regular_file(loop):
    a, b = pair()
    number = a.fileno()
    loop.add_reader(number, int)
    turns(loop)
    a.close()
    move_to(os.open(__file__, os.O_RDONLY), number)
    loop.add_writer(number, int)
    turns(loop)
    loop.remove_reader(number)
    loop.remove_writer(number)
    os.close(number)
    b.close()


def test_threads_may_close_what_a_loop_watches(loop):
    loop.set_exception_handler(lambda loop, context: None)

    def churn():
        for i in range(300):
            a, b = pair()
            loop.add_reader(a, int)
            loop.call_soon_threadsafe(int)
            if i % 3 == 0:
                loop.remove_reader(a)
            a.close()
            b.close()
        loop.call_soon_threadsafe(done.pop)
        loop.call_soon_threadsafe(lambda: done or loop.stop())

    done = [1, 1]
    threads = [threading.Thread(target=churn) for _ in done]
    for thread in threads:
        loop.call_soon(thread.start)
    loop.run_forever()
    for thread in threads:
        thread.join()


def test_another_thread_may_register_anew_what_it_let_go_of_while_the_loop_sleeps(loop):
    a, b = pair()
    loop.add_reader(a, int)
    seen = []
    errors = []

    def read():
        seen.append(a.recv(10))
        loop.stop()

    def other():
        try:
            loop.remove_reader(a)
            loop.add_reader(a, read)
        except OSError as exc:
            errors.append(exc)
            loop.call_soon_threadsafe(loop.stop)
        b.send(b"x")

    thread = threading.Thread(target=other)
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()
    loop.remove_reader(a)
    a.close()
    b.close()
    assert (seen, errors) == ([b"x"], [])


def test_a_reader_registered_anew_in_each_turn_is_called(loop):
    a, b = pair()
    rounds = []

    def read():
        a.recv(1)
        loop.remove_reader(a)
        rounds.append(1)
        if len(rounds) == 50:
            loop.stop()
        else:
            loop.add_reader(a, read)
            b.send(b"x")

    loop.add_reader(a, read)
    b.send(b"x")
    loop.run_forever()
    a.close()
    b.close()
    assert len(rounds) == 50


@pytest.mark.parametrize("number", [10**7, 2**30, 2**31 - 1])
def test_a_huge_number_costs_no_memory(loop, number):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(OSError):
        loop.add_reader(number, int)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


@pytest.mark.parametrize("method", ["add_reader", "add_writer"])
def test_the_replaced_callback_may_close_the_loop(loop, method):
    a, b = pair()
    getattr(loop, method)(a, Destructor(loop.close))
    getattr(loop, method)(a, int)
    assert loop.is_closed()
    a.close()
    b.close()


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_the_removed_callback_may_close_the_loop(loop, kind):
    a, b = pair()
    getattr(loop, f"add_{kind}")(a, Destructor(loop.close))
    assert getattr(loop, f"remove_{kind}")(a)
    assert loop.is_closed()
    a.close()
    b.close()


def test_destructors_may_use_the_loop_that_drops_them(loop):
    a, b = pair()
    refused = []

    def use():
        for call in (
            loop.close,
            loop._close_native,
            lambda: loop.call_soon(int),
            lambda: loop.add_reader(b, int),
            lambda: loop.remove_reader(a),
            lambda: loop.call_later(1, int),
            loop.run_forever,
        ):
            try:
                call()
            except RuntimeError as exc:
                refused.append(str(exc))

    loop.call_soon(Destructor(use))
    loop.call_later(99, Destructor(use))
    loop.add_reader(a, Destructor(use))
    loop.add_writer(a, Destructor(use))
    loop.close()
    gc.collect()
    a.close()
    b.close()
    assert set(refused) == {"Event loop is closed"} and len(refused) == 16


def test_comparing_timers_may_cancel_them(loop):
    class Callback:
        def __call__(self):
            pass

        def __eq__(self, other):
            first.cancel()
            second.cancel()
            return NotImplemented

    when = loop.time() + 99
    first = loop.call_at(when, Callback())
    second = loop.call_at(when, Callback())
    assert first != second


def test_what_a_dropped_context_schedules_runs_before_the_loop_sleeps(loop):
    var = contextvars.ContextVar("var")

    class Value:
        def __del__(self):
            loop.call_soon(loop.stop)

    def set_var():
        var.set(Value())
        loop.call_soon(int)

    loop.call_soon(set_var, context=contextvars.Context())
    loop.run_forever()  # without a timer: it would sleep for ever


def test_a_callback_scheduled_while_the_loop_closes_leaks_nothing():
    class Closing(treadle.Loop):
        armed = False

        def _check_callback(self, callback, method):
            if self.armed:
                self.close()

    class Value:
        pass

    loop = Closing()
    loop.set_debug(True)
    loop.armed = True
    value = Value()
    ref = weakref.ref(value)
    try:
        loop.call_soon(lambda value=value: None)
    except RuntimeError:
        pass
    del value, loop
    gc.collect()
    assert ref() is None


async def stream(loop, sock, factory=asyncio.Protocol):
    return (await loop.create_connection(factory, sock=sock))[0]


def test_a_failing_write_on_a_closed_loop_raises(loop):
    a, b = pair()
    transport = loop.run_until_complete(stream(loop, a))
    loop.close()
    b.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        for _ in range(3):
            transport.write(b"x")
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        del transport
        gc.collect()
    assert a.fileno() == -1


def test_a_write_never_reaches_who_has_the_number_next(loop):
    a, b = pair()
    transport = loop.run_until_complete(stream(loop, a))
    number = a.fileno()
    a.close()
    c, d = pair()
    move_to(c.detach(), number)
    transport.write(b"secret")
    transport.writelines([b"secret"])
    turns(loop)
    with pytest.raises(BlockingIOError):
        d.recv(10)
    assert transport.is_closing()
    b.close()
    d.close()
    os.close(number)


@pytest.mark.parametrize("way", ["unconnected", "connected", "queued"])
def test_a_datagram_never_reaches_who_has_the_number_next(loop, way, tmp_path):
    unix = way == "queued"  # where the kernel refuses what a peer does not read
    a, peer = (socket.socket(socket.AF_UNIX if unix else socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for name, sock in (("a", a), ("peer", peer)):
        sock.bind(str(tmp_path / name) if unix else ("127.0.0.1", 0))
        sock.setblocking(False)
    address = None if way == "connected" else peer.getsockname()
    if way == "connected":
        a.connect(peer.getsockname())
    told = []
    protocol = type("P", (asyncio.DatagramProtocol,), {})()
    protocol.error_received = lambda exc: told.append(exc.errno)
    protocol.datagram_received = lambda data, addr: told.append(data)
    transport, _ = loop.run_until_complete(loop.create_datagram_endpoint(lambda: protocol, sock=a))
    turns(loop)
    while way == "queued" and not transport.get_write_buffer_size():
        transport.sendto(b"secret", address)
    number, duplicate = a.fileno(), a.dup()  # epoll goes on telling of a file that somebody still has
    a.close()
    c, d = pair() if way == "connected" else socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    d.setblocking(False)
    move_to(c.detach(), number)
    d.send(b"another's")
    while way == "queued" and select.select([peer], [], [], 0)[0]:
        peer.recv(10)
    transport.sendto(b"secret", address)
    turns(loop)
    with pytest.raises(BlockingIOError):
        d.recv(10)
    assert os.read(number, 20) == b"another's"
    assert told and set(told) == {errno.EBADF}
    transport.abort()
    turns(loop)
    os.fstat(number)
    for sock in (peer, d, duplicate):
        sock.close()
    os.close(number)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_listener_closed_behind_its_server_takes_no_connections_of_the_next(loop, kind, tmp_path):
    def listener(name):
        if kind == "tcp":
            return socket.create_server(("127.0.0.1", 0))
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(tmp_path / name))
        sock.listen()
        return sock

    served = []
    first, second = listener("a"), listener("b")
    server = loop.run_until_complete(
        loop.create_server(lambda: served.append(1) or asyncio.Protocol(), sock=first)
    )
    number, duplicate = first.fileno(), first.dup()  # epoll goes on telling of a file that somebody still has
    address = first.getsockname()
    loop.run_until_complete(asyncio.sleep(0))
    server.sockets[0]._sock.close()
    move_to(second.detach(), number)
    second = socket.socket(fileno=number)
    clients = [socket.socket(second.family) for _ in range(2)]
    clients[0].connect(address)
    clients[1].connect(second.getsockname())
    turns(loop, 5)
    second.setblocking(False)
    second.accept()[0].close()
    assert not served
    for sock in (*clients, second, duplicate):
        sock.close()
    with contextlib.suppress(ValueError):  # as asyncio's, which asks a closed socket for its number
        server.close()
    turns(loop)


@pytest.mark.parametrize("operation", ["sock_recv", "sock_recv_into", "sock_sendall"])
def test_an_operation_made_before_its_socket_was_closed_does_not_touch_the_next(loop, operation):
    async def main():
        a, b = pair()
        argument = {"sock_recv": 10, "sock_recv_into": bytearray(10), "sock_sendall": b"secret"}[operation]
        waiting = getattr(loop, operation)(a, argument)
        number = a.fileno()
        a.close()
        c, d = pair()
        move_to(c.detach(), number)
        d.send(b"secret")
        with pytest.raises(OSError):
            await waiting
        with pytest.raises(BlockingIOError):
            d.recv(10)
        os.close(number)
        b.close()
        d.close()

    loop.run_until_complete(main())


def test_sock_recv_on_a_reused_number_is_woken(loop):
    async def recv(sock):
        return await loop.sock_recv(sock, 10)

    async def main():
        a, b = pair()
        first = loop.create_task(recv(a))
        await asyncio.sleep(0.001)
        number = a.fileno()
        a.close()
        c, d = pair()
        move_to(c.detach(), number)
        again = socket.socket(fileno=number)
        again.setblocking(False)
        second = loop.create_task(recv(again))
        await asyncio.sleep(0)
        d.send(b"x")
        assert await asyncio.wait_for(second, 5) == b"x"
        first.cancel()
        for sock in (again, b, d):
            sock.close()

    loop.run_until_complete(main())


def test_lines_may_abort_the_transport_they_are_for(loop):
    async def main():
        a, b = pair()
        transport = await stream(loop, a)

        def lines():
            yield b"a"
            transport.abort()
            yield b"b"

        transport.writelines(lines())
        assert transport.get_write_buffer_size() == 0
        await asyncio.sleep(0)
        b.close()

    loop.run_until_complete(main())


def in_child(action):
    """Run action in a forked child; return its exit code, or minus the signal."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except BaseException:
            os._exit(9)
        os._exit(0)
    return wait_child(pid)


def test_a_child_may_close_what_the_parent_watches(loop):
    a, b = pair()
    loop.add_reader(a, int)
    turns(loop)

    def child():
        a.close()
        b.close()
        turns(loop)
        loop.close()

    assert in_child(child) == 0
    a.close()
    b.close()


def test_a_child_may_close_every_descriptor_and_go_on_with_the_loop(loop):
    a, b = pair()
    loop.add_reader(a, int)
    turns(loop)

    def child():
        os.closerange(3, 256)
        turns(loop)
        loop.close()

    assert in_child(child) == 0
    turns(loop)
    a.close()
    b.close()


def test_a_loop_whose_descriptors_were_closed_can_be_closed(python):
    result = python(code="""
import os, treadle

for ran in (False, True):
    loop = treadle.new_event_loop()
    if ran:
        loop.call_soon(loop.stop)
        loop.run_forever()
    os.closerange(3, 256)
    loop.close()
""")
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python classes export buffers from 3.12 on")
def test_the_end_of_a_buffer_may_end_the_wait_again(loop):
    a, b = pair()

    class Buffer:
        def __buffer__(self, flags):
            return memoryview(bytearray(5))

        def __release_buffer__(self, view):
            waiting.close()
            view.release()

    waiting = loop.sock_recv_into(a, Buffer())
    waiting.send(None)
    waiting.close()
    a.close()
    b.close()


@pytest.mark.parametrize("limit", range(0, 8))
def test_a_child_without_descriptors_is_told_so(loop, limit):
    turns(loop)

    def child():
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        sys.unraisablehook = lambda unraisable: None
        try:
            turns(loop)
        except OSError:
            pass
        assert not loop.is_running()
        loop.close()

    assert in_child(child) == 0
    turns(loop)


def test_a_loop_that_finds_no_descriptors_leaves_none_behind(python):
    result = python(code="""
import os, resource, treadle

def count():
    return len(os.listdir("/proc/self/fd"))

base = count()
ran = 0
for spare in range(16):
    resource.setrlimit(resource.RLIMIT_NOFILE, (base - 1 + spare, 4096))
    try:
        loop = treadle.new_event_loop()
        try:
            loop.call_soon(loop.stop)
            loop.run_forever()
            ran += 1
        finally:
            loop.close()
    except OSError:
        pass
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
    assert count() == base, (spare, count(), base)
assert ran > 4
""")
    assert result.returncode == 0, result.stderr


PLACES = [
    "connection_made",
    "data_received",
    "pause_writing",
    "resume_writing",
    "eof_received",
    "connection_lost",
]


def protocol(place, action):
    class Protocol(asyncio.Protocol):
        transport = None

        def at(self, name):
            if name == place:
                action(self.transport)

        def connection_made(self, transport):
            self.transport = transport
            transport.set_write_buffer_limits(10, 5)
            self.at("connection_made")

        def data_received(self, data):
            self.at("data_received")
            self.transport.write(b"y" * 500_000)

        def pause_writing(self):
            self.at("pause_writing")

        def resume_writing(self):
            self.at("resume_writing")

        def eof_received(self):
            self.at("eof_received")

        def connection_lost(self, exc):
            self.at("connection_lost")

    return Protocol


def raise_it(exc):
    def action(transport):
        raise exc

    return action


ACTIONS = {
    "close": lambda transport: transport.close(),
    "abort": lambda transport: transport.abort(),
    "write_eof": lambda transport: transport.write_eof(),
    "write": lambda transport: transport.write(b"z" * 100_000),
    "no protocol": lambda transport: transport.set_protocol(None),
    "socket closed": lambda transport: transport._sock and transport._sock.close(),
    "collect": lambda transport: gc.collect() and None,
    "error": raise_it(ValueError("x")),
    "canceled": raise_it(asyncio.CancelledError()),
    "exit": raise_it(SystemExit(3)),
    "interrupt": raise_it(KeyboardInterrupt()),
    "generator exit": raise_it(GeneratorExit()),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("action", list(ACTIONS))
def test_anything_may_happen_in_each_callback_of_a_protocol(loop, place, action):
    loop.set_exception_handler(lambda loop, context: None)
    a, b = pair()
    task = loop.create_task(stream(loop, a, protocol(place, ACTIONS[action])))

    def peer():
        try:
            b.send(b"hello")
            while b.recv(1 << 20):
                pass
        except OSError:
            pass

    for step in range(30):
        if step == 20:
            b.shutdown(socket.SHUT_WR)
        elif step < 20:
            peer()
        try:
            turns(loop, 1)
        except (SystemExit, KeyboardInterrupt):
            pass
    b.close()
    try:
        turns(loop)
    except (SystemExit, KeyboardInterrupt):
        pass
    if task.done() and not task.cancelled():
        task.exception()
    task.cancel()
    turns(loop)


@pytest.mark.parametrize("kind", ["stream", "datagram"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_context_that_a_protocol_leaves_entered_is_told_and_the_loop_goes_on(loop, kind):
    """As C extensions may: the transport's context cannot be left then, nor entered again, and the transport
    ends."""
    enter, leave = ctypes.pythonapi.PyContext_Enter, ctypes.pythonapi.PyContext_Exit
    told, entered, lost = [], [], []
    loop.set_exception_handler(lambda loop, context: told.append(type(context["exception"])))

    def receive(*args):
        entered.append(contextvars.copy_context())
        enter(ctypes.py_object(entered[0]))

    class Protocol(asyncio.Protocol, asyncio.DatagramProtocol):
        data_received = receive
        datagram_received = receive

        def connection_lost(self, exc):
            lost.append(type(exc))

    a, b = socket.socketpair(type=socket.SOCK_STREAM if kind == "stream" else socket.SOCK_DGRAM)
    make = loop.create_connection if kind == "stream" else loop.create_datagram_endpoint
    loop.run_until_complete(make(Protocol, sock=a))
    b.send(b"x")
    while not told:
        turns(loop, 1)
    assert told == [RuntimeError]
    b.send(b"x")
    while not lost:
        turns(loop, 1)
    leave(ctypes.py_object(entered[0]))
    assert lost == [RuntimeError] and len(entered) == 1 and a.fileno() == -1
    b.close()
