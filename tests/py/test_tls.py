"""TLS over the loop's transports, against asyncio."""
import asyncio
import os
import socket
import ssl
import subprocess
import threading

import pytest

from twin import subject_loop, twin


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
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
            "3650",
            "-keyout",
            key,
            "-out",
            cert,
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
    )
    return str(cert), str(key)


def server_context(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def client_context(certificate, trust=True):
    context = ssl.create_default_context()
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if trust:
        context.load_verify_locations(certificate[0])
    return context


async def started(function, *args, **kwargs):
    return await function(*args, **kwargs)


async def echo_server(t, certificate, **kwargs):
    async def serve(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (OSError, ssl.SSLError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context(certificate), **kwargs)
    return server, server.sockets[0].getsockname()[1]


async def finish(server):
    server.close()
    await asyncio.sleep(0.01)


def test_c_serves_streams_from_the_third_message_on(certificate):
    async def main():
        streams = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(
            lambda *pair: streams.set_result(pair), "127.0.0.1", 0, ssl=server_context(certificate)
        )
        async with server:
            port = server.sockets[0].getsockname()[1]
            _, client = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(certificate))
            reader, writer = await streams
            for message in range(1, 5):
                client.write(b".")
                assert await reader.readexactly(1) == b"."
                for o in (reader, writer.transport.get_protocol()):
                    assert (type(o) is not o.__class__) is (message >= 3), (o, message)
            assert type(writer) is not writer.__class__
            writer.close()
            client.close()
            await asyncio.gather(writer.wait_closed(), client.wait_closed())

    with asyncio.Runner(loop_factory=subject_loop) as runner:
        runner.run(main())


@twin
async def test_echo_in_small_and_large_pieces(t, certificate):
    server, port = await echo_server(t, certificate)
    for size in (64, 1 << 20):
        reader, writer = await asyncio.open_connection("localhost", port, family=socket.AF_INET,
                                                       ssl=client_context(certificate))
        data = os.urandom(size)

        async def send():
            writer.write(data)
            await writer.drain()

        task = t.loop.create_task(send())
        t.log(await reader.readexactly(size) == data)
        await task
        writer.close()
        await writer.wait_closed()
    await finish(server)


@twin
async def test_extra_info(t, certificate):
    server, port = await echo_server(t, certificate)
    reader, writer = await asyncio.open_connection("localhost", port, family=socket.AF_INET,
                                                   ssl=client_context(certificate))
    for name in ("peercert", "cipher", "compression"):
        t.log(name, str(writer.get_extra_info(name)))
    for name in ("sslcontext", "ssl_object", "socket"):
        t.log(name, type(writer.get_extra_info(name)).__name__)
    t.log(writer.transport.get_protocol() is not None, writer.can_write_eof())
    writer.close()
    await writer.wait_closed()
    await finish(server)


@twin
async def test_verification_errors_are_ssl_errors(t, certificate):
    server, port = await echo_server(t, certificate)
    try:
        await asyncio.open_connection("localhost", port, family=socket.AF_INET,
                                      ssl=client_context(certificate, trust=False))
    except ssl.SSLCertVerificationError as exc:
        t.log(type(exc).__name__, exc.verify_code)
    try:
        await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_context(certificate), server_hostname="other.name"
        )
    except ssl.SSLCertVerificationError as exc:
        t.log(type(exc).__name__, exc.verify_code)
    await asyncio.sleep(0.01)
    await finish(server)
    t.channels.pop("handler", None)


@twin
async def test_a_plaintext_peer(t, certificate):
    async def plain(reader, writer):
        writer.write(b"HTTP/1.1 400 no\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        await t.loop.create_connection(
            lambda: t.recorder("p"), "127.0.0.1", port, ssl=client_context(certificate)
        )
    except (ssl.SSLError, OSError) as exc:
        t.log(isinstance(exc, ssl.SSLError))
    await asyncio.sleep(0.01)
    await finish(server)


