"""A comparison as text for a terminal, as a markdown table and as JSON; the terminal's has signs for
verdicts."""

from __future__ import annotations

import dataclasses
import json as json_
import math

from comparison import Comparison, Row

_WORDS = {"ahead": "ahead", "behind": "behind", "overlap": "overlap", "too few": ""}
_SIGNS = {"ahead": "+", "behind": "-", "overlap": "=", "too few": ""}


def figure(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{2 if abs(value) >= 1 else 3 if abs(value) >= 0.1 else 4}f}"


def cell_text(row: Row, arm: str, words: dict[str, str]) -> str:
    """`median [low..high]`, then how the subject stands against this arm, then failures."""
    cell = row.cells.get(arm)
    if cell is None:
        if arm in row.failed:
            return f"failed ({row.failed[arm]})"
        return "n/a" if arm in row.unsupported else "-"
    text = f"{figure(cell.median)} [{figure(cell.low)}..{figure(cell.high)}]"
    if arm in row.deltas and words.get(row.deltas[arm].verdict):
        text += f" {words[row.deltas[arm].verdict]}"
    if cell.noisy:
        text += " ~"
    if cell.failed:
        text += f" ({cell.failed} failed)"
    return text


def target_text(row: Row) -> str:
    """Each target with whether it is met; `?` when an arm it names did not run."""
    parts = []
    for target in row.targets:
        state = "?" if target.met is None else "met" if target.met else "SHORT"
        parts.append(f"{target.text}: {state}")
    if row.wall_worse:
        parts.append("wall worse")
    return "; ".join(parts)


def _cells(comparison: Comparison, row: Row, words: dict[str, str]) -> list[str]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return [
        row.title,
        row.unit,
        *(cell_text(row, arm, words) for arm in comparison.arms),
        ratio,
        target_text(row),
    ]


def _head(comparison: Comparison) -> list[str]:
    return ["row", "unit", *comparison.arms, "to best peer", "target"]


def notes(comparison: Comparison) -> list[str]:
    """What a reader must know beside the table."""
    found = []
    if comparison.subject is not None:
        checked = [t for row in comparison.rows for t in row.targets if t.met is not None]
        met = sum(1 for t in checked if t.met)
        found.append(
            f"{comparison.subject} meets {met} of {len(checked)} targets. It is ahead (+) of an arm or behind (-) "
            "it when the ranges over three or more rounds do not meet, else they overlap (=)."
        )
    controls = [(row, row.deltas[arm].ratio) for row in comparison.rows for arm in row.deltas
                if comparison.subject is not None and arm.startswith(f"{comparison.subject}#")]
    if controls:
        ratios = sorted(ratio for _, ratio in controls)
        found.append(
            f"A/A control: the same loop against itself lies between {ratios[0]:.2f} and {ratios[-1]:.2f}, "
            f"median {ratios[len(ratios) // 2]:.2f}."
        )
    noisy = [cell.noisy for row in comparison.rows for cell in row.cells.values() if cell.noisy]
    if noisy:
        found.append(f"~ marks {len(noisy)} figures with a round that stayed disturbed by other processes.")
    if comparison.failed:
        found.append(f"{comparison.failed} failed samples were left out.")
    if comparison.machines:
        machine = comparison.machines[0]
        loads = [m["load"] for m in comparison.machines]
        found.append(f"{machine['cpu']}, {machine['cores']} cores, kernel {machine['kernel']}, "
                     f"load {min(loads):.1f} to {max(loads):.1f}.")
    return found


def _aligned(lines: list[list[str]]) -> list[str]:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    printed = ["  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip() for line in lines]
    printed.insert(1, "  ".join("-" * width for width in widths))
    return printed


def _ratio_lines(comparison: Comparison) -> list[list[str]]:
    """The subject's ratio to each arm, round by round: the median, its 95% interval, and the number of rounds
    that both have."""
    lines = []
    for row in comparison.rows:
        for arm, delta in row.deltas.items():
            if delta.paired is not None:
                lines.append([row.title, f"{comparison.subject} / {arm}", f"{delta.paired:.3f}",
                              f"{delta.low:.3f}..{delta.high:.3f}", str(delta.pairs)])
    return lines


_RATIO_HEAD = ["row", "ratio of", "within a round", "95% interval", "rounds"]


def text(comparison: Comparison) -> str:
    """Aligned columns."""
    printed = _aligned([_head(comparison), *(_cells(comparison, row, _SIGNS) for row in comparison.rows)])
    ratios = _ratio_lines(comparison)
    if ratios:
        printed += ["", *_aligned([_RATIO_HEAD, *ratios])]
    return "\n".join([*printed, "", *notes(comparison)]) + "\n"


def _table(lines: list[list[str]]) -> list[str]:
    head, *rest = ["| " + " | ".join(word.replace("|", "\\|") for word in line) + " |" for line in lines]
    return [head, "|" + " --- |" * len(lines[0]), *rest]


def markdown(comparison: Comparison) -> str:
    """Tables, the best arms of each row in bold."""
    lines = [_head(comparison)]
    for row in comparison.rows:
        words = _cells(comparison, row, _WORDS)
        for i, arm in enumerate(comparison.arms, 2):
            if arm in row.best:
                words[i] = f"**{words[i]}**"
        lines.append(words)
    printed = _table(lines)
    ratios = _ratio_lines(comparison)
    if ratios:
        printed += ["", *_table([_RATIO_HEAD, *ratios])]
    return "\n".join([*printed, "", *(f"- {note}" for note in notes(comparison))]) + "\n"


def json(comparison: Comparison) -> str:
    """All of it, for programs. A ratio to nothing at all is null."""
    found = {**dataclasses.asdict(comparison), "notes": notes(comparison)}
    for row in found["rows"]:
        for delta in row["deltas"].values():
            delta["ratio"] = delta["ratio"] if math.isfinite(delta["ratio"]) else None
    return json_.dumps(found, indent=1, allow_nan=False) + "\n"
