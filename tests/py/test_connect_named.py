"""create_connection to a name: looked up and connected in C where nobody could tell, with asyncio's order,
errors and cancels."""
import asyncio
import re
import socket

import pytest

from twin import twin

NOTHING = {
    "ssl": None,
    "sock": None,
    "local_addr": None,
    "server_hostname": None,
    "ssl_handshake_timeout": None,
    "ssl_shutdown_timeout": None,
    "happy_eyeballs_delay": None,
    "interleave": None,
}


def refusing():
    """A port of 127.0.0.1 that nobody listens on, and the socket that keeps it."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock, sock.getsockname()[1]


def row(host, port, *more):
    family = socket.AF_INET6 if more else socket.AF_INET
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, *more)


def answer_with(loop, rows):
    """Give the rows as the answer to each lookup, where each loop takes it from."""
    async def getaddrinfo(*args, **kwargs):
        return rows

    if hasattr(loop, "_getaddrinfo"):
        loop._getaddrinfo = lambda *args: rows
    else:
        loop.getaddrinfo = getaddrinfo


async def connect(t, *args, **kwargs):
    try:
        transport, protocol = await t.loop.create_connection(asyncio.Protocol, *args, **kwargs)
    except (OSError, TypeError, ValueError) as exc:
        t.log("raised", type(exc).__name__, re.sub(r"\d{4,}", "PORT", str(exc)), exc.__context__ is None)
        return
    t.log("connected", transport.get_extra_info("peername")[0], type(protocol).__name__)
    transport.close()


@pytest.mark.parametrize("kwargs", [{}, NOTHING], ids=["alone", "with_nones"])
@twin
async def test_a_name_is_connected_to(t, kwargs):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await connect(t, "localhost", listener.getsockname()[1], **kwargs)


@twin
async def test_what_says_something_is_looked_at(t):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        await connect(t, "localhost", port, family=socket.AF_INET)
        await connect(t, "localhost", port, local_addr=("127.0.0.1", 0))
        await connect(t, "localhost", port, bogus=None)
        await connect(t, "localhost", port, server_hostname="x")


@twin
async def test_a_refused_connection_to_a_name(t):
    sock, port = refusing()
    await connect(t, "localhost", port)
    sock.close()


@twin
async def test_a_port_that_is_none(t):
    for host in ("127.0.0.1", "localhost"):
        for port in (-1, 1 << 40):
            await t.acall(t.loop.create_connection(asyncio.Protocol, host, port))


@twin
async def test_addresses_are_tried_in_their_order_until_one_answers(t):
    sock, refused = refusing()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.2", 0)) as other:
        port = listener.getsockname()[1]
        answer_with(
            t.loop,
            [row("127.0.0.1", refused), row("127.0.0.2", other.getsockname()[1]), row("127.0.0.1", port)],
        )
        await connect(t, "name", port)
    sock.close()


@twin
async def test_addresses_that_all_refuse(t):
    sock, port = refusing()
    for rows in (
        [row("127.0.0.1", port)],
        [row("127.0.0.1", port)] * 2,
        [row("127.0.0.1", port), row("127.0.0.2", port)],
        [],
    ):
        answer_with(t.loop, rows)
        await connect(t, "name", port)
    sock.close()


@twin
async def test_an_address_with_a_scope_is_asyncios(t):
    sock, port = refusing()
    answer_with(t.loop, [row("::1", port, 0, 1), row("127.0.0.1", port)])
    await connect(t, "name", port)
    sock.close()


@twin
async def test_a_canceled_connection_to_a_name_leaves_nothing(t):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for turns in range(4):
            task = t.loop.create_task(
                t.loop.create_connection(asyncio.Protocol, "localhost", listener.getsockname()[1])
            )
            await t.turns(turns)
            if not task.done():
                task.cancel()
            try:
                (await task)[0].close()
            except asyncio.CancelledError:
                pass


@twin
async def test_a_lookup_method_set_on_the_loop_is_asked(t):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        async def getaddrinfo(host, *args, **kwargs):
            t.log("asked", host)
            return [row("127.0.0.1", port)]

        t.loop.getaddrinfo = getaddrinfo
        await connect(t, "name", port)
