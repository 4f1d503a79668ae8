"""1,000 connections reset by either side at any time."""
import asyncio
import os
import socket
import struct

import measure

COUNT = int(os.environ.get("TREADLE_SOAK_COUNT", "1000"))


class Protocol(asyncio.Protocol):
    def __init__(self):
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        transport.write(b"x" * 100_000)

    def connection_lost(self, exc):
        self.lost.set_result(None)


async def main():
    loop = asyncio.get_running_loop()
    servers = []

    def factory():
        servers.append(Protocol())
        return servers[-1]

    server = await loop.create_server(factory, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    usage = measure.Usage()
    for i in range(COUNT):
        sock = socket.socket()
        sock.setblocking(False)
        await loop.sock_connect(sock, address)
        if i % 2:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        else:
            transport, protocol = await loop.create_connection(Protocol, sock=sock)
            if i % 4:
                await asyncio.sleep(0)
            transport.abort()
            await protocol.lost
        while len(servers) > 5:
            await servers.pop(0).lost
        if i == COUNT // 5:
            usage.mark()
    for protocol in servers:
        await protocol.lost
    servers.clear()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    usage.check(rss_kib=4096, blocks=COUNT // 2)
    server.close()


measure.run(main)