@twin
async def test_start_tls_on_both_sides(t, certificate):
    async def serve(reader, writer):
        t.log(await reader.readline())
        writer.write(b"go\n")
        await writer.start_tls(server_context(certificate))
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"STARTTLS\n")
    t.log(await reader.readline())
    await writer.start_tls(client_context(certificate), server_hostname="localhost")
    writer.write(b"secret\n")
    t.log(await reader.readline())
    writer.close()
    await writer.wait_closed()
    await finish(server)


@twin
async def test_start_tls_behind_the_peers_end_fails(t, certificate):
    ours, peer = socket.socketpair()
    protocol = t.recorder("p")
    protocol.eof_result = True
    transport, _ = await t.loop.create_connection(lambda: protocol, sock=ours)
    peer.shutdown(socket.SHUT_WR)
    await t.turns(5)
    await t.acall(
        t.loop.start_tls(transport, protocol, client_context(certificate), server_hostname="localhost")
    )
    transport.abort()
    await t.turns(5)
    peer.close()


@twin
async def test_close_ends_at_once_though_the_peer_sends_for_ever(t, certificate):
    over = asyncio.Event()

    async def flood(reader, writer):
        try:
            while not over.is_set():
                writer.write(b"x" * 65536)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        writer.close()

    server = await asyncio.start_server(flood, "127.0.0.1", 0, ssl=server_context(certificate))
    transport, protocol = await t.loop.create_connection(
        lambda: t.recorder("p"), "localhost", server.sockets[0].getsockname()[1], family=socket.AF_INET,
        ssl=client_context(certificate))
    await protocol.got(100_000)
    transport.close()
    await asyncio.wait_for(protocol.done, 5)
    over.set()
    await finish(server)
    t.channels["p"] = [e[0] for e in t.channels["p"]]
    t.channels.pop("handler", None)


@twin
async def test_handshake_timeout(t, certificate):
    listener = socket.create_server(("127.0.0.1", 0))
    await t.acall(started(t.loop.create_connection, asyncio.Protocol, *listener.getsockname(),
                          ssl=client_context(certificate), ssl_handshake_timeout=0.05))
    await t.acall(started(t.loop.create_connection, asyncio.Protocol, *listener.getsockname(),
                          ssl=client_context(certificate), ssl_handshake_timeout=-1))
    await t.acall(started(t.loop.create_connection, asyncio.Protocol, *listener.getsockname(),
                          ssl=client_context(certificate), ssl_shutdown_timeout=0))
    listener.close()


@twin
async def test_an_abort_in_the_middle_of_the_handshake(t, certificate):
    listener = socket.create_server(("127.0.0.1", 0))
    task = t.loop.create_task(t.loop.create_connection(lambda: t.recorder("p"), *listener.getsockname(),
                                                       ssl=client_context(certificate)))
    listener.setblocking(False)
    peer, _ = await t.loop.sock_accept(listener)
    await t.loop.sock_recv(peer, 10)
    peer.close()
    await asyncio.wait([task])
    t.log(type(task.exception()).__name__)
    listener.close()


@twin
async def test_cancel_in_the_handshake(t, certificate):
    listener = socket.create_server(("127.0.0.1", 0))
    for at in (0, 1, 2, 3, 5, 8):
        task = t.loop.create_task(t.loop.create_connection(lambda: t.recorder("p"), *listener.getsockname(),
                                                           ssl=client_context(certificate)))
        await t.turns(at)
        task.cancel()
        await asyncio.wait([task])
        t.log(task.cancelled())
    await t.turns(5)
    listener.close()
    t.channels.pop("handler", None)


@twin
async def test_alpn_and_sni(t, certificate):
    context = server_context(certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.sni_callback = lambda obj, name, ctx: t.log("sni", name)
    server = await t.loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=context)
    client = client_context(certificate)
    client.set_alpn_protocols(["http/1.1"])
    transport, _ = await t.loop.create_connection(lambda: t.recorder("p"), "127.0.0.1",
                                                  server.sockets[0].getsockname()[1], ssl=client,
                                                  server_hostname="localhost")
    t.log(transport.get_extra_info("ssl_object").selected_alpn_protocol())
    transport.close()
    await finish(server)


