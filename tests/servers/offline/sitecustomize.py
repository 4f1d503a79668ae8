"""Refuses names and addresses of other machines to the programs of the tests, at once."""
import socket
import sys


def _refuse_others(event, args):
    if event == "socket.getaddrinfo" and args[0] not in (
        None,
        "",
        "localhost",
        "127.0.0.1",
        "::1",
        "0.0.0.0",
        b"localhost",
    ):
        raise socket.gaierror(socket.EAI_NONAME, f"the tests look up nothing like {args[0]!r}")


sys.addaudithook(_refuse_others)
