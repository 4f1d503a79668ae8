"""Loops from birth to close, and wrong use, which must be answered with asyncio's types and texts."""
import asyncio
import concurrent.futures
import gc
import socket
import threading
import time
import warnings
import weakref

import pytest

from twin import LOOP_MODULE, norm, subject_loop, twin


@twin
def test_a_new_loop_is_open_and_idle(t):
    t.log(t.loop.is_running(), t.loop.is_closed(), t.loop.get_debug() == t.debug)
    t.log(isinstance(t.loop, asyncio.AbstractEventLoop), isinstance(t.loop, asyncio.BaseEventLoop))
    t.loop.close()
    t.loop.close()
    t.log(t.loop.is_closed(), t.loop.is_running())


@twin
def test_a_closed_loop_refuses_as_asyncio(t):
    async def coro():
        pass

    sock = socket.socket()
    sock.setblocking(False)
    t.loop.close()
    for call in (lambda: t.loop.call_soon(t.log), lambda: t.loop.call_later(1, t.log),
                 lambda: t.loop.call_at(1, t.log), lambda: t.loop.call_soon_threadsafe(t.log),
                 lambda: t.loop.run_forever(), lambda: t.loop.run_in_executor(None, int),
                 lambda: t.loop.add_reader(0, t.log), lambda: t.loop.add_writer(0, t.log),
                 lambda: t.loop.remove_reader(0), lambda: t.loop.remove_writer(0), lambda: t.loop.stop()):
        t.call(call)
    c = coro()
    t.call(t.loop.run_until_complete, c)
    c.close()
    c = coro()
    t.call(t.loop.create_task, c)
    c.close()
    t.log(repr(t.loop))
    t.log(type(t.loop.create_future()).__name__)
    sock.close()


def raised(function, *args):
    """The type and text of what a call raises; a coroutine among the arguments is closed."""
    try:
        function(*args)
    except Exception as exc:
        return type(exc), str(exc)
    finally:
        for arg in args:
            if asyncio.iscoroutine(arg):
                arg.close()
    return None


async def nothing():
    pass


def test_a_running_loop_cannot_be_run_again(loop):
    """Not a twin: asyncio of 3.13.0 forgets that it runs when asked twice."""
    other = subject_loop()
    running = (RuntimeError, "This event loop is already running")
    another = (RuntimeError, "Cannot run the event loop while another loop is running")

    async def main():
        assert raised(loop.run_forever) == running
        assert raised(loop.run_until_complete, nothing()) == running
        assert raised(other.run_forever) == another
        assert raised(other.run_until_complete, nothing()) == another
        assert raised(loop.close) == (RuntimeError, "Cannot close a running event loop")
        assert raised(asyncio.run, nothing()) == (
            RuntimeError, "asyncio.run() cannot be called from a running event loop")
        return loop.is_running(), other.is_running()

    assert loop.run_until_complete(main()) == (True, False)
    other.close()


def test_a_loop_running_in_another_thread_cannot_be_run_here(loop):
    up = threading.Event()
    loop.call_soon(up.set)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    up.wait()
    try:
        assert raised(loop.run_forever) == (RuntimeError, "This event loop is already running")
        assert raised(loop.close) == (RuntimeError, "Cannot close a running event loop")
        assert loop.is_running()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    assert not loop.is_running()


def test_a_loop_is_not_closed_by_its_flag_inside_of_a_turn_that_is_run_by_hand(loop):
    """As asyncio's own close() sets it; a loop that runs turns by hand does not count as running."""
    ran = []
    loop.call_soon(setattr, loop, "_closed", True)
    loop.call_soon(ran.append, "the turn goes on")
    loop._run_once()
    assert ran == ["the turn goes on"]
    assert not loop.is_closed()


