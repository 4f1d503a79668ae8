"""Rounds of arms, for every tool that compares: rotated order, a fresh process per sample, results kept after
each round.

A tool makes a Plan and calls run(). What it starts (servers, folders) it holds in `with` blocks around that
call: SIGINT, SIGTERM and SIGHUP raise Stopped in the main thread, the blocks are left in order, what was
measured is written, and the exit code is 130.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import arms as arms_
import builds
import environment
import options
import quiet
import report
from arms import Arm

STOPPED = 130  # the exit code of a run that a signal ended
KILL_TIMEOUT_S = 10  # for processes to end that were killed


class Stopped(KeyboardInterrupt):
    """A signal asked the run to end. No Exception, so that no row counts it as its own; and what event loops
    let through."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Within the block the first SIGINT, SIGTERM or SIGHUP raises Stopped; later ones do not disturb the
    clearing up."""
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    ]

    def stop(number: int, _frame: object) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        raise Stopped(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that every tool with rounds has."""
    parser.add_argument(
        "--rounds", type=options.number(int, 1, 1000), default=5, help="rounds over the arms, 1 to 1000 (5)"
    )
    parser.add_argument("--cpus", type=options.cpus, metavar="LIST",
                        help="processors that all of it runs on, as in 0-2,5; default: all allowed")
    parser.add_argument("--timeout", type=options.number(float, 1, 86400), default=120,
                        help="seconds that a process may take before it has failed, 1 to 86400 (120)")
    parser.add_argument(
        "--out",
        type=options.folder,
        metavar="FOLDER",
        help="folder for the results; default: a new one under out/",
    )
    parser.add_argument(
        "--allow-debug",
        action="store_true",
        help="measure builds with sanitizers or without optimization too",
    )


def guarded(main: Callable[[], int]) -> int:
    """Run a tool's main within stoppable(), also what comes before and after the rounds; its exit code."""
    try:
        with stoppable():
            return main()
    except Stopped as signal_name:
        print(f"stopped by {signal_name}", file=sys.stderr)
        return STOPPED


def file_name(arm: str) -> str:
    """An arm's name as the name of a file."""
    return re.sub(r"[^\w.#+=@-]+", "-", arm).strip("-")


