"""Rows of TCP and Unix streams: a server echoes what a C client sends, and the server's CPU counts."""

from __future__ import annotations

from rows import Options, row
from serving import load, serving

_SIZES = {"64": 64, "16k": 16 * 1024}
_KINDS = {
    "echo": ("protocol", False, "echo"),
    "buffered": ("buffered", False, "BufferedProtocol"),
    "unix": ("protocol", True, "Unix echo"),
    "streams": ("streams", False, "streams"),
    "sock": ("sock", False, "sock_recv/sock_sendall"),
}
_LIMITED = {"echo", "unix"}


def _title(size: str, connections: int, what: str) -> str:
    size = "64 B" if size == "64" else "16 KiB"
    return f"{what} {size}, {connections} connection{'s' if connections > 1 else ''}"


def _register(name: str, size: str, connections: int) -> None:
    kind, unix, what = _KINDS[name]

    @row(f"{name}_{size}_{connections}", _title(size, connections, what), limit=name in _LIMITED)
    def take(options: Options):
        with serving(options, kind, unix=unix) as server:
            yield from load(options, server, "echo", _SIZES[size], connections)


for _size in _SIZES:
    for _connections in (1, 64, 256):
        for _name in _KINDS:
            _register(_name, _size, _connections)
