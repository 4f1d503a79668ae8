"""Objects that hold each other in long chains, and objects that change what is being looked at: nothing
recurses without end in C, and nothing is used after it is gone."""
import asyncio
import gc
import socket

import pytest

import treadle

LINKS = 300_000


def timer_chain(loop):
    link = None
    for i in range(LINKS):
        link = loop.call_later(1000 + i, print, link)
    return link


def soon_chain(loop):
    link = None
    for _ in range(LINKS):
        link = loop.call_soon(print, link)
    return link


def closure_chain(loop):
    link = None
    for _ in range(LINKS):
        link = loop.call_soon(lambda link=link: link)
    return link


def pair_chain(loop):
    link = None
    for _ in range(LINKS):
        link = loop.call_soon(print, (link,), 1)
    return link


def job_chain(loop):
    future = loop.create_future()
    link = None
    for _ in range(LINKS):
        link = loop._make_job(future, print, (link,))
    return link


@pytest.mark.parametrize("make", [timer_chain, soon_chain, closure_chain, pair_chain, job_chain])
def test_a_chain_of_any_length_ends_without_recursion(make):
    loop = treadle.new_event_loop()
    link = make(loop)
    loop.close()
    assert link is not None
    del link


def test_a_chain_of_handles_that_nobody_queued_ends_as_its_last_holder_does(loop):
    ended = []

    class Link:
        def __init__(self, held):
            self.held = held

        def __call__(self):
            pass

        def __del__(self):
            ended.append(self)

    link = None
    for _ in range(1000):
        link = loop.call_soon(Link(link))
    first = link._callback
    while link is not None:  # a canceled handle lets go of the next at once
        link, held = link._callback.held, link
        held.cancel()
        del held
    del link
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert len(ended) == 999 and first.held is not None


class Replaces(str):
    """A name that replaces the dictionary it is looked up in."""

    transport = None

    def __hash__(self):
        return hash("peername")

    def __eq__(self, other):
        self.transport._extra = {}
        gc.collect()
        return False


def test_extra_info_is_looked_up_though_a_name_replaces_it(loop):
    async def main():
        a, b = socket.socketpair()
        with b:
            transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, a)
            name = Replaces("peername")
            name.transport = transport
            transport.get_extra_info("peername")
            transport.get_extra_info(name)
            transport.close()
            await asyncio.sleep(0)

    loop.run_until_complete(main())


def test_a_class_of_futures_is_used_though_it_is_replaced_while_it_is_called(loop, monkeypatch):
    class Future(asyncio.Future):
        def __init__(self, *, loop):
            asyncio.futures.Future = standard
            gc.collect()
            super().__init__(loop=loop)

    standard = asyncio.futures.Future
    monkeypatch.setattr(asyncio.futures, "Future", Future)
    del Future
    assert not loop.create_future().done()


def test_extra_of_a_datagram_endpoint_is_asked_though_its_answer_removes_it(loop):
    class Peer:
        def __init__(self, extra):
            self.extra = extra

        def __bool__(self):
            self.extra.clear()
            gc.collect()
            return False

    async def main():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        extra = {}
        extra["peername"] = Peer(extra)
        transport = loop._make_datagram(sock, asyncio.DatagramProtocol(), None, None, extra)
        transport.close()
        await asyncio.sleep(0)

    loop.run_until_complete(main())


def test_a_loop_is_not_closed_nor_run_inside_one_of_its_turns(loop):
    told = []

    def nested(function):
        try:
            function()
        except RuntimeError as exc:
            told.append(str(exc))

    for function in (loop._close_native, loop._run_once):
        loop.call_soon(nested, function)
    loop.call_soon(loop.stop)
    loop._run_once()
    assert told == ["Cannot close a running event loop", "This event loop is already running"]
