"""Options of a loop: given as arguments, else by TREADLE_* variables; checked in one place, with one
wording."""

from __future__ import annotations

import os


def _variable(name: str) -> str:
    return f"TREADLE_{name.upper()}"


def option_number(name: str, value: int | None, low: int, high: int, default: int) -> int:
    """Return the option, or its variable, or `default`; raise TypeError or ValueError with the range for
    anything else."""
    given: object = value
    if value is None:
        text = os.environ.get(_variable(name), "")
        if not text:
            return default
        name, given = _variable(name), text
        try:
            value = int(text)
        except ValueError:
            value = low - 1
    elif isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be {low} to {high}, got {given!r}")
    return value


def option_flag(name: str, value: bool | None, default: bool) -> bool:
    """Return the option, or its variable (0 or 1), or `default`."""
    if value is not None:
        return bool(value)
    text = os.environ.get(_variable(name), "")
    if text not in ("", "0", "1"):
        raise ValueError(f"{_variable(name)} must be 0 or 1, got {text!r}")
    return text == "1" if text else default
