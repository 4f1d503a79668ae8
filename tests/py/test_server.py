"""Servers: several hosts, options, start, serve_forever, close, wait_closed, and Unix paths."""
import asyncio
import gc
import os
import resource
import socket
import sys

import pytest

from sockets import reset
from twin import twin


async def dial(t, address, channel="client"):
    return await t.loop.create_connection(lambda: t.recorder(channel), *address[:2])


@twin
async def test_a_server_is_asyncios_and_tells_its_sockets(t):
    server = await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", 0)
    t.log(isinstance(server, asyncio.AbstractServer), isinstance(server, asyncio.Server))
    t.log(type(server.sockets).__name__, [type(s).__name__ for s in server.sockets], server.is_serving())
    t.log(server.get_loop() is t.loop)
    server.close()
    t.log(server.sockets, server.is_serving())
    server.close()
    await server.wait_closed()


@twin
async def test_start_serving_false_waits_for_start(t):
    server = await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", 0, start_serving=False)
    t.log(server.is_serving())
    await server.start_serving()
    await server.start_serving()
    t.log(server.is_serving())
    transport, protocol = await dial(t, server.sockets[0].getsockname())
    transport.close()
    await protocol.done
    server.close()


@twin
async def test_serve_forever_and_its_cancel(t):
    server = await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", 0, start_serving=False)
    task = t.loop.create_task(server.serve_forever())
    await t.turns(3)
    t.log(server.is_serving())
    await t.acall(server.serve_forever())
    task.cancel()
    await asyncio.wait([task])
    t.log(task.cancelled(), server.is_serving())
    await t.acall(server.serve_forever())
    await t.acall(server.start_serving())


@twin
async def test_async_with_closes(t):
    async with await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", 0) as server:
        t.log(server.is_serving())
    t.log(server.is_serving())


@twin
async def test_several_hosts_and_a_free_port(t):
    server = await t.loop.create_server(lambda: t.recorder("s"), ["127.0.0.1", "127.0.0.2"], 0)
    t.log(sorted(s.getsockname()[0] for s in server.sockets))
    for i, sock in enumerate(server.sockets):
        transport, protocol = await dial(t, sock.getsockname(), f"client{i}")
        transport.close()
        await protocol.done
    await t.turns(5)
    server.close()


@twin
async def test_the_empty_host_listens_everywhere(t):
    server = await t.loop.create_server(lambda: t.recorder("s"), "", 0, family=socket.AF_INET)
    t.log([s.getsockname()[0] for s in server.sockets])
    server.close()
    server = await t.loop.create_server(lambda: t.recorder("s"), None, 0)
    t.log(sorted(s.family.name for s in server.sockets))
    server.close()


@twin
async def test_an_address_in_use_is_told_as_by_asyncio(t):
    first = await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", 0)
    port = first.sockets[0].getsockname()[1]
    try:
        await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", port)
    except OSError as exc:
        t.log(exc.errno, str(exc).replace(str(port), "PORT"))
    first.close()
    again = await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", port, reuse_address=True)
    again.close()


@twin
async def test_reuse_port_shares_the_port(t):
    first = await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", 0, reuse_port=True)
    port = first.sockets[0].getsockname()[1]
    second = await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", port, reuse_port=True)
    t.log([bool(x.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)) for x in (first, second)])
    first.close()
    second.close()


@twin
async def test_a_given_socket_is_used_and_stays_the_callers(t):
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = await t.loop.create_server(lambda: t.recorder("s"), sock=sock, backlog=1)
    t.log(sock.fileno() >= 0, sock.getsockname() == server.sockets[0].getsockname())
    transport, protocol = await dial(t, sock.getsockname())
    transport.close()
    await protocol.done
    server.close()
    await t.turns(3)
    t.log(sock.fileno() >= 0)
    sock.close()


@twin
async def test_wrong_arguments(t):
    sock = socket.socket()
    dgram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    unix = socket.socket(socket.AF_UNIX)

    async def start(function, *args, **kwargs):
        return await function(*args, **kwargs)

    p = asyncio.Protocol
    for args, kwargs in [((), {}), (("127.0.0.1", 0), {"sock": sock}), ((), {"sock": dgram}),
                         (("127.0.0.1", 0), {"ssl": True}), (("127.0.0.1", 0), {"ssl_handshake_timeout": 1}),
                         (("127.0.0.1", 0), {"ssl_shutdown_timeout": 1}), (("203.0.113.7", 0), {}),
                         (("127.0.0.1", -5), {}), (("127.0.0.1", 0), {"bogus": 1})]:
        await t.acall(start(t.loop.create_server, p, *args, **kwargs))
    for args, kwargs in [
        ((), {}),
        (("/x",), {"sock": unix}),
        ((), {"sock": sock}),
        (("/nonexistent/x/y",), {}),
        (("/x",), {"ssl": True}),
        (("/x",), {"ssl_handshake_timeout": 1}),
    ]:
        await t.acall(start(t.loop.create_unix_server, p, *args, **kwargs))
    for s in (sock, dgram, unix):
        s.close()


@twin
async def test_the_listener_survives_its_server_object(t):
    server = await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", 0)
    sockets = server.sockets
    address = sockets[0].getsockname()
    fd = sockets[0].fileno()
    del server
    gc.collect()
    transport, protocol = await dial(t, address)
    transport.close()
    await protocol.done
    await t.turns(5)
    t.loop._stop_serving(sockets[0]._sock)


