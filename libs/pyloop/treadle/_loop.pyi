"""Types of treadle.Loop as programs see it: asyncio's loop, with handles of its own and what it adds."""

import asyncio
from typing import Any

from ._treadle import LoopBase

# Python 3.13.3 gave create_task() arbitrary keywords, and mypy has them for all of 3.13. Elsewhere there is
# nothing to ignore.
class Loop(LoopBase, asyncio.SelectorEventLoop):  # type: ignore[misc, unused-ignore]
    slow_callback_duration: float
    def __init__(
        self, *, io_uring: bool | None = None, spin_us: int | None = None, lookup_slots: int | None = None
    ) -> None: ...

    def info(self) -> dict[str, Any]: ...
