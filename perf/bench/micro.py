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

import environment
import loops
import options
import report
import rounds
import rows
import rows_schedule  # noqa: F401  (each import registers its rows)
import rows_threads  # noqa: F401
import rows_footprint  # noqa: F401
import rows_stream  # noqa: F401
import rows_connection  # noqa: F401
import rows_other  # noqa: F401
import rows_dns  # noqa: F401
import rows_programs  # noqa: F401


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = options.Parser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--loop",
        default="treadle",
        help="treadle, uvloop, rsloop, rloop, asyncio, any module with new_event_loop, module:factory, "
        "or libuv (a plain C server, rows with a server only)",
    )
    parser.add_argument("--case", action="append", default=[], metavar="PATTERN",
                        help="a row's name or a shell pattern; repeatable; default: the rows of TARGETS")
    parser.add_argument(
        "--samples",
        type=options.number(int, 1, 1000000),
        default=5,
        help="samples that count, 1 to 1000000 (5)",
    )
    parser.add_argument(
        "--warmup",
        type=options.number(int, 0, 1000000),
        default=1,
        help="samples before those, 0 to 1000000 (1)",
    )
    parser.add_argument(
        "--seconds",
        type=options.number(float, 0.001, 600),
        default=0.3,
        help="length of a sample, 0.001 to 600 (0.3)",
    )
    parser.add_argument(
        "--spin-us",
        type=options.number(int, 0, 1000000),
        default=0,
        help="how long treadle watches for callbacks of other threads before it sleeps, 0 to 1000000 us (0)",
    )
    parser.add_argument(
        "--cpus",
        type=options.cpus,
        metavar="LIST",
        help="processors to run on, as in 0-2,5; default: all allowed",
    )
    parser.add_argument(
        "--json",
        type=options.output,
        metavar="FILE",
        help="write the JSON object there; - for standard output",
    )
    parser.add_argument("--arm", help="the name the figures stand under; default: the loop")
    parser.add_argument("--tools", type=Path, help="folder of the built load generator and C echo server")
    parser.add_argument("--placement", choices=["auto", "together", "apart", "free"], default="auto",
                        help="processors of server and client; auto puts them on one for a single connection")
    parser.add_argument("--smoke", action="store_true", help="a few operations per row: does it run at all")
    parser.add_argument("--list", action="store_true", help="name the rows and exit")
    args = parser.parse_args(argv)
    if args.tools and not args.tools.is_dir():
        options.refuse("--tools", f"a folder, got {str(args.tools)!r}")
    if args.spin_us and args.loop != "treadle":
        options.refuse("--spin-us", "is treadle's; give it with --loop treadle")
    return args


def take(row: rows.Row, asked: rows.Options, say, samples: list[dict]) -> None:
    """Add all samples of `row`, each when it is taken; what the loop cannot do or gets wrong becomes one that
    is not ok."""
    base = {"case": row.name, "title": row.title, "part": row.part, "unit": row.unit}

    def fail(kind: str, error: str) -> None:
        samples.append({**base, "ok": False, "kind": kind, "error": error})
        say(f"{row.name:22} {kind}: {error}")

    if asked.loop == loops.LIMIT and not row.limit:
        fail("unsupported", "no C server for this row")
        return
    try:
        for i, m in enumerate(row.take(asked)):
            if i >= asked.warmup:
                samples.append(
                    {
                        **base,
                        "sample": i - asked.warmup,
                        "ok": True,
                        "ops": m.ops,
                        "value": m.value,
                        "wall_us": m.wall_us,
                        "cpu_us": m.cpu_us,
                        "extra": m.extra,
                    }
                )
                say(f"{row.name:22} {m.value:12.3f} {row.unit}   wall {m.wall_us:.3f} us/op")
    except (rows.Unsupported, NotImplementedError) as error:
        fail("unsupported", str(error) or "not implemented")
    except Exception as error:
        fail("failed", f"{type(error).__name__}: {error}")


def packages(modules: set[str]) -> dict[str, str]:
    """Versions a reader needs to repeat the figures."""
    found = {"python": platform.python_version()}
    for name in sorted(modules | {"uvicorn", "httptools"}):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def measure(args: argparse.Namespace, chosen: list[rows.Row], samples: list[dict]) -> None:
    """Take all samples into `samples`."""
    asked = rows.Options(
        args.loop, args.samples, args.warmup, args.seconds, args.smoke, args.tools, args.placement
    )
    say = (lambda text: None) if args.json == "-" else lambda text: print(text, flush=True)
    for row in chosen:
        take(row, asked, say, samples)


def write(args: argparse.Namespace, samples: list[dict], obeyed: dict[str, str]) -> None:
    if not args.json:
        return
    shown = {
        "loop": args.loop,
        "case": args.case,
        "samples": args.samples,
        "warmup": args.warmup,
        "seconds": args.seconds,
        "smoke": args.smoke,
        "placement": args.placement,
        "spin_us": args.spin_us,
        "environment": obeyed,
    }
    module = args.loop.partition(":")[0]
    report.write(
        args.json,
        report.document("micro.py", args.arm or args.loop, shown, samples, packages=packages({module})),
    )


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
    if args.cpus:
        os.sched_setaffinity(0, args.cpus)
    obeyed = environment.warn()
    if args.spin_us:
        os.environ["TREADLE_SPIN_US"] = str(args.spin_us)
    samples: list[dict] = []
    try:
        measure(args, chosen, samples)
    finally:
        write(args, samples, obeyed)
    good = any(sample["ok"] for sample in samples)
    return 1 if not good or any(s.get("kind") == "failed" for s in samples) else 0


if __name__ == "__main__":
    sys.exit(rounds.guarded(main))
