"""Rows that are not time per operation: memory of a timer, and the cost of starting at all."""

from __future__ import annotations

import gc
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import loops
from rows import Measured, Options, row

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int | str = "self") -> int:
    """Bytes of memory the process has in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def _nothing() -> None:
    return None


def _hold_timers(loop_name: str, count: int) -> Measured:
    loop = loops.factory(loop_name)()
    held: list = [None] * count
    loop.call_soon(loop.stop)
    loop.run_forever()
    for handle in [loop.call_later(3600, _nothing) for _ in range(1_000)]:
        handle.cancel()
    gc.collect()
    before = resident()
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    later = loop.call_later
    for i in range(count):
        held[i] = later(3600 + i % 1000, _nothing)
    cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    after = resident()
    for handle in held:
        handle.cancel()
    loop.close()
    return Measured(count, wall / 1e3 / count, cpu / 1e3 / count, (after - before) / count)


def print_held(loop_name: str, count: int) -> None:
    """Measure in this process and print it: the child's half of the row below."""
    m = _hold_timers(loop_name, count)
    print(m.wall_us, m.cpu_us, m.value)


@row("timer_bytes", "bytes per pending timer", unit="bytes", whole=True, fresh=True)
def timer_bytes(options: Options):
    # Each sample in a fresh process: memory that an earlier sample freed would be taken for nothing.
    count = 5_000 if options.smoke else 200_000
    code = f"import rows_footprint; rows_footprint.print_held({options.loop!r}, {count})"
    for _ in range(options.warmup + options.samples):
        done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent,
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        wall, cpu, value = map(float, done.stdout.split())
        yield Measured(count, wall, cpu, value)


@row("startup", "import, new loop, close", unit="ms wall", whole=True, fresh=True)
def startup(options: Options):
    source = f"import asyncio, {options.loop}; {options.loop}.new_event_loop().close()"
    repeats = 1 if options.smoke else 9
    for _ in range(options.warmup + options.samples):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        walls = []
        for _ in range(repeats):
            begin = time.perf_counter_ns()
            subprocess.run([sys.executable, "-c", source], check=True)
            walls.append(time.perf_counter_ns() - begin)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        # The median: what a neighbour adds to one start is ten times what the loops differ by.
        wall = statistics.median(walls)
        yield Measured(repeats, wall / 1e3, cpu * 1e6 / repeats, wall / 1e6)
