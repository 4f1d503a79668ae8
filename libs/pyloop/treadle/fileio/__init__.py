"""Files for asyncio: whole files, file objects, and contexts for single operations.

open(), read_bytes(), write_bytes(), read_text(), write_text() and copy() work in any running loop.
AsyncioContext, Context and Operation have the shape of an earlier library for the same job, so that programs
and libraries written for it run on these; the environment variable CAIO_IMPL (uring, linux, thread, python),
or a file default_implementation beside this one, chooses among their engines.
"""

from __future__ import annotations

import os as _os
import pathlib as _pathlib
import types as _types
import warnings as _warnings
from typing import Any as _Any

from treadle._treadle import FileContext, FileOp, __version__

from ._binary import BinaryFile
from ._contexts import context
from ._open import copy, open, read_bytes, read_text, write_bytes, write_text
from ._text import TextFile
from . import python_aio, python_aio_asyncio, thread_aio, thread_aio_asyncio
from .abstract import AbstractContext, AbstractOperation

__author__ = "the treadle authors"

linux_uring: _types.ModuleType | None
linux_uring_asyncio: _types.ModuleType | None
linux_aio: _types.ModuleType | None
linux_aio_asyncio: _types.ModuleType | None

try:
    from . import linux_uring, linux_uring_asyncio
except ImportError:
    linux_uring = linux_uring_asyncio = None

try:
    from . import linux_aio, linux_aio_asyncio
except ImportError:
    linux_aio = linux_aio_asyncio = None

_names = {
    "uring": (linux_uring, linux_uring_asyncio),
    "linux": (linux_aio, linux_aio_asyncio),
    "thread": (thread_aio, thread_aio_asyncio),
    "python": (python_aio, python_aio_asyncio),
}
_usable = {
    name: (one, other) for name, (one, other) in _names.items() if one is not None and other is not None
}

#: The engines that work here, best first.
variants = tuple(pair[0] for pair in _usable.values())
variants_asyncio = tuple(pair[1] for pair in _usable.values())


def _choose() -> tuple[_Any, _Any]:
    first = next(iter(_usable.values()))
    wanted = _os.environ.get("CAIO_IMPL")
    if wanted:
        if wanted not in _usable:
            _warnings.warn(
                f"CAIO_IMPL is {wanted!r}, not one of {', '.join(_usable)}", RuntimeWarning, stacklevel=3
            )
        return _usable.get(wanted, first)
    try:
        lines = _pathlib.Path(__file__).with_name("default_implementation").read_text().splitlines()
    except OSError:
        return first
    chosen = next((line.strip() for line in lines if line.strip() in _usable), None)
    return _usable[chosen] if chosen is not None else first


preferred, preferred_asyncio = _choose()
Context = preferred.Context
Operation = preferred.Operation
AsyncioContext = preferred_asyncio.AsyncioContext

__all__ = [
    "AbstractContext",
    "AbstractOperation",
    "AsyncioContext",
    "BinaryFile",
    "Context",
    "FileContext",
    "FileOp",
    "Operation",
    "TextFile",
    "__author__",
    "__version__",
    "context",
    "copy",
    "linux_aio",
    "linux_aio_asyncio",
    "linux_uring",
    "linux_uring_asyncio",
    "open",
    "python_aio",
    "python_aio_asyncio",
    "read_bytes",
    "read_text",
    "thread_aio",
    "thread_aio_asyncio",
    "variants",
    "variants_asyncio",
    "write_bytes",
    "write_text",
]
