"""An arm is a loop under a name: as it comes, of a certain build or version, as its own control, in another
environment."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field

import loops
from options import refuse

# glibc maps blocks above this threshold anew at every read; see perf/ANALYSIS-details.md.
VARIANTS = {
    "mmap": {"MALLOC_MMAP_THRESHOLD_": "4194304"},
    "nogate": {"TREADLE_IO_URING": "0"},
}
PEERS = ["uvloop", "asyncio", "rsloop", "rloop", "zuvloop"]
HELP = (
    "comma-separated: LOOP (a module with new_event_loop), MODULE:FACTORY, LOOP==VERSION, treadle@BUILD (a wheel, an "
    "installed prefix, a checkout or a revision, which are built first); then #2 for a control, +mmap or +nogate"
)

_SHAPE = re.compile(r"(?P<loop>[A-Za-z_][\w.]*(?::[\w.]+)?)(?:==(?P<version>[\w.!-]+)|@(?P<build>.+?))?"
                    r"(?:#(?P<control>\w+))?(?:\+(?P<variant>\w+))?")


@dataclass(frozen=True)
class Arm:
    """`name` is what the figures stand under, `loop` what is measured, `env` what is set for it.

    `build` says where the loop's package comes from (`==VERSION`, or a path or revision); empty: what is
    installed.
    """

    name: str
    loop: str
    env: dict[str, str] = field(default_factory=dict)
    build: str = ""

    @property
    def module(self) -> str:
        """The module that has the loop."""
        return self.loop.partition(":")[0]


def parse(text: str) -> Arm:
    """Read an arm's name; see HELP for what it may be."""
    found = _SHAPE.fullmatch(text)
    if not found:
        refuse("--arms", f"{HELP}; got {text!r}")
    variant = found["variant"]
    if variant and variant not in VARIANTS:
        refuse("--arms", f"the variants are {', '.join(VARIANTS)}; got {text!r}")
    build = f"=={found['version']}" if found["version"] else found["build"] or ""
    return Arm(text, found["loop"], VARIANTS.get(variant, {}), build)


def parse_all(text: str) -> list[Arm]:
    """Read a comma-separated list; an arm that is named twice counts once."""
    return [parse(name) for name in dict.fromkeys(part.strip() for part in text.split(","))]


def installed(arm: Arm) -> bool:
    """Whether this Python has the arm's module, or will have it."""
    if arm.build or arm.loop in ("asyncio", loops.LIMIT):
        return True
    try:
        return importlib.util.find_spec(arm.module) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def present(wanted: list[Arm], asked: bool) -> list[Arm]:
    """Those of `wanted` that can run. The others are named; one that was asked for by name is an error."""
    missing = [arm.name for arm in wanted if not installed(arm)]
    if missing and asked:
        refuse("--arms", f"not installed here: {', '.join(missing)}")
    if missing:
        print(f"not installed here, left out: {', '.join(missing)}")
    return [arm for arm in wanted if installed(arm)]


def rotated(arms: list, turn: int) -> list:
    """The arms in an order that starts one further each turn, so that none always goes first."""
    if not arms:
        return []
    shift = turn % len(arms)
    return arms[shift:] + arms[:shift]
