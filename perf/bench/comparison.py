"""What several arms' figures say when laid side by side: medians, ranges, paired ratios, verdicts,
targets."""

from __future__ import annotations

import functools

import json
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import paired
from options import refuse

SCHEMA = next(
    (
        path
        for path in (
            Path(__file__).resolve().parents[1] / "schema.json",
            Path(__file__).resolve().parent / "schema.json",
        )
        if path.exists()
    )
)

# oha cuts the requests that are under way when its time is up; those did not fail.
DEADLINE_ABORT = re.compile(r"aborted due to deadline", re.IGNORECASE)


@dataclass(frozen=True)
class Cell:
    """One arm's figures for one row: the median of its rounds and the range they span."""

    median: float
    low: float
    high: float
    rounds: int
    failed: int
    wall: float
    wall_low: float
    wall_high: float
    noisy: int = 0  # rounds that other processes disturbed


@dataclass(frozen=True)
class Target:
    """One expression of a row's targets, and whether the subject is within it."""

    text: str
    limit: float | None
    met: bool | None


@dataclass(frozen=True)
class Delta:
    """How the subject stands to another arm: the ratio of medians, and the median of the ratios within each
    round, with the 95% interval of that median by a paired bootstrap. The pairs are None when the arms share
    no round."""

    ratio: float
    verdict: str
    paired: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0


@dataclass
class Row:
    """One row over all arms; an arm without good samples is in `failed` or `unsupported` instead of
    `cells`."""

    name: str
    title: str
    unit: str
    better: str
    cells: dict[str, Cell] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    best: list[str] = field(default_factory=list)
    deltas: dict[str, Delta] = field(default_factory=dict)  # of the subject to each arm it is held against
    ratio: float | None = None
    targets: list[Target] = field(default_factory=list)
    wall_worse: bool = False


@dataclass
class Comparison:
    """All rows, the arms in the order given, and the arm that is compared with the others (or with those in
    `against`)."""

    arms: list[str]
    subject: str | None
    rows: list[Row]
    machines: list[dict]
    against: list[str] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Samples that were left out because they failed."""
        return sum(sum(row.failed.values()) for row in self.rows)


def fault(sample: dict) -> str | None:
    """Why `sample` must be left out, or None: its own error, an HTTP status other than 2xx, a transport
    error."""
    if not sample["ok"]:
        return sample["error"]
    http = sample.get("http", {})
    for status, count in http.get("status", {}).items():
        if count and not status.startswith("2"):
            return f"{count} answers with status {status}"
    for text, count in http.get("errors", {}).items():
        if count and not DEADLINE_ABORT.search(text):
            return f"{count} times {text}"
    return None


def _range(groups: list[list[float]]) -> tuple[float, float, float]:
    """Median, low and high over rounds; with a single round over its samples."""
    middles = [statistics.median(g) for g in groups]
    spread = middles if len(middles) > 1 else groups[0]
    return statistics.median(middles), min(spread), max(spread)


def _cell(rounds: dict[object, list[dict]], failed: int) -> Cell:
    groups = [rounds[key] for key in rounds]
    values = _range([[s["value"] for s in g] for g in groups])
    walls = _range([[s["wall_us"] for s in g] for g in groups])
    noisy = sum(any(s.get("extra", {}).get("noisy") for s in g) for g in groups)
    return Cell(*values, len(groups), failed, *walls, noisy)


#: With fewer rounds a range is too short to say anything by not meeting another.
VERDICT_ROUNDS = 3


def verdict(mine: Cell, other: Cell, better: str) -> str:
    """`ahead` or `behind` when the ranges of three or more rounds do not meet, `overlap` when they do, else
    `too few`."""
    if min(mine.rounds, other.rounds) < VERDICT_ROUNDS:
        return "too few"
    if mine.high < other.low:
        return "ahead" if better == "lower" else "behind"
    if mine.low > other.high:
        return "behind" if better == "lower" else "ahead"
    return "overlap"


def _validate(path: str | Path, document: object) -> None:
    """Hold a document against perf/schema.json; without the jsonschema package only against what is read
    here."""
    try:
        import jsonschema
    except ImportError:
        if not isinstance(document, dict) or not {"arm", "samples", "machine"} <= document.keys():
            refuse(str(path), "not a measurement: no arm, samples and machine in it")
        return
    try:
        error = jsonschema.exceptions.best_match(_validator().iter_errors(document))
    except RecursionError:
        refuse(str(path), "not a measurement: nested too deeply")
    if error is not None:
        where = "".join(f"[{part!r}]" for part in error.absolute_path) or "the top"
        refuse(str(path), f"not a measurement by {SCHEMA.name}: at {where}: {error.message[:200]}")


@functools.cache
def _validator():
    import jsonschema

    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


def load(paths: Iterable[str | Path]) -> list[dict]:
    """Read the tools' JSON objects."""
    documents = []
    for path in paths:
        try:
            document = json.loads(Path(path).read_text())
        except (OSError, ValueError) as error:
            refuse(str(path), f"not a measurement: {error}")
        _validate(path, document)
        documents.append(document)
    return documents


class _Gathered:
    """Samples of one row by arm and round, before they are folded."""

    def __init__(self, sample: dict) -> None:
        self.first = sample
        self.rounds: dict[str, dict[object, list[dict]]] = {}
        self.faults: dict[str, list[str]] = {}
        self.unsupported: dict[str, str] = {}


