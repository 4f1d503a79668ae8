"""Runs calls under an audit hook: audited.py (asyncio|treadle) (record|refuse EVENT). Prints what the hook
was told, call by call, or what each call came to when the hook refused that event. Files are asyncio's arm's
by open() and os.
"""
import asyncio
import os
import pathlib
import re
import shutil
import socket
import sys
import tempfile

import twin
from treadle import fileio

ARM, REFUSED = sys.argv[1], sys.argv[3] if sys.argv[2] == "refuse" else None
WATCHED = ("socket.", "open", "os.", "shutil.", "subprocess.")
told, listening = [], False
folder = pathlib.Path(tempfile.mkdtemp())
numbers = []


def hook(event, args):
    if not listening or not event.startswith(WATCHED):
        return
    if isinstance(args[0], str) and args[0].endswith((".py", ".pyc", "__pycache__")):
        return  # an import
    told.append((event, tuple(map(norm, args))))
    if event == REFUSED:
        raise RuntimeError(f"no {event}")


def norm(value):
    if isinstance(value, socket.socket):
        return type(value).__name__
    if isinstance(value, tuple):
        return tuple(map(norm, value))
    if isinstance(value, int) and value in numbers:
        return "number"
    if isinstance(value, bytes):
        return norm(os.fsdecode(value)).encode()
    if isinstance(value, os.PathLike):
        return "path " + norm(os.fspath(value))
    if isinstance(value, str):
        return re.sub(r"port \d+", "port", value.replace(str(folder), "FOLDER"))
    return value


async def call(name, function, *args):
    """One call, while the hook listens; a failure is told, and gives None."""
    global listening
    told.clear()
    listening = True
    try:
        return await function(*args)
    except (OSError, RuntimeError) as exc:
        if REFUSED is None:
            raise
        print(name, "raised", type(exc).__name__, norm(str(exc)))
        return None
    finally:
        listening = False
        if REFUSED is None:
            print(name, told)


class Receiver(asyncio.DatagramProtocol):
    def error_received(self, exc):
        self.errors.append(str(exc))


async def until(done):
    """Turns of the loop until something is so."""
    while not done():
        await asyncio.sleep(0)


class Peer(asyncio.Protocol):
    made = 0

    def connection_made(self, transport):
        Peer.made += 1
        transport.write(b"x" * 2)


async def connections(loop):
    failed = []
    loop.set_exception_handler(lambda _, context: failed.append(repr(context.get("exception"))))

    async def connect(host, port, **kwargs):
        made = Peer.made
        transport, _ = await loop.create_connection(asyncio.Protocol, host, port, **kwargs)
        await until(lambda: Peer.made > made or failed)
        return transport

    server = await call("create_server", loop.create_server, Peer, "127.0.0.1", 0)
    if server is None:
        listener = socket.create_server(("127.0.0.1", 0))
        server = await loop.create_server(Peer, sock=listener)
    port = server.sockets[0].getsockname()[1]
    numbers.append(port)
    for name, kwargs in (("numeric", {}), ("local_addr", {"local_addr": ("127.0.0.1", 0)})):
        transport = await call(f"create_connection {name}", lambda: connect("127.0.0.1", port, **kwargs))
        if transport is not None:
            async def lines():
                transport.writelines([b"a", b"b"])
            await call("writelines", lines)
            transport.abort()

    async def named():
        return await loop.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)

    await call("getaddrinfo", named)

    async def nameinfo():
        return await loop.getnameinfo(("127.0.0.1", port), socket.NI_NUMERICHOST)

    await call("getnameinfo", nameinfo)
    path = str(folder / "unix")
    unix = await call("create_unix_server", loop.create_unix_server, Peer, path)
    if unix is not None:
        made = Peer.made

        async def connect_unix():
            await loop.create_unix_connection(Peer, path)
            await until(lambda: Peer.made > made + 1 or failed)

        await call("create_unix_connection", connect_unix)
        unix.close()
    server.close()
    print("handler", [norm(text) for text in failed])


async def datagrams(loop):
    made = await call("create_datagram_endpoint", lambda: loop.create_datagram_endpoint(
        Receiver, local_addr=("127.0.0.1", 0)))
    if made is None:
        return
    transport = made[0]
    address = transport.get_extra_info("sockname")
    numbers.append(address[1])
    errors = transport.get_protocol().errors = []

    async def sendto(to):
        transport.sendto(b"x", to)

    await call("sendto", sendto, address)
    await call("sendto again", sendto, address)
    print("errors", errors)
    made = await call("connected endpoint", lambda: loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=address))
    if made is not None:
        async def send():
            made[0].sendto(b"x")
        await call("send", send)
        made[0].abort()
    transport.abort()


