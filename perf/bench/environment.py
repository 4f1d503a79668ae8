"""The environment that a measured process gets: the caller's, without what would change the figures
unseen."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

#: Names, and beginnings of names, that change how an interpreter, libc, libuv or treadle itself behaves.
NAMES = {
    "PYTHONASYNCIODEBUG",
    "PYTHONDEVMODE",
    "PYTHONMALLOC",
    "PYTHONMALLOCSTATS",
    "PYTHONTRACEMALLOC",
    "PYTHONPROFILEIMPORTTIME",
    "PYTHONVERBOSE",
    "PYTHONDEBUG",
    "PYTHONINSPECT",
    "PYTHONOPTIMIZE",
    "PYTHONFAULTHANDLER",
    "PYTHONWARNINGS",
    "PYTHON_GIL",
    "PYTHON_JIT",
    "PYTHON_PERF_JIT_SUPPORT",
    "PYTHONPERFSUPPORT",
    "PYTHONHASHSEED",
    "PYTHONSTARTUP",
    "PYTHONBREAKPOINT",
    "LD_PRELOAD",
    "LD_AUDIT",
    "GLIBC_TUNABLES",
}
BEGINNINGS = ("MALLOC_", "UV_", "TREADLE", "ASAN_", "UBSAN_", "TSAN_", "LSAN_")


def unclean(environment: Mapping[str, str]) -> dict[str, str]:
    """What of `environment` a measured process must not obey without its being said."""
    return {
        name: value for name, value in environment.items() if name in NAMES or name.startswith(BEGINNINGS)
    }


def clean(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """`environment` (the process's own) without those."""
    environment = os.environ if environment is None else environment
    dirty = unclean(environment)
    return {name: value for name, value in environment.items() if name not in dirty}


def warn() -> dict[str, str]:
    """For a program that measures in its own process: name on standard error what is obeyed, and return it
    for the record."""
    found = unclean(os.environ)
    if found:
        print(
            f"note: this process obeys {', '.join(f'{k}={v}' for k, v in sorted(found.items()))}",
            file=sys.stderr,
        )
    return found
