"""docs/asyncio-compat.md: each deviation that it tells of names a test that holds it, and the small ones that
need no file of their own are held here, by what asyncio does and what treadle does."""
import ast
import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import gc
import os
import pathlib
import re
import signal
import socket
import sys
import types
from unittest import mock

import pytest

from conftest import preload, run_python
from sockets import tcp_pair
from test_mended import NEVER, mended
from test_tls import certificate, client_context, server_context  # noqa: F401
from twin import LOOP_MODULE, reference_loop, subject_loop, twin

pytestmark = pytest.mark.skipif(LOOP_MODULE != "treadle", reason="treadle's own deviations")
HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs/asyncio-compat.md"
VAR = contextvars.ContextVar("VAR", default="unset")

# The page. Under these headings each paragraph tells of deviations; a table does in its last column, sentence
# by sentence.
TOLD_IN_TEXT = ("Handles", "Transports", "nest_asyncio", "Audit events", "Servers", "Threads and forks")
TABLES = {"Loop": 3, "Transports": 3, "Mended on all versions": 4}  # the columns before each
MARK = re.compile(r"\[\^([\w-]+)\]")
NOTE = re.compile(r"^\[\^([\w-]+)\]: (.+)$", re.M)


def sections():
    text = NOTE.sub("", PAGE.read_text())
    parts = re.split(r"^## (.+)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def sentences(cell):
    """The sentences of a table's cell, each with the notes behind it."""
    return [part for part in re.split(r"(?:(?<=\.)|(?<=\]))\s+(?=[A-Z`])", cell.strip()) if part]


def statements():
    """Each text of the page that tells of a deviation."""
    for name, text in sections().items():
        blocks = [block.strip() for block in text.split("\n\n") if block.strip()]
        for block in blocks:
            if block.startswith("|"):
                for row in block.splitlines()[2:]:
                    cells = [cell.strip() for cell in row.strip("|").split(" | ")]
                    if name in TABLES and len(cells) >= TABLES[name] and cells[-1] not in ("", "|"):
                        yield from ((f"{name}: {cells[0]}", part) for part in sentences(cells[-1]))
            elif name in TOLD_IN_TEXT:
                yield name, block
            elif block.startswith("Right by construction"):
                yield from (("Right by construction", part) for part in re.split(r"[:;] ", block)[1:])


def notes():
    return dict(NOTE.findall(PAGE.read_text()))


@functools.cache
def names_in(file):
    tree = ast.parse((HERE / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_each_deviation_of_the_page_names_a_test():
    found = list(statements())
    assert len(found) > 60  # the page was read
    assert [(where, text) for where, text in found if not MARK.search(text)] == []


def test_each_test_that_the_page_names_is_there():
    marks, defined = set(MARK.findall(NOTE.sub("", PAGE.read_text()))), notes()
    assert marks == defined.keys()
    wrong = []
    for name, text in defined.items():
        tests = re.findall(r"`(\w+\.py)::(\w+)`", text)
        if not tests or re.sub(r"`\w+\.py::\w+`", "", text).strip(", ") or not all(
                (HERE / file).exists() and test in names_in(file) for file, test in tests):
            wrong.append((name, text))
    assert wrong == []


# The loop


def both(case, *args):
    """What a case returns on asyncio and on treadle."""
    outcomes = []
    for factory in (reference_loop, subject_loop):
        with contextlib.closing(factory()) as loop:
            outcomes.append(loop.run_until_complete(asyncio.wait_for(case(loop, *args), 20)))
            loop.run_until_complete(loop.shutdown_default_executor())
    return outcomes


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer reports the abort")
def test_a_loop_whose_descriptors_are_closed_while_it_runs_is_aborted(python):
    code = """
import asyncio, os, resource, sys, treadle
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
loop = asyncio.SelectorEventLoop() if sys.argv[1] == "asyncio" else treadle.new_event_loop()
loop.call_soon(os.closerange, 3, 1000)
loop.call_later(0.01, loop.stop)
try:
    loop.run_forever()
except OSError:
    print("OSError")
os._exit(0)
"""
    assert python("asyncio", code=code).stdout == "OSError\n"
    assert python("treadle", code=code).returncode == -signal.SIGABRT


def test_a_canceled_timer_leaves_the_loop_at_once():
    async def case(loop):
        class Callback:
            def __call__(self):
                pass

        before = sum(isinstance(o, asyncio.TimerHandle) for o in gc.get_objects())
        for _ in range(50):
            loop.call_later(1000, Callback()).cancel()
        return (
            len(loop._scheduled)
            if hasattr(loop, "_scheduled") and type(loop) is asyncio.SelectorEventLoop
            else sum(isinstance(o, asyncio.TimerHandle) for o in gc.get_objects()) - before
        )

    plain, ours = both(case)
    assert plain >= 50 and ours <= 0


def test_no_concurrent_future_is_behind_a_job():
    def futures():
        return sum(isinstance(o, concurrent.futures.Future) for o in gc.get_objects())

    async def case(loop):
        return await loop.run_in_executor(None, futures) - futures()

    plain, ours = both(case)
    assert ours == 0
    if sys.version_info < (3, 14):  # whose collector does not list it
        assert plain == 1


def test_what_sock_recv_returns_is_no_coroutine_of_the_interpreter_and_waits_for_a_blocking_socket():
    with contextlib.closing(subject_loop()) as loop:
        a, b = socket.socketpair()
        with a, b:
            awaitable = loop.sock_recv(a, 1)
            assert asyncio.iscoroutine(awaitable) and not isinstance(awaitable, types.CoroutineType)
            del awaitable  # and nothing warns
            loop.call_later(0.001, b.send, b"x")  # asyncio's would block before
            assert loop.run_until_complete(loop.sock_recv(a, 1)) == b"x"


def test_accepted_connections_have_no_delay_from_their_listener_and_no_task():
    async def case(loop):
        tasks = loop.create_future()
        server = await loop.create_server(
            lambda: tasks.set_result(len(asyncio.all_tasks())) or asyncio.Protocol(), "127.0.0.1", 0
        )
        delay = server.sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        with socket.create_connection(server.sockets[0].getsockname()):
            made = await tasks
            server.close()
            await turns(5)
        return bool(delay), made - len(asyncio.all_tasks())

    assert both(case) == [(False, 1), (True, 0)]


# Handles and transports


def test_handles_are_made_by_the_loop_alone():
    import treadle
    for cls in (treadle.Handle, treadle.TimerHandle):
        with pytest.raises(TypeError):
            cls()


def test_transports_have_class_names_of_their_own(certificate):  # noqa: F811
    async def case(loop):
        server = await asyncio.start_server(
            lambda r, w: w.close(), "127.0.0.1", 0, ssl=server_context(certificate)
        )
        _, writer = await asyncio.open_connection(
            *server.sockets[0].getsockname(), ssl=client_context(certificate)
        )
        udp, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
        names = [type(t).__name__ for t in (writer.transport, writer.transport._ssl_protocol._transport, udp)]
        writer.transport.abort()
        udp.close()
        server.close()
        await turns(5)
        return names

    assert both(case) == [["_SSLProtocolTransport", "_SelectorSocketTransport", "_SelectorDatagramTransport"],
                          ["SSLTransport", "TCPTransport", "UDPTransport"]]


def test_a_name_that_was_never_asked_for_is_none_when_the_connection_is_gone():
    async def case(loop):
        a, b = tcp_pair()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=a)
        transport.abort()
        await turns(3)
        b.close()
        return [transport.get_extra_info(name) is None for name in ("socket", "sockname", "peername")]

    assert both(case) == [[False, False, False], [False, True, False]]


async def filled(loop, folder):
    """A datagram transport whose buffer holds something, and how large each datagram was."""
    path = os.path.join(folder, type(loop).__name__)
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    peer.bind(path)
    transport, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=path, family=socket.AF_UNIX
    )
    while transport.get_write_buffer_size() < 5000:
        transport.sendto(b"x" * 1000)
    return transport, peer


def test_sendto_of_a_lost_endpoint_is_dropped():
    async def case(loop):
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
        )
        transport.close()
        await turns(3)
        try:
            return transport.sendto(b"x", ("127.0.0.1", 9))
        except AttributeError:
            return "AttributeError"

    assert both(case) == ["AttributeError", None]


