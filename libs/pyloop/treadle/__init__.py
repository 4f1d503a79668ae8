"""treadle: an asyncio event loop in C on libuv.

``treadle.run(main())`` runs a coroutine as ``asyncio.run`` does, on a treadle loop. ``new_event_loop`` is a
loop factory for ``asyncio.Runner`` and for servers that take one. ``python -m treadle`` runs a program as it
is.
"""

from __future__ import annotations

import asyncio as _aio
import functools as _functools
import typing as _typing
from collections.abc import Callable as _Callable, Coroutine as _Coroutine
from typing import Any as _Any, TypeVar as _TypeVar

from . import _versions

with _versions.checked():
    from ._asyncio import running_loop as _running_loop
    from ._loop import Loop
    from ._policy import install, uninstall
    from ._treadle import Handle, TCPTransport, TimerHandle, __version__ as __version__, new_event_loop

__all__ = [
    "Handle",
    "Loop",
    "TCPTransport",
    "TimerHandle",
    "info",
    "install",
    "is_running",
    "new_event_loop",
    "run",
    "uninstall",
]

_T = _TypeVar("_T")


def run(
    main: _Coroutine[_Any, _Any, _T],
    *,
    debug: bool | None = None,
    loop_factory: _Callable[[], _aio.AbstractEventLoop] | None = None,
    io_uring: bool | None = None,
    spin_us: int | None = None,
    lookup_slots: int | None = None,
) -> _T:
    """Run a coroutine on a new treadle loop and close the loop, as asyncio.run does.

    debug: switch asyncio's debug mode on or off; None takes it from the environment.
    loop_factory: makes the loop; None stands for new_event_loop.
    io_uring, spin_us, lookup_slots: options of the loop, as Loop takes them; not together with loop_factory.
    Raises what the coroutine raises, RuntimeError inside a running loop, ValueError for what is no coroutine.
    """
    if _running_loop() is not None:
        raise RuntimeError("treadle.run() cannot be called from a running event loop")
    options = {"io_uring": io_uring, "spin_us": spin_us, "lookup_slots": lookup_slots}
    chosen: dict[str, _Any] = {name: value for name, value in options.items() if value is not None}
    if chosen and loop_factory is not None:
        raise ValueError(f"{next(iter(chosen))} is for treadle's own loop; the loop_factory makes another")
    factory = _functools.partial(Loop, **chosen) if chosen else loop_factory or new_event_loop
    with _aio.Runner(debug=debug, loop_factory=factory) as runner:
        return runner.run(main)


def is_running() -> bool:
    """Tell whether the loop that runs in this thread is treadle's; False where none runs."""
    return isinstance(_running_loop(), Loop)


def info() -> dict[str, _Any]:
    """Return versions, libuv, the poll gate and kernel features, as ``python -m treadle info`` prints
    them."""
    from . import _info

    return _info.collect()


if _typing.TYPE_CHECKING:
    EventLoopPolicy: type[_Any]
else:

    def __getattr__(name: str) -> _Any:
        # Made when asked for: from Python 3.14 on, naming a policy class warns.
        if name == "EventLoopPolicy":
            from ._policy import policy_class

            return policy_class()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
