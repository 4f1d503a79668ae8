"""Pipes and terminals, against asyncio."""
import asyncio
import fcntl
import os
import pty
import socket
import tty

import pytest

from twin import twin


class Pipe(asyncio.Protocol):
    def __init__(self, t, channel):
        self.t, self.channel = t, channel
        self.done, self.received, self.waiter = t.loop.create_future(), bytearray(), None

    def connection_made(self, transport):
        self.transport = transport
        self.t.log("made", channel=self.channel)

    def data_received(self, data):
        self.received += data
        self.t.log_data(self.channel, bytes(data))
        if self.waiter is not None and len(self.received) >= self.waiter[0] and not self.waiter[1].done():
            self.waiter[1].set_result(None)

    def eof_received(self):
        self.t.log("eof", channel=self.channel)

    def pause_writing(self):
        self.t.log("pause", channel=self.channel)

    def resume_writing(self):
        self.t.log("resume", channel=self.channel)

    def connection_lost(self, exc):
        self.t.log("lost", exc, channel=self.channel)
        if not self.done.done():
            self.done.set_result(None)

    async def got(self, size):
        if len(self.received) < size:
            self.waiter = size, self.t.loop.create_future()
            await self.waiter[1]


async def reader(t, fd):
    return await t.loop.connect_read_pipe(lambda: Pipe(t, "r"), os.fdopen(fd, "rb", 0))


async def writer(t, fd):
    return await t.loop.connect_write_pipe(lambda: Pipe(t, "w"), os.fdopen(fd, "wb", 0))


@twin
async def test_a_pipe_carries_data_and_its_end(t):
    r, w = os.pipe()
    rt, rp = await reader(t, r)
    wt, wp = await writer(t, w)
    t.log(isinstance(rt, asyncio.ReadTransport), isinstance(wt, asyncio.WriteTransport), wt.can_write_eof())
    wt.write(b"through the pipe")
    await rp.got(16)
    wt.write_eof()
    await rp.done
    await wp.done
    t.log(rt.is_closing(), wt.is_closing())


@twin
async def test_the_writer_notices_that_the_reader_left(t):
    r, w = os.pipe()
    wt, wp = await writer(t, w)
    os.close(r)
    await wp.done
    for _ in range(8):
        wt.write(b"late")


@twin
async def test_pause_resume_and_flow_control(t):
    r, w = os.pipe()
    rt, rp = await reader(t, r)
    wt, wp = await writer(t, w)
    rt.pause_reading()
    wt.write(b"x" * 1_000_000)
    await t.turns(5)
    t.log(len(rp.received), wt.get_write_buffer_size() > 0)
    rt.resume_reading()
    await rp.got(1_000_000)
    wt.close()
    await rp.done
    await wp.done
    t.channels["r"] = [e if e[0] != "data" else ("data", len(e[1])) for e in t.channels["r"]]


@twin
async def test_a_regular_file_is_refused(t, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"data")
    for mode, connect in (("rb", t.loop.connect_read_pipe), ("ab", t.loop.connect_write_pipe)):
        file = open(path, mode)
        await t.acall(connect(asyncio.Protocol, file))
        file.close()


@twin
async def test_a_terminal_as_read_and_write_pipe(t):
    controller, terminal = pty.openpty()
    tty.setraw(terminal)
    rt, rp = await t.loop.connect_read_pipe(lambda: Pipe(t, "r"), os.fdopen(os.dup(controller), "rb", 0))
    wt, wp = await t.loop.connect_write_pipe(lambda: Pipe(t, "w"), os.fdopen(controller, "wb", 0))
    wt.write(b"typed")
    t.log(os.read(terminal, 100))
    os.write(terminal, b"shown")
    await rp.got(5)
    rt.close()
    wt.close()
    await rp.done
    await wp.done
    os.close(terminal)


@twin
async def test_sockets_and_fifos_are_pipes_too(t, tmp_path):
    a, b = socket.socketpair()
    rt, rp = await t.loop.connect_read_pipe(lambda: Pipe(t, "r"), a)
    wt, wp = await t.loop.connect_write_pipe(lambda: Pipe(t, "w"), b)
    wt.write(b"over sockets")
    await rp.got(12)
    rt.close()
    wt.close()
    await rp.done
    await wp.done
    path = tmp_path / f"fifo{int(t.subject)}{int(t.debug)}"
    os.mkfifo(path)
    r = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    w = os.open(path, os.O_WRONLY)
    rt, rp = await reader(t, r)
    wt, wp = await writer(t, w)
    wt.write(b"over a fifo")
    await rp.got(11)
    wt.close()
    await rp.done
    await wp.done


@twin
async def test_one_descriptor_can_be_connected_twice_by_copies(t):
    r, w = os.pipe()
    first, p1 = await writer(t, os.dup(w))
    second, p2 = await writer(t, w)
    first.write(b"a")
    second.write(b"b")
    t.log(os.read(r, 10))
    first.close()
    second.close()
    await p1.done
    await p2.done
    os.close(r)


@twin
async def test_extra_info_and_abort(t):
    r, w = os.pipe()
    rt, rp = await reader(t, r)
    wt, wp = await writer(t, w)
    t.log(type(rt.get_extra_info("pipe")).__name__, type(wt.get_extra_info("pipe")).__name__)
    wt.write(b"x" * 500_000)
    wt.abort()
    await wp.done
    rt.close()
    await rp.done
    t.channels["r"] = [e[0] for e in t.channels["r"]]


@twin
async def test_dev_null_can_be_written(t):
    null = open("/dev/null", "wb", 0)
    try:
        transport, protocol = await t.loop.connect_write_pipe(lambda: Pipe(t, "w"), null)
        transport.write(b"gone")
        transport.close()
        await protocol.done
    except (OSError, ValueError) as exc:
        t.log(exc)
        null.close()
