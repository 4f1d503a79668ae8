"""Exceptions that are the OSError of their number and also what callers of such libraries have caught so far."""

from __future__ import annotations

import functools
import os


@functools.cache
def _error_class(plain: type[OSError], others: tuple[type[Exception], ...]) -> type[OSError]:
    return type(plain.__name__, (plain, *others), {"__module__": __name__, "__doc__": plain.__doc__})


def system_error(number: int) -> OSError:
    """The OSError of a number that is a SystemError too."""
    plain = type(OSError(number, ""))
    return _error_class(plain, (SystemError,))(  # type: ignore[arg-type]
        number, os.strerror(number))


def submit_error(number: int) -> OSError:
    """The OSError of a number that is a SystemError and a ValueError too."""
    plain = type(OSError(number, ""))
    return _error_class(plain, (SystemError, ValueError))(  # type: ignore[arg-type]
        number, os.strerror(number))
