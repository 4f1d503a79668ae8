"""Rows of the rest of a loop: datagrams, TLS, subprocesses, sendfile."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading

import loops
from rows import Measured, Options, calibrated, row, timed
from serving import load, serving


@row("udp_64", "UDP echo 64 B", part="B")
def udp_64(options: Options):
    with serving(options, "datagram") as server:
        yield from load(options, server, "udp", 64, 64)


@row("tls_64_64", "TLS echo 64 B, 64 connections", part="B")
def tls_64(options: Options):
    with serving(options, tls=True) as server:
        yield from load(options, server, "echo", 64, 64, tls=True)


@row("tls_16k_64", "TLS echo 16 KiB, 64 connections", part="B")
def tls_16k(options: Options):
    with serving(options, tls=True) as server:
        yield from load(options, server, "echo", 16 * 1024, 64, tls=True)


def _wall(m: Measured) -> Measured:
    return Measured(m.ops, m.wall_us, m.cpu_us, m.wall_us, m.extra)


@row("subprocess", "create_subprocess_exec('/bin/true') and wait, wall", unit="us wall/op", part="B")
def subprocess_exec(options: Options):
    async def spawn(n: int) -> None:
        for _ in range(n):
            process = await asyncio.create_subprocess_exec("/bin/true")
            if await process.wait():
                raise RuntimeError("/bin/true failed")

    with asyncio.Runner(loop_factory=loops.factory(options.loop)) as runner:
        for m in calibrated(lambda n: runner.run(spawn(n)), options, 5):
            yield _wall(m)


def _swallow(sock: socket.socket, size: int) -> None:
    buffer = bytearray(1 << 20)
    with sock:
        while size > 0:
            n = sock.recv_into(buffer)
            if not n:
                return
            size -= n


async def _send(file, size: int) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sock = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    # A loop that cannot send leaves the reader waiting; a daemon does not hold the process up.
    reader = threading.Thread(target=_swallow, args=(peer, size), daemon=True)
    reader.start()
    sock.setblocking(False)
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=sock)
    try:
        await loop.sendfile(transport, file)
        await asyncio.to_thread(reader.join)
    finally:
        transport.close()


@row("sendfile", "sendfile of 64 MiB, wall", unit="ms wall", part="B", whole=True)
def sendfile(options: Options):
    size = (1 << 20) if options.smoke else (64 << 20)
    with tempfile.TemporaryFile() as file, asyncio.Runner(loop_factory=loops.factory(options.loop)) as runner:
        file.truncate(size)

        def once(_: int) -> None:
            file.seek(0)
            runner.run(_send(file, size))

        for _ in range(options.warmup + options.samples):
            m = timed(once, 1)
            yield Measured(1, m.wall_us, m.cpu_us, m.wall_us / 1e3)
