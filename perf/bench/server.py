#!/usr/bin/env python3
"""The measured half of a network row: an echo server on one event loop, in a process of its own.

Prints `READY port` when it accepts, and runs until it is terminated.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import ssl
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import loops


class Echo(asyncio.Protocol):
    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.buffer = bytearray(65536)
        self.view = memoryview(self.buffer)

    def connection_made(self, transport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int):
        return self.view

    def buffer_updated(self, nbytes: int) -> None:
        # The next read may overwrite the buffer while a write still waits, so the bytes are copied.
        self.transport.write(bytes(self.view[:nbytes]))


class DatagramEcho(asyncio.DatagramProtocol):
    def connection_made(self, transport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr) -> None:
        self.transport.sendto(data, addr)


async def echo_streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


async def echo_socket(loop, sock: socket.socket) -> None:
    with sock:
        try:
            while data := await loop.sock_recv(sock, 65536):
                await loop.sock_sendall(sock, data)
        except ConnectionError:
            pass


async def accept_sockets(loop, listener: socket.socket) -> None:
    running = set()
    while True:
        sock, _ = await loop.sock_accept(listener)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = loop.create_task(echo_socket(loop, sock))
        running.add(task)
        task.add_done_callback(running.discard)


def ready(port: int) -> None:
    print(f"READY {port}", flush=True)


def port_of(server) -> int:
    name = server.sockets[0].getsockname()
    return name[1] if isinstance(name, tuple) else 0


async def serve_echo(args) -> None:
    loop = asyncio.get_running_loop()
    context = None
    if args.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(args.cert)
    if args.kind == "datagram":
        transport, _ = await loop.create_datagram_endpoint(DatagramEcho, local_addr=("127.0.0.1", 0))
        ready(transport.get_extra_info("sockname")[1])
    elif args.kind == "sock":
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        listener.setblocking(False)
        ready(listener.getsockname()[1])
        await accept_sockets(loop, listener)
    elif args.kind == "streams":
        server = await asyncio.start_server(echo_streams, "127.0.0.1", 0, backlog=1024)
        ready(port_of(server))
    else:
        protocol = BufferedEcho if args.kind == "buffered" else Echo
        if args.unix:
            server = await loop.create_unix_server(protocol, args.unix, backlog=1024)
        else:
            server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=context, backlog=1024)
        ready(port_of(server))
    await loop.create_future()


async def hello(scope, receive, send) -> None:
    if scope["type"] == "http":
        if scope["path"] == "/json":
            body, more = b"", True
            while more:
                part = await receive()
                body, more = body + part["body"], part["more_body"]
            json.loads(body)
        await send({"type": "http.response.start", "status": 200,
                    "headers": [(b"content-type", b"text/plain"), (b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello"})


async def serve_aiohttp(args) -> None:
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    ready(runner.addresses[0][1])
    await asyncio.get_running_loop().create_future()


def serve_granian(args) -> None:
    """Granian's workers are processes of its own, forked from this one, that take the loop by a name in its
    registry."""
    from granian._loops import loops as registry
    from granian.constants import Interfaces
    from granian import Granian

    @registry.register("measured")
    def build() -> asyncio.AbstractEventLoop:
        loop = loops.factory(args.loop)()
        asyncio.set_event_loop(loop)
        return loop

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Granian(
        "server:hello",
        interface=Interfaces.ASGINL,
        address="127.0.0.1",
        port=port,
        workers=1,
        loop="measured",
        websockets=False,
        log_enabled=False,
    )

    @server.on_startup
    def started() -> None:
        threading.Thread(target=announce, args=(port,), daemon=True).start()

    server.serve()


def announce(port: int) -> None:
    """Say READY once somebody listens: Granian tells when its workers start, which is before that."""
    while True:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.02)
    ready(port)


async def serve_uvicorn(args) -> None:
    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    config = uvicorn.Config(hello, http="httptools", lifespan="off", access_log=False, log_level="warning")
    server = uvicorn.Server(config)

    async def announce() -> None:
        while not server.started:
            await asyncio.sleep(0.01)
        ready(port)

    waiter = asyncio.get_running_loop().create_task(announce())
    await server.serve(sockets=[listener])
    await waiter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loop", required=True)
    parser.add_argument(
        "--kind",
        default="protocol",
        choices=["protocol", "buffered", "streams", "sock", "datagram", "uvicorn", "aiohttp", "granian"],
    )
    parser.add_argument("--unix", metavar="PATH")
    parser.add_argument("--cert", metavar="PEM", help="serve TLS with this certificate and key")
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    run = {"uvicorn": serve_uvicorn, "aiohttp": serve_aiohttp}.get(args.kind, serve_echo)
    try:
        if args.kind == "granian":
            serve_granian(args)
            return
        loops.run(args.loop, run(args))
    except NotImplementedError as error:
        print(f"UNSUPPORTED {error}", flush=True)
        os._exit(3)


if __name__ == "__main__":
    main()