def text(name):
    return str(folder / name)


def by_open(path, *args):
    async def run():
        open(path, *args).close()
    return run


def by_fileio(path, *args):
    async def run():
        await (await fileio.open(path, *args)).close()
    return run


def plain(function, *args):
    async def run():
        return function(*args)
    return run


async def truncated(path):
    if ARM == "asyncio":
        with open(path, "r+b") as file:
            file.truncate(1)
    else:
        async with fileio.open(path, "r+b") as file:
            await file.truncate(1)


def context(method, *args):
    async def run():
        return await getattr(fileio.context(), method)(*args)
    return run


async def files():
    mine = ARM == "asyncio"
    (folder / "a").write_bytes(b"data")
    (folder / "big").write_bytes(bytes(100_000))
    for path, *args in [
        (folder / "new", "wb"),
        (text("a"),),
        (text("a"), "r+"),
        (os.fsencode(text("a")), "ab+"),
        (folder / "x", "xb"),
        (folder / "x", "w+b"),
        (folder / "a", "rb", 0),
    ]:
        await call(f"open {norm(path)} {args}", (by_open if mine else by_fileio)(path, *args))
    with open(folder / "a", "rb") as file:
        numbers.append(os.dup(file.fileno()))
        await call("open number", (by_open if mine else by_fileio)(numbers[-1], "rb"))
    opener = ("rb", -1, None, None, None, True, os.open)
    await call("open opener", (by_open if mine else by_fileio)(folder / "a", *opener))
    await call("truncate", truncated, folder / "a")
    for name in ("a", "big"):
        path = folder / name
        await call(f"read_bytes {name}", plain(path.read_bytes) if mine else lambda: fileio.read_bytes(path))
        await call(
            f"read_text {name}",
            plain(path.read_text, "utf-8") if mine else lambda: fileio.read_text(path, "utf-8"),
        )
    await call("write_bytes", plain((folder / "w").write_bytes, b"x") if mine
               else lambda: fileio.write_bytes(folder / "w", b"x"))
    await call(
        "write_text",
        plain((folder / "w").write_text, "x") if mine else lambda: fileio.write_text(folder / "w", "x"),
    )
    await call("copy", plain(shutil.copyfile, folder / "big", text("copied")) if mine
               else lambda: fileio.copy(folder / "big", text("copied")))
    with open(folder / "a", "r+b") as file:
        numbers.append(file.fileno())
        await call(
            "ftruncate",
            (plain(os.ftruncate, file.fileno(), 3) if mine else context("truncate", file.fileno(), 3)),
        )
    flags = os.O_RDONLY | os.O_CLOEXEC
    number = await call(
        "os.open", plain(os.open, folder / "a", flags) if mine else context("open", folder / "a", flags)
    )
    if number is not None:
        os.close(number)
    for name, theirs, ours, args in [
        ("mkdir", os.mkdir, "mkdir", (folder / "m", 0o755)),
        ("mkdir", os.mkdir, "mkdir", (os.fsencode(text("n")),)),
        ("rename", os.rename, "rename", (folder / "m", text("k"))),
        ("remove", os.remove, "unlink", (text("x"),)),
        ("remove", os.remove, "unlink", (text("missing"),)),
    ]:
        try:
            await call(name, plain(theirs, *args) if mine else context(ours, *args))
        except FileNotFoundError as exc:
            print(norm(str(exc)))
    at_removedir = 0x200
    await call("rmdir", plain(os.rmdir, text("n")) if mine else context("unlink", text("n"), at_removedir))
    await call("stat", plain(os.stat, folder / "a") if mine else context("stat", folder / "a"))
    print(sorted(os.listdir(folder)))


async def main():
    loop = asyncio.get_running_loop()
    await files()
    await connections(loop)
    await datagrams(loop)


sys.addaudithook(hook)
running = (twin.reference_loop if ARM == "asyncio" else twin.subject_loop)()
asyncio.set_event_loop(running)
try:
    running.run_until_complete(main())
finally:
    listening = False
    running.close()
    shutil.rmtree(folder)