def test_an_aborted_endpoint_holds_nothing(tmp_path):
    async def case(loop):
        transport, peer = await filled(loop, tmp_path)
        transport.abort()
        size = transport.get_write_buffer_size()
        await turns(3)
        peer.close()
        return size > 0

    assert both(case) == [sys.version_info < (3, 15), False]


def test_a_queued_datagram_counts_its_header_from_python_3_13_on(tmp_path):
    async def case(loop):
        transport, peer = await filled(loop, tmp_path)
        size = transport.get_write_buffer_size()
        transport.abort()
        await turns(3)
        peer.close()
        return size % 1000

    each = 8 if sys.version_info >= (3, 13) else 0
    assert both(case)[1] == each * 5


def test_the_callbacks_of_an_endpoint_share_one_context():
    async def case(loop):
        got = loop.create_future()

        class Protocol(asyncio.DatagramProtocol):
            def connection_made(self, transport):
                VAR.set("made")

            def datagram_received(self, data, addr):
                got.set_result(VAR.get())

        transport, _ = await loop.create_datagram_endpoint(Protocol, local_addr=("127.0.0.1", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"x", transport.get_extra_info("sockname"))
            seen = await got
        transport.close()
        await turns(3)
        return seen, VAR.get()

    plain, ours = both(case)
    assert ours == ("made", "unset")
    if sys.version_info < (3, 15):
        assert plain == ("unset", "unset")


def test_a_bytearray_of_get_buffer_is_filled_in_place_by_every_record(certificate):  # noqa: F811
    async def case(loop):
        got = loop.create_future()

        class Buffered(asyncio.BufferedProtocol):
            buffer = bytearray(1000)

            def get_buffer(self, hint):
                return self.buffer

            def buffer_updated(self, count):
                if not got.done():
                    got.set_result(bytes(self.buffer[:count]))

        server = await loop.create_server(Buffered, "127.0.0.1", 0, ssl=server_context(certificate))
        _, writer = await asyncio.open_connection(
            *server.sockets[0].getsockname(), ssl=client_context(certificate)
        )
        writer.write(b"one")
        writer.write(b"two")
        data = await got
        writer.transport.abort()
        server.close()
        await turns(10)
        return data

    assert both(case) == [b"one\0\0\0", b"onetwo"]


def test_the_marks_of_tls_are_numbers(certificate):  # noqa: F811
    class Mark:
        __ge__ = __le__ = __gt__ = __lt__ = lambda self, other: True

    async def case(loop):
        server = await asyncio.start_server(
            lambda r, w: w.close(), "127.0.0.1", 0, ssl=server_context(certificate)
        )
        _, writer = await asyncio.open_connection(
            *server.sockets[0].getsockname(), ssl=client_context(certificate)
        )
        try:
            writer.transport.set_write_buffer_limits(high=Mark(), low=0)
        except TypeError:
            return "TypeError"
        finally:
            writer.transport.abort()
            server.close()
            await turns(10)

    assert both(case) == [None, "TypeError"]


# Audit events


def test_the_hook_for_held_writes_is_told_to_hooks_and_a_lookup_in_the_loops_thread(python):
    code = """
import asyncio, socket, sys, threading
import twin
from sockets import made_by_loop
events = []
sys.addaudithook(lambda event, args: events.append(event) if event == "sys.addaudithook" else
                 events.append(threading.current_thread() is threading.main_thread())
                 if event == "socket.getaddrinfo" else None)

async def main(loop):
    transport, _, peer = await made_by_loop(loop, asyncio.Protocol, "unix")
    transport.write(b"x")
    await asyncio.sleep(0)
    await loop.getaddrinfo("localhost", 80)
    transport.abort()
    peer.close()

loop = twin.gathering_loop() if sys.argv[1] == "treadle" else asyncio.SelectorEventLoop()
loop.run_until_complete(main(loop))
print(events)
"""
    assert python("asyncio", code=code, check=True).stdout == "[False]\n"
    assert python("treadle", code=code, check=True).stdout == "['sys.addaudithook', True]\n"


# What newer Pythons mended, and what they did not


def test_a_connection_aborted_while_it_waits_to_be_accepted_stops_nothing(tmp_path):
    code = """
import asyncio, errno, socket, sys
import fault_table, treadle
shim = fault_table.Shim()
loop = treadle.new_event_loop()

async def main():
    made = loop.create_future()
    def factory():
        if not made.done():
            made.set_result("made")
        return asyncio.Protocol()

    server = await loop.create_server(factory, "127.0.0.1", 0)
    loop.set_exception_handler(lambda loop, context: print(context))
    shim.arm("accept4", 1, errno.ECONNABORTED)
    with socket.create_connection(server.sockets[0].getsockname()):
        print(await made)
    print(shim.calls()["accept4"] > 1)
    shim.disarm()
    server.close()

loop.run_until_complete(asyncio.wait_for(main(), 20))
"""
    done = run_python(code=code, env=preload("fault", tmp_path), check=True)
    assert done.stdout == "made\nTrue\n"


@pytest.mark.parametrize("count", range(6))
def test_a_server_that_is_closed_while_it_accepts_tells_nothing(count):
    """asyncio's task for an accepted connection finds the server closed, and tells of an AssertionError."""
    async def case(loop):
        told = []
        loop.set_exception_handler(lambda loop, context: told.append(context))
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()):
            await turns(count)
            server.close()
            await turns(5)
        await turns(10)
        return told

    assert both(case)[1] == []


