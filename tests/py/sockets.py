"""Plain sockets for the other end of what is tested."""
import socket
import struct


def tcp_pair():
    """Two connected TCP sockets, as socket.socketpair() gives Unix ones: the one that connected, and the accepted one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


def reset(sock):
    """Close a TCP socket with a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