@twin
def test_wrong_arguments_are_answered_as_by_asyncio(t):
    for bad in (None, 5, "name", object):
        t.call(t.loop.run_until_complete, bad)
    t.call(t.loop.set_exception_handler, 5)
    t.call(t.loop.set_task_factory, "x")
    t.call(t.loop.set_default_executor, 5)
    t.call(t.loop.create_task, 5)
    t.call(t.loop.call_exception_handler, {})
    for call in (t.loop.create_task, t.loop.run_in_executor):
        try:
            call()
        except TypeError as exc:
            t.log(type(exc).__name__)


@twin
def test_uncallable_callbacks(t):
    """asyncio checks them in debug mode only; both must agree there."""
    if not t.debug:
        return
    for bad in (None, 5, "text"):
        t.call(t.loop.call_soon, bad)
        t.call(t.loop.call_soon_threadsafe, bad)
        t.call(t.loop.call_later, 1, bad)
        t.call(t.loop.call_at, 1, bad)
        t.call(t.loop.run_in_executor, None, bad)


@twin
def test_coroutines_as_callbacks_are_refused(t):
    async def function():
        pass

    coro = function()
    if t.debug:
        for value in (function, coro):
            t.call(t.loop.call_soon, value)
            t.call(t.loop.call_soon_threadsafe, value)
            t.call(t.loop.call_later, 1, value)
            t.call(t.loop.call_at, 1, value)
            t.call(t.loop.run_in_executor, None, value)
    coro.close()


@twin
def test_calls_with_wrong_counts_of_arguments_raise_type_error(t):
    for function in (t.loop.call_soon, t.loop.call_soon_threadsafe, t.loop.call_later, t.loop.call_at):
        try:
            function()
        except TypeError as exc:
            t.log(type(exc).__name__)
        try:
            function(1, print, bogus=1)
        except TypeError as exc:
            t.log(type(exc).__name__)


@twin(modes=("debug",))
def test_wrong_thread_calls_are_refused_in_debug_mode(t):
    results = []

    def remote():
        for call in (lambda: t.loop.call_soon(t.log), lambda: t.loop.call_later(1, t.log),
                     lambda: t.loop.call_at(1, t.log)):
            try:
                call()
            except BaseException as exc:
                results.append(norm(exc))

    async def main():
        await t.loop.run_in_executor(None, remote)

    t.run(main())
    t.log(results)


@twin
def test_run_until_complete_returns_raises_and_refuses_an_early_stop(t):
    async def value():
        return 42

    async def error():
        raise LookupError("no")

    async def forever():
        await asyncio.sleep(60)

    t.call(t.loop.run_until_complete, value())
    t.call(t.loop.run_until_complete, error())
    t.loop.call_later(0.001, t.loop.stop)
    task = t.loop.create_task(forever())
    t.call(t.loop.run_until_complete, task)
    task.cancel()
    t.call(t.loop.run_until_complete, task)
    future = t.loop.create_future()
    t.loop.call_soon(future.set_result, 7)
    t.call(t.loop.run_until_complete, future)
    t.call(t.loop.run_until_complete, future)


@twin
def test_run_until_complete_uses_asyncios_own_done_callback(t):
    """anyio finds the root task by it."""
    seen = []

    async def main():
        await asyncio.sleep(0)
        task = asyncio.current_task()
        seen.extend(cb for cb, _context in task._callbacks)

    t.run(main())
    t.log([cb is asyncio.base_events._run_until_complete_cb for cb in seen])


@twin
def test_the_running_loop_is_known_only_while_it_runs(t):
    t.call(asyncio.get_running_loop)
    t.loop.call_soon(lambda: t.log(asyncio.get_running_loop() is t.loop, asyncio.get_event_loop() is t.loop))
    t.loop.call_soon(t.loop.stop)
    t.loop.run_forever()
    t.call(asyncio.get_running_loop)


@twin
def test_async_generators_are_finalized(t):
    async def agen(name):
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            t.log("finalized", name)

    async def main():
        kept.append(agen("kept"))
        await kept[0].__anext__()
        dropped = agen("dropped")
        await dropped.__anext__()
        del dropped
        gc.collect()
        await t.turns(4)

    kept = []
    t.run(main())
    t.log("main over")
    t.run(t.loop.shutdown_asyncgens())
    kept.clear()

    async def late():
        gen = agen("late")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            await gen.__anext__()
            t.log([norm(str(w.message)) for w in seen])
        await gen.aclose()

    t.run(late())


