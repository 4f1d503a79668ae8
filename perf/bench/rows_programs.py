"""Rows of real programs: servers under load and clients of real servers, since users run these and not
echoes.

A client's row counts the CPU of the process that runs it; a server's row that of the server. Where both ends
are Python's and run on the loop, both count. Each needs its package, and is left out where that is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace

import harness
import loops
import quiet
from rows import PROGRAMS, Measured, Options, Unsupported, calibrated, per_op, row
from service_config import Request
from serving import Server, serving

WORKERS = 16
Work = Callable[[int], Awaitable[None]]


def need(*modules: str) -> None:
    """Leave the row out where a package is missing."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise Unsupported(f"needs {', '.join(missing)}; pip install -r perf/bench/requirements-programs.txt")


def shared(once: Callable[[], Awaitable[object]], workers: int = WORKERS) -> Work:
    """`n` times `once`, by so many tasks at a time."""

    async def worker(left: Iterator[int]) -> None:
        for _ in left:
            await once()

    async def work(n: int) -> None:
        left = iter(range(n))
        await asyncio.gather(*(worker(left) for _ in range(workers)))

    return work


def client(name: str, title: str, *modules: str, step: int = 64):
    """Register an asynchronous context manager that yields the work; it runs on the loop measured, in this
    process."""

    def register(function: Callable[[Options], contextlib.AbstractAsyncContextManager[Work]]):
        @row(name, title, part=PROGRAMS)
        def take(options: Options) -> Iterator[Measured]:
            need(*modules)
            with asyncio.Runner(loop_factory=loops.factory(options.loop)) as runner:
                around = function(options)

                async def enter() -> Work:
                    return await around.__aenter__()

                async def leave() -> None:
                    await around.__aexit__(None, None, None)

                work = runner.run(enter())

                async def run(n: int) -> None:
                    await work(n)

                try:
                    yield from calibrated(lambda n: runner.run(run(n)), options, step)
                finally:
                    runner.run(leave())

        return take

    return register


def under_wrk(
    options: Options, server: Server, request: Request, connections: int = 64
) -> Iterator[Measured]:
    """Samples of an HTTP server under load; a status other than 2xx or a transport error fails the row."""
    tool = harness.generator("wrk")
    harness.load(tool, f"http://127.0.0.1:{server.port}", [request], connections, 1)
    for _ in range(options.warmup + options.samples):
        before, start = quiet.tree_s(server.pid), time.perf_counter_ns()
        seen = harness.load(tool, f"http://127.0.0.1:{server.port}", [request], connections, options.seconds)
        spent, wall = quiet.tree_s(server.pid) - before, time.perf_counter_ns() - start
        if seen.errors or set(seen.status) - {"2xx"} or not seen.requests:
            raise RuntimeError(f"answers {seen.status}, errors {seen.errors}")
        yield per_op(seen.requests, wall, int(spent * 1e9), requests_per_s=seen.requests / seen.seconds)


def served(name: str, title: str, kind: str, *modules: str, request: Request = Request("hello", "/")) -> None:
    """Register a server of server.py under wrk."""

    @row(name, title, part=PROGRAMS, whole=True)
    def take(options: Options) -> Iterator[Measured]:
        need(*modules)
        with serving(options, kind) as server:
            yield from under_wrk(options, server, request)


served("aiohttp_server", "aiohttp server, hello under wrk", "aiohttp", "aiohttp")
served("uvicorn_post", "uvicorn, POST of 16 KiB JSON under wrk", "uvicorn", "uvicorn", "httptools",
       request=Request("post", "/json", method="POST", headers={"Content-Type": "application/json"},
                       body=json.dumps({"items": [{"id": n, "name": f"name {n}"} for n in range(440)]})))
served("granian", "Granian, hello under wrk", "granian", "granian")


@contextlib.contextmanager
def http_server(options: Options) -> Iterator[str]:
    """A server for clients, the same for every arm: uvicorn on asyncio's loop."""
    need("uvicorn", "httptools")
    with serving(replace(options, loop="asyncio"), "uvicorn") as server:
        yield f"http://127.0.0.1:{server.port}/"


@client("aiohttp_client", "aiohttp client, GET", "aiohttp")
@contextlib.asynccontextmanager
async def aiohttp_client(options: Options) -> AsyncIterator[Work]:
    import aiohttp

    with http_server(options) as url:
        async with aiohttp.ClientSession() as session:

            async def get() -> None:
                async with session.get(url) as answer:
                    if await answer.read() != b"hello":
                        raise RuntimeError("another answer")

            yield shared(get)


@client("httpx_client", "httpx client, GET", "httpx", step=16)
@contextlib.asynccontextmanager
async def httpx_client(options: Options) -> AsyncIterator[Work]:
    import httpx

    with http_server(options) as url:
        async with httpx.AsyncClient(trust_env=False) as session:

            async def get() -> None:
                if (await session.get(url)).content != b"hello":
                    raise RuntimeError("another answer")

            yield shared(get)


@client("websockets_echo", "websockets echo of 64 B, both ends", "websockets")
@contextlib.asynccontextmanager
async def websockets_echo(options: Options) -> AsyncIterator[Work]:
    from websockets.asyncio.client import connect
    from websockets.asyncio.server import serve

    async def echo(socket) -> None:
        async for message in socket:
            await socket.send(message)

    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serve(echo, "127.0.0.1", 0, compression=None))
        port = server.sockets[0].getsockname()[1]
        ends = [
            await stack.enter_async_context(connect(f"ws://127.0.0.1:{port}/", compression=None))
            for _ in range(WORKERS)
        ]
        free = list(ends)

        async def trip() -> None:
            end = free.pop()
            await end.send(b"x" * 64)
            await end.recv()
            free.append(end)

        yield shared(trip)


