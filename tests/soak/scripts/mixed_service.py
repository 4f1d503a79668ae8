"""A service with short and long connections, timers, threads and remote calls, for a fixed amount of work."""
import asyncio
import os
import random

import measure

ROUNDS = int(os.environ.get("TREADLE_SOAK_ROUNDS", "400"))


async def client(address, rng):
    reader, writer = await asyncio.open_connection(*address)
    for _ in range(rng.randrange(1, 6)):
        data = b"x" * rng.randrange(1, 20_000)
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
    if rng.random() < 0.2:
        writer.transport.abort()
    else:
        writer.close()
        await writer.wait_closed()


async def main():
    loop = asyncio.get_running_loop()
    rng = random.Random(int(os.environ.get("TREADLE_TEST_SEED", "1")))

    async def serve(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    usage = measure.Usage()
    for i in range(ROUNDS):
        timers = [loop.call_later(rng.random() * 100, print) for _ in range(200)]
        await asyncio.gather(*[client(address, rng) for _ in range(10)],
                             *[loop.run_in_executor(None, int) for _ in range(10)])
        for timer in timers:
            timer.cancel()
        del timers, timer
        if i == ROUNDS // 3:
            usage.mark()
    await asyncio.sleep(0.1)
    usage.check(rss_kib=4096)
    server.close()


measure.run(main)
