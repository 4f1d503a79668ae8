"""The file context of each loop: it belongs to the loop, and ends with it."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

from treadle._options import option_flag
from treadle._treadle import FileContext

# Loops that cannot tell when they are closed, and whose contexts are open, by their id(), since threads add
# theirs while another looks through them: a list of a dict's values is made in one step, one of a set in
# many. And the contexts of those that take no attribute.
_others: weakref.WeakValueDictionary[int, asyncio.AbstractEventLoop] = weakref.WeakValueDictionary()
_elsewhere: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, FileContext] = weakref.WeakKeyDictionary()


def context() -> FileContext:
    """The context that the running loop uses for files."""
    loop: Any = asyncio.get_running_loop()
    try:
        files: FileContext | None = loop._file_context
    except AttributeError:
        files = _elsewhere.get(loop)
    if files is None or files.closed:
        uses_uring = getattr(loop, "_uses_uring", None)
        if uses_uring is None:
            uses_uring = option_flag("io_uring", None, True)
        files = FileContext() if uses_uring else FileContext(engine="threads")
        adopt(loop, files)
    return files


def adopt(loop: Any, files: FileContext) -> None:
    """Make it the loop's context. treadle's loop closes it when it is closed; for another it is seen when the
    next one is adopted."""
    for ref in _others.valuerefs():
        other = ref()
        if other is not None and other.is_closed():
            _end(other)
    if not hasattr(loop, "_file_context"):
        _others[id(loop)] = loop
    try:
        loop._file_context = files
    except AttributeError:
        _elsewhere[loop] = files


def _end(loop: Any) -> None:
    _others.pop(id(loop), None)
    # Neither has it if another thread was first.
    files = _elsewhere.pop(loop, None) or getattr(loop, "__dict__", {}).pop("_file_context", None)
    if files is not None:
        files.close()
