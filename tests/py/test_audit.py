"""Audit events: whatever C does that CPython tells audit hooks of, they are told of first, in CPython's
words, and may refuse."""
import pathlib

import pytest

import twin

pytestmark = pytest.mark.skipif(
    twin.LOOP_MODULE != "treadle", reason="compares treadle with asyncio, open() and os"
)
SCRIPT = str(pathlib.Path(__file__).parent / "audited.py")
EVENTS = [
    "open",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.truncate",
    "shutil.copyfile",
    "socket.__new__",
    "socket.connect",
    "socket.bind",
    "socket.sendto",
    "socket.getaddrinfo",
    "socket.getnameinfo",
]


def both(python, *args):
    return [python(SCRIPT, arm, *args, check=True).stdout for arm in ("asyncio", "treadle")]


def test_hooks_are_told_of_each_call_as_cpython_tells_them(python):
    asyncio, treadle = both(python, "record")
    for event in EVENTS:
        assert f"('{event}'" in asyncio
    assert treadle == asyncio


@pytest.mark.parametrize("event", [*EVENTS, "socket.sendmsg"])
def test_a_hook_that_raises_keeps_the_call_from_happening(python, event):
    asyncio, treadle = both(python, "refuse", event)
    assert treadle == asyncio


LATE = """
import asyncio, socket, sys
import twin

async def main(loop):
    ours, peer = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=ours)
    for _ in range(3):
        writer.write(b"1")
        writer.write(b"2")
        await asyncio.sleep(0)
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    def note(event, args):
        if event.startswith("socket."):
            seen.append((event, args[1:]))

    sys.addaudithook(note)
    host, port = server.sockets[0].getsockname()
    reader, other = await asyncio.open_connection(host, port)
    await reader.read()
    print([event for event, _ in seen], seen[1][1] == ((host, port),))
    other.close()
    writer.close()
    server.close()

seen = []
loop = twin.gathering_loop()
loop.run_until_complete(main(loop))
"""


def test_a_hook_that_comes_after_treadles_own_is_seen(python):
    """What hears of os.exec*, for held writes, is a hook too, and nobody is told anything for its sake."""
    assert (
        python(code=LATE, check=True).stdout
        == "['socket.__new__', 'socket.connect', 'socket.__new__'] True\n"
    )


REFUSING = """
import asyncio, sys
import twin
from sockets import made_by_loop

def refuse(event, args):
    told.append(event)
    if event == "sys.addaudithook" and refused:
        raise RuntimeError("no more hooks")

async def main():
    transport, _, peer = await made_by_loop(loop, asyncio.Protocol, "unix")
    peer.setblocking(False)
    del told[:]
    transport.write(b"1")
    transport.write(b"2")
    try:
        print(peer.recv(10), end=" ")
    except BlockingIOError:
        print("held", end=" ")
    print([event for event in told if "hook" in event])
    transport.close()

told, refused = [], sys.argv[1] == "refuse"
sys.addaudithook(refuse)
loop = twin.gathering_loop()
loop.run_until_complete(main())
"""


@pytest.mark.parametrize("answer, came", [
    ("allow", "held ['sys.addaudithook']"),
    # By the second treadle's own hook would know that it is set.
    ("refuse", "b'12' ['sys.addaudithook', 'treadle.hook']"),
])
def test_nothing_is_held_where_a_hook_refuses_treadles_own(python, answer, came):
    """CPython takes a refusal by RuntimeError for success, and does not set the hook."""
    done = python("-c", REFUSING, answer, check=True)
    assert done.stdout == f"{came}\n"


ABORTING = """
import asyncio, os, socket, sys, tempfile
import twin

class Protocol(asyncio.DatagramProtocol):
    def error_received(self, exc):
        print("error", repr(exc))

    def resume_writing(self):
        print("resumed")

    def connection_lost(self, exc):
        print("lost", repr(exc))
        lost.set_result(None)

def hook(event, args):
    if event == "socket.sendto" and armed:
        armed.pop().abort()
        raise RuntimeError("no more")

async def main(loop):
    global lost
    lost = loop.create_future()
    # asyncio's own abort() then fails behind connection_lost(): that is not of interest
    loop.set_exception_handler(lambda loop, context: print(context["message"]) if not lost.done() else None)
    path = os.path.join(tempfile.mkdtemp(), "peer")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
        peer.bind(path)
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        transport, _ = await loop.create_datagram_endpoint(Protocol, sock=ours)
        while transport.get_write_buffer_size() == 0:
            transport.sendto(b"x", path)
        armed.append(transport)
        peer.setblocking(False)
        while not lost.done():
            try:
                peer.recv(1)
            except BlockingIOError:
                pass
            await asyncio.sleep(0)
    os.unlink(path)
    os.rmdir(os.path.dirname(path))

armed = []
sys.addaudithook(hook)
loop = twin.reference_loop() if sys.argv[1] == "asyncio" else twin.subject_loop()
loop.run_until_complete(main(loop))
"""


@pytest.mark.parametrize("arm", ["asyncio", "treadle"])
def test_a_hook_may_abort_and_refuse_a_datagram_that_was_queued(python, arm):
    told = "Fatal write error on datagram transport\nlost None\n"
    assert python(arm, code=ABORTING, check=True).stdout == told
