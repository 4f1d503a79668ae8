"""``python -m treadle``: any asyncio program, as it is, on treadle; see USAGE."""

from __future__ import annotations

import importlib
import os
import platform
import runpy
import sys
import types

USAGE = """\
usage: python -m treadle SCRIPT [ARGS...]
       python -m treadle -m MODULE [ARGS...]
       python -m treadle -c CODE [ARGS...]
       python -m treadle - [ARGS...]          the program is read from standard input
       python -m treadle info
       python -m treadle --version

Run an asyncio program as it is on treadle, with every process that it starts, or tell versions and kernel
features in force.
A server that would choose uvloop by itself gets treadle; if another loop runs in the end, a warning says so.
TREADLE=1 in the environment does the same for a program whose command line is not yours; TREADLE=0 is off."""


def main() -> None:
    """Run what the command line names, with treadle as asyncio's loop."""
    args = sys.argv[1:]
    if not args or args[0] in ("-h", "--help"):
        print(USAGE)
        sys.exit(0 if args else 2)
    if args[0] in ("-V", "--version"):
        print(_version())
    elif args == ["info"] and not os.path.exists("info"):
        from . import _info

        print(_info.render(_info.collect()))
    elif args[0] in ("-m", "-c") and len(args) < 2:
        print(USAGE, file=sys.stderr)
        sys.exit(2)
    else:
        # Beside the package, and as untyped to mypy as a program is.
        startup = importlib.import_module("_treadle_startup")
        startup.arm()
        _run(args)


def _version() -> str:
    from . import _treadle

    features = _treadle.features()
    return f"treadle {features['treadle']} (Python {platform.python_version()}, libuv {features['libuv']})"


def _run(args: list[str]) -> None:
    """Run a program as the interpreter itself would, down to sys.argv and sys.path."""
    safe = getattr(sys.flags, "safe_path", False)  # then nothing of the program's stands on sys.path
    if args[0] == "-m":
        sys.argv = args[1:]
        if not safe:
            sys.path[0] = os.getcwd()
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
    elif args[0] in ("-c", "-"):
        if not safe:
            sys.path[0] = ""
        if args[0] == "-c":
            code, name = args[1], "<string>"
            sys.argv = ["-c", *args[2:]]
        else:
            code, name = sys.stdin.read(), "<stdin>"
            sys.argv = args
        program = types.ModuleType("__main__")
        sys.modules["__main__"] = program
        exec(compile(code, name, "exec", dont_inherit=True), vars(program))  # without this file's __future__
    else:
        sys.argv = args
        if not safe:
            sys.path[0] = os.path.dirname(os.path.abspath(args[0]))
        runpy.run_path(args[0], run_name="__main__")


if __name__ == "__main__":
    main()
