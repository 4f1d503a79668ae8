"""Runs one case on asyncio and on treadle and compares what both recorded, in order.

A case is a function whose first argument is a Case. What it logs goes to named channels; the channels of both
arms must be equal. Descriptors and objects that outlive the case fail the test in the arm that left them.
"""
import asyncio
import functools
import gc
import importlib
import inspect
import io
import itertools
import logging
import os
import re
import threading
import weakref

import pytest

# A self-check of the tests: TREADLE_TEST_LOOP=asyncio compares asyncio with itself.
LOOP_MODULE = os.environ.get("TREADLE_TEST_LOOP", "treadle")
MODES = ("plain", "debug")
# Another: every case with transports that hold all their small writes until the step's end.
GATHER_ALL = os.environ.get("TREADLE_TEST_GATHER") == "all"
HOLD_NS = 3600 * 10**9
# Under AddressSanitizer, which keeps freed memory and slows everything down.
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
# A case that takes longer hangs.
CASE_S = float(os.environ.get("TREADLE_TEST_CASE_S", "10"))

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_FD = re.compile(r"\bfd=\d+")
_PORT = re.compile(r"(127\.0\.0\.1|::1|localhost|0\.0\.0\.0)(['\"]?[,:] ?)\d+")
_CREATED = re.compile(r" created at [^>]*?:\d+")
_LOOP_REPR = re.compile(r"<(?:_UnixSelectorEventLoop|Loop|SelectorEventLoop|treadle\.Loop) ")


def reference_loop():
    """What treadle is compared with: asyncio's own selector loop."""
    return asyncio.SelectorEventLoop()


def subject_loop():
    """A new loop of the module under test."""
    loop = importlib.import_module(LOOP_MODULE).new_event_loop()
    if GATHER_ALL:
        loop._shape_holds(True, HOLD_NS)
    return loop


def patient_loop():
    """The same, whose held writes wait for the step's end however long a busy machine makes the step."""
    loop = subject_loop()
    if LOOP_MODULE == "treadle":
        loop._shape_holds(GATHER_ALL, HOLD_NS)
    return loop


def gathering_loop():
    """The same, whose transports hold their small writes without having learnt it."""
    loop = subject_loop()
    if LOOP_MODULE == "treadle":
        loop._shape_holds(True, HOLD_NS)
    return loop


def norm(value):
    """The same value without what differs between two runs of one loop: addresses, descriptors, ports."""
    if isinstance(value, BaseException):
        return (qualname(type(value)), norm(str(value)))
    if isinstance(value, str):
        value = _ADDRESS.sub("0x", value)
        value = _FD.sub("fd=N", value)
        value = _CREATED.sub("", value)
        value = _LOOP_REPR.sub("<LOOP ", value)
        # treadle's own names for what asyncio has under another name.
        value = value.replace("treadle._treadle.", "").replace("treadle.", "")
        value = value.replace("_ThreadSafeHandle", "Handle")
        value = value.replace("TCPTransport", "_SelectorSocketTransport")
        value = re.sub(r"<(?:TCPTransp|_SelectorS)\w*\.\.\.\w*", "<TRANSPORT...", value)
        value = re.sub(r"File descriptor \d+", "File descriptor N", value)
        value = re.sub(r"\bTask-\d+", "Task-N", value)
        value = re.sub(r"\bpid=\d+", "pid=N", value)
        value = re.sub(r"fileno\(\)=-?\d+", "fileno()=N", value)
        return _PORT.sub(r"\1\2PORT", value)
    if isinstance(value, tuple):
        return tuple(norm(v) for v in value)
    if isinstance(value, list):
        return [norm(v) for v in value]
    if isinstance(value, dict):
        return {k: norm(v) for k, v in value.items()}
    if isinstance(value, (int, float, bytes, bool, type(None), frozenset, set)):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, type):
        return value.__name__
    return norm(repr(value))


def qualname(cls):
    return f"{cls.__module__}.{cls.__qualname__}"


def open_fds():
    """Every open descriptor of the process with what it points to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return found


def alive():
    """Types of the loop module's own objects that the collector still sees."""
    root = LOOP_MODULE if LOOP_MODULE != "asyncio" else "asyncio.selector_events"
    roots = (root, "_treadle") if root == "treadle" else (root,)
    names = {}
    for obj in gc.get_objects():
        cls = type(obj)
        module = getattr(cls, "__module__", None)
        if isinstance(module, str) and module.startswith(roots) and not issubclass(cls, type):
            names[cls.__name__] = names.get(cls.__name__, 0) + 1
    return names


