"""What an application of the tests calls inside a request: tells its test which loop runs, and waits to be
let go."""
import asyncio
import os
import socket


def loop_name():
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def report():
    """Blocks its whole loop until the test lets go, so that the next request must reach another worker."""
    name = loop_name()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(os.environ["LOOP_REPORT"])
        sock.sendall(f"{os.getpid()} {name}\n".encode())
        sock.recv(1)
    return name