@twin
async def test_wait_closed_with_a_client_attached(t):
    server = await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", 0)
    transport, protocol = await dial(t, server.sockets[0].getsockname())
    await t.turns(5)
    server.close()
    waiter = t.loop.create_task(server.wait_closed())
    await t.turns(5)
    t.log(waiter.done())
    transport.close()
    await waiter
    await protocol.done
    await t.turns(5)


@pytest.mark.skipif(
    sys.version_info < (3, 13), reason="close_clients and abort_clients are new in Python 3.13"
)
@pytest.mark.parametrize("how", ["close_clients", "abort_clients"])
@twin
async def test_close_clients_and_abort_clients(t, how):
    server = await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", 0)
    transport, protocol = await dial(t, server.sockets[0].getsockname())
    await t.turns(5)
    server.close()
    getattr(server, how)()
    await server.wait_closed()
    await protocol.done
    t.channels["client"] = [e[0] for e in t.channels["client"]]


@twin
async def test_many_clients_at_once(t):
    protocols = []

    def factory():
        protocols.append(asyncio.Protocol())
        return protocols[-1]

    server = await t.loop.create_server(factory, "127.0.0.1", 0, backlog=200)
    address = server.sockets[0].getsockname()
    clients = []
    for _ in range(150):
        sock = socket.socket()
        sock.setblocking(False)
        await t.loop.sock_connect(sock, address)
        clients.append(sock)
    while len(protocols) < 150:
        await t.turns(1)
    for sock in clients:
        sock.close()
    await asyncio.sleep(0.01)
    server.close()
    await server.wait_closed()
    t.log(len(protocols))


@twin
async def test_unix_servers_and_stale_sockets(t, tmp_path):
    path = str(tmp_path / f"s{int(t.subject)}{int(t.debug)}")
    server = await t.loop.create_unix_server(lambda: t.recorder("s"), path)
    transport, protocol = await t.loop.create_unix_connection(lambda: t.recorder("c"), path)
    transport.write(b"hello")
    await t.turns(5)
    t.log(transport.get_extra_info("peername") == path)
    transport.close()
    await protocol.done
    server.close()
    await server.wait_closed()
    t.log(os.path.exists(path))
    again = await t.loop.create_unix_server(lambda: t.recorder("s2"), path)
    again.close()
    await again.wait_closed()
    with open(path + "file", "w"):
        pass
    try:
        await t.loop.create_unix_server(lambda: t.recorder("s3"), path + "file")
    except OSError as exc:
        t.log(exc.errno, str(exc).replace(path, "PATH"))


@twin
async def test_abstract_unix_names(t):
    name = f"\0treadle-test-{os.getpid()}-{int(t.subject)}"
    server = await t.loop.create_unix_server(lambda: t.recorder("s"), name)
    transport, protocol = await t.loop.create_unix_connection(lambda: t.recorder("c"), name)
    t.log(transport.get_extra_info("peername") == name.encode())
    transport.close()
    await protocol.done
    server.close()
    await server.wait_closed()


@pytest.mark.skipif(sys.version_info < (3, 13), reason="cleanup_socket is new in Python 3.13")
@twin
async def test_cleanup_socket_removes_its_own_path_only(t, tmp_path):
    path = str(tmp_path / f"c{int(t.subject)}{int(t.debug)}")
    for cleanup in (False, True):
        server = await t.loop.create_unix_server(asyncio.Protocol, path, cleanup_socket=cleanup)
        server.close()
        t.log(os.path.exists(path))
    server = await t.loop.create_unix_server(asyncio.Protocol, path)
    os.unlink(path)
    other = socket.socket(socket.AF_UNIX)
    other.bind(path)
    server.close()
    t.log(os.path.exists(path))
    other.close()


@twin(modes=("plain",))
async def test_running_out_of_descriptors_neither_spins_nor_kills_the_listener(t):
    server = await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    client = socket.socket()
    client.setblocking(False)
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(n) for n in os.listdir("/proc/self/fd")) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, old[1]))
    hogs = []
    try:
        while True:
            try:
                hogs.append(os.dup(0))
            except OSError:
                break
        await t.loop.sock_connect(client, address)
        while not t.channels.get("handler"):
            await asyncio.sleep(0.001)
    finally:
        for fd in hogs:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, old)
    reports = [e for e in t.channels.get("handler", []) if "accept" in str(e[0])]
    t.log(len(reports) > 0)
    while "s" not in t.channels:
        await asyncio.sleep(0.01)
    client.close()
    server.close()
    await server.wait_closed()
    t.loop.set_exception_handler(lambda loop, context: None)  # asyncio's later retries find the closed socket
    t.channels["s"] = ["accepted"]
    t.channels["handler"] = ["reported"]


@twin
async def test_start_server_of_streams_leaves_the_given_socket_open(t):
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))

    async def serve(reader, writer):
        writer.write(await reader.read(10))
        writer.close()

    server = await asyncio.start_server(serve, sock=sock)
    t.log(sock.getsockname()[0])
    reader, writer = await asyncio.open_connection(*sock.getsockname())
    writer.write(b"x")
    t.log(await reader.read())
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    sock.close()


@twin
async def test_a_client_that_resets_at_once_does_not_disturb_the_server(t):
    server = await t.loop.create_server(lambda: t.recorder("s"), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    for _ in range(20):
        reset(socket.create_connection(address))
    await asyncio.sleep(0.01)
    transport, protocol = await dial(t, address)
    transport.close()
    await protocol.done
    await t.turns(5)
    server.close()
    await server.wait_closed()
    t.channels["s"] = [len(t.channels["s"]) >= 2]