class _Records(logging.Handler):
    """Keeps warnings and errors of the asyncio logger, which users read, except those that tell a
    duration."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.seen = []

    def emit(self, record):
        text = record.getMessage()
        if text.startswith("Executing "):
            return
        exc = record.exc_info[1] if record.exc_info else None
        self.seen.append((record.levelname, norm(text.splitlines()[0]), norm(exc) if exc else None))


class Recorder(asyncio.Protocol):
    """A protocol that records each callback on its own channel; data of one run of callbacks counts as one
    event."""

    def __init__(self, case, channel, keep=True):
        self.case, self.channel = case, channel
        self.transport = None
        self.done = case.loop.create_future()
        self.made = case.loop.create_future()
        self.received = bytearray()
        self.eof_result = None
        self.on_data = None
        self.waiters = []

    def log(self, *event):
        self.case.log(*event, channel=self.channel)

    def connection_made(self, transport):
        self.transport = transport
        self.log("made")
        if not self.made.done():
            self.made.set_result(None)

    def data_received(self, data):
        self.received += data
        self.case.log_data(self.channel, bytes(data))
        if self.on_data is not None:
            self.on_data(data)
        for waiter in [w for w in self.waiters if len(self.received) >= w[0]]:
            self.waiters.remove(waiter)
            if not waiter[1].done():
                waiter[1].set_result(None)

    def eof_received(self):
        self.log("eof")
        return self.eof_result

    def pause_writing(self):
        self.log("pause")

    def resume_writing(self):
        self.log("resume")

    def connection_lost(self, exc):
        self.log("lost", norm(exc) if exc is not None else None)
        self.transport = None
        if not self.done.done():
            self.done.set_result(None)

    async def got(self, size):
        """Waits until at least this many bytes were received in all."""
        if len(self.received) < size:
            waiter = self.case.loop.create_future()
            self.waiters.append((size, waiter))
            await waiter


class BufferedRecorder(asyncio.BufferedProtocol):
    """The same for BufferedProtocol."""

    def __init__(self, case, channel, size=64):
        self.case, self.channel = case, channel
        self.buffer = bytearray(size)
        self.done = case.loop.create_future()
        self.received = bytearray()
        self.transport = None
        self.eof_result = None

    def connection_made(self, transport):
        self.transport = transport
        self.case.log("made", channel=self.channel)

    def get_buffer(self, hint):
        self.case.log_once("get_buffer", hint, channel=self.channel)
        return self.buffer

    def buffer_updated(self, count):
        self.received += self.buffer[:count]
        self.case.log_data(self.channel, bytes(self.buffer[:count]))

    def eof_received(self):
        self.case.log("eof", channel=self.channel)
        return self.eof_result

    def connection_lost(self, exc):
        self.case.log("lost", norm(exc) if exc is not None else None, channel=self.channel)
        self.transport = None
        if not self.done.done():
            self.done.set_result(None)


class Case:
    """What a case works with: its loop and its log."""

    def __init__(self, factory, debug, subject):
        self.factory, self.debug, self.subject = factory, debug, subject
        self.channels = {}
        self.loops = []
        self.watched = []
        self.records = _Records()
        self.loop = self.new_loop()

    def new_loop(self):
        """One more loop, closed with the case."""
        loop = self.factory()
        loop.set_debug(self.debug)
        # Slow machines must not change what is logged.
        loop.slow_callback_duration = 3600.0
        loop.set_exception_handler(self._context)
        self.loops.append(loop)
        return loop

    def _context(self, loop, context):
        exc = context.get("exception")
        self.log(norm(context.get("message")), norm(exc) if exc is not None else None,
                 sorted(k for k in context if k != "source_traceback" and k != "handle_traceback"),
                 channel="handler")

    def log(self, *event, channel="main"):
        self.channels.setdefault(channel, []).append(norm(event))

    def log_once(self, *event, channel="main"):
        """Logs an event unless the last event of its kind was the same (how often may differ, whether may
        not)."""
        events = self.channels.setdefault(channel, [])
        if norm(event) not in events:
            events.append(norm(event))

    def log_data(self, channel, data):
        events = self.channels.setdefault(channel, [])
        if events and events[-1][0] == "data":
            events[-1] = ("data", events[-1][1] + data)
        else:
            events.append(("data", data))

    def call(self, function, *args, **kwargs):
        """Logs what a call returns or raises, text included, and returns its value."""
        try:
            value = function(*args, **kwargs)
        except BaseException as exc:
            self.log("raised", exc)
            return None
        self.log("returned", value if isinstance(value, (int, str, bytes, bool, float, tuple, type(None)))
                 else type(value).__name__ if not _is_loop_type(value) else "object")
        return value

    async def acall(self, awaitable):
        """The same for something awaited."""
        try:
            value = await awaitable
        except BaseException as exc:
            self.log("raised", exc)
            return None
        self.log(
            "returned", value if isinstance(value, (int, str, bytes, bool, float, type(None))) else "object"
        )
        return value

    def watch(self, obj):
        """The object must be dead when the case is over."""
        self.watched.append((type(obj).__name__, weakref.ref(obj)))
        return obj

    def recorder(self, channel):
        return Recorder(self, channel)

    def buffered(self, channel, size=64):
        return BufferedRecorder(self, channel, size)

    def run(self, main):
        return self.loop.run_until_complete(main)

    async def turns(self, count=1):
        """Lets that many generations pass."""
        for _ in range(count):
            await asyncio.sleep(0)

    def finish(self):
        """What asyncio.Runner does at its end, for each loop of the case."""
        for thread in threading.enumerate():
            if thread.name.startswith(("waitpid-", "asyncio-waitpid")):
                thread.join(5)
        for loop in self.loops:
            if loop.is_closed():
                continue
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


def _is_loop_type(value):
    return isinstance(value, (asyncio.AbstractEventLoop, asyncio.BaseTransport, asyncio.Handle,
                              asyncio.AbstractServer))


def _run_body(case, function, args):
    if inspect.iscoroutinefunction(function):
        task = case.loop.create_task(function(case, *args))
        guard = case.loop.call_later(CASE_S, _too_long, case, task)
        try:
            case.run(task)
        finally:
            guard.cancel()
    else:
        function(case, *args)


def _too_long(case, task):
    frames = task.get_stack()
    where = "; ".join(f"{f.f_code.co_name}:{f.f_lineno}" for f in frames)
    task.cancel(f"the case hangs in {where}; so far: {case.channels}")


def run_arm(factory, debug, function, args=(), subject=True, strict=True):
    """Runs the case on one loop; returns its channels; asserts that nothing stays behind."""
    gc.collect()
    fds, objects = open_fds(), alive()
    case = Case(factory, debug, subject)
    logger = logging.getLogger("asyncio")
    logger.addHandler(case.records)
    propagate, logger.propagate = logger.propagate, False
    try:
        _run_body(case, function, args)
    finally:
        case.finish()
        logger.removeHandler(case.records)
        logger.propagate = propagate
    channels, logged = case.channels, case.records.seen
    refs = case.watched + [("loop", weakref.ref(loop)) for loop in case.loops]
    case.__dict__.clear()
    del case
    gc.collect()
    if strict:
        _assert_nothing_left(refs, fds, objects)
    return channels, logged


def _assert_nothing_left(refs, fds, objects):
    kept = [
        (name, [_describe(r) for r in gc.get_referrers(ref())]) for name, ref in refs if ref() is not None
    ]
    assert not kept, f"still alive after the case: {kept}"
    left = {k: v for k, v in open_fds().items() if k not in fds}
    assert not left, f"descriptors left open: {left}"
    more = {k: v for k, v in alive().items() if v > objects.get(k, 0)}
    assert not more, f"objects left alive: {more} (before: {objects})"


def _describe(obj):
    out = io.StringIO()
    out.write(type(obj).__name__)
    if isinstance(obj, dict):
        out.write(f" {sorted(map(str, obj))[:6]}")
    return out.getvalue()


def compare(function, debug, args=(), strict=True):
    """Runs the case on both loops and asserts that both recorded the same."""
    expected, expected_log = run_arm(reference_loop, debug, function, args, subject=False, strict=strict)
    got, got_log = run_arm(subject_loop, debug, function, args, subject=True, strict=strict)
    assert sorted(got) == sorted(expected), (got, expected)
    for channel in expected:
        _assert_same(f"channel {channel!r}", got[channel], expected[channel])
    _assert_same("the log", got_log, expected_log)


def _assert_same(what, got, expected):
    pairs = itertools.zip_longest(got, expected, fillvalue="nothing")
    wrong = [f"{LOOP_MODULE}: {a!r}\nasyncio: {b!r}" for a, b in pairs if a != b]
    assert not wrong, f"{what} differs\n" + "\n".join(wrong[:6])


def twin(function=None, *, modes=MODES, strict=True):
    """Makes a test of a case: on asyncio and on treadle, plain and in debug mode."""
    if function is None:
        return functools.partial(twin, modes=modes, strict=strict)
    params = list(inspect.signature(function).parameters.values())[1:]

    def test(mode, **fixtures):
        compare(function, mode == "debug", tuple(fixtures[p.name] for p in params), strict)

    test.__name__ = function.__name__
    test.__doc__ = function.__doc__
    test.__module__ = function.__module__
    test.pytestmark = list(getattr(function, "pytestmark", []))
    mode = inspect.Parameter("mode", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    keyword = [p.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in params]
    test.__signature__ = inspect.Signature([mode, *keyword])
    return pytest.mark.parametrize("mode", modes)(test)
