"""Calls everything that Python can reach of treadle with arguments that fight back.

    surface.py [--seconds N] [--jobs J] [--seed S] [--steps N]   run children with one seed after the other
    surface.py --child SEED [--steps N]                          run one of them here, to see what it does
    (-v)

A child makes loops, transports, handles, files, contexts and operations, and then takes steps: reads, sets,
deletes and calls attributes of what it finds, of every type of the package, with objects whose special
methods raise, take steps of their own, or empty what is being looked at. Wrong arguments may raise anything;
what counts is that the process neither crashes nor hangs, that no sanitizer reports, and that no call breaks
the interpreter's rules (SystemError). The seed decides everything but time and threads: every eighth one has
a thread beside the main one.

Run it under the sanitizers as scripts/test does in its part pyasan.
"""
import argparse
import asyncio
import contextlib
import contextvars
import faulthandler
import gc
import inspect
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings
import weakref

SANITIZER_MARKS = ("ERROR: AddressSanitizer", "runtime error:", "ERROR: LeakSanitizer")
FAULT = "surface fault:"
STEPS_S = 20  # a child takes no more steps after that
CHILD_S = 90  # a child that takes longer hangs
# What waits for something that may rightly never come (FileContext.wait() without a limit) is interrupted
# after so long, and again after each pause, since a callback's step may swallow the first. What a signal does
# not end hangs; so does a loop that sleeps after it was told to stop, though a signal ended that.
STEP_S, PAUSE_S = 3, 0.5
DEPTH_MAX = 3
POOL_MAX = 120
# Numbers that mean no descriptor of the loops': those below and these are made for being closed.
SACRIFICED = range(900, 908)
SMALL = (0, 1, 2, 7, 255)
# Not called, and why.
LEFT_OUT = {
    "select": "sleeps until something comes, as a selector's does",
    "_shape_turns": "spins for as long as it is told to, for measurements",
    "subprocess_shell": "runs what it is given",
    "_process_self_data": "handles any signal's number, as asyncio's does",
    "raise_signal": "",
    "LoopBase._run": "without what run_forever() sets up, a signal does not end its sleep",
    "run_forever": "steps run loops by themselves, so that something stops them",
    "run_until_complete": "as above",
    "shutdown_default_executor": "waits for jobs as long as they take",
    "_do_shutdown": "the thread of the above",
}


def left_out(cls, name):
    return name in LEFT_OUT or name in ("_run", "_run_once", "_run_nested") and hasattr(cls, "call_soon")


class Fault(Exception):
    """What a wrong argument may raise, among others."""


RAISED = (
    Fault,
    ValueError,
    TypeError,
    OSError,
    AttributeError,
    MemoryError,
    StopIteration,
    asyncio.CancelledError,
    KeyError,
    BlockingIOError,
    InterruptedError,
    RuntimeError,
    BufferError,
    GeneratorExit,
)

STRINGS = (
    "",
    "\0",
    "127.0.0.1",
    "::1",
    "localhost",
    "f..a",
    "f..b",
    "d..1",
    "a..b" * 70,
    "\udc80..",
    "x" * 64 + ".a",
)
MODES = ("r", "w", "rb", "wb", "r+b", "a", "ab+", "x", "rw", "utf-8", "latin-1", "strict", "\n")
NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    255,
    4096,
    65536,
    2**31 - 1,
    2**31,
    2**32,
    2**32 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    -(2**31),
    10**30,
    0.0,
    -1.5,
    1e-9,
    1e300,
    float("inf"),
    float("nan"),
    True,
    False,
)


