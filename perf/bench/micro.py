#!/usr/bin/env python3
"""Measure one event loop: one process, one loop, all rows or those selected.

perf/bench/run.py calls this once per loop, row and round; called by hand it prints what it measured.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import loops
import report
import rows
import rows_schedule  # noqa: F401  (each import registers its rows)
import rows_threads  # noqa: F401
import rows_footprint  # noqa: F401
import rows_stream  # noqa: F401
import rows_connection  # noqa: F401
import rows_other  # noqa: F401
import rows_dns  # noqa: F401


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loop", default="treadle",
                        help="treadle, uvloop, rsloop, rloop, asyncio, any module with new_event_loop, "
                             "or libuv (a plain C server, rows with a server only)")
    parser.add_argument("--case", action="append", default=[], metavar="PATTERN",
                        help="a row's name or a shell pattern; repeatable; default: the rows of TARGETS")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a sample")
    parser.add_argument("--json", metavar="FILE", help="write the JSON object there; - for standard output")
    parser.add_argument("--arm", help="the name the figures stand under; default: the loop")
    parser.add_argument("--tools", type=Path, help="folder of the built load generator and C echo server")
    parser.add_argument("--placement", choices=["auto", "together", "apart", "free"], default="auto",
                        help="processors of server and client; auto puts them on one for a single connection")
    parser.add_argument("--smoke", action="store_true", help="a few operations per row: does it run at all")
    parser.add_argument("--list", action="store_true", help="name the rows and exit")
    args = parser.parse_args(argv)
    if args.samples < 1 or args.warmup < 0 or args.seconds <= 0:
        parser.error("--samples must be 1 or more, --warmup 0 or more, --seconds above 0")
    return args


def take(row: rows.Row, options: rows.Options, say) -> list[dict]:
    """All samples of `row`; what the loop cannot do or gets wrong becomes one sample that is not ok."""
    base = {"case": row.name, "title": row.title, "part": row.part, "unit": row.unit}
    found: list[dict] = []
    if options.loop == loops.LIMIT and not row.limit:
        return [{**base, "ok": False, "kind": "unsupported", "error": "no C server for this row"}]
    try:
        for i, m in enumerate(row.take(options)):
            if i < options.warmup:
                continue
            found.append({**base, "sample": i - options.warmup, "ok": True, "ops": m.ops, "value": m.value,
                          "wall_us": m.wall_us, "cpu_us": m.cpu_us, "extra": m.extra})
    except (rows.Unsupported, NotImplementedError) as error:
        found.append({**base, "ok": False, "kind": "unsupported", "error": str(error) or "not implemented"})
    except Exception as error:
        found.append({**base, "ok": False, "kind": "failed", "error": f"{type(error).__name__}: {error}"})
    for sample in found:
        if sample["ok"]:
            say(f"{row.name:22} {sample['value']:12.3f} {row.unit}   wall {sample['wall_us']:.3f} us/op")
        else:
            say(f"{row.name:22} {sample['kind']}: {sample['error']}")
    return found


def packages(loop: str) -> dict:
    """Versions a reader needs to repeat the figures."""
    found = {"python": platform.python_version()}
    for name in {loop, "uvicorn", "httptools"} - {"asyncio", loops.LIMIT}:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    chosen = rows.select(args.case)
    if args.list:
        for row in chosen:
            print(f"{row.name:22} {row.part}  {row.title} [{row.unit}]")
        return 0
    if args.smoke:
        args.samples, args.warmup, args.seconds = 1, 0, 0.05
    if args.loop != loops.LIMIT:
        loops.factory(args.loop)
    options = rows.Options(args.loop, args.samples, args.warmup, args.seconds, args.smoke, args.tools,
                           args.placement)
    quiet = args.json == "-"
    say = (lambda text: None) if quiet else lambda text: print(text, flush=True)
    samples: list[dict] = []
    for row in chosen:
        samples += take(row, options, say)
    if args.json:
        shown = {"loop": args.loop, "case": args.case, "samples": args.samples, "warmup": args.warmup,
                 "seconds": args.seconds, "smoke": args.smoke, "placement": args.placement,
                 "malloc_mmap_threshold": os.environ.get("MALLOC_MMAP_THRESHOLD_")}
        report.write(args.json, report.document("micro.py", args.arm or args.loop, shown, samples,
                                                packages=packages(args.loop)))
    return 1 if any(s.get("kind") == "failed" for s in samples) else 0


if __name__ == "__main__":
    sys.exit(main())
