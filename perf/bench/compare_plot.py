"""A comparison as a picture: every row's arms on one logarithmic scale, relative to the best peer."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import LogLocator  # noqa: E402

from comparison import Comparison, Row  # noqa: E402

COLOURS = {
    "treadle": "#c1121f",
    "uvloop": "#1d6fa5",
    "asyncio": "#6b7280",
    "rsloop": "#b7791f",
    "rloop": "#5b8c5a",
    "libuv": "#111111",
    "zuvloop": "#7b4fa3",
}
_MARKERS = {"treadle": "D", "libuv": "|"}


def _base(row: Row, subject: str | None) -> float | None:
    """The figure every arm of the row is divided by: the best plain arm that is neither the subject nor the C
    limit."""
    peers = [c.median for arm, c in row.cells.items()
             if arm != "libuv" and "+" not in arm and (subject is None or arm.split("#")[0] != subject)]
    peers = peers or [c.median for c in row.cells.values()]
    pick = min if row.better == "lower" else max
    base = pick(peers, default=None)
    return base or None


def picture(comparison: Comparison, path: str | Path) -> None:
    """Draw to `path`; left of 1 is better than the best peer."""
    rows = [(row, base) for row in comparison.rows if (base := _base(row, comparison.subject)) is not None]
    figure, axes = plt.subplots(figsize=(11, 1.6 + 0.34 * max(1, len(rows))), layout="constrained")
    for arm in comparison.arms:
        _arm(axes, arm, rows)
    for y, (row, base) in enumerate(rows):
        limits = [t.limit for t in row.targets if t.limit is not None]
        if limits:
            axes.plot([min(limits) / base] * 2, [y - 0.38, y + 0.38], color="#2a9d3a", linewidth=2, zorder=1,
                      label="target" if y == 0 else None)
    axes.axvline(1, color="#9ca3af", linewidth=0.8, zorder=0)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_yticks(range(len(rows)), [row.title for row, _ in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("relative to the best peer (medians; bars are the range over rounds; left is better)")
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.6)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=8, frameon=False, fontsize=8)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _arm(axes, arm: str, rows: list[tuple[Row, float]]) -> None:
    points = []
    for y, (row, base) in enumerate(rows):
        if arm in row.cells:
            cell = row.cells[arm]
            ratios = [figure / base for figure in (cell.median, cell.low, cell.high)]
            if row.better == "higher":
                ratios = [1 / r if r else 0 for r in ratios]
            if min(ratios) > 0:
                points.append((y, ratios[0], min(ratios), max(ratios)))
    if not points:
        return
    name = arm.split("#")[0].split("+")[0]
    colour, plain = COLOURS.get(name), arm == name
    ys, middles = [p[0] for p in points], [p[1] for p in points]
    spread = [[max(0.0, p[1] - p[2]) for p in points], [max(0.0, p[3] - p[1]) for p in points]]
    axes.errorbar(
        middles,
        ys,
        xerr=spread,
        fmt=_MARKERS.get(name, "o"),
        color=colour,
        markersize=6,
        elinewidth=1,
        markerfacecolor=colour if plain else "white",
        alpha=0.9,
        label=arm,
        zorder=3,
    )