def child(
    command: Sequence[object], *, env: dict[str, str], timeout: float, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a process in a session of its own; on a time-out or a Stopped all of that session is killed. `more`
    is Popen's.

    Raises TimeoutError.
    """
    process = subprocess.Popen(
        [str(part) for part in command],
        env={**environment.clean(), **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **more,
    )
    try:
        output, errors = process.communicate(timeout=timeout)
    except BaseException as error:
        kill_session(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise TimeoutError(f"no end within {timeout:g} s") from None
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def _handle(pid: int) -> int | None:
    """A descriptor of the process, readable once it ended; None when it has ended already."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def kill_session(leader: subprocess.Popen) -> None:
    """Kill a process that leads a session, with all that it started there: a server of its own is among
    them."""
    members = [_handle(pid) for pid in quiet.session_members(leader.pid)]
    for handle in members:
        if handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
    leader.kill()
    leader.wait()
    for handle in members:
        if handle is not None:
            select.select([handle], [], [], KILL_TIMEOUT_S)
            os.close(handle)
    for stream in (leader.stdout, leader.stderr):
        if stream is not None:
            stream.close()


def tool_sample(command: Sequence[object], arm: Arm, timeout: float) -> list[dict]:
    """Run a tool that writes perf/schema.json's object with `--json FILE`; its samples.

    Raises RuntimeError with what the tool said when it wrote none.
    """
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        target = Path(folder) / "sample.json"
        done = child([*command, "--json", target], env=arm.env, timeout=timeout)
        try:
            samples = json.loads(target.read_text())["samples"]
        except (OSError, ValueError):
            samples = []
    if not samples:
        said = done.stderr.strip().splitlines()
        raise RuntimeError(said[-1] if said else f"the process ended with {done.returncode}")
    return samples


class Progress:
    """A bar on a terminal, a line per round elsewhere."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bar

        self.console = Console()
        self.bar = Bar(
            TextColumn("{task.description:<44}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task("", total=total)

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def round(self, text: str) -> None:
        if not self.console.is_terminal:
            print(text, flush=True)

    def step(self, text: str) -> None:
        self.bar.update(self.task, description=text)

    def done(self) -> None:
        self.bar.advance(self.task)

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)


@dataclass
class Plan:
    """What is measured: each row on each arm, once in each round.

    `measure(arm, row, turn)` takes one sample, in a process of its own, and returns it as perf/schema.json's
    samples; what it raises (Exception) becomes `failure(row, text)`, one or more failed samples. `runs` says
    whether an arm has the row.
    """

    tool: str
    arms: list[Arm]
    rows: list[Any]
    rounds: int
    out: Path
    args: dict[str, Any]
    measure: Callable[[Arm, Any, int], list[dict]]
    failure: Callable[[Any, str], list[dict]]
    label: Callable[[Any], str] = str
    runs: Callable[[Arm, Any], bool] = lambda arm, row: True
    packages: dict[str, str] = field(default_factory=dict)
    samples: dict[str, list[dict]] = field(default_factory=dict)

    def files(self) -> list[Path]:
        """The results' files, one for each arm that has samples."""
        return [self.out / f"{file_name(arm.name)}.json" for arm in self.arms if self.samples.get(arm.name)]

    def write(self) -> None:
        """Write each arm's object as it is now."""
        for arm in self.arms:
            samples = self.samples.get(arm.name)
            if samples:
                shown = {**self.args, "env": arm.env, "env_removed": environment.unclean(os.environ)}
                more = {"packages": self.packages} if self.packages else {}
                document = report.document(self.tool, arm.name, shown, samples, **more)
                report.write(self.out / f"{file_name(arm.name)}.json", document)


def _take(plan: Plan, arm: Arm, row: Any, turn: int) -> list[dict]:
    try:
        found = plan.measure(arm, row, turn)
    except Exception as error:  # a row that breaks is counted, and the others go on
        found = plan.failure(
            row, f"{type(error).__name__}: {error}" if not isinstance(error, RuntimeError) else str(error)
        )
    return [{**sample, "round": turn} for sample in found]


def run(plan: Plan) -> int:
    """Take all samples, within stoppable(); 0, or STOPPED after a signal. Either way the files hold what was
    measured."""
    steps = [(row, arm) for row in plan.rows for arm in plan.arms if plan.runs(arm, row)]
    told: set[tuple[str, str]] = set()
    try:
        with Progress(len(steps) * plan.rounds) as progress:
            for turn in range(plan.rounds):
                names = ", ".join(arm.name for arm in plan.arms)
                progress.round(f"round {turn + 1} of {plan.rounds}: {len(plan.rows)} rows over {names}")
                for place, row in enumerate(plan.rows):
                    for arm in arms_.rotated([arm for arm in plan.arms if plan.runs(arm, row)], turn + place):
                        progress.step(f"{turn + 1}/{plan.rounds} {plan.label(row)} on {arm.name}")
                        found = _take(plan, arm, row, turn)
                        plan.samples.setdefault(arm.name, []).extend(found)
                        progress.done()
                        bad = next((sample for sample in found if not sample["ok"]), None)
                        if bad and (arm.name, plan.label(row)) not in told:
                            told.add((arm.name, plan.label(row)))
                            progress.say(f"{plan.label(row)} on {arm.name}: {bad['kind']}: {bad['error']}")
                plan.write()
    except Stopped as signal_name:
        plan.write()
        print(f"stopped by {signal_name}; what was measured until then is in {plan.out}", file=sys.stderr)
        return STOPPED
    return 0


def exit_code(plan: Plan, code: int) -> int:
    """A run's exit code: STOPPED, 1 when nothing could be measured, else 0."""
    good = any(sample["ok"] for samples in plan.samples.values() for sample in samples)
    return code or (0 if good else 1)


def prepare(args: argparse.Namespace, wanted: list[Arm]) -> list[Arm]:
    """Pin the process as asked and make the arms' builds; all before anything is measured."""
    if args.cpus:
        os.sched_setaffinity(0, args.cpus)
    return builds.resolve(wanted, allow_debug=args.allow_debug)


def new_folder(args: argparse.Namespace, name: str) -> Path:
    """The folder for the results, made now: a place that cannot be written shows before anything is
    measured."""
    out = args.out or report.ROOT / "out" / time.strftime(f"{name}-%Y%m%d-%H%M%S")
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / f".{os.getpid()}.{threading.get_ident()}"
        probe.write_text("{}")
        probe.unlink()
    except OSError as error:
        options.refuse("--out", str(error))
    return out
