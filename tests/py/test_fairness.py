"""A busy chain of callbacks must let I/O through: a readable socket is served within two generations."""
import asyncio
import os
import socket
import sys
import textwrap

import pytest

import twin as twins

VARIANTS = {"gate": {}, "no_uring": {"TREADLE_IO_URING": "0"}}

PRELUDE = """
import asyncio, os, socket, sys, threading
import twin
twin.LOOP_MODULE = os.environ["TREADLE_TEST_LOOP"]
loop = twin.subject_loop()

def pair():
    a, b = socket.socketpair()
    a.setblocking(False); b.setblocking(False)
    return a, b

class Chain:
    'Counts the generations between an event and its callback while callbacks keep scheduling each other.'
    def __init__(self, rounds=200, disturb=None):
        self.a, self.b = pair()
        self.links = 0; self.sent_at = None; self.delays = []; self.rounds = rounds; self.disturb = disturb
    def link(self):
        self.links += 1
        if self.sent_at is None:
            if len(self.delays) == self.rounds:
                loop.stop(); return
            if self.disturb: self.disturb(len(self.delays))
            self.sent_at = self.links
            self.b.send(b'x')
        elif self.links - self.sent_at > 5000:
            loop.stop(); return
        loop.call_soon(self.link)
    def readable(self):
        self.a.recv(100)
        self.delays.append(self.links - self.sent_at)
        self.sent_at = None
    def run(self):
        loop.add_reader(self.a, self.readable)
        loop.call_soon(self.link)
        loop.run_forever()
        loop.remove_reader(self.a)
        return self.delays
"""


def run(python, variant, body):
    code = PRELUDE + textwrap.dedent(body) + CHECK
    done = python(code=code, env=VARIANTS[variant], check=True)
    return done.stdout


@pytest.fixture(params=sorted(VARIANTS))
def variant(request):
    return request.param


CHECK = """
assert len(delays) == chain.rounds, (len(delays), delays[-3:])
assert max(delays) <= 2, sorted(delays)[-5:]
"""


@pytest.mark.skipif(twins.LOOP_MODULE != "treadle", reason="treadle's option")
def test_the_switch_is_in_force(python):
    info = [python(code="import treadle, asyncio; l = treadle.new_event_loop(); print(l.info()); l.close()",
                   env=env, check=True).stdout for env in VARIANTS.values()]
    assert info[0] != info[1] or "uring" not in info[0].lower()


def test_a_chain_lets_a_readable_socket_through(python, variant):
    run(python, variant, "chain = Chain()\ndelays = chain.run()\n")


def test_while_another_thread_runs(python, variant):
    run(python, variant, """
        over = threading.Event()
        thread = threading.Thread(target=over.wait); thread.start()
        chain = Chain()
        delays = chain.run()
        over.set(); thread.join()
        """)


def test_with_paused_readers_and_unread_data(python, variant):
    run(python, variant, """
        async def setup():
            kept = []
            for _ in range(5):
                a, b = socket.socketpair()
                transport, _ = await loop.create_connection(asyncio.Protocol, sock=a)
                transport.pause_reading()
                b.send(b'unread')
                kept.append((transport, b))
            await asyncio.sleep(0)
            return kept
        kept = loop.run_until_complete(setup())
        chain = Chain()
        delays = chain.run()
        """)


def test_with_partial_reads(python, variant):
    run(python, variant, """
        class Partial(Chain):
            def readable(self):
                self.a.recv(1)
                if self.sent_at is not None:
                    self.delays.append(self.links - self.sent_at)
                    self.sent_at = None
        chain = Partial()
        chain.disturb = lambda n: chain.b.send(b'yz')
        loop.add_reader(chain.a, chain.readable)
        delays = chain.run()
        """)


def test_with_sockets_closed_and_opened_in_between(python, variant):
    run(python, variant, """
        def disturb(n):
            a, b = pair()
            loop.add_reader(a, lambda: None)
            if n % 2: b.send(b'x')
            loop.remove_reader(a)
            a.close(); b.close()
        chain = Chain(disturb=disturb)
        delays = chain.run()
        """)


def test_with_forks_in_between(python, variant):
    run(python, variant, """
        def disturb(n):
            if n % 20 == 10:
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)
        chain = Chain(rounds=100, disturb=disturb)
        delays = chain.run()
        """)


def test_with_timers_and_remote_calls_in_between(python, variant):
    run(python, variant, """
        def disturb(n):
            loop.call_later(0, int)
            loop.call_later(1000, int).cancel()
            loop.call_soon_threadsafe(int)
        chain = Chain(disturb=disturb)
        delays = chain.run()
        """)


def test_after_the_loop_slept_and_ran_again(python, variant):
    run(python, variant, """
        for _ in range(10):
            loop.run_until_complete(asyncio.sleep(0.001))
            chain = Chain(rounds=20)
            delays = chain.run()
        """)


def test_a_writer_gets_through_a_chain(python, variant):
    run(python, variant, """
        chain = Chain()
        delays = []
        a, b = pair()
        state = {'links': 0, 'armed': None}
        def writable():
            loop.remove_writer(a)
            delays.append(state['links'] - state['armed']); state['armed'] = None
        def link():
            state['links'] += 1
            if len(delays) == chain.rounds: loop.stop(); return
            if state['armed'] is None:
                state['armed'] = state['links']; loop.add_writer(a, writable)
            loop.call_soon(link)
        link()
        loop.run_forever()
        """)


def test_transports_get_data_through_a_chain(python, variant):
    run(python, variant, """
        chain = Chain()
        delays, links, sent = [], [0], [None]
        class P(asyncio.Protocol):
            def data_received(self, data):
                delays.append(links[0] - sent[0]); sent[0] = None
        a, b = pair()
        loop.run_until_complete(loop.create_connection(P, sock=a))
        def link():
            links[0] += 1
            if len(delays) == chain.rounds: loop.stop(); return
            if sent[0] is None:
                sent[0] = links[0]; b.send(b'x')
            loop.call_soon(link)
        link()
        loop.run_forever()
        """)


def test_timers_and_remote_calls_get_through_a_chain(python, variant):
    run(
        python,
        variant,
        """
        chain = Chain()
        delays, links, sent = [], [0], [None]
        def arrived():
            delays.append(links[0] - sent[0]); sent[0] = None
        def link():
            links[0] += 1
            if len(delays) == chain.rounds: loop.stop(); return
            if sent[0] is None:
                sent[0] = links[0]
                if len(delays) % 2: loop.call_later(-1, arrived)
                else:
                    t = threading.Thread(target=loop.call_soon_threadsafe, args=(arrived,))
                    t.start()
                    t.join()
            loop.call_soon(link)
        link()
        loop.run_forever()
        """,
    )
