"""10,000 connections, opened and closed in waves, leave no object, no descriptor and no memory."""
import asyncio
import gc
import os
import sys
import weakref

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import measure  # noqa: E402

COUNT = int(os.environ.get("TREADLE_TEST_CONNECTIONS", "10000"))
WAVE = 100


class Protocol(asyncio.Protocol):
    alive = weakref.WeakSet()

    def __init__(self):
        self.lost = asyncio.get_running_loop().create_future()
        Protocol.alive.add(self)

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)
        self.transport.close()

    def connection_lost(self, exc):
        self.lost.set_result(None)


class Client(Protocol):
    def connection_made(self, transport):
        super().connection_made(transport)
        transport.write(b"x" * 64)

    def data_received(self, data):
        pass


async def wave(loop, address):
    pairs = await asyncio.gather(*[loop.create_connection(Client, *address) for _ in range(WAVE)])
    await asyncio.gather(*[protocol.lost for _, protocol in pairs])
    for transport, _ in pairs:
        transport.close()


async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Protocol, "127.0.0.1", 0, backlog=WAVE)
    address = server.sockets[0].getsockname()
    usage = measure.Usage()
    for done in range(0, COUNT, WAVE):
        await wave(loop, address)
        if done == COUNT // 5:
            await asyncio.sleep(0.01)
            usage.mark()
    await asyncio.sleep(0.05)
    usage.check(rss_kib=2048)
    gc.collect()
    left = len(Protocol.alive)
    assert left == 0, f"{left} protocols alive"
    server.close()
    await server.wait_closed()


measure.run(main)
