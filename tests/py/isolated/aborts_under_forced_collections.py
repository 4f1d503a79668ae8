"""Connections aborted by either side while the collector runs all the time: no crash, nothing left."""
import asyncio
import gc
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import measure  # noqa: E402

SEED = int(os.environ.get("TREADLE_TEST_SEED", "1"))
print("seed", SEED)


class Protocol(asyncio.Protocol):
    def __init__(self, rng):
        self.rng = rng
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        transport.write(b"x" * self.rng.randrange(1, 100_000))
        if self.rng.random() < 0.2:
            transport.abort()

    def data_received(self, data):
        roll = self.rng.random()
        if roll < 0.2:
            self.transport.abort()
        elif roll < 0.4:
            self.transport.close()
        elif roll < 0.6:
            self.transport.write(data)
        elif roll < 0.7:
            self.transport.pause_reading()
            self.transport.get_protocol()
            asyncio.get_running_loop().call_soon(self.transport.abort)

    def connection_lost(self, exc):
        self.lost.set_result(None)


async def main():
    loop = asyncio.get_running_loop()
    rng = random.Random(SEED)
    server = await loop.create_server(lambda: Protocol(rng), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    gc.set_threshold(1)
    try:
        for _ in range(40):
            pairs = await asyncio.gather(
                *[loop.create_connection(lambda: Protocol(rng), *address) for _ in range(10)],
                return_exceptions=True,
            )
            await asyncio.sleep(0.001)
            for pair in pairs:
                if isinstance(pair, tuple):
                    pair[0].abort()
                    await pair[1].lost
    finally:
        gc.set_threshold(700, 10, 10)
    server.close()


measure.run(main)