def test_a_timer_is_due_though_the_clock_cannot_tell_its_resolution_apart():
    with contextlib.closing(subject_loop()) as loop, mock.patch.object(loop, "time", return_value=2.0**60):
        loop.call_at(2.0**60, loop.stop)
        loop.run_forever()


@mended(NEVER)
async def test_writes_behind_a_close_are_no_error(t):
    a, b = tcp_pair()
    lost = t.loop.create_future()

    class Protocol(asyncio.Protocol):
        def connection_lost(self, exc):
            lost.set_result(exc)

    transport, _ = await t.loop.create_connection(Protocol, sock=a)
    b.setblocking(False)
    transport.write(b"x" * 8_000_000)
    transport.close()
    transport.write(b"late")
    assert transport.is_closing() and transport.get_write_buffer_size() > 0
    count, last = 0, b""
    while data := await t.loop.sock_recv(b, 1 << 20):
        count, last = count + len(data), data
    assert count >= 8_000_000
    assert await lost is None
    transport.write(b"later")
    b.close()


@twin
async def test_a_handles_text_tells_arguments_as_the_running_python_does(t):
    handle = t.loop.call_soon(print, "secret")
    t.log("secret" in repr(handle))
    handle.cancel()


@twin
async def test_the_exception_handler_has_the_context_that_the_running_python_gives_it(t):
    seen = []
    t.loop.set_exception_handler(lambda loop, context: seen.append(VAR.get()))
    context = contextvars.copy_context()
    context.run(VAR.set, "the callback's")
    t.loop.call_soon(lambda: 1 / 0, context=context)
    await t.turns(2)
    t.log(seen)


