"""create_connection, open_connection and start_tls canceled at every await point, 1,000 times."""
import asyncio
import os
import ssl
import subprocess
import tempfile

import measure

COUNT = int(os.environ.get("TREADLE_SOAK_COUNT", "1000"))


def contexts(folder):
    key, cert = f"{folder}/key.pem", f"{folder}/cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "30", "-keyout", key, "-out", cert, "-subj", "/CN=localhost"], check=True, capture_output=True)
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
        (result[0] if hasattr(result[0], "abort") else result[1].transport).abort()
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

    plain = await asyncio.start_server(serve, "127.0.0.1", 0)
    tls = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context)
    usage = measure.Usage()
    done, turns = 0, 0
    while done < COUNT:
        ended = [await canceled(loop.create_connection(asyncio.Protocol, *plain.sockets[0].getsockname()), turns),
                 await canceled(asyncio.open_connection(*tls.sockets[0].getsockname(), ssl=client_context), turns)]
        done += 1
        turns = 0 if all(ended) or turns > 40 else turns + 1
        if done == COUNT // 3:
            await asyncio.sleep(0.1)
            usage.mark()
    await asyncio.sleep(0.2)
    usage.check(rss_kib=8192)
    plain.close()
    tls.close()


measure.run(main)
