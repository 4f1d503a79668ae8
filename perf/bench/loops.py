"""Names of event loops and what they stand for: a module with `new_event_loop`, `module:factory`, or a plain
C server."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable

from options import refuse

# The limit of the design: an echo server in C on libuv, only meaningful for rows that have a server.
LIMIT = "libuv"


def factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the callable that makes a loop: `new_event_loop` of the module `name`, or what `module:factory`
    names."""
    if name == "asyncio":
        return asyncio.new_event_loop
    module, _, attribute = name.partition(":")
    try:
        make = getattr(importlib.import_module(module), attribute or "new_event_loop", None)
    except ImportError as error:
        refuse("--loop", f"a module that can be imported ({error}), got {name!r}")
    if not callable(make):
        refuse("--loop", f"a module with new_event_loop, or module:factory, got {name!r}")
    return make


def run(name: str, main) -> object:
    """Run the coroutine `main` to its end on a new loop of `name`, as asyncio.run would."""
    with asyncio.Runner(loop_factory=factory(name)) as runner:
        return runner.run(main)


def release(loop: asyncio.AbstractEventLoop) -> None:
    """Close `loop` after what it started, so that the next row begins with one thread alive."""
    try:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
