"""Making treadle the loop that asyncio creates by itself.

Python has event loop policies up to 3.15; from 3.14 on, using them warns. install() therefore replaces the
factory that asyncio.new_event_loop and asyncio.Runner use, through a policy, without a warning in the user's
face.
"""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

from ._loop import Loop

_previous: list[Any] = []
_class: type | None = None


def policy_class() -> type:
    """Return the policy class whose loops are treadle's; made when asked for, since naming asyncio's warns
    from 3.14 on."""
    global _class
    if _class is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            base: type = asyncio.DefaultEventLoopPolicy
        members = {
            "__doc__": "An event loop policy that makes treadle loops.",
            "__module__": "treadle",
            "_loop_factory": Loop,
        }
        _class = type("EventLoopPolicy", (base,), members)
    return _class


def install() -> None:
    """Let asyncio.run, asyncio.Runner and asyncio.new_event_loop make treadle loops; calling it twice is
    harmless.

    Children by fork have it too; those that are spawned begin anew, unless TREADLE=1 is in the environment.
    """
    if not hasattr(asyncio, "get_event_loop_policy"):
        raise RuntimeError(
            "this Python has no event loop policies; give treadle.new_event_loop where a loop factory is taken"
        )
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
