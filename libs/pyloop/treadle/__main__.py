"""``python -m treadle app.py [args]``, ``python -m treadle -m module [args]`` and ``python -m treadle info``."""

from __future__ import annotations

import os
import runpy
import sys

USAGE = """\
usage: python -m treadle SCRIPT [ARGS...]
       python -m treadle -m MODULE [ARGS...]
       python -m treadle info

Run an asyncio program as it is on treadle, or tell versions and kernel features in force."""


def main() -> None:
    """Run what the command line names, with treadle as asyncio's loop."""
    args = sys.argv[1:]
    if not args or args[0] in ("-h", "--help"):
        print(USAGE)
        sys.exit(0 if args else 2)
    if args == ["info"] and not os.path.exists("info"):
        from . import _info

        print(_info.render(_info.collect()))
        return
    from . import install

    install()
    if args[0] == "-m":
        if len(args) < 2:
            print(USAGE, file=sys.stderr)
            sys.exit(2)
        sys.argv = args[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = args
        sys.path[0] = os.path.dirname(os.path.abspath(args[0]))
        runpy.run_path(args[0], run_name="__main__")


if __name__ == "__main__":
    main()
