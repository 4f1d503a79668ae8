"""Lookups: the answers and errors of socket.getaddrinfo, who gives them, and who else must see them."""
import asyncio
import concurrent.futures
import functools
import gc
import os
import socket
import sys
import threading
import weakref

import pytest

from twin import LOOP_MODULE, subject_loop, twin

NUMERIC = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
treadle_only = pytest.mark.skipif(LOOP_MODULE != "treadle", reason="asks treadle who answered")


class Text(str):
    """A str that is not plain."""


class Index:
    """Something that has a number."""

    def __index__(self):
        return int(socket.SOCK_STREAM)

    def __repr__(self):
        return "Index()"  # part of the names of tests, which must be the same in every process


# (host, port, keywords, who answers): "inline" at once, "native" by a thread of the pool, "python" by
# asyncio's executor
SHAPES = [
    ("127.0.0.1", 80, {}, "inline"),
    ("127.0.0.1", 80, {"type": socket.SOCK_STREAM}, "inline"),
    ("127.0.0.1", 80, {"type": 1}, "inline"),
    ("127.0.0.1", 80, {"family": socket.AF_INET, "type": socket.SOCK_DGRAM}, "inline"),
    ("127.0.0.1", 80, {"proto": socket.IPPROTO_TCP}, "inline"),
    ("127.0.0.1", "80", {}, "inline"),
    ("127.0.0.1", b"80", {}, "inline"),
    ("127.0.0.1", None, {}, "inline"),
    ("127.0.0.1", "", {}, "inline"),
    (b"127.0.0.1", 80, {}, "inline"),
    ("127.1", 80, {}, "inline"),
    ("0x7f.1", 80, {}, "inline"),
    ("0.0.0.0", 0, {}, "inline"),
    ("::1", 80, {}, "inline"),
    ("::", 80, {"type": socket.SOCK_STREAM}, "inline"),
    ("fe80::1%1", 80, {"type": socket.SOCK_STREAM}, "inline"),
    ("fe80::1%lo", 80, {"type": socket.SOCK_STREAM}, "inline"),
    ("2001:db8::1%7", 80, {"type": socket.SOCK_STREAM}, "inline"),
    ("::ffff:1.2.3.4", 80, {"family": socket.AF_INET, "type": socket.SOCK_STREAM}, "inline"),
    ("1.2.3.4", 80, {"family": socket.AF_INET6, "flags": socket.AI_V4MAPPED}, "inline"),
    ("127.0.0.1", 80, {"flags": socket.AI_NUMERICHOST}, "inline"),
    ("127.0.0.1", 80, {"flags": socket.AI_CANONNAME}, "inline"),
    ("127.0.0.1", 80, {"flags": socket.AI_PASSIVE | socket.AI_NUMERICSERV}, "inline"),
    (None, 80, {"family": socket.AF_INET, "flags": socket.AI_PASSIVE}, "inline"),
    (None, 80, {"family": socket.AF_INET6}, "inline"),
    ("127.0.0.1", None, {"type": socket.SOCK_RAW}, "inline"),
    ("localhost", 80, {}, "native"),
    ("localhost", 80, {"type": socket.SOCK_STREAM}, "native"),
    ("localhost", "http", {}, "native"),
    ("localhost", b"http", {"family": 2}, "native"),
    ("localhost", None, {}, "native"),
    (b"localhost", 80, {}, "native"),
    ("localhost.", 80, {}, "native"),
    ("LOCALHOST", 80, {"flags": socket.AI_CANONNAME}, "native"),
    ("127.0.0.1", "http", {}, "native"),
    ("127.0.0.1", "nosuchservice", {}, "native"),
    ("127.0.0.1", 80, {"flags": socket.AI_ADDRCONFIG}, "native"),
    ("127.0.0.1", 80, {"family": socket.AF_INET6}, "native"),
    ("127.0.0.1", 80, {"family": socket.AF_UNIX}, "native"),
    ("127.0.0.1", 80, {"type": 77}, "native"),
    ("127.0.0.1", 80, {"type": socket.SOCK_RAW}, "native"),
    ("127.0.0.1", 80, {"flags": -1}, "native"),
    ("localhost", 80, {"flags": socket.AI_NUMERICHOST}, "native"),
    ("fe80::1%nosuch", 80, {"flags": socket.AI_NUMERICHOST}, "native"),
    (None, 80, {}, "native"),
    (None, 80, {"flags": socket.AI_PASSIVE, "type": socket.SOCK_STREAM}, "native"),
    (None, None, {}, "native"),
    ("", 80, {}, "native"),
    (None, 80, {"flags": socket.AI_CANONNAME}, "native"),
    ("l\xf6calhost.invalid", 80, {"flags": socket.AI_NUMERICHOST}, "python"),
    ("a..invalid", 80, {}, "python"),
    (".localhost", 80, {}, "python"),
    ("a" * 64 + ".invalid", 80, {}, "python"),
    ("0x" + "0" * 246 + "7f000001.example.com", 80, {}, "python"),
    ("local\0host", 80, {"flags": socket.AI_NUMERICHOST}, "python"),
    (b"127.0.0.1\0x", 80, {}, "python"),
    (bytearray(b"127.0.0.1"), 80, {}, "python"),
    (Text("127.0.0.1"), 80, {}, "python"),
    (b"\xff", 80, {"flags": socket.AI_NUMERICHOST}, "native"),
    ("127.0.0.1", -1, {}, "python"),
    ("127.0.0.1", 65536, {}, "python"),
    ("127.0.0.1", 2**80, {}, "python"),
    ("127.0.0.1", True, {}, "python"),
    ("127.0.0.1", 80.0, {}, "python"),
    ("127.0.0.1", "8\0", {}, "python"),
    ("127.0.0.1", "\xb2", {}, "python"),
    ("127.0.0.1", 80, {"type": Index()}, "python"),
    ("127.0.0.1", 80, {"family": "2"}, "python"),
    ("127.0.0.1", 80, {"flags": 2**40}, "python"),
    ("127.0.0.1", 80, {"proto": None}, "python"),
    (80, 80, {}, "python"),
]

