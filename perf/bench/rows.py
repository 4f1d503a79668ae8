"""Rows of the benchmark: their registry, and how one sample of a row is taken."""

from __future__ import annotations

import fnmatch
import gc
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import loops
from options import refuse

CPU_UNIT = "cpu us/op"
PROGRAMS = "P"  # the part of the rows of real programs, which want packages and servers of their own
TARGETS = Path(__file__).resolve().parents[1] / "targets.json"


class Unsupported(Exception):
    """The loop, or this machine, has no such operation; the row is named and left out."""


@dataclass(frozen=True)
class Options:
    """How a process was asked to measure."""

    loop: str
    samples: int = 5
    warmup: int = 1
    seconds: float = 0.3
    smoke: bool = False
    tools: Path | None = None
    placement: str = "auto"


@dataclass(frozen=True)
class Measured:
    """One sample: `ops` operations took this long; `value` is the row's figure in the row's unit."""

    ops: int
    wall_us: float
    cpu_us: float
    value: float
    extra: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A named measurement; `take` yields warm-up samples first, then those that count.

    `limit`: the plain C server has this row too. `whole`: a sample has a size of its own, not a time to fill.
    `fresh`: each sample is in a process of its own, which no earlier sample warms up.
    """

    name: str
    title: str
    part: str
    unit: str
    take: Callable[[Options], Iterator[Measured]]
    limit: bool = False
    whole: bool = False
    fresh: bool = False


REGISTRY: dict[str, Row] = {}


def add(row: Row) -> None:
    """Register `row`; a name stands once."""
    if row.name in REGISTRY:
        raise ValueError(f"row {row.name} is registered twice")
    REGISTRY[row.name] = row


def with_target() -> list[Row]:
    """The rows that have a target, in the order of the table."""
    return [REGISTRY[name] for name in json.loads(TARGETS.read_text())["rows"] if name in REGISTRY]


def select(patterns: list[str]) -> list[Row]:
    """Rows whose name matches one of the shell patterns; without patterns those that have a target, but for
    real programs."""
    if not patterns:
        return [row for row in with_target() if row.part != PROGRAMS]
    chosen = []
    for pattern in patterns:
        found = [r for name, r in REGISTRY.items() if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            refuse(
                "--case",
                f"a row that micro.py --list --case '*' names, or a pattern of them, got {pattern!r}",
            )
        chosen += [r for r in found if r not in chosen]
    return chosen


def per_op(ops: int, wall_ns: int, cpu_ns: int, **extra) -> Measured:
    """A sample whose figure is the CPU time per operation."""
    return Measured(ops, wall_ns / 1e3 / ops, cpu_ns / 1e3 / ops, cpu_ns / 1e3 / ops, extra)


def timed(work: Callable[[int], object], n: int) -> Measured:
    """Run `work(n)` and divide what it cost this process by `n`."""
    gc.collect()
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    work(n)
    cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    return per_op(n, wall, cpu)


def calibrated(work: Callable[[int], object], options: Options, step: int) -> Iterator[Measured]:
    """Samples of `work`, each with as many steps as fill the time asked for; the first runs find the
    count."""
    if options.smoke:
        for _ in range(options.warmup + options.samples):
            yield timed(work, step)
        return
    n = step
    while True:
        trial = timed(work, n)
        spent = trial.wall_us * trial.ops / 1e6
        if spent >= options.seconds / 4:
            break
        n *= 4
    n = max(step, int(n * options.seconds / spent) // step * step)
    for _ in range(options.warmup + options.samples):
        yield timed(work, n)


def trap_errors(loop) -> list[BaseException]:
    """Make an error in a callback stop the loop: a row that waits for that callback would never end."""
    errors: list[BaseException] = []

    def stop(_, context: dict) -> None:
        errors.append(context.get("exception") or RuntimeError(context["message"]))
        loop.stop()

    loop.set_exception_handler(stop)
    return errors


def loop_row(name: str, title: str, *, step: int, part: str = "A"):
    """Register `function(loop, n)` as a row: it does `n` operations on `loop`, and this process pays."""

    def register(function):
        def take(options: Options) -> Iterator[Measured]:
            loop = loops.factory(options.loop)()
            errors = trap_errors(loop)

            def work(n: int) -> None:
                function(loop, n)
                if errors:
                    raise errors[0]

            try:
                yield from calibrated(work, options, step)
            finally:
                loops.release(loop)

        add(Row(name, title, part, CPU_UNIT, take))
        return function

    return register


def row(
    name: str,
    title: str,
    *,
    unit: str = CPU_UNIT,
    part: str = "A",
    limit: bool = False,
    whole: bool = False,
    fresh: bool = False,
):
    """Register `function(options)`, which yields its samples itself."""

    def register(function):
        add(Row(name, title, part, unit, function, limit, whole, fresh))
        return function

    return register
