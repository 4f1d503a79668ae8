"""Datagram endpoints, against asyncio."""
import asyncio
import os
import socket
import sys

import pytest

from twin import twin


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, t, channel):
        self.t, self.channel, self.count = t, channel, 0
        self.done = t.loop.create_future()
        self.waiters = []
        self.peers = []

    def log(self, *event):
        self.t.log(*event, channel=self.channel)

    def connection_made(self, transport):
        self.transport = transport
        self.log("made")

    def datagram_received(self, data, addr):
        self.count += 1
        self.peers.append(addr)
        self.log("datagram", len(data), data[:20])
        self._wake()

    def error_received(self, exc):
        self.log("error", type(exc).__name__, exc.errno)
        self.count += 1
        self._wake()

    def _wake(self):
        for need, waiter in list(self.waiters):
            if self.count >= need and not waiter.done():
                waiter.set_result(None)

    def pause_writing(self):
        self.log("pause")

    def resume_writing(self):
        self.log("resume")

    def connection_lost(self, exc):
        self.log("lost", exc)
        self.done.set_result(None)

    async def got(self, count):
        if self.count < count:
            waiter = self.t.loop.create_future()
            self.waiters.append((count, waiter))
            await waiter


async def endpoint(t, channel, **kwargs):
    return await t.loop.create_datagram_endpoint(lambda: Datagrams(t, channel), **kwargs)


async def started(function, *args, **kwargs):
    return await function(*args, **kwargs)


@twin
async def test_local_and_remote_endpoints_talk(t):
    a, pa = await endpoint(t, "a", local_addr=("127.0.0.1", 0))
    b, pb = await endpoint(t, "b", remote_addr=a.get_extra_info("sockname"))
    b.sendto(b"hello")
    await pa.got(1)
    t.log(
        pa.peers[0] == b.get_extra_info("sockname"),
        b.get_extra_info("peername") == a.get_extra_info("sockname"),
    )
    a.sendto(b"", pa.peers[0])
    a.sendto(b"answer", pa.peers[0])
    while ("datagram", 6, b"answer") not in t.channels["b"]:
        await t.turns(1)
    # asyncio of Python 3.11 forgot the base class.
    t.log(
        isinstance(a, asyncio.DatagramTransport) or sys.version_info < (3, 12),
        isinstance(a, asyncio.Transport),
        type(a.get_extra_info("socket")).__name__,
    )
    for x in (a, b):
        x.close()
        t.log(x.is_closing())
    await pa.done
    await pb.done


@twin
async def test_local_and_remote_address_together(t):
    a, pa = await endpoint(t, "a", local_addr=("127.0.0.1", 0))
    b, pb = await endpoint(t, "b", local_addr=("127.0.0.1", 0), remote_addr=a.get_extra_info("sockname"))
    t.log(b.get_extra_info("sockname")[0], b.get_extra_info("peername") == a.get_extra_info("sockname"))
    b.sendto(b"x")
    await pa.got(1)
    a.abort()
    b.abort()
    await pa.done
    await pb.done


@twin
async def test_sendto_on_a_connected_endpoint(t):
    a, pa = await endpoint(t, "a", local_addr=("127.0.0.1", 0))
    address = a.get_extra_info("sockname")
    b, pb = await endpoint(t, "b", remote_addr=address)
    b.sendto(b"with address", address)
    await pa.got(1)
    try:
        b.sendto(b"x", ("127.0.0.1", 1))
    except ValueError as exc:
        t.log(type(exc).__name__, str(exc).replace(str(address[1]), "PORT"))
    for bad in ("text", None, 5):
        t.call(b.sendto, bad)
    b.sendto(b"")
    b.sendto(bytearray(b"array"))
    b.sendto(memoryview(b"view"))
    while ("datagram", 4, b"view") not in t.channels["a"]:
        await t.turns(1)
    a.close()
    b.close()
    await pa.done
    await pb.done


@twin
async def test_errors_do_not_close_the_endpoint(t):
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    probe.bind(("127.0.0.1", 0))
    address = probe.getsockname()
    probe.close()
    a, pa = await endpoint(t, "a", remote_addr=address)
    for i in range(3):
        a.sendto(b"nobody there")
        await asyncio.sleep(0.005)
    t.log(a.is_closing(), pa.count > 0)
    a.close()
    await pa.done
    t.channels["a"] = sorted(set(t.channels["a"]), key=repr)