REVERSE = [
    (("127.0.0.1", 80), NUMERIC, "inline"),
    (("127.0.0.1", 0), NUMERIC | socket.NI_DGRAM, "inline"),
    (("255.255.255.255", 65535), NUMERIC, "inline"),
    (("127.1", 80), NUMERIC, "inline"),
    (("::1", 80), NUMERIC, "inline"),
    (("::1", 80, 0, 0), NUMERIC, "inline"),
    (("fe80::1", 80, 0, 1), NUMERIC, "inline"),
    (("fe80::1", 80, 5, 99), NUMERIC, "inline"),
    (("fe80::1%1", 80, 0, 0), NUMERIC, "inline"),
    (("2001:db8::1", 80, 0, 7), NUMERIC, "inline"),
    (("127.0.0.1", 80), 0, "native"),
    (("127.0.0.1", 80), socket.NI_NUMERICHOST, "native"),
    (("127.0.0.1", 80), socket.NI_NUMERICSERV, "native"),
    (("127.0.0.1", 80), NUMERIC | socket.NI_NAMEREQD, "native"),
    (("127.0.0.1", 80), -1, "native"),
    (("::1", 80, 0, 0), 0, "native"),
    (("127.0.0.1", 80, 0, 0), NUMERIC, "python"),
    (("localhost", 80), NUMERIC, "python"),
    (("", 80), NUMERIC, "python"),
    (("127.0.0.1",), NUMERIC, "python"),
    (("::1", 80, 0, 0, 0), NUMERIC, "python"),
    (("::1", 80, 2**20, 0), NUMERIC, "python"),
    (("::1", 80, 0, -1), NUMERIC, "python"),
    (("127.0.0.1", 70000), NUMERIC, "python"),
    (("127.0.0.1", "80"), NUMERIC, "python"),
    ((b"127.0.0.1", 80), NUMERIC, "python"),
    (["127.0.0.1", 80], NUMERIC, "python"),
    (("127.0.0.1", 80), None, "python"),
    (("127.0.0.1", 80), 2**40, "python"),
]


def outcome(function, *args, **kwargs):
    """What a call gave, with the type of every element: enum members are not numbers."""
    try:
        value = function(*args, **kwargs)
    except Exception as exc:
        return type(exc), exc.args
    return typed(value)


def typed(value):
    if isinstance(value, (list, tuple)):
        return type(value), [typed(v) for v in value]
    return type(value), value


def answered_by(loop, call):
    """Awaits a lookup; returns its outcome and who answered."""
    before = loop._lookup_info()
    got = outcome(loop.run_until_complete, call())
    after = loop._lookup_info()
    return got, [who for who in ("inline", "native", "python") if after[who] > before[who]]


@treadle_only
@pytest.mark.parametrize("host, port, keywords, who", SHAPES, ids=lambda v: repr(v)[:40])
def test_a_forward_lookup_is_the_one_of_socket(loop, host, port, keywords, who):
    expected = outcome(socket.getaddrinfo, host, port, **keywords)
    got, by = answered_by(loop, lambda: loop.getaddrinfo(host, port, **keywords))
    assert got == expected
    assert by == [who]


