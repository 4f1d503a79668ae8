"""Readers added and removed, remote calls and failing callbacks leave no memory."""
import asyncio
import os
import socket
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import measure  # noqa: E402

COUNT = 20_000


async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    usage = measure.Usage()
    for i in range(COUNT):
        a, b = socket.socketpair()
        loop.add_reader(a, print)
        loop.add_writer(b, int)
        loop.call_soon_threadsafe(int)
        loop.call_soon(int, "not a number")
        await asyncio.sleep(0)
        loop.remove_reader(a)
        loop.remove_writer(b)
        a.close()
        b.close()
        if i == COUNT // 4:
            usage.mark()
    for _ in range(20):
        thread = threading.Thread(target=lambda: [loop.call_soon_threadsafe(int) for _ in range(1000)])
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0)
        thread.join()
    usage.check(rss_kib=4096)


measure.run(main)