def _gather(documents: list[dict]) -> dict[str, _Gathered]:
    found: dict[str, _Gathered] = {}
    # Rounds of the arms' first files stand beside each other, those of their second files, and so on.
    files: dict[str, dict[int, int]] = {}
    for index, document in enumerate(documents):
        arm = document["arm"]
        for sample in document["samples"]:
            row = found.setdefault(sample["case"], _Gathered(sample))
            if sample["unit"] != row.first["unit"]:
                refuse(
                    sample["case"],
                    f"measured in {row.first['unit']!r} and in {sample['unit']!r}, which cannot be compared",
                )
            why = fault(sample)
            if why is None:
                key = (files.setdefault(arm, {}).setdefault(index, len(files[arm])), sample.get("round", 0))
                row.rounds.setdefault(arm, {}).setdefault(key, []).append(sample)
            elif sample.get("kind") == "unsupported":
                row.unsupported[arm] = why
            else:
                row.faults.setdefault(arm, []).append(why)
    return found


def _limit(expression: str, cells: dict[str, Cell], best: float | None) -> float | None:
    """The figure an expression allows: `0.9 best`, `0.25 uvloop`, `asyncio + 5` or `under 1`; None without
    that arm."""
    product = re.fullmatch(r"([\d.]+) (\S+)", expression)
    total = re.fullmatch(r"(\S+) \+ ([\d.]+)", expression)
    absolute = re.fullmatch(r"under ([\d.]+)", expression)
    if absolute:
        return float(absolute.group(1))
    if not product and not total:
        refuse("--targets", f"cannot read {expression!r}")
    arm = product.group(2) if product else total.group(1)
    base = best if arm == "best" else cells[arm].median if arm in cells else None
    if base is None:
        return None
    return base * float(product.group(1)) if product else base + float(total.group(2))


def _is_lowest(mine: Cell, others: Iterable[Cell], best: float, better: str) -> bool:
    """Whether the subject is the best of all, or its range meets that of the best."""
    ahead = mine.median <= best if better == "lower" else mine.median >= best
    leader = next(cell for cell in others if cell.median == best)
    return ahead or (mine.low <= leader.high and leader.low <= mine.high)


def _judge(row: Row, subject: str, peers: set[str], expressions: list[str]) -> None:
    """Fill in how the subject stands against the other arms and against its targets."""
    mine = row.cells.get(subject)
    others = {arm: cell for arm, cell in row.cells.items() if arm in peers and arm != subject}
    pick = min if row.better == "lower" else max
    best = pick((cell.median for cell in others.values()), default=None)
    for text in expressions:
        limit = best if text == "lowest" else _limit(text, row.cells, best)
        within = None
        if mine is not None and limit is not None and text == "lowest":
            within = _is_lowest(mine, others.values(), best, row.better)
        elif mine is not None and limit is not None:
            within = mine.median <= limit if row.better == "lower" else mine.median >= limit
        row.targets.append(Target(text, limit, within))
    if mine is None:
        return
    if best:
        row.ratio = mine.median / best
        leader = next(cell for cell in others.values() if cell.median == best)
        row.wall_worse = row.unit.startswith("cpu") and mine.wall_low > leader.wall_high


def _middles(rounds: dict[object, list[dict]]) -> dict[object, float]:
    return {key: statistics.median(s["value"] for s in group) for key, group in rounds.items()}


def _delta(row: Row, gathered: _Gathered, subject: str, arm: str) -> Delta:
    mine, other = row.cells[subject], row.cells[arm]
    ratio = mine.median / other.median if other.median else float("inf") if mine.median else 1.0
    words = verdict(mine, other, row.better)
    ours, theirs = _middles(gathered.rounds[subject]), _middles(gathered.rounds[arm])
    ratios = [ours[key] / theirs[key] for key in ours if theirs.get(key)]
    if not ratios:
        return Delta(ratio, words)
    return Delta(ratio, words, statistics.median(ratios), *paired.interval(ratios), len(ratios))


def choose(arms: list[str], subject: str | None, against: list[str] | None) -> tuple[str | None, list[str]]:
    """The subject (treadle, or the first arm when others are named) and the arms it is held against."""
    for option, names in (
        ("--subject", [subject] if subject is not None else []),
        ("--against", against or []),
    ):
        for name in names:
            if name not in arms:
                refuse(option, f"one of the arms {', '.join(arms)}, got {name!r}")
    if subject is None:
        subject = (
            "treadle"
            if "treadle" in arms
            else next((arm for arm in arms if arm not in against), None) if against else None
        )
    return subject, [arm for arm in against or arms if arm != subject]


def compare(documents: list[dict], targets: dict | None = None, subject: str | None = None,
            against: list[str] | None = None) -> Comparison:
    """Lay the arms side by side; `targets` is perf/targets.json's object."""
    arms = list(dict.fromkeys(d["arm"] for d in documents))
    subject, against = choose(arms, subject, against)
    targets = targets or {}
    peers = set(targets.get("peers", arms))
    wanted = targets.get("rows", {})
    rows = []
    for name, gathered in _gather(documents).items():
        unit = gathered.first["unit"]
        better = "higher" if unit.endswith(("/s", "at once")) else "lower"
        row = Row(name, gathered.first.get("title", name), unit, better, unsupported=gathered.unsupported)
        row.failed = {arm: len(faults) for arm, faults in gathered.faults.items()}
        for arm in arms:
            if arm in gathered.rounds:
                row.cells[arm] = _cell(gathered.rounds[arm], row.failed.get(arm, 0))
        pick = min if better == "lower" else max
        top = pick((c.median for c in row.cells.values()), default=None)
        row.best = [arm for arm, c in row.cells.items() if c.median == top]
        if subject is not None:
            _judge(row, subject, peers, wanted.get(name, []))
            if subject in row.cells:
                row.deltas = {arm: _delta(row, gathered, subject, arm) for arm in against if arm in row.cells}
        rows.append(row)
    order = list(wanted)
    rows.sort(key=lambda r: order.index(r.name) if r.name in wanted else len(order))
    return Comparison(arms, subject, rows, [d["machine"] for d in documents], against)
