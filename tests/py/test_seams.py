"""Short cuts step aside: whatever somebody puts in the place of a method that asyncio calls is called on
treadle too."""
import asyncio
import collections
import contextlib
import functools
import inspect
import pathlib
import pickle
import queue
import re
import socket
import sys
import unittest
from asyncio import base_events
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

import seams
from sockets import tcp_pair
from twin import LOOP_MODULE, reference_loop, subject_loop, twin

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/asyncio-compat.md"


def documented():
    """The seams of the page's table of those that differ, each with its reason; of all scenarios, or of one
    ("process: ...")."""
    rows = re.findall(r"^\| `([\w.: ]+)` \| (.+?) \|$", PAGE.read_text().partition("## Seams")[2], re.M)
    return dict(rows)


def run(factory, scenario, replacements, late):
    """One run of a scenario with methods replaced: before the loop is made, or while it runs. What each
    recorder saw."""
    seen = {(cls, name): [] for cls, name in replacements}
    stack = contextlib.ExitStack()

    def install():
        for (cls, name), calls in seen.items():
            stack.enter_context(seams.replaced(cls, name, calls))

    async def main():
        if late:
            install()
        await scenario(asyncio.get_running_loop())

    if not late:
        install()
    loop = factory()
    try:
        with stack:
            loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
    return seen


async def nothing(loop):
    pass


def told(factory, name, target, late):
    """What of the calls of a scenario has to be the same: all that were made, in any order, beside those of a
    loop that does nothing; which, where a process's output comes as it likes."""
    calls = [
        call
        for call in run(factory, seams.SCENARIOS[name], [target], late)[target]
        if call not in seams.OF_SELF_PIPE
    ]
    if target[1] in seams.COUNTLESS:
        return bool(calls)
    if name == "process":
        return set(calls)
    return collections.Counter(calls) - collections.Counter(run(factory, nothing, [target], late)[target])


@pytest.mark.parametrize("late", [False, True], ids=["replaced before", "replaced meanwhile"])
@pytest.mark.parametrize("name", seams.SCENARIOS)
def test_what_is_put_in_the_place_of_a_method_that_asyncio_calls_is_called(name, late):
    scenario = seams.SCENARIOS[name]
    asked = [
        target for target, calls in run(reference_loop, scenario, seams.targets(), late).items() if calls
    ]
    assert asked
    wrong, page = [], documented()
    for cls, method in asked:
        expected = told(reference_loop, name, (cls, method), late)
        got = told(subject_loop, name, (cls, method), late)
        if got != expected and not page.keys() & {
            seams.label(cls, method),
            f"{name}: {seams.label(cls, method)}",
        }:
            wrong.append(f"{seams.label(cls, method)}\n  asyncio: {expected}\n  {LOOP_MODULE}: {got}")
    assert not wrong, "\n".join(wrong)


def test_the_page_names_seams_that_there_are():
    # New in Python 3.12.
    known = {seams.label(*target) for target in seams.targets()} | {"Handle.get_context"}
    for row in documented():
        name, _, target = row.rpartition(": ")
        assert target in known and (not name or name in seams.SCENARIOS), row


# One by one: where and how methods are replaced


def _traced(submit):
    @functools.wraps(submit)
    def traced(self, function, *args):
        return submit(self, lambda: ("traced", function(*args)))
    return traced


@twin
async def test_a_pools_submit_is_called_if_it_is_replaced_on_the_class_or_on_the_pool(t):
    submit = ThreadPoolExecutor.submit
    with ThreadPoolExecutor(1) as pool:
        t.log(await t.loop.run_in_executor(pool, str, 1))
        with mock.patch.object(ThreadPoolExecutor, "submit", _traced(submit)):
            t.log(await t.loop.run_in_executor(pool, str, 2), await t.loop.run_in_executor(None, str, 2))
        pool.submit = lambda function, *args: submit(pool, lambda: "the pool's own")
        t.log(await t.loop.run_in_executor(pool, str, 3), await t.loop.run_in_executor(None, str, 3))
        del pool.submit
        t.log(await t.loop.run_in_executor(pool, str, 4))


@twin
async def test_a_function_of_the_pool_whose_code_is_replaced_is_called(t):
    submit, seen = ThreadPoolExecutor.submit, t.channels.setdefault("seen", [])
    code, ThreadPoolExecutor._seen = submit.__code__, seen
    copy = type(submit)(code, submit.__globals__, "submit", submit.__defaults__, submit.__closure__)
    ThreadPoolExecutor._copy = staticmethod(copy)
    try:
        submit.__code__ = (lambda self, fn, /, *args, **kwargs:
                           self._seen.append("called") or self._copy(self, fn, *args, **kwargs)).__code__
        await t.loop.run_in_executor(None, int)
    finally:
        submit.__code__ = code
        del ThreadPoolExecutor._copy, ThreadPoolExecutor._seen


