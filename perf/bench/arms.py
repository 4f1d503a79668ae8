"""An arm is a loop under a name: as it comes, a second time as its own control, or in another environment."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field

import loops

# glibc maps blocks above this threshold anew at every read; see perf/ANALYSIS.md.
VARIANTS = {
    "mmap": {"MALLOC_MMAP_THRESHOLD_": "4194304"},
    "nogate": {"TREADLE_IO_URING": "0"},
}
PEERS = ["uvloop", "asyncio", "rsloop", "rloop", "zuvloop"]


@dataclass(frozen=True)
class Arm:
    """`name` is what the figures stand under, `loop` what is measured, `env` what is set for it."""

    name: str
    loop: str
    env: dict[str, str] = field(default_factory=dict)


def parse(text: str) -> Arm:
    """Read `LOOP`, `LOOP#2` (a control), `LOOP+mmap` or `LOOP+nogate` (see VARIANTS)."""
    plain, _, variant = text.partition("+")
    loop = plain.partition("#")[0]
    if variant and variant not in VARIANTS:
        raise SystemExit(f"no variant {variant!r}; there are {', '.join(VARIANTS)}")
    if not loop:
        raise SystemExit(f"cannot read the arm {text!r}")
    return Arm(text, loop, VARIANTS.get(variant, {}))


def installed(arm: Arm) -> bool:
    """Whether this Python has the arm's module."""
    if arm.loop in ("asyncio", loops.LIMIT):
        return True
    try:
        return importlib.util.find_spec(arm.loop) is not None
    except ModuleNotFoundError:
        return False


def rotated(arms: list[Arm], turn: int) -> list[Arm]:
    """The arms in an order that starts one further each turn, so that none always goes first."""
    if not arms:
        return []
    shift = turn % len(arms)
    return arms[shift:] + arms[:shift]
