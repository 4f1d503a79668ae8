"""1,000 servers closed while clients are attached."""
import asyncio
import os

import measure

COUNT = int(os.environ.get("TREADLE_SOAK_COUNT", "1000"))


async def main():
    loop = asyncio.get_running_loop()
    usage = measure.Usage()

    async def serve(reader, writer):
        try:
            while data := await reader.read(100):
                writer.write(data)
        except ConnectionError:
            pass
        writer.close()

    for i in range(COUNT):
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        clients = [await asyncio.open_connection(*server.sockets[0].getsockname()) for _ in range(3)]
        for reader, writer in clients:
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
        server.close()
        if hasattr(server, "abort_clients") and i % 2:
            server.abort_clients()
        for reader, writer in clients:
            writer.close()
        await server.wait_closed()
        await asyncio.sleep(0)
        if i == COUNT // 5:
            usage.mark()
    await asyncio.sleep(0.05)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    usage.check(rss_kib=4096, blocks=COUNT // 2)


measure.run(main)
