"""create_connection, open_connection and start_tls canceled at every await point, 1,000 times."""
import asyncio
import os
import socket
import ssl
import subprocess
import tempfile

import measure

COUNT = int(os.environ.get("TREADLE_SOAK_COUNT", "1000"))


def contexts(folder):
    key, cert = f"{folder}/key.pem", f"{folder}/cert.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "30",
            "-keyout",
            key,
            "-out",
            cert,
            "-subj",
            "/CN=localhost",
        ],
        check=True,
        capture_output=True,
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return server, client


async def canceled(awaitable, turns):
    """Cancels after so many turns; says whether it had ended before."""
    task = asyncio.ensure_future(awaitable)
    for _ in range(turns):
        await asyncio.sleep(0)
    ended = task.done()
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        result = task.result()
        # Of create_connection: transport and protocol; of open_connection: two streams.
        if isinstance(result, tuple):
            result = result[0] if hasattr(result[0], "abort") else result[1].transport
        if result is not None:  # start_tls on a connection that was lost meanwhile, as on asyncio
            result.abort()
    return ended


async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    with tempfile.TemporaryDirectory() as folder:
        server_context, client_context = contexts(folder)

    async def serve(reader, writer):
        try:
            await reader.read()
        except (OSError, ssl.SSLError):
            pass
        writer.close()

    async def upgrade(side):
        """start_tls on both ends of a pair, the one canceled and the other left to find out."""
        pair = [
            (await loop.create_connection(asyncio.Protocol, sock=sock))[0] for sock in socket.socketpair()
        ]
        ends = [loop.start_tls(pair[0], asyncio.Protocol(), server_context, server_side=True),
                loop.start_tls(pair[1], asyncio.Protocol(), client_context)]
        other = loop.create_task(ends[1 - side])
        ended = await canceled(ends[side], turns)
        for transport in pair:
            transport.abort()
        await asyncio.wait([other])
        if not other.cancelled() and other.exception() is None and other.result() is not None:
            other.result().abort()
        return ended

    plain = await asyncio.start_server(serve, "127.0.0.1", 0)
    tls = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context)
    port = plain.sockets[0].getsockname()[1]
    usage = measure.Usage()
    done, turns = 0, 0
    while done < COUNT:
        ended = [
            await canceled(loop.create_connection(asyncio.Protocol, "127.0.0.1", port), turns),
            await canceled(loop.create_connection(asyncio.Protocol, "localhost", port), turns),
            await canceled(asyncio.open_connection(*tls.sockets[0].getsockname(), ssl=client_context), turns),
            await upgrade(0),
            await upgrade(1),
        ]
        done += 1
        turns = 0 if all(ended) or turns > 40 else turns + 1
        if done == COUNT // 3:
            await asyncio.sleep(0.1)
            usage.mark()
    await asyncio.sleep(0.2)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    usage.check(rss_kib=4096, blocks=COUNT // 2)
    plain.close()
    tls.close()


measure.run(main)
