"""Exceptions that are the OSError of their number and also what callers of such libraries have caught so
far."""

from __future__ import annotations

import os


_classes: dict[tuple[type[Exception], ...], type[OSError]] = {}


def _error_class(plain: type[OSError], *others: type[Exception]) -> type[OSError]:
    bases = (plain, *others)
    if bases not in _classes:
        _classes[bases] = type(plain.__name__, bases, {"__module__": __name__, "__doc__": plain.__doc__})
    return _classes[bases]


def system_error(number: int) -> OSError:
    """The OSError of a number that is a SystemError too."""
    plain = type(OSError(number, ""))
    return _error_class(plain, SystemError)(number, os.strerror(number))


def submit_error(number: int) -> OSError:
    """The OSError of a number that is a SystemError and a ValueError too."""
    plain = type(OSError(number, ""))
    return _error_class(plain, SystemError, ValueError)(number, os.strerror(number))
