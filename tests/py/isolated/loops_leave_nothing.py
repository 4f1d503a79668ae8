"""Loops made, run with sockets, threads and signals, and closed leave no object, no descriptor and no
memory."""
import asyncio
import gc
import os
import signal
import socket
import sys
import weakref

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import measure  # noqa: E402

COUNT = 300


async def use(loop):
    a, b = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=a)
    other_reader, other_writer = await asyncio.open_connection(sock=b)
    writer.write(b"x" * 1000)
    await other_reader.readexactly(1000)
    for w in (writer, other_writer):
        w.close()
        await w.wait_closed()
    await loop.run_in_executor(None, int)
    loop.add_signal_handler(signal.SIGUSR1, int)
    loop.call_later(1000, print)


def one():
    loop = measure.new_loop()
    loop.run_until_complete(use(loop))
    loop.call_soon(print)
    loop.call_soon_threadsafe(print)
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    return weakref.ref(loop)


usage = measure.Usage()
refs = []
for i in range(COUNT):
    refs.append(one())
    if i == COUNT // 3:
        gc.collect()
        usage.mark()
gc.collect()
assert not [r for r in refs if r() is not None], "loops alive"
usage.check(rss_kib=2048)
print("passed")