@twin
async def test_a_pool_with_a_queue_or_threads_of_its_own_uses_them(t):
    with ThreadPoolExecutor(1) as pool:
        class Queue(queue.SimpleQueue):
            def put(self, item, *args):
                t.log("put", item is None)
                super().put(item, *args)

        pool._work_queue = Queue()
        await t.loop.run_in_executor(pool, int)
        adjust = pool._adjust_thread_count
        pool._adjust_thread_count = lambda: (t.log("adjust"), adjust())
        await t.loop.run_in_executor(pool, int)
    # How often the pool's threads are told to end.
    t.channels["main"] = [e for e in t.channels["main"] if e != ("put", True)]


@twin
async def test_a_wrapper_of_asyncios_run_in_executor_is_called(t):
    original = base_events.BaseEventLoop.run_in_executor

    def wrapped(self, executor, function, *args):
        t.log("called", args)
        return original(self, executor, function, *args)

    with mock.patch.object(base_events.BaseEventLoop, "run_in_executor", wrapped):
        t.log(await t.loop.run_in_executor(None, str, 5))
        t.log(len(await t.loop.getaddrinfo("127.0.0.1", 80)) > 0)
    t.log(await t.loop.run_in_executor(None, str, 6))


@twin
async def test_a_mock_in_the_place_of_a_method_is_no_method(t):
    with mock.patch.object(base_events.BaseEventLoop, "call_soon", return_value="mocked") as call_soon:
        t.log(t.loop.call_soon(print, 1), call_soon.mock_calls == [mock.call(print, 1)])
    with mock.patch.object(
        base_events.BaseEventLoop, "run_in_executor", return_value="mocked"
    ) as run_in_executor:
        t.log(t.loop.run_in_executor(None, int), run_in_executor.mock_calls == [mock.call(None, int)])


@twin
async def test_timers_follow_a_clock_in_the_place_of_the_loops(t):
    ran = []
    with mock.patch.object(t.loop, "time") as clock:
        clock.return_value = 1000.0
        handle = t.loop.call_later(60, ran.append, "later")
        t.log(handle.when())
        t.loop.call_at(1030, ran.append, "at")
        clock.return_value = 1030.5
        await t.turns(2)
        t.log(list(ran))
        clock.return_value = 1060.5
        await t.turns(2)
        t.log(ran)
    await asyncio.sleep(0)


class Failure(Exception):
    pass


