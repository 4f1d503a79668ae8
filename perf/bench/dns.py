#!/usr/bin/env python3
"""Measure lookups on several loops: the rows dns_*, interleaved, a fresh process per sample, with a control.

Takes the options of perf/bench/run.py with other defaults. Five rounds over six arms take some six minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import rounds
import run

ARMS = "treadle,treadle#2,uvloop,asyncio,rsloop,rloop"


def main(argv: list[str] | None = None) -> int:
    args = run.arguments(["--seconds", "0.12", *(sys.argv[1:] if argv is None else argv)])
    args.case = args.case or ["dns_*"]
    if not args.arms and args.compare is None:
        args.arms = ",".join(arm.name for arm in run.arms_.present(run.arms_.parse_all(ARMS), asked=False))
    found = run.plan(args, "dns")
    return run.finish(found, rounds.run(found))


if __name__ == "__main__":
    sys.exit(rounds.guarded(main))
