"""Rows of the scheduler: callbacks, timers, tasks and futures in one thread."""

from __future__ import annotations

import asyncio
import ctypes
import os
import statistics
import threading
import time

import loops
from rows import Measured, Options, loop_row, row


def _nothing() -> None:
    return None


def _run_chain(loop, n: int) -> None:
    left = n

    def link() -> None:
        nonlocal left
        left -= 1
        if left:
            loop.call_soon(link)
        else:
            loop.stop()

    loop.call_soon(link)
    loop.run_forever()


@loop_row("chain", "call_soon chain, one thread alive", step=2_000)
def chain(loop, n: int) -> None:
    _run_chain(loop, n)


@loop_row("chain_thread", "call_soon chain, another Python thread alive", step=2_000)
def chain_thread(loop, n: int) -> None:
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        _run_chain(loop, n)
    finally:
        done.set()
        other.join()


def _fine_sleep() -> None:
    """Ask the kernel for 1 ns of timer slack in this thread, so that a sleep's overshoot is the wait for the
    GIL."""
    ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)


def _queued_us(schedstat: int) -> float:
    """How long this thread has been runnable without a processor so far."""
    return int(os.pread(schedstat, 100, 0).split()[1]) / 1e3


def _probe(loop, probes: int, delays: list[float]) -> None:
    _fine_sleep()
    schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    for _ in range(probes):
        queued = _queued_us(schedstat)
        before = time.perf_counter_ns()
        time.sleep(0.001)
        late = (time.perf_counter_ns() - before) / 1e3 - 1000
        # What other processes kept this thread from is not the loop's doing.
        delays.append(max(0.0, late - (_queued_us(schedstat) - queued)))
    os.close(schedstat)
    loop.call_soon_threadsafe(loop.stop)


def _chain_beside_probe(loop, probes: int) -> Measured:
    links = 0
    delays: list[float] = []

    def link() -> None:
        nonlocal links
        links += 1
        loop.call_soon(link)

    other = threading.Thread(target=_probe, args=(loop, probes, delays))
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    handle = loop.call_soon(link)
    other.start()
    loop.run_forever()
    cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    handle.cancel()
    other.join()
    delays.sort()
    extra = {
        "p99_us": delays[int(len(delays) * 0.99)],
        "max_us": delays[-1],
        "probes": len(delays),
        "links": links,
    }
    return Measured(links, wall / 1e3 / links, cpu / 1e3 / links, statistics.median(delays), extra)


@row(
    "gil_delay",
    "wait of another thread for the GIL beside a call_soon chain",
    unit="us wait, median",
    whole=True,
)
def gil_delay(options: Options):
    # A new loop for each sample: the chain's last link is still scheduled when the loop stops.
    probes = 10 if options.smoke else max(50, int(options.seconds * 500))
    for _ in range(options.warmup + options.samples):
        loop = loops.factory(options.loop)()
        try:
            yield _chain_beside_probe(loop, probes)
        finally:
            loop.close()


@loop_row("burst", "call_soon burst of 10,000", step=10_000)
def burst(loop, n: int) -> None:
    def schedule(left: int) -> None:
        soon = loop.call_soon
        for _ in range(9_999):
            soon(_nothing)
        if left > 10_000:
            soon(schedule, left - 10_000)
        else:
            soon(loop.stop)

    loop.call_soon(schedule, n)
    loop.run_forever()


@loop_row("timer_cancel", "timer armed and canceled", step=1_000)
def timer_cancel(loop, n: int) -> None:
    def schedule(left: int) -> None:
        later = loop.call_later
        for _ in range(1_000):
            later(30, _nothing).cancel()
        if left > 1_000:
            loop.call_soon(schedule, left - 1_000)
        else:
            loop.stop()

    loop.call_soon(schedule, n)
    loop.run_forever()


@loop_row("timer_expire", "timer that expires", step=1_000)
def timer_expire(loop, n: int) -> None:
    left = n
    fired = 0

    def schedule() -> None:
        later = loop.call_later
        for i in range(1_000):
            later(0.001 * (1 + i % 5), fire)

    def fire() -> None:
        nonlocal fired, left
        fired += 1
        if fired == 1_000:
            fired = 0
            left -= 1_000
            if left > 0:
                loop.call_soon(schedule)
            else:
                loop.stop()

    loop.call_soon(schedule)
    loop.run_forever()


@loop_row("task_sleep0", "task and sleep(0)", step=100)
def task_sleep0(loop, n: int) -> None:
    async def once() -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        create = loop.create_task
        for _ in range(n // 100):
            for task in [create(once()) for _ in range(100)]:
                await task

    loop.run_until_complete(main())


@loop_row("future_pingpong", "future ping-pong of two tasks", step=500)
def future_pingpong(loop, n: int) -> None:
    ball = [loop.create_future(), loop.create_future()]

    async def player(mine: int, other: int) -> None:
        for _ in range(n):
            await ball[mine]
            ball[mine] = loop.create_future()
            ball[other].set_result(None)

    async def main() -> None:
        both = [loop.create_task(player(0, 1)), loop.create_task(player(1, 0))]
        ball[0].set_result(None)
        for task in both:
            await task

    loop.run_until_complete(main())


@loop_row("timeout", "asyncio.timeout around a resolved await", step=1_000)
def timeout(loop, n: int) -> None:
    async def main() -> None:
        resolved = loop.create_future()
        resolved.set_result(None)
        for i in range(n):
            async with asyncio.timeout(30):
                await resolved
            if i % 1_000 == 999:
                await asyncio.sleep(0)

    loop.run_until_complete(main())
