#!/usr/bin/env python3
"""Compare arms round by round: the ratio within each round, and its 95% interval by a paired bootstrap.

Rounds of one run are interleaved, so what slows the machine down slows both arms of a pair; the interval is of the
median ratio. An interval without 1 says more than ranges that do not meet.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent))

import comparison

DRAWS = 10_000
SEED = 20261130


def interval(ratios: list[float], draws: int = DRAWS) -> tuple[float, float]:
    """The 95% interval of the median of `ratios`, by drawing them again with a fixed seed."""
    values = numpy.asarray(ratios, dtype=float)
    random = numpy.random.default_rng(SEED)
    medians = numpy.median(values[random.integers(0, len(values), (draws, len(values)))], axis=1)
    low, high = numpy.quantile(medians, [0.025, 0.975])
    return float(low), float(high)


def rounds(documents: list[dict]) -> dict[str, dict[str, dict[int, float]]]:
    """Row, arm and round to the median of the good samples."""
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    for document in documents:
        for sample in document["samples"]:
            if comparison.fault(sample) is None:
                arms = found.setdefault(sample["case"], {})
                arms.setdefault(document["arm"], {}).setdefault(sample.get("round", 0), []).append(sample["value"])
    return {case: {arm: {key: statistics.median(values) for key, values in by.items()} for arm, by in arms.items()}
            for case, arms in found.items()}


def table(documents: list[dict], subject: str) -> list[str]:
    """One line for each row and arm: the median ratio subject to arm, its interval, the number of pairs."""
    lines = []
    for case, arms in rounds(documents).items():
        mine = arms.get(subject, {})
        for arm, theirs in arms.items():
            shared = [key for key in mine if key in theirs and theirs[key]]
            if arm == subject or not shared:
                continue
            ratios = [mine[key] / theirs[key] for key in shared]
            low, high = interval(ratios)
            lines.append(f"{case:20} {subject} / {arm:12} {statistics.median(ratios):8.3f}"
                         f"  [{low:.3f}..{high:.3f}]  {len(ratios)} pairs")
    return lines


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="JSON objects of one interleaved run")
    parser.add_argument("--subject", default="treadle", help="the arm the others are compared with")
    args = parser.parse_args(argv)
    print("\n".join(table(comparison.load(args.files), args.subject)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
