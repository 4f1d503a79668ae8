"""What is in force on this machine: versions, libuv, the gate, kernel features."""

from __future__ import annotations

import errno
import os
import platform
from typing import Any


def collect() -> dict[str, Any]:
    """Return a dict of versions and of what the kernel grants, tried out on a loop of its own."""
    from . import _treadle, fileio
    from ._loop import Loop

    features = _treadle.features()
    loop = Loop()
    try:
        turns = 0

        def spin() -> None:
            nonlocal turns
            turns += 1
            if turns < 64:
                loop.call_soon(spin)
            else:
                loop.stop()

        loop.call_soon(spin)
        loop.run_forever()
        native = loop._native_info()
    finally:
        loop.close()
    return {
        "treadle": features["treadle"],
        "python": platform.python_version(),
        "libuv": features["libuv"],
        "libuv_built_with": features["libuv_built"],
        "build": " ".join(
            filter(None, (features["build_type"], features["sanitizers"], features["compiler"]))
        ),
        "kernel": platform.release(),
        "gate": native["gate"],
        "gate_refused": errno.errorcode.get(native["gate_errno"], "") if native["gate"] == "refused" else "",
        "file_engines": ", ".join(engine.__name__.rpartition(".")[2] for engine in fileio.variants),
        "sqpoll_allowed": getattr(fileio.linux_uring, "SQPOLL_ALLOWED", False),
        "pidfd": hasattr(os, "pidfd_open"),
        "io_uring_environment": os.environ.get("TREADLE_IO_URING", ""),
    }


def render(values: dict[str, Any]) -> str:
    """Return the values as lines of name and value."""
    width = max(map(len, values))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in values.items())
