"""Buffers queued on a connection are freed when the peer resets it."""
import asyncio
import gc
import os
import socket
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import measure  # noqa: E402


async def main():
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))

    class Protocol(asyncio.Protocol):
        def __init__(self):
            self.lost = loop.create_future()

        def connection_lost(self, exc):
            self.lost.set_result(exc)

    usage = measure.Usage()
    kept = []
    for i in range(30):
        transport, protocol = await loop.create_connection(Protocol, *listener.getsockname())
        peer, _ = listener.accept()
        for _ in range(24):
            transport.write(b"x" * (1 << 20))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        await protocol.lost
        assert transport.get_write_buffer_size() == 0
        kept.append(transport)
        if i == 8:
            usage.mark()
    gc.collect()
    usage.check(rss_kib=8192, kept=len(kept))
    listener.close()


measure.run(main)
