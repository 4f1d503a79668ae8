#!/usr/bin/env python3
"""Run rows over several arms, interleaved: a fresh process per sample and row, in rotated order.

Writes each arm's JSON after every round, then a markdown table and a picture, into a folder under out/, and
prints the comparison. Ctrl-C and SIGTERM end it with what there is.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import arms as arms_
import compare
import micro
import options
import report
import rounds
import rows
from arms import PEERS, Arm
from loops import LIMIT

QUICK_PARTS = {"A", "B"}
HERE_ARM = "treadle@."  # this checkout, as --compare measures it


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = options.Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", help=f"{arms_.HELP}; default: treadle, the peers that are installed, libuv")
    parser.add_argument(
        "--compare", metavar="REV", help="measure this checkout against a revision of it: both are built"
    )
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        metavar="PATTERN",
        help="rows, repeatable; default: all with a target (micro.py --list --case '*' names them)",
    )
    rounds.add_arguments(parser)
    parser.add_argument(
        "--seconds",
        type=options.number(float, 0.001, 600),
        default=0.3,
        help="length of a sample, 0.001 to 600 (0.3)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="3 rounds of short samples of the rows A and B over treadle, uvloop, asyncio",
    )
    parser.add_argument(
        "--full", action="store_true", help="7 rounds of long samples, with the control and +mmap arms"
    )
    parser.add_argument(
        "--programs",
        action="store_true",
        help="the rows of real programs: servers under load, clients of real servers",
    )
    parser.add_argument(
        "--control", action="store_true", help="add treadle#2, the same loop as its own control"
    )
    parser.add_argument(
        "--mmap", action="store_true", help="add each peer with glibc's mmap threshold raised"
    )
    parser.add_argument("--placement", choices=["auto", "together", "apart", "free"], default="auto",
                        help="processors of server and client, as micro.py takes it")
    parser.add_argument(
        "--tools", type=Path, metavar="FOLDER", help="where the built load generator and C echo server are"
    )
    # What is asked for by name goes before what --quick and --full stand for.
    given = parser.parse_args(argv)
    if given.quick:
        parser.set_defaults(rounds=3, seconds=0.12)
    if given.programs:
        parser.set_defaults(seconds=1.0)
    if given.full:
        parser.set_defaults(rounds=7, seconds=0.5, control=True, mmap=True)
    args = parser.parse_args(argv)
    if args.arms and args.compare:
        options.refuse("--compare", "chooses the arms itself; it cannot stand beside --arms")
    if args.tools and not args.tools.is_dir():
        options.refuse("--tools", f"a folder, got {str(args.tools)!r}")
    return args


def choose_arms(args: argparse.Namespace) -> list[Arm]:
    """The arms asked for; of the default ones those that can run."""
    if args.compare is not None:
        here = [replace(arm, build=str(report.ROOT)) for arm in arms_.parse_all(f"{HERE_ARM},{HERE_ARM}#2")]
        return [arms_.parse(f"treadle@{args.compare}"), *here]
    names = args.arms.split(",") if args.arms else ["treadle", *(PEERS[:2] if args.quick else PEERS), LIMIT]
    if args.control:
        names.append("treadle#2")
    if args.mmap:
        names += [f"{peer}+mmap" for peer in PEERS if peer in names]
    wanted = arms_.parse_all(",".join(names))
    return arms_.present(wanted, asked=bool(args.arms))


def choose_rows(args: argparse.Namespace) -> list[rows.Row]:
    """The rows asked for; a quick run leaves out lookups, which have runs of their own and may wait for
    seconds."""
    if not args.case and (args.programs or args.full):
        return [row for row in rows.with_target() if args.full or row.part == rows.PROGRAMS]
    chosen = rows.select(args.case)
    return [row for row in chosen if row.part in QUICK_PARTS] if args.quick and not args.case else chosen


def measure(arm: Arm, row: rows.Row, args: argparse.Namespace) -> list[dict]:
    """One round of `row` on `arm` in a process of its own."""
    # Three short samples: their median shrugs off a neighbour that one long sample would carry along.
    parts = 1 if row.whole else 3
    command = [
        sys.executable,
        HERE / "micro.py",
        "--loop",
        arm.loop,
        "--arm",
        arm.name,
        "--case",
        row.name,
        "--samples",
        parts,
        "--warmup",
        0 if row.fresh else 1,
        "--seconds",
        args.seconds / parts,
        "--placement",
        args.placement,
    ]
    command += ["--tools", args.tools] if args.tools else []
    return rounds.tool_sample(command, arm, args.timeout)


def failure(row: rows.Row, error: str) -> list[dict]:
    return [
        {
            "case": row.name,
            "title": row.title,
            "part": row.part,
            "unit": row.unit,
            "ok": False,
            "kind": "failed",
            "error": error,
        }
    ]


def plan(args: argparse.Namespace, name: str = "bench") -> rounds.Plan:
    """All that a run needs, looked at and built before anything is measured."""
    chosen = choose_rows(args)
    wanted = rounds.prepare(args, choose_arms(args))
    shown = {"rounds": args.rounds, "seconds": args.seconds, "case": args.case, "placement": args.placement}
    return rounds.Plan(
        "micro.py",
        wanted,
        chosen,
        args.rounds,
        rounds.new_folder(args, name),
        shown,
        measure=lambda arm, row, turn: measure(arm, row, args),
        failure=failure,
        label=lambda row: row.name,
        runs=lambda arm, row: arm.loop != LIMIT or row.limit,
        packages=micro.packages({arm.module for arm in wanted}),
    )


def finish(found: rounds.Plan, code: int, subject: str | None = None) -> int:
    """Print the comparison of what was measured, write it beside the results, and return the exit code."""
    files = [str(path) for path in found.files()]
    if files:
        print()
        more = ["--subject", subject] if found.samples.get(subject) else []
        compare.main(
            [
                *files,
                *more,
                "--markdown",
                str(found.out / "comparison.md"),
                "--png",
                str(found.out / "comparison.png"),
                "--json",
                str(found.out / "comparison.json"),
            ]
        )
        print(f"\nwritten to {found.out}")
    return rounds.exit_code(found, code)


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    found = plan(args)
    return finish(found, rounds.run(found), HERE_ARM if args.compare is not None else None)


if __name__ == "__main__":
    sys.exit(rounds.guarded(main))