@twin
def test_asyncgen_hooks_are_restored(t):
    import sys
    before = sys.get_asyncgen_hooks()
    t.loop.call_soon(lambda: t.log([h is not None for h in sys.get_asyncgen_hooks()]))
    t.loop.call_soon(t.loop.stop)
    t.loop.run_forever()
    t.log(sys.get_asyncgen_hooks() == before)


async def _called(function, *args):
    return await function(*args)


@twin
def test_the_executor_shuts_down_and_then_refuses(t):
    async def main():
        t.log(await t.loop.run_in_executor(None, threading.active_count) > 1)
        await t.loop.shutdown_default_executor()
        await t.acall(_called(t.loop.run_in_executor, None, int))

    t.run(main())
    t.log([th.name for th in threading.enumerate() if th.name.startswith("asyncio_")])


@twin
async def test_executors_return_and_raise(t):
    def fail():
        raise KeyError("in executor")

    await t.acall(t.loop.run_in_executor(None, str, 5))
    await t.acall(t.loop.run_in_executor(None, fail))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        await t.acall(t.loop.run_in_executor(pool, str, 6))
    await t.acall(asyncio.to_thread(str, 7))


@twin
async def test_an_initializer_that_fails_breaks_the_jobs_of_its_executor(t):
    def fail():
        raise ValueError("in initializer")

    with concurrent.futures.ThreadPoolExecutor(1, initializer=fail) as pool:
        for _ in range(2):
            await t.acall(_called(t.loop.run_in_executor, pool, str, 6))


@pytest.mark.skipif(LOOP_MODULE == "asyncio", reason="treadle's own path")
def test_a_pool_takes_the_loops_own_jobs_unless_it_has_an_initializer(loop):
    with (
        concurrent.futures.ThreadPoolExecutor(1) as plain,
        concurrent.futures.ThreadPoolExecutor(1, initializer=int) as other,
    ):
        assert loop._pool_is_standard(plain) and not loop._pool_is_standard(other)


@twin
def test_close_drops_what_was_still_scheduled(t):
    class Thing:
        def __call__(self):
            t.log("must not run")

    for schedule in (t.loop.call_soon, t.loop.call_soon_threadsafe, lambda f: t.loop.call_later(100, f)):
        schedule(t.watch(Thing()))
    t.loop.close()


@twin
def test_an_unclosed_loop_warns_when_it_is_collected(t):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        loop = t.factory()
        ref = weakref.ref(loop)
        del loop
        gc.collect()
    t.log([(w.category.__name__, norm(str(w.message))[:23]) for w in seen])
    seen.clear()  # each warning holds the loop as its source
    gc.collect()
    t.log(ref() is None)


def test_loops_made_and_dropped_leave_nothing():
    from twin import open_fds
    subject_loop().close()
    before = set(open_fds())
    refs = []
    for _ in range(15):
        loop = subject_loop()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        refs.append(weakref.ref(loop))
        del loop
    gc.collect()
    assert [r for r in refs if r() is not None] == []
    assert set(open_fds()) == before


@twin
def test_the_loop_can_be_subclassed_patched_and_referenced(t):
    t.loop.attribute = 5
    t.log(t.loop.attribute, weakref.ref(t.loop)() is t.loop)

    class Sub(type(t.loop)):
        def call_soon(self, callback, *args, context=None):
            calls.append("call_soon")
            return super().call_soon(callback, *args, context=context)

    calls = []
    sub = Sub()
    try:
        sub.run_until_complete(asyncio.sleep(0))
    finally:
        sub.close()
    t.log(bool(calls))
    t.log(isinstance(sub, asyncio.AbstractEventLoop))


