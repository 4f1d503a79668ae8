#!/usr/bin/env python3
"""Compare any number of arms' JSON files, from the C tools and the Python ones: text, markdown and a picture.

Several files of one arm are further rounds of it. Exit code 0, also when targets are missed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import compare_print
import comparison

TARGETS = Path(__file__).resolve().parents[1] / "targets.json"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="JSON objects the tools wrote")
    parser.add_argument("--subject", help="the arm the others are compared with; default: treadle")
    parser.add_argument("--case", action="append", default=[], metavar="PATTERN", help="rows to show; default: all")
    parser.add_argument("--targets", type=Path, default=TARGETS, help="table of targets")
    parser.add_argument("--format", choices=["text", "markdown"], default="text", help="form on standard output")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write a markdown table there")
    parser.add_argument("--png", type=Path, metavar="FILE", help="also draw a picture there")
    parser.add_argument("--paired", action="store_true", help="also print ratios round by round, with 95%% intervals")
    args = parser.parse_args(argv)
    targets = json.loads(args.targets.read_text()) if args.targets.exists() else None
    found = comparison.compare(comparison.load(args.files), targets, args.subject)
    if args.case:
        found.rows = [row for row in found.rows if any(fnmatch.fnmatch(row.name, pattern) for pattern in args.case)]
    print(getattr(compare_print, args.format)(found), end="")
    if args.paired:
        import paired

        print("", *paired.table(comparison.load(args.files), found.subject), sep="\n")
    if args.markdown:
        args.markdown.parent.mkdir(parents=True, exist_ok=True)
        args.markdown.write_text(compare_print.markdown(found))
    if args.png:
        import compare_plot

        compare_plot.picture(found, args.png)
    return 0


if __name__ == "__main__":
    sys.exit(main())
