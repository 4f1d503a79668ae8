"""The command line of the tools in Python: one line for what is wrong, that names the option and what is
allowed; exit code 2."""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

USAGE = 2  # the exit code of a command line that cannot be used


class Refused(SystemExit):
    """An option that cannot be used. Its text is printed by refuse(), the exit code is 2."""

    def __init__(self, text: str) -> None:
        super().__init__(USAGE)
        self.text = text

    def __str__(self) -> str:
        return self.text


def refuse(option: str, text: str) -> NoReturn:
    """Say in one line what is wrong with `option`, and end."""
    print(f"{Path(sys.argv[0]).name}: {option}: {text}", file=sys.stderr)
    raise Refused(f"{option}: {text}")


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors, and without abbreviations, which a new option would break."""

    def __init__(self, **more: Any) -> None:
        super().__init__(allow_abbrev=False, **more)
        self.add_argument("--version", action="version", version=_version())

    def error(self, message: str) -> NoReturn:
        found = re.match(r"argument (?:-\w/)?(--[\w-]+)(?:/[\w-]+)*: (.*)", message, re.DOTALL)
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown:
            refuse(unknown[1], "no such option; --help lists them")
        option, text = (found[1], found[2]) if found else ("wrong use", message)
        refuse(option, " ".join(text.split()))


def _version() -> str:
    import report

    return f"treadle's tools {report.version()} ({report.commit()})"


def number(kind: type, low: float, high: float) -> Callable[[str], Any]:
    """A reader of numbers from `low` to `high`, for argparse."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{low} to {high}, got {text!r}")
        return value

    return read


def numbers(low: int, high: int) -> Callable[[str], list[int]]:
    """A reader of whole numbers from `low` to `high`, comma-separated."""
    one = number(int, low, high)
    return lambda text: [one(part) for part in text.split(",")]


def cpus(text: str) -> set[int]:
    """A reader of a list of processors such as `0-2,5`."""
    import report

    chosen: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part)
        if not found:
            raise argparse.ArgumentTypeError(f"a list of processors as in 0-2,5, got {text!r}")
        chosen |= set(range(int(found[1]), int(found[2] or found[1]) + 1))
    if not chosen or not chosen <= os.sched_getaffinity(0):
        raise argparse.ArgumentTypeError(f"processors out of {report.affinity()}, got {text!r}")
    return chosen


def folder(text: str) -> Path:
    """A reader of the name of a folder that is there or can be made."""
    path = Path(text)
    first = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    if not text or not first.is_dir() or not os.access(first, os.W_OK):
        raise argparse.ArgumentTypeError(f"a folder that can be written, got {text!r}")
    return path


def output(text: str) -> str:
    """A reader of the name of a file that can be written; `-` is standard output. Nothing is written yet, but
    the file is there
    afterwards: that is how a missing permission and a missing folder show before anything is measured."""
    if text == "-":
        return text
    try:
        with open(text or "/", "a", encoding="utf-8") as file:
            if not Path(text).is_file():
                file.write("\n")  # a device: one that is always full says so only when it is written to
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"a file that can be written ({error.strerror}), got {text!r}"
        ) from None
    return text


def existing(text: str) -> Path:
    """A reader of the name of a file that is there and can be read."""
    path = Path(text)
    if not text or not path.is_file() or not os.access(path, os.R_OK):
        raise argparse.ArgumentTypeError(f"a file that can be read, got {text!r}")
    return path


def matching(patterns: Iterable[str], names: Iterable[str], option: str = "--case") -> list[str]:
    """The names that match one of the shell patterns, all without a pattern; each pattern has to match."""
    names = list(names)
    patterns = list(patterns)
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            refuse(option, f"one of {', '.join(names)}, or a pattern of them, got {pattern!r}")
    return [
        name for name in names if not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]