@treadle_only
@pytest.mark.parametrize("sockaddr, flags, who", REVERSE, ids=lambda v: repr(v)[:40])
def test_a_reverse_lookup_is_the_one_of_socket(loop, sockaddr, flags, who):
    expected = outcome(socket.getnameinfo, sockaddr, flags)
    got, by = answered_by(loop, lambda: loop.getnameinfo(sockaddr, flags))
    assert got == expected
    assert by == [who]


@twin
async def test_lookups_fail_and_answer_as_on_asyncio(t):
    for host, port, keywords, _ in SHAPES[::3]:
        await t.acall(t.loop.getaddrinfo(host, port, **keywords))
    for sockaddr, flags, _ in REVERSE[::3]:
        await t.acall(t.loop.getnameinfo(sockaddr, flags))
    await t.acall(t.loop.getnameinfo(("127.0.0.1", 80)))
    t.call(t.loop.getaddrinfo, "127.0.0.1")


@twin
async def test_sixty_four_lookups_at_once_keep_their_answers(t):
    ports = range(64)
    rows = await asyncio.gather(
        *[t.loop.getaddrinfo("localhost", p, family=socket.AF_INET, type=socket.SOCK_STREAM) for p in ports]
    )
    t.log([row[0][4] == ("127.0.0.1", p) for p, row in zip(ports, rows)])


@twin
def test_a_lookup_may_be_made_before_the_loop_runs(t):
    lookup = t.loop.getaddrinfo("localhost", 80, family=socket.AF_INET, type=socket.SOCK_STREAM)
    t.log(asyncio.iscoroutine(lookup))
    t.log(len(t.run(lookup)))
    t.loop.getaddrinfo("localhost", 80).close()


@twin
async def test_connections_look_their_names_up(t):
    # Whose end comes first is the lookup's affair.
    accepted = iter(["server of the first", "server of the second"])
    server = await t.loop.create_server(
        lambda: t.recorder(next(accepted)), "localhost", 0, family=socket.AF_INET
    )
    port = server.sockets[0].getsockname()[1]
    transport, _ = await t.loop.create_connection(
        lambda: t.recorder("client"), "localhost", port, family=socket.AF_INET
    )
    transport.close()
    sock = socket.socket()
    sock.setblocking(False)
    await t.acall(t.loop.sock_connect(sock, ("localhost", port)))
    sock.close()
    datagrams, _ = await t.loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, ("localhost", 0), family=socket.AF_INET
    )
    datagrams.close()
    server.close()
    await server.wait_closed()
    await t.turns(3)


@treadle_only
def test_connections_use_the_native_path(loop):
    async def main():
        server = await loop.create_server(asyncio.Protocol, "localhost", 0, family=socket.AF_INET)
        port = server.sockets[0].getsockname()[1]
        transport, _ = await loop.create_connection(
            asyncio.Protocol, "localhost", port, family=socket.AF_INET
        )
        transport.close()
        datagrams, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, ("localhost", 0), family=socket.AF_INET
        )
        datagrams.close()
        with socket.socket() as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, ("localhost", port))
        server.close()

    loop.run_until_complete(main())
    info = loop._lookup_info()
    assert info["native"] == 4 and info["python"] == 0
    assert loop._default_executor is None


@treadle_only
def test_a_burst_starts_no_more_threads_than_slots(loop):
    async def main():
        await asyncio.gather(
            *[loop.getaddrinfo("localhost", p, type=socket.SOCK_STREAM) for p in range(1000)]
        )

    loop.run_until_complete(main())
    info = loop._lookup_info()
    assert info["slots"] == min(32, len(os.sched_getaffinity(0)) + 4)
    assert info["native"] == 1000 and 1 <= info["threads_started"] <= info["slots"]


# Who else must see each lookup


@treadle_only
def test_a_subclass_and_a_given_executor_see_every_lookup():
    class Other(type(subject_loop())):
        pass

    for loop in (Other(), subject_loop()):
        if type(loop) is not Other:
            loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
        assert loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80))
        assert loop._default_executor is not None
        assert loop._lookup_info()["inline"] == 0
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@treadle_only
def test_the_executor_that_asyncio_makes_changes_nothing(loop):
    loop.run_until_complete(loop.run_in_executor(None, int))
    assert answered_by(loop, lambda: loop.getaddrinfo("127.0.0.1", 80))[1] == ["inline"]
    assert answered_by(loop, lambda: loop.getaddrinfo("localhost", 80))[1] == ["native"]
    loop.run_until_complete(loop.shutdown_default_executor())


