"""Draws a table of ANALYSIS.md, whose cells are "median [low..high]", as compare_plot draws a run:

python perf/bench/table_plot.py "Real programs" perf/baseline/programs.png
"""
from __future__ import annotations

import pathlib
import re
import sys

import compare_plot
from comparison import Cell, Comparison, Row

PAGE = pathlib.Path(__file__).resolve().parents[1] / "ANALYSIS.md"


def rows(text: str, heading: str, arms: list[str]) -> list[Row]:
    """The table's rows; columns that are no arm's are left out."""
    section = text[text.index(f"## {heading}\n"):].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    columns = {name.strip(): at for at, name in enumerate(lines[0]) if name.strip() in compare_plot.COLOURS}
    arms += columns
    return [
        Row(
            cells[0].strip(),
            cells[0].strip(),
            "us",
            "lower",
            {arm: cell(cells[at]) for arm, at in columns.items()},
        )
        for cells in lines[2:]
    ]


def cell(text: str) -> Cell:
    median, low, high = map(float, re.fullmatch(r"\s*([\d.]+) \[([\d.]+)\.\.([\d.]+)\]\s*", text).groups())
    return Cell(median, low, high, rounds=3, failed=0, wall=0, wall_low=0, wall_high=0)


def main(heading: str, out: str) -> None:
    arms: list[str] = []
    found = rows(PAGE.read_text(), heading, arms)
    compare_plot.picture(Comparison(arms=arms, subject="treadle", rows=found, machines=[]), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