@twin
async def test_eof_with_reading_paused_loses_nothing(t, certificate):
    server, port = await echo_server(t, certificate)
    transport, protocol = await t.loop.create_connection(
        lambda: t.recorder("p"), "localhost", port, family=socket.AF_INET, ssl=client_context(certificate))
    transport.pause_reading()
    transport.write(b"held back")
    await asyncio.sleep(0.01)
    t.log(bytes(protocol.received))
    transport.resume_reading()
    await protocol.got(9)
    transport.close()
    await protocol.done
    await finish(server)


@twin
async def test_tls_over_unix_sockets_and_buffered_protocols(t, certificate, tmp_path):
    path = str(tmp_path / f"u{int(t.subject)}{int(t.debug)}")

    async def serve(reader, writer):
        writer.write(b"hello over unix")
        writer.close()

    server = await asyncio.start_unix_server(serve, path, ssl=server_context(certificate))
    transport, protocol = await t.loop.create_unix_connection(
        lambda: t.buffered("p"), path, server_hostname="localhost", ssl=client_context(certificate)
    )
    await protocol.done
    t.log(bytes(protocol.received))
    transport.close()
    await finish(server)
    t.channels["p"] = [e for e in t.channels["p"] if e[0] != "get_buffer"]


@twin
async def test_openssl_client_and_server(t, certificate):
    server, port = await echo_server(t, certificate)
    process = await asyncio.create_subprocess_exec(
        "openssl", "s_client", "-quiet", "-connect", f"127.0.0.1:{port}", stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
    process.stdin.write(b"ping from openssl\n")
    t.log(await process.stdout.readline())
    process.stdin.close()
    process.kill()
    await process.wait()
    await finish(server)
    t.channels.pop("handler", None)


def in_thread(listener, context, said):
    """A TLS server of the ssl module that reads once."""
    def serve():
        sock, _ = listener.accept()
        try:
            with context.wrap_socket(sock, server_side=True) as tls:
                said.append(tls.recv(1))
        except OSError as exc:
            said.append(exc)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("way", ["connect", "start_tls"])
def test_a_server_that_is_not_trusted_gets_an_alert(loop, certificate, version, way):
    """asyncio closes without one (gh-98078), and the peer cannot tell why."""
    said = []
    context = client_context(certificate, trust=False)
    context.maximum_version = version

    async def main():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = in_thread(listener, server_context(certificate), said)
            address = listener.getsockname()
            with pytest.raises(ssl.SSLCertVerificationError):
                if way == "connect":
                    await asyncio.open_connection(*address, ssl=context, server_hostname="localhost")
                else:
                    transport, protocol = await loop.create_connection(asyncio.Protocol, *address)
                    await loop.start_tls(transport, protocol, context, server_hostname="localhost")
            await asyncio.to_thread(thread.join)

    loop.run_until_complete(main())
    assert isinstance(said[0], ssl.SSLError) and "ALERT" in said[0].reason, said


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("client", ["treadle", "ssl"])
@pytest.mark.parametrize("writes", [False, True])
def test_a_client_that_is_refused_is_told_so(loop, certificate, version, client, writes):
    """With TLS 1.3 its handshake is done by then: what it reads is an error, and not an end as if all was
    said."""
    context = client_context(certificate)
    context.maximum_version = version
    refuses = server_context(certificate)
    refuses.verify_mode = ssl.CERT_REQUIRED
    refuses.load_verify_locations(certificate[0])

    async def talk(address):
        reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname="localhost")
        try:
            if writes:
                writer.write(b"request" * 1000)
            return await reader.read()
        finally:
            writer.close()

    def talk_plainly(address):
        with (
            socket.create_connection(address) as sock,
            context.wrap_socket(sock, server_hostname="localhost") as tls,
        ):
            if writes:
                tls.sendall(b"request" * 1000)
            return tls.recv(1)

    async def main():
        server = await asyncio.start_server(
            lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=refuses
        )
        address = server.sockets[0].getsockname()
        with pytest.raises(ssl.SSLError) as caught:
            await (talk(address) if client == "treadle" else asyncio.to_thread(talk_plainly, address))
        assert "ALERT" in caught.value.reason or "alert" in str(caught.value), caught.value
        server.close()

    loop.run_until_complete(main())