@twin
def test_lookups_are_refused_after_the_executor_was_shut_down(t):
    t.run(t.loop.shutdown_default_executor())
    t.call(t.run, t.loop.getaddrinfo("localhost", 80))
    t.call(t.run, t.loop.getaddrinfo("127.0.0.1", 80))
    t.call(t.run, t.loop.getnameinfo(("127.0.0.1", 80), NUMERIC))


def _replaced(patch, seen):
    original = socket.getaddrinfo
    patch.setattr(socket, "getaddrinfo", lambda *a: (seen.append(a), original(*a))[1])


def _wrapped(patch, seen):
    original = socket.getaddrinfo

    @functools.wraps(original)
    def getaddrinfo(*args):
        seen.append(args)
        return original(*args)

    getaddrinfo.__module__, getaddrinfo.__qualname__ = original.__module__, original.__qualname__
    patch.setattr(socket, "getaddrinfo", getaddrinfo)


def _code_changed(patch, seen):
    raw = __import__("_socket").getaddrinfo

    def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
        from test_dns import SEEN, RAW

        SEEN.append((host, port))
        return RAW(host, port, family, type, proto, flags)

    sys.modules["test_dns"] = sys.modules[__name__]
    globals().update(SEEN=seen, RAW=raw)
    patch.setattr(socket.getaddrinfo, "__code__", getaddrinfo.__code__)


def _global_changed(patch, seen):
    class Raw:
        @staticmethod
        def getaddrinfo(*args):
            seen.append(args)
            return __import__("_socket").getaddrinfo(*args)

    patch.setattr(socket, "_socket", Raw)


def _converter_changed(patch, seen):
    original = socket._intenum_converter
    patch.setattr(socket, "_intenum_converter", lambda *a: (seen.append(a), original(*a))[1])


def _converter_code_changed(patch, seen):
    def convert(value, enum_klass):
        from test_dns import SEEN

        SEEN.append(value)
        return enum_klass(value)

    sys.modules["test_dns"] = sys.modules[__name__]
    globals().update(SEEN=seen)
    patch.setattr(socket._intenum_converter, "__code__", convert.__code__)


def _enumeration_replaced(patch, seen):
    original = socket.AddressFamily

    def member(value):
        seen.append(value)
        return original(value)

    patch.setattr(socket, "AddressFamily", member)


def _raw_replaced(patch, seen):
    raw = __import__("_socket")
    original = raw.getaddrinfo
    patch.setattr(raw, "getaddrinfo", lambda *a: (seen.append(a), original(*a))[1])


def _module_replaced(patch, seen):
    class Socket:
        def __getattr__(self, name):
            return getattr(socket, name)

        def getaddrinfo(self, *args):
            seen.append(args)
            return socket.getaddrinfo(*args)

    patch.setattr(asyncio.base_events, "socket", Socket())


REPLACED = [
    _replaced,
    _wrapped,
    _code_changed,
    _global_changed,
    _converter_changed,
    _converter_code_changed,
    _enumeration_replaced,
    _raw_replaced,
    _module_replaced,
]


@pytest.mark.parametrize("replace", REPLACED, ids=lambda f: f.__name__.strip("_"))
def test_a_replaced_getaddrinfo_sees_every_lookup(loop, monkeypatch, replace):
    loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80))
    for _ in range(2):
        seen = []
        with monkeypatch.context() as patch:
            replace(patch, seen)
            for host in ("127.0.0.1", "localhost"):
                before = len(seen)
                assert loop.run_until_complete(loop.getaddrinfo(host, 80))
                assert len(seen) > before
        count = len(seen)
        assert loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80))
        assert len(seen) == count
    if LOOP_MODULE == "treadle":
        assert answered_by(loop, lambda: loop.getaddrinfo("127.0.0.1", 80))[1] == ["inline"]
    loop.run_until_complete(loop.shutdown_default_executor())


def test_a_replaced_getnameinfo_sees_every_lookup(loop, monkeypatch):
    monkeypatch.setattr(socket, "getnameinfo", lambda *a: ("seen", a))
    assert loop.run_until_complete(loop.getnameinfo(("127.0.0.1", 80), NUMERIC))[0] == "seen"
    loop.run_until_complete(loop.shutdown_default_executor())


RELOAD = """
import asyncio, importlib, socket, twin
loop = twin.subject_loop()
for _ in range(2):
    rows = loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80))
    assert rows == socket.getaddrinfo("127.0.0.1", 80), rows
    assert [type(v) for v in rows[0]] == [type(v) for v in socket.getaddrinfo("127.0.0.1", 80)[0]]
    importlib.reload(socket)
if twin.LOOP_MODULE == "treadle":
    assert loop._lookup_info()["inline"] == 2, loop._lookup_info()
    loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80))  # learns what the last reload made
    assert loop._sockets_in_place()
loop.run_until_complete(loop.shutdown_default_executor())
loop.close()
"""

