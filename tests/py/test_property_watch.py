"""Random registrations, by number and by object, with descriptors that are closed and numbers that come
back."""
import fcntl
import os
import socket

from hypothesis import HealthCheck, given, settings, strategies as st

import twin

EXAMPLES = int(os.environ.get("TREADLE_TEST_WATCH_EXAMPLES", "400"))
PLACES = 2
FREE = 600  # no number from here on is in use
CALLS = ("add_reader", "add_writer", "remove_reader", "remove_writer")
KINDS = (*CALLS, *CALLS, "close", "close_number", "reopen", "send", "end", "copy")

STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, PLACES - 1), st.integers(-2, 1)), max_size=30
)


class Place:
    """One number, and all the sockets that had it."""

    def __init__(self):
        ours, self.peer = socket.socketpair()
        self.number = fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, FREE)  # nobody else gets it while it is closed
        ours.close()
        self.sockets, self.opened, self.is_open = [socket.socket(fileno=self.number)], 0, True
        self.sockets[0].setblocking(False)
        self.watched = {}  # side: how often the number was opened when it was registered

    def drop(self):
        """The number is free, and no object believes that it has it."""
        if self.sockets[-1].fileno() >= 0:
            self.sockets[-1].detach()
        if self.is_open:
            os.close(self.number)
        self.is_open = False

    def reopen(self):
        self.drop()
        self.peer.close()
        ours, self.peer = socket.socketpair()
        os.dup2(ours.fileno(), self.number, inheritable=False)
        ours.close()
        self.sockets.append(socket.socket(fileno=self.number))
        self.sockets[-1].setblocking(False)
        self.opened, self.is_open = self.opened + 1, True

    def stale(self, but=None):
        """Whether a side, other than this one, is watched though its file is closed."""
        now = self.opened if self.is_open else None
        return any(opened != now for side, opened in self.watched.items() if side != but)


class Machine:
    """Runs a program on one loop and logs what calls answer and which callbacks ran behind each."""

    def __init__(self, loop):
        self.loop, self.log, self.ran, self.copies = loop, [], set(), []
        self.places = [Place() for _ in range(PLACES)]
        loop.set_exception_handler(lambda loop, context: self.ran.add("handler"))

    def called(self, side, number, step):
        self.ran.add((side, step))
        if side == "reader":
            try:
                os.read(number, 1 << 16)
            except OSError as exc:
                self.ran.add((step, type(exc).__name__))

    def register(self, place, kind, which, step):
        """Leaves out what docs/asyncio-compat.md lists: a change beside, or of, a registration whose file is
        closed."""
        verb, side = kind.split("_")
        if place.stale(but=side if verb == "remove" else None):
            return None
        target = place.number if which == -2 else place.sockets[which % len(place.sockets)]
        callback = (self.called, side, place.number, step) if verb == "add" else ()
        answer = getattr(self.loop, kind)(target, *callback)
        if verb == "add":
            place.watched[side] = place.opened
        else:
            place.watched.pop(side, None)
        return answer

    def act(self, kind, place, which, step):
        if kind in CALLS:
            return self.register(place, kind, which, step)
        if kind == "close":
            if place.sockets[-1].fileno() >= 0:
                place.is_open = False
            place.sockets[-1].close()
        elif kind == "close_number":
            place.drop()
        elif kind == "reopen":
            place.reopen()
        elif kind == "send" and place.is_open and place.peer.fileno() >= 0:
            place.peer.send(b"x")
        elif kind == "end":
            place.peer.close()
        elif kind == "copy" and place.is_open:
            self.copies.append(os.dup(place.number))
        return None

    def step(self, step, kind, place, which):
        self.ran = set()
        try:
            answer = self.act(kind, self.places[place], which, step)
        except (OSError, ValueError) as exc:
            answer = type(exc).__name__
        for _ in range(4):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        self.log.append(
            (step, kind, answer if isinstance(answer, (str, bool)) else None, sorted(map(str, self.ran)))
        )

    def close(self):
        self.loop.close()
        for place in self.places:
            place.drop()
            place.peer.close()
        for copy in self.copies:
            os.close(copy)


def run(factory, steps):
    machine = Machine(factory())
    try:
        for number, step in enumerate(steps):
            machine.step(number, *step)
    finally:
        machine.close()
    return machine.log


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_registrations_answer_and_call_as_asyncios(steps):
    assert run(twin.subject_loop, steps) == run(twin.reference_loop, steps)


def test_a_registration_whose_file_was_closed_serves_the_next_with_its_number(loop):
    """asyncio's epoll hears nothing of the new file, or answers with an OSError: docs/asyncio-compat.md."""
    for method, side in (("add_writer", "writer"), ("add_reader", "reader")):
        machine = Machine(loop)
        place = machine.places[0]
        loop.add_writer(place.number, machine.called, "old", place.number, 0)
        place.reopen()
        place.peer.send(b"x")
        getattr(loop, method)(place.number, machine.called, side, place.number, 1)
        for _ in range(4):
            loop.call_soon(loop.stop)
            loop.run_forever()
        assert (side, 1) in machine.ran
        loop.remove_writer(place.number)
        loop.remove_reader(place.number)
        machine.loop = twin.reference_loop()
        machine.close()