@twin
def test_methods_replaced_on_the_instance_are_used(t):
    seen = []
    original = t.loop.getaddrinfo

    async def fake(host, port, **kwargs):
        seen.append(host)
        return await original("127.0.0.1", port, **kwargs)

    t.loop.getaddrinfo = fake

    async def main():
        server = await t.loop.create_server(lambda: t.recorder("server"), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport, protocol = await t.loop.create_connection(
            lambda: t.recorder("client"), "name.invalid", port
        )
        transport.close()
        await protocol.done
        server.close()
        await server.wait_closed()

    t.run(main())
    t.log("name.invalid" in seen)
    del t.loop.getaddrinfo


@twin
def test_no_public_method_of_asyncio_is_missing(t):
    reference = [n for n in dir(asyncio.SelectorEventLoop) if not n.startswith("_")]
    t.log([n for n in reference if not hasattr(t.loop, n)])
    t.log([n for n in reference if callable(getattr(asyncio.AbstractEventLoop, n, None))
           and getattr(type(t.loop), n, None) is getattr(asyncio.AbstractEventLoop, n)])


@twin
def test_repr_of_the_loop(t):
    t.log(repr(t.loop).split(" ", 1)[1])
    t.loop.call_soon(lambda: t.log(repr(t.loop).split(" ", 1)[1]))
    t.loop.call_soon(t.loop.stop)
    t.loop.run_forever()


@pytest.mark.skipif(LOOP_MODULE != "treadle", reason="treadle's own functions")
class TestModule:
    def test_importing_patches_nothing(self, python):
        done = python(code="""
import asyncio, signal, sys, threading
names = [n for n in dir(asyncio) if not n.startswith('__')]
before = {n: getattr(asyncio, n) for n in names}
threads = threading.active_count()
hook = (sys.excepthook, threading.excepthook, signal.getsignal(signal.SIGINT))
import treadle
changed = [n for n in names if getattr(asyncio, n) is not before[n]]
assert not changed, changed
assert threads == threading.active_count()
assert hook == (sys.excepthook, threading.excepthook, signal.getsignal(signal.SIGINT))
try:
    asyncio.get_running_loop()
except RuntimeError:
    pass
else:
    raise SystemExit('a loop runs')
""", check=True)
        assert done.stderr == ""

    def test_import_and_use_warn_of_nothing(self, python):
        python("-W", "error", "-c", "import treadle, asyncio; treadle.run(asyncio.sleep(0))", check=True)

    def test_run_runs_and_closes(self):
        import treadle
        loops = []

        async def main():
            loops.append(asyncio.get_running_loop())
            return 5

        assert treadle.run(main()) == 5
        assert isinstance(loops[0], treadle.Loop) and loops[0].is_closed()
        with pytest.raises((ValueError, TypeError)):
            treadle.run("not a coroutine")

    def test_run_takes_debug(self):
        import treadle

        async def main():
            return asyncio.get_running_loop().get_debug()

        assert treadle.run(main(), debug=True) is True
        assert treadle.run(main(), debug=False) is False

    def test_run_refuses_inside_a_running_loop(self):
        import treadle

        async def inner():
            pass

        async def main():
            coro = inner()
            try:
                with pytest.raises(
                    RuntimeError, match=r"running event loop|asyncio.run\(\) cannot be called"
                ):
                    treadle.run(coro)
            finally:
                coro.close()

        asyncio.run(main())

    def test_runner_accepts_the_factory(self):
        import treadle
        with asyncio.Runner(loop_factory=treadle.new_event_loop) as runner:
            assert isinstance(runner.get_loop(), treadle.Loop)
            assert runner.run(asyncio.sleep(0, 3)) == 3

    def test_install_and_uninstall(self, python):
        python(code="""
import asyncio, treadle
treadle.install()
async def main():
    return type(asyncio.get_running_loop())
assert issubclass(asyncio.run(main()), treadle.Loop)
treadle.uninstall()
assert not issubclass(asyncio.run(main()), treadle.Loop)
""", check=True)

    @pytest.mark.skipif(not hasattr(asyncio, "DefaultEventLoopPolicy"), reason="no policies in this Python")
    def test_policy(self, python):
        python(code="""
import asyncio, warnings
warnings.simplefilter('ignore', DeprecationWarning)
import treadle
asyncio.set_event_loop_policy(treadle.EventLoopPolicy())
async def main():
    return isinstance(asyncio.get_running_loop(), treadle.Loop)
assert asyncio.run(main())
loop = asyncio.new_event_loop()
assert isinstance(loop, treadle.Loop)
loop.close()
""", check=True)

    def test_info_tells_what_is_in_force(self):
        import treadle
        info = treadle.info()
        loop = treadle.new_event_loop()
        try:
            assert isinstance(info, dict) and isinstance(loop.info(), dict)
            text = repr(info).lower() + repr(loop.info()).lower()
            for word in ("libuv", "gate", "treadle"):
                assert word in text, word
        finally:
            loop.close()

    def test_dev_mode_switches_debug_on(self, python):
        python(
            "-X",
            "dev",
            "-W",
            "ignore",
            "-c",
            "import treadle; loop = treadle.new_event_loop(); assert loop.get_debug(); loop.close()",
            check=True,
        )
        python(code="import treadle; loop = treadle.new_event_loop(); assert loop.get_debug(); loop.close()",
               env={"PYTHONASYNCIODEBUG": "1"}, check=True)


@twin
def test_slow_callbacks_are_reported_in_debug_mode(t):
    import logging
    seen = []

    class Keep(logging.Handler):
        def emit(self, record):
            text = record.getMessage()
            if text.startswith("Executing "):
                seen.append((record.levelname, norm(text).split(" took ")[0]))

    handler = Keep()
    logging.getLogger("asyncio").addHandler(handler)
    try:
        t.loop.slow_callback_duration = 0.0
        t.loop.call_soon(sum, (1, 2))
        t.loop.call_soon(t.loop.stop)
        t.loop.run_forever()
    finally:
        logging.getLogger("asyncio").removeHandler(handler)
    t.log([s for s in seen if "sum" in s[1]])


@twin
async def test_never_retrieved_exceptions_are_reported(t):
    async def fail():
        raise ValueError("nobody looks")

    task = t.loop.create_task(fail())
    await t.turns(3)
    del task
    gc.collect()
    await t.turns(1)


@twin
def test_set_debug_and_slow_callback_duration_are_there(t):
    for value in (True, False):
        t.loop.set_debug(value)
        t.log(t.loop.get_debug())
    t.loop.slow_callback_duration = 0.5
    t.log(t.loop.slow_callback_duration)


CALLS = {
    "write": lambda t: t.write(b"x"),
    "much": lambda t: t.write(bytes(900_000)),
    "size": lambda t: t.get_write_buffer_size(),
    "close": lambda t: t.close(),
    "abort": lambda t: t.abort(),
    "is_closing": lambda t: t.is_closing(),
    "pause": lambda t: t.pause_reading(),
    "resume": lambda t: t.resume_reading(),
    "repr": lambda t: "closing" in repr(t),
}


@twin(modes=("plain",))
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_calls_on_the_transports_of_a_closed_loop(t, kind, first):
    for second in CALLS:
        loop = t.new_loop()
        ours, peer = socket.socketpair(type=socket.SOCK_DGRAM if kind == "datagram" else socket.SOCK_STREAM)
        if kind == "datagram":
            ours.close()  # for asyncio sends to no peer without a name
            peer.close()
            ours, peer = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
            peer.bind("")
            ours.connect(peer.getsockname())
            transport, _ = loop.run_until_complete(
                loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=ours)
            )
            calls = dict(CALLS, write=lambda t: t.sendto(b"x"), much=lambda t: t.sendto(b"xx"))
        else:
            transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=ours))
            calls = CALLS
        if kind == "full":
            transport.write(bytes(900_000))
        loop.close()
        for name in (first, second, "is_closing"):
            t.log(name)
            t.call(calls[name], transport)
        peer.close()
        del transport
        gc.collect()


@pytest.fixture(params=["stream", "full", "datagram"])
def kind(request):
    return request.param


@pytest.fixture(params=CALLS)
def first(request):
    return request.param