LATE = """
import socket
seen = []
original = socket.getaddrinfo
def fake(*args):
    seen.append(args)
    return original(*args)
socket.getaddrinfo = fake
import twin
loop = twin.subject_loop()
loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80))
assert len(seen) == 1
socket.getaddrinfo = original
loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80))
loop.run_until_complete(loop.shutdown_default_executor())
loop.close()
"""


@pytest.mark.parametrize("code", [RELOAD, LATE], ids=["reloaded", "replaced before import"])
def test_a_changed_socket_module_is_honoured(python, code):
    python(code=code, check=True)


AUDIT = """
import asyncio, socket, sys, threading, twin
kind, replaced = sys.argv[1], sys.argv[2] == "replaced"
events = []
on = False
def hook(name, args):
    if on and name in ("socket.getaddrinfo", "socket.getnameinfo"):
        events.append((name, args, threading.current_thread() is threading.main_thread()))
sys.addaudithook(hook)
if replaced:
    sys.audit = lambda *args: None
loop = twin.subject_loop() if kind == "subject" else twin.reference_loop()
N = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
async def ask():
    await loop.getaddrinfo("127.0.0.1", 80)
    await loop.getaddrinfo(b"127.0.0.1", "80", type=socket.SOCK_STREAM, family=socket.AF_INET)
    await loop.getaddrinfo("localhost", None, proto=socket.IPPROTO_TCP, flags=socket.AI_CANONNAME)
    await loop.getaddrinfo(None, 80, family=socket.AF_INET)
    await loop.getnameinfo(("127.0.0.1", 80), N)
    await loop.getnameinfo(("127.0.0.1", 80))
    await loop.getnameinfo(("::1", 80, 0, 0), N)
on = True
loop.run_until_complete(ask())
on = False
for name, args, main in events:
    print(name, args, [type(a).__name__ for a in args])
if kind == "subject" and twin.LOOP_MODULE == "treadle":
    assert all(main for _, _, main in events)
loop.run_until_complete(loop.shutdown_default_executor())
loop.close()
"""


@pytest.mark.parametrize("audit", ["own", "replaced"])
def test_audit_events_are_those_of_asyncio(python, audit):
    expected = python("reference", audit, code=AUDIT, check=True).stdout
    assert expected.count("socket.get") == 7
    assert python("subject", audit, code=AUDIT, check=True).stdout == expected


AUDIT_RAISES = """
import sys, twin
loop = twin.subject_loop()
closing = False
def hook(name, args):
    if name == "socket.getaddrinfo" and args[0] == "refused.test":
        raise PermissionError("no")
    if name == "socket.getaddrinfo" and args[0] == "closes.test":
        loop.stop()
sys.addaudithook(hook)
for host in ("refused.test",):
    try:
        loop.run_until_complete(loop.getaddrinfo(host, 80))
    except PermissionError as exc:
        print(exc)
loop.run_until_complete(loop.shutdown_default_executor())
loop.close()
"""


def test_an_audit_hook_may_refuse_a_lookup(python):
    assert python(code=AUDIT_RAISES, check=True).stdout == "no\n"


@treadle_only
def test_a_closed_loop_refuses_and_its_time_and_repr_are_safe():
    loop = subject_loop()
    loop.run_until_complete(loop.getaddrinfo("localhost", 80))
    loop.close()
    loop.close()
    assert loop.time() > 0 and "closed=True" in repr(loop)
    lookup = loop.getaddrinfo("127.0.0.1", 80)
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        lookup.send(None)
    ref = weakref.ref(loop)
    del loop, lookup
    gc.collect()
    assert ref() is None


def test_lookups_of_two_loops_in_two_threads(loop):
    failed = []

    def other():
        mine = subject_loop()

        async def ask():
            await asyncio.gather(*[mine.getaddrinfo("localhost", p) for p in range(200)])

        try:
            mine.run_until_complete(ask())
            mine.run_until_complete(mine.shutdown_default_executor())
        except BaseException as exc:
            failed.append(exc)
        mine.close()

    thread = threading.Thread(target=other)
    thread.start()

    async def ask():
        await asyncio.gather(*[loop.getaddrinfo("localhost", p) for p in range(200)])

    loop.run_until_complete(ask())
    loop.run_until_complete(loop.shutdown_default_executor())
    thread.join()
    assert not failed