@twin
async def test_a_datagram_too_large_is_reported(t):
    a, pa = await endpoint(t, "a", local_addr=("127.0.0.1", 0))
    b, pb = await endpoint(t, "b", local_addr=("127.0.0.1", 0))
    a.sendto(b"x" * 70_000, b.get_extra_info("sockname"))
    await t.turns(3)
    a.sendto(b"small", b.get_extra_info("sockname"))
    await pb.got(1)
    a.close()
    b.close()
    await pa.done
    await pb.done


@twin
async def test_close_inside_datagram_received_ends_the_callbacks(t):
    a, pa = await endpoint(t, "a", local_addr=("127.0.0.1", 0))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    received = pa.datagram_received
    pa.datagram_received = lambda data, addr: (received(data, addr), a.close())
    for i in range(8):
        sender.sendto(b"%d" % i, a.get_extra_info("sockname"))
    await pa.done
    await t.turns(5)
    sender.close()


@twin
async def test_unix_datagrams(t, tmp_path):
    name = f"{int(t.subject)}{int(t.debug)}"
    pa, pb = str(tmp_path / ("a" + name)), str(tmp_path / ("b" + name))
    a, proto_a = await endpoint(t, "a", local_addr=pa, family=socket.AF_UNIX)
    b, proto_b = await endpoint(t, "b", local_addr=pb, remote_addr=pa, family=socket.AF_UNIX)
    b.sendto(b"to a")
    await proto_a.got(1)
    a.sendto(b"to b", pb)
    await proto_b.got(1)
    t.log(proto_a.peers == [pb])
    a.close()
    b.close()
    await proto_a.done
    await proto_b.done


@twin
async def test_abstract_unix_datagram_names_are_exact(t):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    name = b"\0tdl\0z%d%d" % (os.getpid(), int(t.subject))
    sock.bind(name)
    a, pa = await endpoint(t, "a", sock=sock)
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    back = name + b"\0peer"
    peer.bind(back)
    peer.sendto(b"hi", name)
    await pa.got(1)
    t.log(pa.peers == [back])
    a.sendto(b"reply", pa.peers[0])
    peer.setblocking(False)
    t.log(await t.loop.sock_recv(peer, 10))
    a.close()
    await pa.done
    peer.close()


@twin
async def test_options_and_their_refusals(t):
    for kwargs in ({"local_addr": ("127.0.0.1", 0), "reuse_port": True},
                   {"local_addr": ("127.0.0.1", 0), "allow_broadcast": True},
                   {"family": socket.AF_INET}):
        a, pa = await endpoint(t, "a", **kwargs)
        sock = a.get_extra_info("socket")
        t.log(sorted(kwargs), bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)),
              bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)))
        a.close()
        await pa.done
    stream = socket.socket()
    dgram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for kwargs in ({}, {"sock": stream}, {"sock": dgram, "local_addr": ("127.0.0.1", 0)},
                   {"local_addr": ("127.0.0.1", 0), "remote_addr": ("::1", 5)},
                   {"local_addr": "notatuple"}, {"local_addr": ("127.0.0.1", 0, 1)},
                   {"local_addr": ("203.0.113.9", 0)}):
        await t.acall(started(t.loop.create_datagram_endpoint, asyncio.DatagramProtocol, **kwargs))
    stream.close()
    dgram.close()


@twin
async def test_write_limits_and_flow_control(t, tmp_path):
    path = str(tmp_path / f"b{int(t.subject)}{int(t.debug)}")
    b = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    b.bind(path)
    transport, protocol = await endpoint(t, "a", remote_addr=path, family=socket.AF_UNIX)
    t.log(transport.get_write_buffer_limits())
    transport.set_write_buffer_limits(high=10_000)
    for i in range(100):
        transport.sendto(b"%03d" % i * 1000)
    t.log(transport.get_write_buffer_size() > 0)
    b.setblocking(False)
    order = []
    while len(order) < 100:
        order.append(int((await t.loop.sock_recv(b, 10_000))[:3]))
    t.log(order == list(range(100)))
    await t.turns(3)
    # asyncio of Python 3.13.0 counts each datagram's header when it is queued and not when it is sent.
    t.log(transport.get_write_buffer_size() == 0 or not t.subject and sys.version_info[:2] == (3, 13))
    transport.close()
    await protocol.done
    b.close()


@twin
async def test_several_datagrams_in_one_wake_up(t):
    a, pa = await endpoint(t, "a", local_addr=("127.0.0.1", 0))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for i in range(30):
        sender.sendto(b"%d" % i, a.get_extra_info("sockname"))
    await pa.got(30)
    a.close()
    await pa.done
    sender.close()
