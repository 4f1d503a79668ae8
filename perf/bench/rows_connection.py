"""Rows of connections: made, closed, kept idle, opened as a client, and an HTTP server on top."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import loops
from rows import Measured, Options, calibrated, row
from rows_footprint import resident
from serving import idle, load, serving, wrk


@row("churn", "connections accepted, one echo, closed", limit=True)
def churn(options: Options):
    with serving(options) as server:
        yield from load(options, server, "churn", 64, 16)


@row("open_connection", "open_connection, one round trip, close (client)")
def open_connection(options: Options):
    async def visit(port: int, n: int) -> None:
        message = b"x" * 64
        for _ in range(n):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(message)
            await reader.readexactly(64)
            writer.close()
            await writer.wait_closed()

    with serving(replace(options, loop=loops.LIMIT)) as server:
        loop = loops.factory(options.loop)()
        try:
            yield from calibrated(lambda n: loop.run_until_complete(visit(server.port, n)), options, 50)
        finally:
            loops.release(loop)


@row("idle_bytes", "bytes per idle connection", unit="bytes", limit=True, whole=True)
def idle_bytes(options: Options):
    first, more = (20, 50) if options.smoke else (100, 2_000)
    for _ in range(options.warmup + options.samples):
        with serving(options) as server, idle(options, server, first):
            before = resident(server.pid)
            with idle(options, server, more):
                after = resident(server.pid)
        yield Measured(more, 0.0, 0.0, (after - before) / more)


@row("uvicorn", "uvicorn (httptools) hello under wrk, CPU per request", whole=True)
def uvicorn(options: Options):
    with serving(options, "uvicorn") as server:
        # wrk's shortest run is a second, in which the first requests do not show: no sample is thrown away.
        first = wrk(server, 64, options.seconds)
        for _ in range(options.warmup + 1):
            yield first
        for _ in range(options.samples - 1):
            yield wrk(server, 64, options.seconds)
