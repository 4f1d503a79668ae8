"""Making treadle the loop that asyncio creates by itself.

Python has event loop policies up to 3.15; from 3.14 on, using them warns. install() therefore replaces the factory
that asyncio.new_event_loop and asyncio.Runner use, through a policy, without a warning in the user's face.
"""

from __future__ import annotations

import asyncio
import functools
import warnings
from typing import Any

from ._loop import Loop

_previous: list[Any] = []


@functools.cache
def policy_class() -> type:
    """Return the policy class whose loops are treadle's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        base: Any = asyncio.DefaultEventLoopPolicy

    class EventLoopPolicy(base):  # type: ignore[misc]
        """An event loop policy that makes treadle loops."""

        _loop_factory = Loop

    EventLoopPolicy.__module__ = "treadle"
    EventLoopPolicy.__qualname__ = "EventLoopPolicy"
    return EventLoopPolicy


def install() -> None:
    """Let asyncio.run, asyncio.Runner and asyncio.new_event_loop make treadle loops; calling it twice is harmless."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        current = asyncio.get_event_loop_policy()
        if not isinstance(current, policy_class()):
            _previous.append(current)
            asyncio.set_event_loop_policy(policy_class()())


def uninstall() -> None:
    """Undo install(); without an install() before, do nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if _previous and isinstance(asyncio.get_event_loop_policy(), policy_class()):
            asyncio.set_event_loop_policy(_previous.pop())
