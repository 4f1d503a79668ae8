#!/usr/bin/env python3
"""Run rows over several arms, interleaved: a fresh process per sample and row, in rotated order.

Writes each arm's JSON, a markdown table and a picture into a folder under out/, and prints the comparison.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import compare
import micro  # noqa: F401  (registers the rows)
import report
import rows
from arms import PEERS, Arm, installed, parse, rotated
from loops import LIMIT


QUICK_PARTS = {"A", "B"}


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", help="comma-separated: LOOP, LOOP#2, LOOP+mmap, LOOP+nogate; "
                                       "default: treadle, the peers that are installed, libuv")
    parser.add_argument("--case", action="append", default=[], metavar="PATTERN", help="rows; default: all with a target")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a sample")
    parser.add_argument("--quick", action="store_true", help="3 rounds of short samples of the rows A and B over treadle, uvloop, asyncio")
    parser.add_argument("--full", action="store_true", help="7 rounds of long samples, with the control and +mmap arms")
    parser.add_argument("--control", action="store_true", help="add treadle#2, the same loop as its own control")
    parser.add_argument("--mmap", action="store_true", help="add each peer with glibc's mmap threshold raised")
    parser.add_argument("--paired", action="store_true", help="also print ratios round by round, with 95%% intervals")
    parser.add_argument("--placement", choices=["auto", "together", "apart", "free"], default="auto",
                        help="processors of server and client, as micro.py takes it")
    parser.add_argument("--timeout", type=float, default=120, help="seconds a process may take before it has failed")
    parser.add_argument("--out", type=Path, help="folder for the results; default: a new one under out/")
    parser.add_argument("--tools", type=Path, help="folder of the built load generator and C echo server")
    args = parser.parse_args(argv)
    if args.quick:
        args.rounds, args.seconds = 3, 0.12
    if args.full:
        args.rounds, args.seconds, args.control, args.mmap, args.paired = 7, 0.5, True, True, True
    if args.rounds < 1:
        parser.error("--rounds must be 1 or more")
    return args


def choose_arms(args: argparse.Namespace) -> list[Arm]:
    """The arms asked for that can run; those that cannot are named."""
    if args.arms:
        names = args.arms.split(",")
    else:
        names = ["treadle", *(PEERS[:2] if args.quick else PEERS), LIMIT]
    if args.control:
        names.append("treadle#2")
    if args.mmap:
        names += [f"{peer}+mmap" for peer in PEERS if peer in names]
    wanted = [parse(name) for name in dict.fromkeys(names)]
    missing = sorted({arm.loop for arm in wanted if not installed(arm)})
    if missing:
        print(f"not installed here, left out: {', '.join(missing)}")
    return [arm for arm in wanted if installed(arm)]


def _failed(row: rows.Row, error: str) -> dict:
    return {"case": row.name, "title": row.title, "part": row.part, "unit": row.unit, "ok": False,
            "kind": "failed", "error": error}


def measure(arm: Arm, row: rows.Row, args: argparse.Namespace) -> dict:
    """One round of `row` on `arm` in a process of its own; the JSON object it wrote."""
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        target = Path(folder) / "sample.json"
        # Three short samples: their median shrugs off a neighbour that one long sample would carry along.
        parts = 1 if row.whole else 3
        command = [sys.executable, str(HERE / "micro.py"), "--loop", arm.loop, "--arm", arm.name, "--case", row.name,
                   "--samples", str(parts), "--warmup", "0" if row.fresh else "1", "--seconds", str(args.seconds / parts),
                   "--json", str(target), "--placement", args.placement]
        command += ["--tools", str(args.tools)] if args.tools else []
        process = subprocess.Popen(command, env={**os.environ, **arm.env}, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            errors = process.communicate(timeout=args.timeout)[1]
        except BaseException as error:
            # The session is this process's own: it takes a server it started along.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            errors = f"no end within {args.timeout:g} s"
        if target.exists():
            return json.loads(target.read_text())
    said = errors.strip().splitlines()
    why = said[-1] if said else f"the process ended with {process.returncode}"
    return report.document("micro.py", arm.name, {}, [_failed(row, why)])


class Progress:
    """A bar on a terminal, a line per round elsewhere."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self.console = Console()
        self.bar = Bar(TextColumn("{task.description:<44}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                       TextColumn("left"), TimeRemainingColumn(), console=self.console,
                       disable=not self.console.is_terminal)
        self.task = self.bar.add_task("", total=total)

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, *_) -> None:
        self.bar.stop()

    def round(self, text: str) -> None:
        if not self.console.is_terminal:
            print(text, flush=True)

    def step(self, text: str) -> None:
        self.bar.update(self.task, description=text)

    def done(self, problem: str | None) -> None:
        self.bar.advance(self.task)
        if problem:
            self.console.print(problem, soft_wrap=True, markup=False)


def run(arms: list[Arm], chosen: list[rows.Row], args: argparse.Namespace) -> dict[str, dict]:
    """All rounds over all rows and arms; each arm's samples in one object, with their round."""
    merged: dict[str, dict] = {}
    told: set[tuple[str, str]] = set()
    total = args.rounds * sum(1 for row in chosen for arm in arms if arm.loop != LIMIT or row.limit)
    with Progress(total) as progress:
        for turn in range(args.rounds):
            progress.round(f"round {turn + 1} of {args.rounds}: {len(chosen)} rows over "
                           f"{', '.join(arm.name for arm in arms)}")
            for place, row in enumerate(chosen):
                for arm in rotated(arms, turn + place):
                    if arm.loop == LIMIT and not row.limit:
                        continue
                    progress.step(f"{turn + 1}/{args.rounds} {row.name} on {arm.name}")
                    found = measure(arm, row, args)
                    bad = [s for s in found["samples"] if not s["ok"]]
                    fresh = bad and (arm.name, row.name) not in told
                    told.add((arm.name, row.name))
                    progress.done(f"{row.name} on {arm.name}: {bad[0]['kind']}: {bad[0]['error']}" if fresh else None)
                    _merge(merged, arm, found, turn)
    return merged


def _merge(merged: dict[str, dict], arm: Arm, found: dict, turn: int) -> None:
    for sample in found["samples"]:
        sample["round"] = turn
    if arm.name not in merged:
        merged[arm.name] = found
        return
    kept = merged[arm.name]
    kept["samples"] += found["samples"]
    kept["machine"]["load"] = max(kept["machine"]["load"], found["machine"]["load"])
    kept.setdefault("packages", {}).update(found.get("packages", {}))


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    arms = choose_arms(args)
    chosen = rows.select(args.case)
    if args.quick and not args.case:
        # Lookups and files have runs of their own, some rows of which wait for seconds.
        chosen = [row for row in chosen if row.part in QUICK_PARTS]
    out = args.out or report.ROOT / "out" / time.strftime("bench-%Y%m%d-%H%M%S")
    shown = {"rounds": args.rounds, "seconds": args.seconds, "case": args.case, "placement": args.placement,
             "command": " ".join(sys.argv if argv is None else argv)}
    files = []
    for name, document in run(arms, chosen, args).items():
        document["args"] = {**shown, "env": parse(name).env}
        document["summary"] = report.summarize(document["samples"])
        files.append(out / f"{name}.json")
        report.write(files[-1], document)
    print()
    paired = ["--paired"] if args.paired and "treadle" in {arm.name for arm in arms} else []
    compare.main([*map(str, files), *paired, "--markdown", str(out / "comparison.md"),
                  "--png", str(out / "comparison.png")])
    print(f"\nwritten to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