@twin
def test_a_clock_that_raises_ends_the_run(t):
    async def main():
        t.loop.call_later(1000, int)
        t.loop.time = mock.Mock(side_effect=Failure("no time"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    task = t.loop.create_task(main())
    with pytest.raises(Failure, match="no time"):
        t.loop.run_until_complete(task)
    del t.loop.time
    t.loop.run_until_complete(task)


def subclass_of(t):
    return asyncio.SelectorEventLoop if not t.subject else type(t.loop)


@twin
def test_a_subclass_with_a_clock_of_its_own_has_timers_by_it(t):
    class Sub(subclass_of(t)):
        now = 500.0

        def time(self):
            return self.now

    loop = Sub()
    t.loops.append(loop)
    ran = []

    async def main():
        loop.call_later(1, ran.append, 1)
        await asyncio.sleep(0)
        t.log(list(ran))
        loop.now = 502
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        t.log(ran)

    loop.run_until_complete(main())


@twin
def test_what_a_subclass_overrides_is_used(t):
    seen = {}

    def counting(name):
        def method(self, *args, **kwargs):
            seen[name] = seen.get(name, 0) + 1
            return getattr(super(Sub, self), name)(*args, **kwargs)
        return method

    names = (
        "_run_once",
        "call_soon",
        "call_later",
        "call_at",
        "create_task",
        "create_future",
        "call_exception_handler",
        "default_exception_handler",
    )
    Sub = type("Sub", (subclass_of(t),), {name: counting(name) for name in names})
    loop = Sub()
    t.loops.append(loop)

    async def main():
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        transport, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
        await asyncio.sleep(0.001)
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(0)
        transport.close()
        server.close()

    loop.run_until_complete(main())
    t.log(sorted(seen))
    t.log({name: count for name, count in seen.items() if name not in ("_run_once", "call_soon")})


@twin
def test_a_replaced_run_once_runs_each_turn(t):
    turns = []
    original = base_events.BaseEventLoop._run_once

    def run_once(self):
        turns.append(1)
        original(self) if not t.subject else type(t.loop)._run_once(self)

    t.loop._run_once = functools.partial(run_once, t.loop)
    try:
        t.loop.run_until_complete(asyncio.sleep(0))
    finally:
        del t.loop._run_once
    t.log(len(turns) > 1)


@twin
async def test_a_replaced_run_of_handles_runs_them(t):
    seen = []
    original = asyncio.Handle._run

    def run(self):
        seen.append(getattr(self._callback, "__name__", ""))
        original(self)

    t.loop.call_soon(t.log, "made before")
    with mock.patch.object(asyncio.Handle, "_run", run):
        await asyncio.sleep(0)
        t.loop.call_soon(t.log, "made meanwhile")
        t.loop.call_later(0, t.log, "a timer")
        await t.turns(3)
    t.log(seen.count("log"))
    t.loop.call_soon(t.log, "made behind")
    await asyncio.sleep(0)


@twin
async def test_a_guard_in_the_place_of_the_socket_class_forbids_connections(t):
    class Blocked(Exception):
        pass

    class Guarded(socket.socket):
        def __new__(cls, *args, **kwargs):
            raise Blocked("no network")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with mock.patch.object(socket, "socket", Guarded):
            await t.acall(asyncio.open_connection(*address))
        for name in ("connect", "setblocking"):
            with mock.patch.object(socket.socket, name, mock.Mock(side_effect=Blocked(name))):
                await t.acall(asyncio.open_connection(*address))
        with mock.patch.object(t.loop, "sock_connect", mock.Mock(side_effect=Blocked("sock_connect"))):
            await t.acall(asyncio.open_connection(*address))
        _, writer = await asyncio.open_connection(*address)
        writer.close()


@twin
async def test_a_cancel_finds_no_protocol_before_the_connection_is_made(t):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for turns in range(4):
            made = []
            task = t.loop.create_task(
                t.loop.create_connection(
                    lambda: made.append(1) or asyncio.Protocol(), *listener.getsockname()
                )
            )
            await t.turns(turns)
            task.cancel()
            t.log(turns, (await asyncio.gather(task, return_exceptions=True))[0].__class__.__name__, made)


@twin
async def test_a_socket_class_with_methods_of_its_own_has_them_called(t):
    calls = set()

    class Traced(socket.socket):
        def recv(self, *args):
            calls.add("recv")
            return super().recv(*args)

        def send(self, *args):
            calls.add("send")
            return super().send(*args)

        def close(self):
            calls.add("close")
            super().close()

    a, b = tcp_pair()
    sock = Traced(a.family, a.type, a.proto, fileno=a.detach())
    reader, writer = await asyncio.open_connection(sock=sock)
    b.sendall(b"hello")
    t.log(await reader.readexactly(5))
    writer.write(b"x")
    t.log(b.recv(1))
    writer.close()
    await writer.wait_closed()
    b.close()
    t.log(sorted(calls))


@twin
async def test_extra_information_that_somebody_replaced_is_given(t):
    a, b = tcp_pair()
    transport, _ = await t.loop.create_connection(asyncio.Protocol, sock=a)
    original = asyncio.Transport.get_extra_info
    with mock.patch("asyncio.Transport.get_extra_info", return_value="patched"):
        t.log(transport.get_extra_info("peername"))
    with mock.patch.object(asyncio.BaseTransport, "get_extra_info", lambda self, name, default=None:
                           ("seen", original(self, name, default) is not None)):
        t.log(transport.get_extra_info("peername"), transport.get_extra_info("nothing"))
    t.log(transport.get_extra_info("peername") == b.getsockname())
    transport.close()
    b.close()
    await t.turns(2)


@twin
async def test_a_transports_methods_take_the_names_of_their_arguments(t):
    a, b = tcp_pair()
    transport, protocol = await t.loop.create_connection(asyncio.Protocol, sock=a)
    transport.write(data=b"a")
    transport.writelines(list_of_data=[b"b"])
    transport.set_protocol(protocol=protocol)
    t.log(b.recv(2, socket.MSG_WAITALL), transport.get_protocol() is protocol)
    for call in (
        lambda: transport.write(),
        lambda: transport.write(dat=b""),
        lambda: transport.write(b"", b""),
        lambda: transport.write(b"", data=b""),
    ):
        with pytest.raises(TypeError):
            call()
    transport.close()
    b.close()
    await t.turns(2)


def _named(function):
    return [(p.name, p.kind) for p in inspect.signature(function).parameters.values()][1:]


@pytest.mark.skipif(LOOP_MODULE != "treadle", reason="treadle's own classes")
def test_every_public_method_takes_the_names_that_asyncios_takes():
    import treadle
    from asyncio import selector_events
    pairs = [
        (treadle.TCPTransport, selector_events._SelectorSocketTransport),
        (treadle.Loop, asyncio.SelectorEventLoop),
        (treadle._treadle.UDPTransport, selector_events._SelectorDatagramTransport),
        (treadle.Handle, asyncio.Handle),
        (treadle.TimerHandle, asyncio.TimerHandle),
    ]
    wrong = []
    for ours, theirs in pairs:
        for name in dir(theirs):
            if not name.startswith("_") and inspect.isfunction(getattr(theirs, name)):
                if _named(getattr(ours, name)) != _named(getattr(theirs, name)):
                    wrong.append((ours.__name__, name, str(inspect.signature(getattr(ours, name)))))
    assert wrong == []


@pytest.mark.skipif(LOOP_MODULE != "treadle", reason="treadle's own function")
def test_new_event_loop_is_a_factory_as_an_attribute_of_a_class_too():
    import treadle

    class Case(unittest.IsolatedAsyncioTestCase):
        loop_factory = treadle.new_event_loop

        async def test(self):
            assert treadle.is_running()

    loop = Case("test").loop_factory()
    assert isinstance(loop, treadle.Loop)
    loop.close()
    if sys.version_info >= (3, 13):
        result = unittest.TestResult()
        Case("test").run(result)
        assert result.wasSuccessful(), result.errors
    assert pickle.loads(pickle.dumps(treadle.new_event_loop)) is treadle.new_event_loop
