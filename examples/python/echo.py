"""A server that gives a line back, and a client of it: python echo.py"""
import asyncio

import treadle


async def echo(reader, writer):
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()


async def main():
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        print((await reader.read()).decode(), end="")
        writer.close()
        await writer.wait_closed()


if __name__ == "__main__":
    treadle.run(main())
