"""Random calls and exceptions inside each callback of a stream protocol end as on asyncio."""
import asyncio
import os
import socket
import struct

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import twin
from sockets import tcp_pair
from test_property_transport import WRITELINES_MENDED

EXAMPLES = int(os.environ.get("TREADLE_TEST_CALLBACK_EXAMPLES", "700"))
EVENTS = ("made", "get_buffer", "data", "eof", "pause", "resume", "lost")
RAISED = (ValueError, OSError, ConnectionResetError, asyncio.CancelledError, SystemExit, KeyboardInterrupt)
CALLS = ("close", "abort", "pause_reading", "resume_reading", "write_eof")

ACTIONS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from([1, 10, 400_000])),
    st.tuples(st.just("writelines" if WRITELINES_MENDED else "close")),
    st.tuples(st.just("limits"), st.sampled_from([None, 0, 1000])),
    st.tuples(st.just("set_protocol"), st.booleans()),
    st.tuples(st.just("state")),
    *[st.tuples(st.just(name)) for name in CALLS],
)
SCRIPTED = st.one_of(ACTIONS, st.tuples(st.just("stop")), st.tuples(st.just("soon")),
                     st.tuples(st.just("raise"), st.sampled_from(RAISED)))
SCRIPTS = st.dictionaries(
    st.sampled_from(EVENTS), st.lists(st.lists(SCRIPTED, max_size=2), max_size=2), max_size=3
)
STEPS = st.lists(
    st.one_of(
        ACTIONS,
        st.tuples(st.just("peer_write"), st.sampled_from([1, 5, 5000])),
        st.tuples(st.just("peer_read")),
        st.tuples(st.just("peer_eof")),
        st.tuples(st.just("peer_reset")),
        st.tuples(st.just("peer_close")),
    ),
    max_size=7,
)
PROGRAMS = st.fixed_dictionaries({"buffered": st.booleans(), "eof": st.sampled_from([True, False, None]),
                                  "scripts": SCRIPTS, "later_scripts": SCRIPTS, "steps": STEPS})


class Scripted:
    """Logs each callback and performs what its script says for this call of it."""

    def __init__(self, machine, scripts, eof):
        self.machine, self.eof = machine, eof
        self.scripts = {event: list(calls) for event, calls in scripts.items()}

    def perform(self, event):
        calls = self.scripts.get(event)
        for action in calls.pop(0) if calls else ():
            self.machine.perform(action, event)

    def tell(self, event, *details):
        self.machine.log.append((event, *details))
        self.perform(event)

    def connection_made(self, transport):
        self.machine.transport = transport
        self.tell("made")

    def eof_received(self):
        self.tell("eof")
        return self.eof

    def pause_writing(self):
        self.tell("pause")

    def resume_writing(self):
        self.tell("resume")

    def connection_lost(self, exc):
        self.machine.lost = True
        self.tell("lost", type(exc).__name__)


class Plain(Scripted, asyncio.Protocol):
    def data_received(self, data):
        self.machine.log_data(len(data))
        self.perform("data")


class Buffered(Scripted, asyncio.BufferedProtocol):
    def get_buffer(self, hint):
        self.buffer = bytearray(4096)
        self.perform("get_buffer")
        return self.buffer

    def buffer_updated(self, count):
        self.machine.log_data(count)
        self.perform("data")


class Machine:
    """One connection on one loop, driven a few turns at a time, so that exits come out and the loop goes
    on."""

    def __init__(self, loop, program):
        self.loop, self.program, self.log = loop, program, []
        self.transport, self.lost = None, False
        loop.set_exception_handler(self.handler)

    def handler(self, loop, context):
        exc = context.get("exception")
        self.log.append(
            ("handler", twin.norm(context.get("message")).split("(")[0], type(exc).__name__, str(exc))
        )

    def log_data(self, count):
        if self.log and self.log[-1][0] == "data":
            count += self.log.pop()[1]
        self.log.append(("data", count))

    def protocol(self, scripts, buffered):
        return (Buffered if buffered else Plain)(self, self.program[scripts], self.program["eof"])

    def perform(self, action, event):
        kind, *args = action
        if kind == "raise":
            raise args[0]("raised")
        if kind == "soon":
            self.loop.call_soon(self.log.append, ("soon", event))
        elif kind == "stop":
            self.loop.stop()
        else:
            try:
                self.call(kind, *args)
            except AttributeError:
                # Asyncio's, after a close that had to drain first: it forgets that the connection is lost.
                pass
            except Exception as exc:
                self.log.append(("refused", kind, twin.norm(exc)))

    def call(self, kind, *args):
        if kind == "write":
            self.transport.write(b"w" * args[0])
        elif kind == "writelines":
            self.transport.writelines([b"l" * 20, bytearray(3)])
        elif kind == "limits":
            self.transport.set_write_buffer_limits(high=args[0])
        elif kind == "set_protocol":
            self.transport.set_protocol(self.protocol("later_scripts", args[0]))
        elif kind == "state":
            self.log.append((self.transport.is_closing(), self.transport.is_reading()))
        else:
            getattr(self.transport, kind)()

    def peer_step(self, peer, kind, *args):
        if kind == "peer_write":
            peer.send(b"p" * args[0])
        elif kind == "peer_read":
            while peer.recv(1 << 20):
                self.turns(2)
        elif kind == "peer_eof":
            peer.shutdown(socket.SHUT_WR)
        else:
            if kind == "peer_reset":
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()

    def step(self, peer, kind, *args):
        try:
            if kind.startswith("peer"):
                self.peer_step(peer, kind, *args)
            elif self.transport is not None:
                self.perform((kind, *args), "step")
        except OSError as exc:
            self.log.append(("peer", type(exc).__name__))
        except RAISED as exc:
            self.log.append(("out of a call", type(exc).__name__))
        self.turns()

    def turns(self, count=6):
        for _ in range(count):
            self.loop.call_soon(self.loop.stop)
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as exc:
                self.log.append(("out of the run", type(exc).__name__))

    def run(self, family):
        ours, peer = socket.socketpair() if family == "unix" else tcp_pair()
        peer.setblocking(False)
        task = self.loop.create_task(self.loop.create_connection(
            lambda: self.protocol("scripts", self.program["buffered"]), sock=ours))
        self.turns()
        for step in self.program["steps"]:
            self.step(peer, *step)
            self.log.append((step[0], self.transport is not None and self.transport.is_closing()))
        peer.close()
        self.turns()
        self.log.append(("end", self.lost, task.done()))
        if self.transport is not None and not self.lost:
            self.transport.abort()
        task.cancel()
        self.turns()
        ours.close()
        return self.log


def run(factory, family, program):
    loop = factory()
    try:
        return Machine(loop, program).run(family)
    finally:
        loop.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", ["unix", "tcp"])
def test_what_callbacks_do_and_raise_ends_as_on_asyncio(family):
    @settings(max_examples=EXAMPLES, deadline=None, print_blob=True, database=None,
              suppress_health_check=list(HealthCheck))
    @given(PROGRAMS)
    def check(program):
        assert run(twin.subject_loop, family, program) == run(twin.reference_loop, family, program)

    check()
