"""What the isolated scripts measure: descriptors, memory, the interpreter's blocks and the module's live
objects."""
import asyncio
import gc
import os
import sys

import twin

new_loop = twin.subject_loop


def rss_kib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


def count_fds():
    """Descriptors without the one ring that a loop opens when it first spins."""
    return len([name for name in twin.open_fds().values() if "io_uring" not in name])


class Usage:
    """Marked once warm, checked at the end."""

    def __init__(self):
        self.mark()

    def mark(self):
        gc.collect()
        self.fds, self.rss, self.alive = count_fds(), rss_kib(), twin.alive()
        self.blocks = sys.getallocatedblocks()

    def check(self, rss_kib, kept=0, blocks=None):
        """Fails if more is in use than at the mark; blocks are the objects of every type, whoever holds
        them."""
        gc.collect()
        in_use = sys.getallocatedblocks()
        fds, rss, alive = count_fds(), globals()["rss_kib"](), twin.alive()
        print(f"fds {self.fds} -> {fds}, rss {self.rss} -> {rss} KiB, blocks {self.blocks} -> {in_use}, "
              f"alive {self.alive} -> {alive}")
        assert fds <= self.fds, "descriptors left open"
        assert twin.SANITIZED or rss - self.rss <= rss_kib, "memory grows"
        assert blocks is None or in_use - self.blocks <= blocks, "blocks left"
        more = {k: v for k, v in alive.items() if v > self.alive.get(k, 0) + 2 + kept}
        assert not more, f"objects left: {more}"


def run(main):
    new_loop().close()
    before = twin.alive()  # what the module itself keeps, once it is loaded
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    gc.collect()
    left = {name: count for name, count in twin.alive().items() if count > before.get(name, 0)}
    assert not left or set(left) <= {"Signals"}, f"alive after the loop was closed: {left}"
    print("passed")