@client("redis_get", "redis-py, GET", "redis")
@contextlib.asynccontextmanager
async def redis_get(options: Options) -> AsyncIterator[Work]:
    import redis.asyncio

    with harness.redis() as url:
        async with redis.asyncio.from_url(url) as store:
            await store.set("key", b"x" * 64)
            yield shared(lambda: store.get("key"))


@client("redis_pipeline", "redis-py, a command of a pipeline of 64", "redis", step=64 * WORKERS)
@contextlib.asynccontextmanager
async def redis_pipeline(options: Options) -> AsyncIterator[Work]:
    import redis.asyncio

    with harness.redis() as url:
        async with redis.asyncio.from_url(url) as store:
            await store.set("key", b"x" * 64)

            async def once() -> None:
                pipeline = store.pipeline(transaction=False)
                for _ in range(64):
                    pipeline.get("key")
                await pipeline.execute()

            inner = shared(once)
            yield lambda n: inner(n // 64)


@contextlib.asynccontextmanager
async def pool_of(size: int) -> AsyncIterator:
    """An asyncpg pool on a server of its own, with a table of 1,000 rows."""
    import asyncpg

    # The server is started by this process and asked on asyncio's own loop, which needs another thread than
    # this one's.
    manager = harness.postgres()
    server = await asyncio.to_thread(manager.__enter__)
    try:
        table = "CREATE TABLE thing AS SELECT i AS id, 'name ' || i AS name FROM generate_series(1, 1000) i"
        await asyncio.to_thread(server.run, table, "SELECT 1")
        async with asyncpg.create_pool(server.dsn(), min_size=size, max_size=size, ssl=False) as pool:
            yield pool, server
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


@client("asyncpg_select", "asyncpg, a prepared select", "asyncpg")
@contextlib.asynccontextmanager
async def asyncpg_select(options: Options) -> AsyncIterator[Work]:
    numbers = itertools.cycle(range(1, 1001))
    async with pool_of(8) as (pool, _):
        yield shared(lambda: pool.fetchval("SELECT name FROM thing WHERE id = $1", next(numbers)))


@client("asyncpg_rows", "asyncpg, a fetch of 1,000 rows", "asyncpg", step=WORKERS)
@contextlib.asynccontextmanager
async def asyncpg_rows(options: Options) -> AsyncIterator[Work]:
    async with pool_of(8) as (pool, _):
        yield shared(lambda: pool.fetch("SELECT id, name FROM thing"))


@client(
    "sqlalchemy_session",
    "SQLAlchemy session with a select, on asyncpg",
    "sqlalchemy",
    "asyncpg",
    step=WORKERS,
)
@contextlib.asynccontextmanager
async def sqlalchemy_session(options: Options) -> AsyncIterator[Work]:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

    numbers = itertools.cycle(range(1, 1001))
    async with pool_of(1) as (_, server):
        engine = create_async_engine(
            server.dsn(driver="+asyncpg"), pool_size=8, max_overflow=0, connect_args={"ssl": False}
        )
        make = async_sessionmaker(engine, expire_on_commit=False)

        async def once() -> None:
            async with make() as session:
                (
                    await session.execute(
                        text("SELECT name FROM thing WHERE id = :id"), {"id": next(numbers)}
                    )
                ).scalar_one()

        try:
            yield shared(once)
        finally:
            await engine.dispose()


@client("nats_request", "nats-py, a request and its answer, both ends", "nats")
@contextlib.asynccontextmanager
async def nats_request(options: Options) -> AsyncIterator[Work]:
    import nats

    with harness.nats() as server:
        asker, answerer = await nats.connect(server.url), await nats.connect(server.url)

        async def answer(message) -> None:
            await message.respond(b"y" * 64)

        await answerer.subscribe("ask", cb=answer)
        await answerer.flush()
        try:
            yield shared(lambda: asker.request("ask", b"x" * 64, timeout=10))
        finally:
            await asker.close()
            await answerer.close()


@client("grpc_unary", "grpc.aio, a unary call, both ends", "grpc")
@contextlib.asynccontextmanager
async def grpc_unary(options: Options) -> AsyncIterator[Work]:
    import grpc
    import grpc.aio

    async def answer(request: bytes, context: object) -> bytes:
        return request

    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler(
        "Echo", {"Call": grpc.unary_unary_rpc_method_handler(answer)}
    )
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/Echo/Call")

            async def once() -> None:
                if await call(b"x" * 64) != b"x" * 64:
                    raise RuntimeError("another answer")

            yield shared(once)
    finally:
        await server.stop(None)


@client("open_localhost", "open_connection('localhost'), one round trip, close (client)", step=50)
@contextlib.asynccontextmanager
async def open_localhost(options: Options) -> AsyncIterator[Work]:
    with serving(replace(options, loop=loops.LIMIT)) as server:

        async def visit() -> None:
            reader, writer = await asyncio.open_connection("localhost", server.port)
            writer.write(b"x" * 64)
            await reader.readexactly(64)
            writer.close()
            await writer.wait_closed()

        yield shared(visit, 1)


@client("lines_streams", "lines of 64 B echoed over streams, both ends")
@contextlib.asynccontextmanager
async def lines_streams(options: Options) -> AsyncIterator[Work]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    ends = [await asyncio.open_connection(*server.sockets[0].getsockname()) for _ in range(WORKERS)]
    free = list(ends)
    line = b"x" * 63 + b"\n"

    async def trip() -> None:
        end = free.pop()
        end[1].write(line)
        await end[1].drain()
        if await end[0].readline() != line:
            raise RuntimeError("another line")
        free.append(end)

    try:
        yield shared(trip)
    finally:
        for _, writer in ends:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        server.close()
        await server.wait_closed()
