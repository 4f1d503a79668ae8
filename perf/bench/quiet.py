#!/usr/bin/env python3
"""How much CPU processes other than the measured ones take: foreign CPU over a window, in cores.

As a program: watch for a while and say whether the machine is quiet enough to measure (exit code 1 if it is
not).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
# What a row may be disturbed by before it is measured again, in cores.
LIMIT = 0.15


def busy_s() -> float:
    """CPU seconds the whole machine was busy since it started; what the hypervisor took away counts too."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _wait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / TICK


def _processes() -> dict[int, tuple[int, int, float, float]]:
    """Of each process: parent, session, CPU seconds of its own, CPU seconds of children it has reaped."""
    found = {}
    for folder in os.listdir("/proc"):
        if folder.isdigit():
            try:
                fields = Path("/proc", folder, "stat").read_text().rpartition(")")[2].split()
            except (OSError, ValueError):
                continue
            own, reaped = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
            found[int(folder)] = (int(fields[1]), int(fields[3]), own / TICK, reaped / TICK)
    return found


def tree_s(root: int) -> float:
    """CPU seconds of a process, of its living descendants, and of those they have reaped."""
    processes = _processes()
    children: dict[int, list[int]] = {}
    for pid, (parent, *_) in processes.items():
        children.setdefault(parent, []).append(pid)
    total, left = 0.0, [root]
    while left:
        pid = left.pop()
        if pid in processes:
            total += processes[pid][2] + processes[pid][3]
        left += children.get(pid, [])
    return total


def session_s(leader: int) -> float:
    """CPU seconds of all processes of a session, and of those they have reaped."""
    return sum(own + reaped for _, session, own, reaped in _processes().values() if session == leader)


def session_members(leader: int) -> list[int]:
    """The processes of a session, and those that began as descendants of its leader in sessions of their
    own."""
    processes = _processes()
    found = {pid for pid, (_, session, *_) in processes.items() if session == leader}
    while more := {pid for pid, (parent, *_) in processes.items() if parent in found} - found:
        found |= more
    return sorted(found)


class Window:
    """From its making on: what was used by others than `root` and its descendants."""

    def __init__(self, root: int | None = None) -> None:
        self.root = os.getpid() if root is None else root
        self.started = time.monotonic()
        self.busy, self.own = busy_s(), tree_s(self.root)

    def foreign(self) -> float:
        """Cores that foreign processes took on average since the window began."""
        elapsed = time.monotonic() - self.started
        own = tree_s(self.root) - self.own
        return max(0.0, (busy_s() - self.busy - own) / elapsed) if elapsed > 0 else 0.0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5, help="length of the window")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, help="cores beyond which the machine is not quiet"
    )
    args = parser.parse_args(argv)
    window = Window()
    time.sleep(args.seconds)
    foreign = window.foreign()
    quiet = foreign <= args.limit
    print(f"{foreign:.2f} cores of foreign CPU over {args.seconds:g} s: {'quiet' if quiet else 'noisy'}")
    return 0 if quiet else 1


if __name__ == "__main__":
    sys.exit(main())
