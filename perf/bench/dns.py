#!/usr/bin/env python3
"""Measure lookups on several loops: the rows dns_*, interleaved, a fresh process per sample, with a control.

Takes the options of perf/bench/run.py, and --cpus. Five rounds over six arms take some six minutes. A paired comparison
with 95% intervals follows the table.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import paired
import report
import run


def pin(text: str) -> None:
    """Keep this process, and so each that it starts, on the processors named, e.g. 0,1."""
    os.sched_setaffinity(0, {int(part) for part in text.split(",")})


def main(argv: list[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    if "--cpus" in args:
        at = args.index("--cpus")
        pin(args[at + 1])
        del args[at:at + 2]
    if "--case" not in args:
        args += ["--case", "dns_*"]
    if "--arms" not in args:
        args += ["--arms", "treadle,treadle#2,uvloop,asyncio,rsloop,rloop"]
    if "--seconds" not in args:
        args += ["--seconds", "0.12"]
    if "--out" not in args:
        args += ["--out", str(report.ROOT / "out" / time.strftime("dns-%Y%m%d-%H%M%S"))]
    code = run.main(args)
    out = Path(args[args.index("--out") + 1])
    print()
    return code or paired.main([str(path) for path in sorted(out.glob("*.json"))])


if __name__ == "__main__":
    sys.exit(main())
