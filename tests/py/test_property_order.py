"""Random mixes of scheduling calls run in the same order on asyncio and on treadle."""
import asyncio
import os
import threading

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import twin

EXAMPLES = int(os.environ.get("TREADLE_TEST_EXAMPLES", "10000"))

# A program is a list of runs; a run is (actions before it, scripts that its callbacks perform). It is decoded
# from bytes, which hypothesis makes and shrinks far faster than nested lists: four bits choose an action, the
# rest its target.
KINDS = (
    "soon",
    "soon",
    "soon",
    "safe",
    "safe",
    "remote",
    "remote",
    "later",
    "later",
    "cancel",
    "cancel",
    "stop",
    "stop_safe",
    "raise",
    "exit",
    "next",
)


def decode(data):
    """Bytes to runs: 'next' ends a list of actions; every fourth list starts a run, the others are its
    scripts."""
    lists = [[]]
    for byte in data:
        kind, value = KINDS[byte & 15], byte >> 4
        if kind == "next":
            lists.append([])
        elif len(lists[-1]) < 6:
            lists[-1].append((kind, value & 3, -(value >> 2)) if kind == "later" else (kind, value))
    return [(lists[i], lists[i + 1:i + 4]) for i in range(0, len(lists), 4)]


class Remote:
    """One thread that makes a loop's remote calls, each joined, for the whole run of cases."""

    def __init__(self):
        self.todo, self.done, self.work = threading.Semaphore(0), threading.Semaphore(0), None
        threading.Thread(target=self._body, daemon=True).start()

    def _body(self):
        while True:
            self.todo.acquire()
            self.work()
            self.done.release()

    def call(self, function, *args):
        self.work = lambda: function(*args)
        self.todo.release()
        self.done.acquire()


REMOTE = Remote()


class Machine:
    """Runs a program on one loop and logs what ran."""

    def __init__(self, loop):
        self.loop, self.log, self.handles, self.scripts, self.count = loop, [], [], [], 0
        # Deadlines already past, all different, so that their order is defined and nothing waits.
        self.base = loop.time() - 1000.0
        loop.set_exception_handler(lambda loop, context: self.log.append("handler"))

    def ran(self, number, script):
        self.log.append(number)
        for action in self.scripts[script & 3] if script & 3 < len(self.scripts) else ():
            self.do(action)

    def do(self, action):
        kind, *args = action
        self.count += 1
        if self.count > 200:
            return
        number = self.count
        if kind == "soon":
            self.handles.append(self.loop.call_soon(self.ran, number, args[0]))
        elif kind == "safe":
            self.handles.append(self.loop.call_soon_threadsafe(self.ran, number, args[0]))
        elif kind == "remote":
            REMOTE.call(self.remote, number, args[0])
        elif kind == "later":
            when = self.base + args[1] * 100 + number * 0.001
            self.handles.append(self.loop.call_at(when, self.ran, number, args[0]))
        elif kind == "cancel" and self.handles:
            self.handles[-1 - args[0] % len(self.handles)].cancel()
        elif kind == "stop":
            self.loop.stop()
        elif kind == "stop_safe":
            self.loop.call_soon_threadsafe(self.loop.stop)
        elif kind == "raise":
            self.loop.call_soon(self.fail, ValueError)
        elif kind == "exit":
            self.loop.call_soon(self.fail, SystemExit)

    def remote(self, number, script):
        self.handles.append(self.loop.call_soon_threadsafe(self.ran, number, script))

    def fail(self, kind):
        self.log.append(kind.__name__)
        raise kind

    def idle(self, left=12):
        """Ends a run that nobody stopped, after its generations had their turn."""
        if left:
            self.ender = self.loop.call_soon(self.idle, left - 1)
        else:
            self.loop.stop()

    def run(self, program):
        for actions, scripts in program:
            self.scripts = scripts
            for action in actions:
                self.do(action)
            self.ender = self.loop.call_soon(self.idle)
            try:
                self.loop.run_forever()
            except SystemExit:
                self.log.append("left")
            self.ender.cancel()
            self.log.append("run over")
        return self.log


def run(factory, program):
    loop = factory()
    try:
        return Machine(loop).run(program)
    finally:
        loop.close()


@pytest.mark.timeout(600)
@settings(max_examples=EXAMPLES, deadline=None, print_blob=True, database=None,
          suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=48))
def test_the_order_is_asyncios(data):
    program = decode(data)
    assert run(twin.subject_loop, program) == run(twin.reference_loop, program)
