"""The echo of echo.py over TLS: python tls.py CERTIFICATE KEY

openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 7 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost
"""
import asyncio
import ssl
import sys

import treadle
from echo import echo


async def main(certificate, key):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    trust = ssl.create_default_context(cafile=certificate)
    async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trust, server_hostname="localhost"
        )
        writer.write(b"hello\n")
        print(writer.get_extra_info("ssl_object").version(), (await reader.read()).decode(), end="")
        writer.close()
        await writer.wait_closed()


if __name__ == "__main__":
    treadle.run(main(*sys.argv[1:]))
