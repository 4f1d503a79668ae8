"""Plain sockets for the other end of what is tested."""
import socket
import struct


def tcp_pair():
    """Two connected TCP sockets, as socket.socketpair() gives Unix ones: the one that connected, and the
    accepted one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


def unix_listener():
    """A listening Unix socket with a name that the kernel chose and no file has."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(b"")
    listener.listen()
    return listener


async def made_by_loop(loop, factory, family):
    """A transport and protocol whose "tcp" or "unix" socket the loop made itself, and the plain socket at its
    other end."""
    with unix_listener() if family == "unix" else socket.create_server(("127.0.0.1", 0)) as listener:
        if family == "unix":
            transport, protocol = await loop.create_unix_connection(factory, listener.getsockname())
        else:
            transport, protocol = await loop.create_connection(factory, *listener.getsockname())
        return transport, protocol, listener.accept()[0]


def reset(sock):
    """Close a TCP socket with a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
