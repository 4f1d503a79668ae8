"""treadle: an asyncio event loop in C on libuv.

``treadle.run(main())`` runs a coroutine as ``asyncio.run`` does, on a treadle loop. ``new_event_loop`` is a loop
factory for ``asyncio.Runner`` and for servers that take one.
"""

from __future__ import annotations

import asyncio as _asyncio
import sys as _sys
from collections.abc import Coroutine as _Coroutine
from typing import Any as _Any, TypeVar as _TypeVar

from ._treadle import Handle, TCPTransport, TimerHandle, __version__
from ._loop import Loop

__all__ = [
    "Handle",
    "Loop",
    "TCPTransport",
    "TimerHandle",
    "info",
    "install",
    "new_event_loop",
    "run",
    "uninstall",
]

_T = _TypeVar("_T")


def new_event_loop() -> Loop:
    """Return a new treadle loop; it is not made the current one."""
    return Loop()


def run(main: _Coroutine[_Any, _Any, _T], *, debug: bool | None = None) -> _T:
    """Run a coroutine on a new treadle loop and close the loop, as asyncio.run does.

    debug: switch asyncio's debug mode on or off; None takes it from the environment.
    Raises what the coroutine raises, RuntimeError inside a running loop, ValueError for what is no coroutine.
    """
    if _asyncio._get_running_loop() is not None:
        raise RuntimeError("treadle.run() cannot be called from a running event loop")
    with _asyncio.Runner(debug=debug, loop_factory=new_event_loop) as runner:
        return runner.run(main)


def info() -> dict[str, _Any]:
    """Return versions, libuv, the poll gate and kernel features, as ``python -m treadle info`` prints them."""
    from . import _info

    return _info.collect()


if _sys.version_info < (3, 16):
    from ._policy import install, uninstall

    def __getattr__(name: str) -> _Any:
        # Made when asked for: from Python 3.14 on, naming a policy class warns.
        if name == "EventLoopPolicy":
            from ._policy import policy_class

            return policy_class()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

else:
    from ._policy import install, uninstall