class World:
    """The objects that steps act on, and the random choices."""

    def __init__(self, seed, treadle, verbose):
        self.random = random.Random(seed)
        self.treadle = treadle
        self.verbose = verbose
        self.pool = []
        self.loops = []
        self.depth = 0
        self.main = threading.get_ident()
        self.context = contextvars.copy_context()
        self.types = []
        self.coroutines = []

    # Values

    def hostile(self):
        return make_hostile(self)

    def number(self):
        number = self.random.choice(NUMBERS + tuple(SACRIFICED))
        return Int(number) if type(number) is int and self.random.random() < 0.1 else number

    def data(self):
        kind = self.random.randrange(8)
        size = self.random.choice((0, 1, 5, 100, 5000, 70000))
        if kind == 0:
            return bytearray(size)
        if kind == 1:
            return memoryview(bytearray(size))[::self.random.choice((1, 1, 2, -1))]
        if kind == 2:
            return (
                HostileBuffer(self)
                if hasattr(HostileBuffer, "__buffer__") and sys.version_info >= (3, 12)
                else b"b" * size
            )
        if kind == 3:
            return Bytes(size)
        if kind == 4:
            view = memoryview(bytearray(size))
            view.release()
            return view
        return b"d" * size

    def text(self):
        text = self.random.choice(STRINGS)
        if self.random.random() < 0.1:
            hostile = Str(text)
            hostile.world = self
            return hostile
        return text

    def some(self):
        return self.random.choice(self.pool) if self.pool else None

    def sequence(self):
        items = [self.value() for _ in range(self.random.randrange(4))]
        kind = self.random.randrange(5)
        if kind == 0:
            return tuple(items)
        if kind == 1:
            return HostileList(self, items)
        if kind == 2:
            return {self.random.choice(STRINGS): item for item in items}
        if kind == 3:
            return iter(items)
        return items

    def callable(self):
        choice = self.random.randrange(5)
        if choice == 0:
            return print_nothing
        if choice == 1:
            return self.hostile()
        if choice == 2:
            return lambda *args, **kwargs: self.mischief()
        if choice == 3:
            bound = bound_methods(self.some())
            return self.random.choice(bound) if bound else print_nothing
        return asyncio.Protocol

    def value(self):
        choice = self.random.randrange(14)
        if choice < 3:
            return self.number()
        if choice < 5:
            return self.data()
        if choice == 5:
            return self.text()
        if choice < 8:
            return self.some()
        if choice == 8 and self.depth < DEPTH_MAX:
            return self.sequence()
        if choice == 9:
            return self.callable()
        if choice == 10:
            return None
        if choice == 11:
            return self.random.choice(RAISED)()
        if choice == 12 and self.types:
            return self.random.choice(self.types)
        return self.hostile()

    PLAUSIBLE = {
        "callback": callable,
        "func": callable,
        "protocol_factory": lambda self: lambda: make_protocol(self),
        "protocol": lambda self: make_protocol(self),
        "delay": lambda self: self.random.random() / 100,
        "when": lambda self: time.monotonic() + self.random.random() / 100,
        "data": data,
        "buf": data,
        "buffer": data,
        "b": data,
        "n": lambda self: self.random.choice((0, 1, 10, 4096, 300000)),
        "nbytes": lambda self: self.random.choice((0, 1, 4096)),
        "size": lambda self: self.random.choice((-1, 0, 1, 4096)),
        "offset": lambda self: self.random.choice((0, 1, 4096, -1)),
        "context": lambda self: contextvars.copy_context(),
        "host": lambda self: self.random.choice(("127.0.0.1", "::1", "localhost")),
        "port": lambda self: self.random.choice((0, 1, self.port)),
        "path": lambda self: self.random.choice(STRINGS),
        "sock": lambda self: make_socket(self),
        "fd": lambda self: self.random.choice(tuple(SACRIFICED)),
        "fileobj": lambda self: make_socket(self),
        "coro": lambda self: sleeping(self),
        "file": lambda self: self.random.choice(STRINGS),
        "mode": lambda self: self.random.choice(MODES),
        "loop": lambda self: self.random.choice(self.loops),
        "transport": some,
        "waiter": lambda self: self.some_future(),
        "future": lambda self: self.some_future(),
        "list_of_data": sequence,
        "args": lambda self: (),
        "sslcontext": lambda self: CONTEXTS[self.random.randrange(2)],
        "ssl": lambda self: self.random.choice((None, *CONTEXTS)),
        "extra": lambda self: {"peername": self.value()},
        "fds": lambda self: self.sequence(),
        "buffers": lambda self: [self.data(), self.data()],
        "timeout": lambda self: 0.01,
    }

    def argument(self, name):
        make = self.PLAUSIBLE.get(name)
        if make is None or self.random.random() < 0.3:
            return self.value()
        return make(self)

    def some_future(self):
        try:
            return self.random.choice(self.loops).create_future()
        except BaseException:
            return None

    # Steps

    def keep(self, value):
        if value is None or isinstance(value, (int, str, float, types.ModuleType)):
            return
        if inspect.iscoroutine(value):
            self.coroutines.append(value)
        if len(self.pool) < POOL_MAX:
            self.pool.append(value)
        else:
            self.pool[self.random.randrange(POOL_MAX)] = value

    def mischief(self):
        """Called from a special method of a hostile object, in the middle of somebody's work."""
        if self.depth >= DEPTH_MAX or threading.get_ident() != self.main:
            return None
        choice = self.random.randrange(8)
        if choice == 0:
            gc.collect(self.random.randrange(2))
        elif choice == 1:
            del self.pool[self.random.randrange(len(self.pool) + 1):]
        elif choice == 2:
            loop = self.random.choice(self.loops)
            self.guard(loop.stop if loop.is_running() else loop.close)
        elif choice == 3:
            raise self.random.choice(RAISED)("mischief")
        else:
            self.step()
        return None

    def guard(self, function, *args, **kwargs):
        """The result, None for an exception. A SystemError says that C broke the interpreter's rules."""
        try:
            return function(*args, **kwargs)
        except SystemError as exc:
            chain = "".join(traceback.format_exception(exc))
            if is_broken(exc):
                print(
                    FAULT,
                    f"{chain}in {short(function)} of {[short(arg) for arg in args]}, {list(kwargs)}",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(3)
        except BaseException as exc:
            if isinstance(exc, (KeyboardInterrupt, SystemExit)) and threading.get_ident() != self.main:
                raise
        return None

    def step(self):
        self.depth += 1
        try:
            self.guard(self.take_step)
        finally:
            self.depth -= 1

    def take_step(self):
        choice = self.random.randrange(20)
        if choice == 0:
            self.keep(self.random.choice(MAKERS)(self))
        elif choice == 1 and self.types:
            self.use_type(self.random.choice(self.types))
        elif choice == 2 and self.depth == 1:
            self.turn()
        elif choice == 3:
            gc.collect(self.random.randrange(3))
        elif choice == 4 and self.pool:
            del self.pool[self.random.randrange(len(self.pool))]
        elif choice == 5:
            self.await_one()
        elif self.pool:
            target = self.random.choice(self.pool)
            if any(
                cls.__module__.startswith("treadle")
                for cls in type(target).__mro__
                if isinstance(cls.__module__, str)
            ):
                self.use(target)  # what asyncio's own objects do with such arguments is not looked at here

    def use(self, target):
        names = [name for name in dir(type(target)) if not left_out(type(target), name)]
        if not names or isinstance(target, (type, types.FunctionType)):
            return
        name = self.random.choice(names)
        if self.verbose:
            print(" " * self.depth, type(target), name, flush=True)
        choice = self.random.randrange(12)
        if choice == 0:
            setattr(target, name, self.value())
        elif choice == 1:
            delattr(target, name)
        elif choice == 2:
            self.special(target)
        else:
            attribute = getattr(target, name)
            if callable(attribute):
                self.call(attribute)
            else:
                self.keep(attribute)

    def call(self, function):
        name = getattr(function, "__name__", "")
        if name in LEFT_OUT or name in (
            "__class__",
            "__reduce_ex__",
            "__init_subclass__",
            "__subclasshook__",
            "__dir__",
        ):
            return
        args, kwargs = [], {}
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (ValueError, TypeError):
            parameters = None
        if parameters is None or self.random.random() < 0.2:
            args = [self.value() for _ in range(self.random.randrange(4))]
        else:
            for parameter in parameters:
                if parameter.kind is parameter.VAR_POSITIONAL:
                    args += [self.value() for _ in range(self.random.randrange(3))]
                elif parameter.kind is parameter.VAR_KEYWORD:
                    pass
                elif parameter.default is parameter.empty or self.random.random() < 0.3:
                    if parameter.kind is parameter.KEYWORD_ONLY or kwargs:
                        kwargs[parameter.name] = self.argument(parameter.name)
                    else:
                        args.append(self.argument(parameter.name))
                elif not kwargs and self.random.random() < 0.3:
                    break
        if self.random.random() < 0.03:
            kwargs[self.text()] = self.value()
        self.keep(self.guard(function, *args, **kwargs))

    def special(self, target):
        """Operators and protocols of the interpreter."""
        what = self.random.choice(
            (
                repr,
                str,
                hash,
                len,
                iter,
                next,
                bool,
                memoryview,
                list_few,
                weakref.ref,
                gc.get_referents,
                abs,
                int,
                float,
                vars,
                bytes,
                lambda x: x == self.value(),
                lambda x: x < self.value(),
                lambda x: x.__init__(),
                lambda x: x.__init__(*self.sequence()),
                lambda x: x.send(None),
                lambda x: x.send(self.value()),
                lambda x: x.throw(self.value()),
                lambda x: x.close(),
                lambda x: setattr(x, "__class__", self.random.choice(self.types)),
                lambda x: x[self.value()],
                lambda x: self.value() in x,
                lambda x: type(x)(),
                lambda x: type(x)(*self.sequence()),
                lambda x: isinstance(x, asyncio.Handle),
                sys.getsizeof,
                lambda x: x.__await__(),
                lambda x: x.__reduce_ex__(4),
                lambda x: x.__sizeof__(),
            )
        )
        self.keep(self.guard(what, target))

    def use_type(self, cls):
        choice = self.random.randrange(6)
        if choice == 0:
            self.keep(cls.__new__(cls))
        elif choice == 1:
            made = type("Derived", (cls,), {})
            self.keep(made.__new__(made))
        elif choice == 2:
            made = type("Derived", (cls,), {"__slots__": (), "__del__": lambda obj: self.mischief()})
            self.call(made)
        elif choice == 3:
            self.call(cls)
        elif choice == 4:
            name = self.random.choice(dir(cls))
            if not left_out(cls, name):
                function = getattr(cls, name)
                if callable(function) and not isinstance(function, type):
                    # Unbound, with any object as self.
                    self.keep(
                        self.guard(
                            function, self.some(), *[self.value() for _ in range(self.random.randrange(3))]
                        )
                    )
        else:
            self.find_hidden()

    def find_hidden(self):
        """Take in what no attribute leads to."""
        for found in gc.get_objects():
            if type(found) in self.types_set and self.random.random() < 0.1:
                self.keep(found)

    def await_one(self):
        loop = self.random.choice(self.loops)
        target = self.coroutines.pop() if self.coroutines and self.random.random() < 0.7 else self.some()

        async def wait():
            try:
                self.keep(await target)
            except RecursionError:
                raise
            except Exception:
                pass

        if not loop.is_closed():
            task = loop.create_task(wait())
            self.keep(task)
            if self.random.random() < 0.3:
                loop.call_later(self.random.random() / 200, task.cancel)

    def turn(self):
        """Run a loop for a moment, with steps from its callbacks."""
        loop = self.random.choice(self.loops)
        if loop.is_closed():
            loop = self.new_loop()
        for _ in range(self.random.randrange(6)):
            self.guard(loop.call_soon, self.step)
            self.guard(loop.call_later, self.random.random() / 200, self.step)
        self.guard(loop.call_later, 0.01, loop.stop)
        with STOPPER.stopping(loop):
            self.guard(loop.run_forever)

    def new_loop(self):
        loop = self.treadle.new_event_loop()
        loop.set_exception_handler(ignore)
        loop.set_debug(self.random.random() < 0.2)
        if len(self.loops) >= 4:
            self.guard(self.loops.pop(0).close)
        self.loops.append(loop)
        self.keep(loop)
        return loop


def is_broken(exc):
    """Whether an exception says that a function in C broke the interpreter's rules."""
    return type(exc) is SystemError and any(
        mark in str(exc)
        for mark in (
            "without setting an exception",
            "with an exception set",
            "without exception set",
            "bad argument",
            "not a BaseException",
        )
    )


def ignore(loop, context):
    exc = context.get("exception")
    if is_broken(exc):
        print(FAULT, "".join(traceback.format_exception(exc)), short(context), file=sys.stderr, flush=True)
        os._exit(3)


def short(value):
    try:
        return object.__repr__(value) if type(value).__name__ == "Hostile" else repr(value)[:100]
    except BaseException:
        return object.__repr__(value)


def print_nothing(*args, **kwargs):
    return None


def list_few(target):
    found = []
    for item in target:
        found.append(item)
        if len(found) > 20:
            break
    return found


def bound_methods(target):
    if target is None:
        return []
    return [
        getattr(target, name, None)
        for name in ("close", "cancel", "stop", "abort", "pause_reading", "_run", "resume_reading")
        if name in dir(type(target)) and not left_out(type(target), name)
    ]


class Stopper(threading.Thread):
    """Stops the loops that run, whatever became of the timer that should; a loop that was told so is not
    waited for long."""

    def __init__(self, treadle):
        super().__init__(daemon=True)
        self.base = treadle._treadle.LoopBase
        self.base_run = treadle.Loop.run_forever.__code__
        self.loops = []
        self.suspect = None

    @contextlib.contextmanager
    def stopping(self, loop):
        """Loops run in several threads, and within each other where a step made one of them deny that it
        runs."""
        entry = loop, time.monotonic()
        self.loops.append(entry)
        try:
            yield
        finally:
            self.loops[:] = [other for other in self.loops if other is not entry]

    def look(self, frame):
        """Called by a signal: True if it came to a loop that should have ended before, which is then a fault
        the second time."""
        loop = frame.f_locals.get("self") if frame.f_code is self.base_run else None
        asked = [began for other, began in self.loops if other is loop and time.monotonic() - began > 1]
        if not asked:
            self.suspect = None
        elif self.suspect is loop:
            print(FAULT, "a loop sleeps that was told to stop", file=sys.stderr, flush=True)
            faulthandler.dump_traceback()
            os._exit(3)
        else:
            self.suspect = loop
        return bool(asked)

    def run(self):
        while True:
            time.sleep(0.03)
            for loop, _ in list(self.loops):
                try:
                    # By the class: the loop's own attributes are set to anything.
                    self.base.stop(loop)
                    self.base._write_to_self(loop)
                except BaseException:
                    pass


# Objects that fight back

SPECIALS = (
    "__eq__",
    "__hash__",
    "__index__",
    "__int__",
    "__float__",
    "__bool__",
    "__len__",
    "__iter__",
    "__next__",
    "__call__",
    "__fspath__",
    "__str__",
    "__repr__",
    "__getitem__",
    "__enter__",
    "__exit__",
    "__await__",
    "__lt__",
    "__contains__",
    "__add__",
    "__radd__",
    "fileno",
    "done",
    "cancel",
    "set_result",
    "set_exception",
    "cancelled",
    "result",
    "read",
    "write",
    "close",
    "getsockname",
    "connection_made",
    "_attach",
    "_detach",
    "is_serving",
    "__setitem__",
    "__delitem__",
    "__instancecheck__",
)


def make_special(name):
    def special(self, *args):
        world = self.world
        if world.random.random() < 0.5:
            world.mischief()
        choice = world.random.randrange(5)
        if choice == 0:
            raise world.random.choice(RAISED)(name)
        if name in ("__hash__", "__index__", "__int__", "__len__", "fileno") and choice < 4:
            return world.random.choice((0, 1, 5, 4096, 905, 2**31, 2**64) if name != "__len__" else (0, 1, 5))
        if name in ("__bool__", "__eq__", "__contains__", "done", "__lt__", "cancelled"):
            return world.random.random() < 0.5
        if name in ("__str__", "__repr__", "__fspath__"):
            return world.random.choice(STRINGS)
        if name == "__float__":
            return world.random.random()
        if name in ("__iter__", "__await__"):
            return iter([world.value() for _ in range(2)])
        return world.value()

    special.__name__ = name
    return special


def make_hostile(world):
    """An object of a new class with some of the special methods."""
    names = world.random.sample(SPECIALS, world.random.randrange(len(SPECIALS)))
    members = {name: make_special(name) for name in names}
    if world.random.random() < 0.3:
        members["__del__"] = lambda self: world.mischief()
    if world.random.random() < 0.2:
        members["__getattr__"] = lambda self, name: make_special(name).__get__(self)
    members["world"] = world
    members["__hash__"] = members.get("__hash__", object.__hash__)
    return type("Hostile", (), members)()


class Int(int):
    pass


class Bytes(bytes):
    pass


class Str(str):
    world = None

    def __eq__(self, other):
        self.world.mischief()
        return str.__eq__(self, other)

    def __hash__(self):
        self.world.mischief()
        return str.__hash__(self)


class HostileList(list):
    """A list that is emptied as soon as one looks at it."""

    def __init__(self, world, items):
        super().__init__(items)
        self.append(make_hostile(world))
        self.append(HostileBuffer(world, self))


class HostileBuffer:
    def __init__(self, world, owner=None):
        self.world = world
        self.owner = owner

    def __buffer__(self, flags):
        if self.owner is not None:
            self.owner.clear()
        self.world.mischief()
        if self.world.random.random() < 0.2:
            raise BufferError("no buffer")
        return memoryview(bytearray(100))

    def __release_buffer__(self, view):
        if self.owner is not None:
            self.owner.clear()
        self.world.mischief()

    def __len__(self):
        return 5


def make_protocol(world):
    base = world.random.choice(
        (asyncio.Protocol, asyncio.BufferedProtocol, asyncio.DatagramProtocol, asyncio.StreamReaderProtocol)
    )
    if base is asyncio.StreamReaderProtocol and world.random.random() < 0.7:
        base = asyncio.Protocol
    names = (
        "connection_made",
        "connection_lost",
        "data_received",
        "eof_received",
        "pause_writing",
        "resume_writing",
        "buffer_updated",
        "datagram_received",
        "error_received",
    )

    def make(name):
        def method(self, *args):
            for arg in args:
                world.keep(arg)
            if world.random.random() < 0.3:
                world.mischief()
            return world.value() if world.random.random() < 0.1 else None
        return method

    members = {name: make(name) for name in names}
    members["get_buffer"] = lambda self, hint: (
        bytearray(100) if world.random.random() < 0.8 else world.value()
    )
    if base is asyncio.StreamReaderProtocol:
        return base(
            asyncio.StreamReader(loop=world.random.choice(world.loops)), loop=world.random.choice(world.loops)
        )
    return type("Proto", (base,), members)()


def sleeping(world):
    async def sleeps():
        await asyncio.sleep(world.random.random() / 100)
        world.mischief()
    return sleeps()


def make_socket(world):
    a, b = socket.socketpair(world.random.choice((socket.AF_UNIX, socket.AF_UNIX)),
                             world.random.choice((socket.SOCK_STREAM, socket.SOCK_STREAM, socket.SOCK_DGRAM)))
    for sock in (a, b):
        sock.setblocking(False)
    world.keep(b)
    if world.random.random() < 0.5:
        b.send(b"hello")
    return a


# What a world is made of

def in_loop(make):
    """Run a coroutine on one of the loops, or leave it as a task if that loop runs."""
    def maker(world):
        loop = world.random.choice(world.loops)
        if loop.is_closed():
            loop = world.new_loop()
        if world.depth > 1 or any(other.is_running() for other in world.loops):
            return loop.create_task(make(world, loop))
        with STOPPER.stopping(loop):
            return loop.run_until_complete(asyncio.wait_for(make(world, loop), 1))
    return maker


async def make_pair(world, loop):
    server = await loop.create_server(lambda: make_protocol(world), "127.0.0.1", 0)
    world.port = server.sockets[0].getsockname()[1]
    transport, _ = await loop.create_connection(lambda: make_protocol(world), "127.0.0.1", world.port)
    transport.write(b"x" * world.random.choice((1, 100, 10**6)))
    world.keep(server)
    return transport


async def make_accepted(world, loop):
    transport, _ = await loop.connect_accepted_socket(lambda: make_protocol(world), make_socket(world))
    return transport


async def make_tls(world, loop):
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    served = loop.create_task(loop.connect_accepted_socket(lambda: make_protocol(world), a, ssl=CONTEXTS[0]))
    transport, _ = await loop.create_connection(
        lambda: make_protocol(world), sock=b, ssl=CONTEXTS[1], server_hostname="localhost"
    )
    world.keep((await served)[0])
    world.keep(transport._ssl_protocol)
    transport.write(b"x" * 100)
    return transport


async def make_udp(world, loop):
    transport, _ = await loop.create_datagram_endpoint(
        lambda: make_protocol(world), local_addr=("127.0.0.1", 0)
    )
    transport.sendto(b"to myself", transport.get_extra_info("sockname"))
    return transport


async def make_file(world, loop):
    fileio = world.treadle.fileio
    return await fileio.open(
        "f..a",
        world.random.choice(("w", "wb", "w+b", "r+b", "a+")),
        buffering=world.random.choice((-1, 4096)),
    )


async def make_streams(world, loop):
    reader, writer = await asyncio.open_connection(sock=make_socket(world))
    world.keep(reader)
    return writer


def make_context(world):
    engine = world.random.choice(("auto", "threads", "linux_uring", "linux_aio", "simulated"))
    return world.treadle.fileio.FileContext(engine=engine, max_requests=world.random.choice((1, 8, 128)))


def make_op(world):
    contexts = [item for item in world.pool if type(item) is world.treadle.fileio.FileContext]
    context = world.random.choice(contexts) if contexts else make_context(world)
    world.call(getattr(context, world.random.choice([name for name in dir(context) if name[0] != "_"])))
    return context


def make_sockop(world):
    loop = world.random.choice(world.loops)
    sock = make_socket(world)
    return world.random.choice(
        (
            lambda: loop.sock_recv(sock, 10),
            lambda: loop.sock_recv_into(sock, bytearray(10)),
            lambda: loop.sock_sendall(sock, b"x" * 10**6),
            lambda: loop._connect_numeric("127.0.0.1", world.port),
        )
    )()


def make_handle(world):
    loop = world.random.choice(world.loops)
    if world.random.random() < 0.5:
        return loop.call_later(world.random.random() / 50, world.callable(), world.value())
    return loop.call_soon(world.callable(), *[world.value() for _ in range(world.random.randrange(3))])


def make_job(world):
    return world.random.choice(world.loops).run_in_executor(None, print_nothing, world.value())


def make_reader(world):
    loop = world.random.choice(world.loops)
    return loop._add_reader(make_socket(world), world.callable())


MAKERS = (
    in_loop(make_pair),
    in_loop(make_accepted),
    in_loop(make_udp),
    in_loop(make_file),
    in_loop(make_streams),
    make_context,
    make_op,
    make_op,
    make_op,
    make_sockop,
    make_sockop,
    make_handle,
    make_handle,
    make_job,
    make_reader,
    World.new_loop,
    in_loop(make_tls),
)


def make_contexts():
    """A pair of TLS contexts without certificates: anonymous keys, if OpenSSL has them, or none."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")
    return server, client


def package_types(treadle):
    """Every class that the package's modules define."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name == "treadle" or name.startswith("treadle."):
            for value in vars(module).values():
                if isinstance(value, type) and (value.__module__ or "").startswith("treadle"):
                    found[value] = None
    for value in gc.get_objects():
        if isinstance(value, type) and (getattr(value, "__module__", "") or "").startswith("treadle"):
            found[value] = None
    return sorted(found, key=lambda cls: (cls.__module__, cls.__qualname__))


def restore(known, null):
    """Open again what steps closed of the small numbers; False if a loop may have got one: it would be closed
    under it."""
    for fd, was in known.items():
        try:
            now = os.fstat(fd)
        except OSError:
            os.dup2(null, fd)
            now = os.fstat(fd)
            known[fd] = was = now.st_dev, now.st_ino
        if (now.st_dev, now.st_ino) != was:
            return False
    return True


def on_alarm(signum, frame):
    if not STOPPER.look(frame):
        raise Fault("a step took too long")


def limited(step):
    """Take a step whose waits end by a signal. One that comes at its very end, in between the lines below, is
    dropped too."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, STEP_S, PAUSE_S)
            step()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException:
        signal.setitimer(signal.ITIMER_REAL, 0)


def child(seed, steps, verbose):
    global STOPPER, CONTEXTS
    faulthandler.enable()
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda unraisable: ignore(None, {"exception": unraisable.exc_value})
    threading.excepthook = lambda args: None
    import logging
    logging.disable(logging.CRITICAL)
    sys.setrecursionlimit(400)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (*SACRIFICED, *SMALL[3:]):
        os.dup2(null, fd)
    import treadle
    import treadle.fileio
    world = World(seed, treadle, verbose)
    world.port = 1
    STOPPER = Stopper(treadle)
    STOPPER.start()
    CONTEXTS = make_contexts()
    world.types = package_types(treadle)
    world.types_set = set(world.types)
    world.new_loop()
    signal.signal(signal.SIGALRM, on_alarm)
    faulthandler.dump_traceback_later(CHILD_S - 5)
    for _ in range(30):
        limited(lambda: world.guard(lambda: world.keep(world.random.choice(MAKERS)(world))))
    if seed % 8 == 0:
        world.main = None  # hostile objects make no mischief: two threads take steps
        threading.Thread(
            target=lambda: [world.guard(world.take_step) for _ in range(steps // 8)], daemon=True
        ).start()
    known = {fd: (os.fstat(fd).st_dev, os.fstat(fd).st_ino) for fd in SMALL}
    deadline = time.monotonic() + STEPS_S
    for _ in range(steps):
        if time.monotonic() > deadline:
            break
        if not restore(known, null):
            break
        limited(world.step)
        world.depth = 0
    world.depth = DEPTH_MAX
    world.pool.clear()
    for loop in world.loops:
        world.guard(loop.close)
    gc.collect()
    sys.stderr.flush()
    os._exit(0)  # threads of executors may wait for ever for what was taken from them


def run_child(seed, steps, verbose=False):
    """Runs one child; returns what is wrong, or None."""
    folder = tempfile.mkdtemp(prefix="surface")
    command = [sys.executable, os.path.abspath(__file__), "--child", str(seed), "--steps", str(steps)]
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=dict(os.environ, PYTHONHASHSEED="0"),
    )
    hangs = ""
    try:
        try:
            _, text = process.communicate(timeout=CHILD_S)
        except subprocess.TimeoutExpired:
            hangs = "hangs, "
            process.send_signal(signal.SIGABRT)  # the sanitizer, if told to handle it, shows where
            _, text = process.communicate()
        text = text.decode(errors="replace")
        marks = [mark for mark in (*SANITIZER_MARKS, FAULT) if mark in text]
        if process.returncode != 0 or marks or hangs:
            report = text[text.index(marks[0]) :][:6000] if marks else text[-6000:]
            return f"{hangs}exit {process.returncode} {marks}\n{report}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None


def run_all(args):
    deadline = time.monotonic() + args.seconds
    seeds = iter(range(args.seed, sys.maxsize))
    lock = threading.Lock()
    counts = {"children": 0, "faults": 0}

    def worker():
        while time.monotonic() < deadline:
            with lock:
                seed = next(seeds)
            wrong = run_child(seed, args.steps)
            with lock:
                counts["children"] += 1
                if wrong is not None:
                    counts["faults"] += 1
                    print(f"== seed {seed}: {wrong}", flush=True)

    threads = [threading.Thread(target=worker) for _ in range(args.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(
        f"surface: {counts['children']} children of {args.steps} steps from seed {args.seed}, {counts['faults']} faults",
        flush=True,
    )
    return 1 if counts["faults"] else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--child", type=int)
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    if args.child is not None:
        child(args.child, args.steps, args.verbose)
    return run_all(args)


if __name__ == "__main__":
    sys.exit(main())
