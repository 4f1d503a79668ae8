#!/usr/bin/env python3
"""Compare any number of arms' JSON files, from the C tools and the Python ones: text, markdown, JSON and a
picture.

Several files of one arm are further rounds of it. Exit code 0, also when targets are missed; 2 for what
cannot be compared.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import compare_print
import comparison
import options

# In the repository a folder up, installed beside this file.
TARGETS = next(
    (path for path in (HERE.parent / "targets.json", HERE / "targets.json") if path.exists()), None
)


def _targets(path: Path | None) -> dict | None:
    if path is None:
        return None
    try:
        found = json.loads(path.read_text())
        if not isinstance(found["rows"], dict):
            raise TypeError("rows is no object")
    except (OSError, ValueError, KeyError, TypeError) as error:
        options.refuse("--targets", f"a table as perf/targets.json, got {str(path)!r} ({error})")
    return found


def _place(text: str) -> Path:
    return Path(options.output(text))


def main(argv: list[str] | None = None) -> int:
    parser = options.Parser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="JSON objects the tools wrote")
    parser.add_argument(
        "--subject", metavar="ARM", help="the arm the others are compared with; default: treadle"
    )
    parser.add_argument(
        "--against",
        action="append",
        metavar="ARM",
        help="the arms it is compared with, repeatable; default: all others",
    )
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        metavar="PATTERN",
        help="rows to show, repeatable; default: all",
    )
    parser.add_argument(
        "--targets", type=options.existing, default=TARGETS, metavar="FILE", help="table of targets"
    )
    parser.add_argument(
        "--format", choices=["text", "markdown", "json"], default="text", help="form on standard output"
    )
    parser.add_argument("--markdown", type=_place, metavar="FILE", help="also write a markdown table there")
    parser.add_argument("--json", type=_place, metavar="FILE", help="also write the comparison as JSON there")
    parser.add_argument("--png", type=_place, metavar="FILE", help="also draw a picture there")
    args = parser.parse_args(argv)
    found = comparison.compare(
        comparison.load(args.files), _targets(args.targets), args.subject, args.against
    )
    chosen = options.matching(args.case, [row.name for row in found.rows])
    found.rows = [row for row in found.rows if row.name in chosen]
    print(getattr(compare_print, args.format)(found), end="")
    for place, form in ((args.markdown, compare_print.markdown), (args.json, compare_print.json)):
        if place:
            place.write_text(form(found))
    if args.png:
        import compare_plot

        compare_plot.picture(found, args.png)
    return 0


if __name__ == "__main__":
    sys.exit(main())
