"""Which Pythons treadle was tested on, and what those that import it on another one are told.

treadle leans on asyncio's own set-up code, private parts of it too, so a new minor version may break it
anywhere. An ImportError would keep those who try it from finding out; silence would leave them with a
TypeError from somewhere. So there is a warning at import, and where the import itself fails, an ImportError
that says why. Threads without the GIL would crash treadle, so there is an ImportError where it stays off.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator

OLDEST = (3, 11)
NEWEST = (3, 15)


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Import the package's parts inside this."""
    version = tuple(sys.version_info[:2])
    if OLDEST <= version <= NEWEST:
        yield
        _want_gil()
        return
    text = (
        f"treadle is tested on Python {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}, not on {version[0]}.{version[1]}, "
        "whose asyncio may differ; a newer treadle may know it"
    )
    try:
        yield
    except (ImportError, AttributeError) as exc:
        raise ImportError(f"{text} ({exc})") from exc
    warnings.warn(text, RuntimeWarning, stacklevel=_importer())


def _want_gil() -> None:
    """Refuse a free-threaded Python that was told to stay without the GIL, which the module's import turns on
    otherwise."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError(
            "treadle needs the GIL, which PYTHON_GIL=0 or -X gil=0 keeps off: without them this Python turns it on when treadle "
            "is imported"
        )


def _importer() -> int:
    """The stack level of whoever imports treadle, behind contextlib's frames, the package's and
    importlib's."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__") in (
        __name__,
        __package__,
        "contextlib",
    ):
        frame, level = frame.f_back, level + 1
    return level
