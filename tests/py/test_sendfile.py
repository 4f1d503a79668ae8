"""loop.sendfile, against asyncio."""
import asyncio
import io
import os
import socket

import pytest

from sockets import reset
from twin import run_arm, subject_loop, twin


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(500_000))
    return path


async def serving(t):
    got = bytearray()
    done = t.loop.create_future()

    class Sink(asyncio.Protocol):
        def data_received(self, data):
            got.extend(data)

        def connection_lost(self, exc):
            done.set_result(None)

    server = await t.loop.create_server(Sink, "127.0.0.1", 0)
    transport, protocol = await t.loop.create_connection(
        lambda: t.recorder("p"), *server.sockets[0].getsockname()
    )
    return server, transport, protocol, got, done


@pytest.mark.parametrize(
    "offset,count", [(0, None), (1000, None), (0, 5000), (499_990, 100), (600_000, None)]
)
@twin
async def test_a_file_is_sent(t, path, offset, count):
    server, transport, protocol, got, done = await serving(t)
    transport.write(b"head")
    with open(path, "rb") as file:
        sent = await t.loop.sendfile(transport, file, offset, count)
        t.log(sent, file.tell() if sent else "see test_mended")
    transport.write(b"tail")
    transport.close()
    await done
    expected = path.read_bytes()[offset:None if count is None else offset + count]
    t.log(bytes(got) == b"head" + expected + b"tail")
    server.close()


@twin
async def test_what_has_no_descriptor_uses_the_fallback(t):
    server, transport, protocol, got, done = await serving(t)
    await t.acall(t.loop.sendfile(transport, io.BytesIO(b"from memory")))
    await t.acall(t.loop.sendfile(transport, io.BytesIO(b"refused"), fallback=False))
    transport.close()
    await done
    t.log(bytes(got))
    server.close()


@twin
async def test_closing_transports_and_wrong_values_are_refused(t, path):
    server, transport, protocol, got, done = await serving(t)
    with open(path, "rb") as file:
        await t.acall(t.loop.sendfile(transport, file, -1))
        await t.acall(t.loop.sendfile(transport, file, 0, 0))
        await t.acall(t.loop.sendfile(transport, file, 0, "x"))
        transport.close()
        await t.acall(t.loop.sendfile(transport, file))
    with open(path, "r") as text:
        await t.acall(t.loop.sendfile(transport, text))
    await done
    server.close()


@twin
async def test_a_peer_that_leaves_ends_the_sendfile(t, path):
    listener = socket.create_server(("127.0.0.1", 0))
    transport, protocol = await t.loop.create_connection(lambda: t.recorder("p"), *listener.getsockname())
    peer, _ = listener.accept()
    big = io.FileIO(path, "rb")
    os.truncate(path, 50_000_000)
    task = t.loop.create_task(t.loop.sendfile(transport, big))
    await t.turns(5)
    peer.close()
    await asyncio.wait([task])
    t.log(isinstance(task.exception(), OSError))
    transport.abort()
    await asyncio.sleep(0.005)
    big.close()
    listener.close()
    t.channels["p"] = []


ENDS = ["close", "abort", "cancel", "reset", "leave", "protocol"]


async def stuck(t, path, big):
    """A transport whose peer does not read: `big` bytes wait in its buffer, or none."""
    server, transport, protocol, got, done = await serving(t)
    listener = socket.create_server(("127.0.0.1", 0))
    transport.abort()
    await protocol.done
    server.close()
    transport, protocol = await t.loop.create_connection(lambda: t.recorder("q"), *listener.getsockname())
    peer = listener.accept()[0]
    listener.close()
    if big:
        transport.write(bytes(big))
    return transport, protocol, peer


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("big", [0, 8_000_000])
@pytest.mark.parametrize("debug", [False, True])
def test_a_sendfile_ends_with_its_connection_whatever_it_waits_for(path, end, big, debug):
    """asyncio's waits for ever once the buffer has drained, and a canceled one refuses writes for ever."""
    os.truncate(path, 50_000_000)

    async def case(t):
        transport, protocol, peer = await stuck(t, path, big)
        with open(path, "rb") as file:
            task = t.loop.create_task(t.loop.sendfile(transport, file))
            await t.turns(20)
            assert not task.done()
            if end == "close":
                transport.close()
                if big:  # what was written before goes out first
                    peer.settimeout(0)
                    left = big
                    while left:
                        left -= len(await t.loop.sock_recv(peer, min(left, 1_000_000)))
            elif end == "abort":
                transport.abort()
            elif end == "cancel":
                task.cancel()
            elif end == "reset":
                reset(peer)
            elif end == "leave":
                peer.close()
            else:
                transport._force_close(OSError("told"))
            await asyncio.wait([task])
            if end == "cancel":
                assert task.cancelled()
                assert transport.get_write_buffer_size() <= big
                assert transport.is_reading()
                transport.write(b"goes on")
                transport.abort()
            else:
                assert isinstance(task.exception(), ConnectionError), task.exception()
            if not transport.is_closing():
                transport.abort()
            await protocol.done
        peer.close()

    channels, logged = run_arm(subject_loop, debug, case)
    assert not logged and "handler" not in channels
