"""A minute's worth of an event loop on one page: what a wheel must do on a machine where nothing else is
installed."""
import asyncio
import sys
import tempfile

import treadle
import treadle.fileio


async def serve_and_ask():
    async def answer(reader, writer):
        writer.write(await reader.readexactly(4))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"ping")
        assert await reader.read() == b"ping"
        writer.close()
        await writer.wait_closed()


async def work_elsewhere():
    loop = asyncio.get_running_loop()
    assert isinstance(loop, treadle.Loop)
    assert await asyncio.gather(*[loop.run_in_executor(None, pow, 2, n) for n in range(8)]) == [
        2**n for n in range(8)
    ]
    assert await loop.getaddrinfo("127.0.0.1", 80)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "print('child')", stdout=asyncio.subprocess.PIPE
    )
    assert (await child.communicate())[0] == b"child\n"


async def use_files():
    with tempfile.TemporaryDirectory() as folder:
        async with treadle.fileio.open(folder + "/file", "w+") as file:
            await file.write("text")
        async with treadle.fileio.open(folder + "/file") as file:
            assert await file.read() == "text"


async def main():
    await asyncio.wait_for(serve_and_ask(), 60)
    await asyncio.wait_for(work_elsewhere(), 60)
    await asyncio.wait_for(use_files(), 60)


treadle.run(main())
print("smoke passed on", treadle.info()["treadle"], "with libuv", treadle.info()["libuv"])