# Seams


HANDLE_CLASS = """
import asyncio, sys
from unittest import mock
import twin

class Handle(asyncio.Handle):
    __slots__ = ()

    def __init__(self, callback, *args):
        made.append(callback)
        super().__init__(callback, *args)

async def main():
    with mock.patch.object(asyncio.events, "Handle", Handle):
        asyncio.get_running_loop().call_soon(int)

made = []
loop = twin.subject_loop() if sys.argv[1] == "treadle" else asyncio.SelectorEventLoop()
loop.run_until_complete(main())
loop.close()
print(int in made)
"""


def test_a_class_in_the_place_of_asyncios_handle_is_not_noticed_by_itself(python):
    """In a process of its own: a class that was changed a thousand times, as other tests do, has no version
    any more."""
    assert [python("-c", HANDLE_CLASS, arm, check=True).stdout for arm in ("asyncio", "treadle")] == [
        "True\n",
        "False\n",
    ]


def test_a_clock_that_is_written_into_the_loops_dictionary_is_not_noticed():
    async def case(loop):
        ran = []
        names = loop.__dict__
        await turns(2)
        later = loop.time() + 10
        names["time"] = lambda: later
        loop.call_at(later - 1, ran.append, "by the clock")
        await turns(3)
        del names["time"]
        return ran

    assert both(case) == [["by the clock"], []]
