"""Rows of lookups: names and numbers, one after the other and at once, with a busy executor and a blocked
resolver."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import loops
import report
from rows import Measured, Options, Unsupported, calibrated, loop_row, row

NUMERIC = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
AT_ONCE = 32
BURST = 1000
BUSY_JOBS = min(32, (os.cpu_count() or 1) + 4)  # one for each worker of a default executor


async def _forward(loop) -> None:
    await loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)


async def _reverse(loop) -> None:
    await loop.getnameinfo(("127.0.0.1", 80), NUMERIC)


async def _numeric(loop) -> None:
    await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)


async def _numeric_host(loop) -> None:
    await loop.getaddrinfo("127.0.0.1", 80, flags=socket.AI_NUMERICHOST)


async def _numeric_native(loop) -> None:
    # What this flag means depends on the machine's interfaces, so libc has to be asked.
    await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)


def _run(loop, ask, n: int, at_once: int = 1) -> None:
    async def one_after_the_other(count: int) -> None:
        for _ in range(count):
            await ask(loop)

    async def main() -> None:
        await asyncio.gather(*[one_after_the_other(n // at_once) for _ in range(at_once)])

    loop.run_until_complete(main())


@loop_row("dns_forward", "forward localhost, sequential", step=50, part="C")
def dns_forward(loop, n: int) -> None:
    _run(loop, _forward, n)


@loop_row("dns_forward_32", "forward localhost, 32 concurrent", step=AT_ONCE * 5, part="C")
def dns_forward_32(loop, n: int) -> None:
    _run(loop, _forward, n, AT_ONCE)


@row("dns_rate_32", "forward localhost, 32 concurrent, rate", unit="lookups/s", part="C")
def dns_rate_32(options: Options):
    loop = loops.factory(options.loop)()
    try:
        for m in calibrated(lambda n: _run(loop, _forward, n, AT_ONCE), options, AT_ONCE * 5):
            yield Measured(m.ops, m.wall_us, m.cpu_us, 1e6 / m.wall_us)
    finally:
        loops.release(loop)


@loop_row("dns_reverse", "reverse numeric, sequential", step=50, part="C")
def dns_reverse(loop, n: int) -> None:
    _run(loop, _reverse, n)


@loop_row("dns_reverse_32", "reverse numeric, 32 concurrent", step=AT_ONCE * 5, part="C")
def dns_reverse_32(loop, n: int) -> None:
    _run(loop, _reverse, n, AT_ONCE)


@loop_row("dns_numeric", "numeric host, fast path", step=500, part="C")
def dns_numeric(loop, n: int) -> None:
    _run(loop, _numeric, n)


@loop_row("dns_numeric_host", "numeric host, AI_NUMERICHOST, no type", step=50, part="C")
def dns_numeric_host(loop, n: int) -> None:
    _run(loop, _numeric_host, n)


@loop_row("dns_numeric_native", "numeric host that libc has to answer", step=50, part="C")
def dns_numeric_native(loop, n: int) -> None:
    _run(loop, _numeric_native, n)


@row("dns_busy", "latency with all executor workers busy", unit="ms wall", part="C", whole=True)
def dns_busy(options: Options):
    nap_s = 0.02 if options.smoke else 0.2

    async def main() -> float:
        loop = asyncio.get_running_loop()
        await _forward(loop)
        busy = [loop.run_in_executor(None, time.sleep, nap_s) for _ in range(BUSY_JOBS)]
        begin = time.perf_counter()
        await _forward(loop)
        took = time.perf_counter() - begin
        await asyncio.gather(*busy)
        return took

    for _ in range(options.warmup + options.samples):
        ms = loops.run(options.loop, main()) * 1e3
        yield Measured(1, ms * 1e3, 0, ms)


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _burst(options: Options, figure):
    async def main() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        begin = time.perf_counter()
        await asyncio.gather(*[_forward(loop) for _ in range(BURST)])
        return time.perf_counter() - begin, _threads() - 1

    for _ in range(options.warmup + options.samples):
        cpu = time.process_time_ns()
        took, threads = loops.run(options.loop, main())
        cpu = time.process_time_ns() - cpu
        yield Measured(
            BURST, took * 1e6 / BURST, cpu / 1e3 / BURST, figure(took, threads), {"threads": threads}
        )


@row("dns_burst", "burst of 1,000 on a new loop", unit="ms wall", part="C", whole=True)
def dns_burst(options: Options):
    yield from _burst(options, lambda took, threads: took * 1e3)


@row("dns_burst_threads", "threads that a burst of 1,000 starts", unit="threads", part="C", whole=True)
def dns_burst_threads(options: Options):
    yield from _burst(options, lambda took, threads: float(threads))


# With the project's own blocked resolver, in a process of its own.

_CHILD = """
import asyncio, ctypes, sys, time
sys.path.insert(0, {here!r})
import loops
resolver = ctypes.CDLL(None)
loop = loops.factory({loop!r})()
async def ask():
    for _ in range({count}):
        asyncio.ensure_future(loop.getaddrinfo("localhost", 80))._log_destroy_pending = False
    inside, begin = -1, time.monotonic()
    while (
        resolver.resolver_inside() == 0
        or resolver.resolver_inside() > inside
        or time.monotonic() < begin + 0.05
    ):
        inside = resolver.resolver_inside()
        await asyncio.sleep(0.01)
loop.run_until_complete(ask())
inside = resolver.resolver_inside()
begin = time.monotonic()
loop.close()
print(inside, begin, time.monotonic(), flush=True)
"""


@functools.cache
def resolver_library() -> Path:
    """The preload library of tests/preload, built into a folder that lives as long as this process."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Unsupported("no C compiler for the blocked resolver")
    folder = tempfile.TemporaryDirectory(prefix="treadle-resolver-")
    resolver_library.folder = folder
    library = Path(folder.name) / "libresolver.so"
    subprocess.run(
        [
            compiler,
            "-std=gnu11",
            "-D_GNU_SOURCE",
            "-O1",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-I",
            str(report.ROOT / "libs/base/include"),
            str(report.ROOT / "tests/preload/resolver.c"),
            "-o",
            str(library),
            "-ldl",
        ],
        check=True,
    )
    return library


def _close_blocked(
    options: Options, lookups: int, sleep_ms: int, wait_for_exit: bool
) -> tuple[float, float, float]:
    """Close a loop while libc sleeps: lookups inside libc then, ms that close took, ms until the process had
    ended."""
    code = _CHILD.format(here=str(Path(__file__).parent), loop=options.loop, count=lookups)
    environment = {**os.environ, "LD_PRELOAD": str(resolver_library()),
                   "TDL_RESOLVER_SLEEP_MS": str(100 if options.smoke else sleep_ms)}
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        with child:
            said = child.stdout.readline().split()
            if not wait_for_exit:
                child.kill()
        ended = time.monotonic()
        if len(said) != 3 or (wait_for_exit and child.returncode):
            errors.seek(0)
            raise RuntimeError(
                (errors.read().strip().splitlines() or [f"it ended with {child.returncode}"])[-1]
            )
    inside, begin, closed = map(float, said)
    return inside, (closed - begin) * 1e3, (ended - closed) * 1e3


def _blocked(options: Options, which: int, lookups: int, sleep_ms: int, wait_for_exit: bool = False):
    for _ in range(options.warmup + options.samples):
        found = _close_blocked(options, lookups, sleep_ms, wait_for_exit)
        yield Measured(1, found[1] * 1e3, 0, found[which], {"close_ms": found[1]})


@row("dns_close", "close() while libc sleeps 10 s", unit="ms wall", part="C", whole=True, fresh=True)
def dns_close(options: Options):
    yield from _blocked(options, 1, 2, 10_000)


@row(
    "dns_exit",
    "process exit after close() while libc sleeps 2 s",
    unit="ms wall",
    part="C",
    whole=True,
    fresh=True,
)
def dns_exit(options: Options):
    yield from _blocked(options, 2, 2, 2_000, wait_for_exit=True)


@row("dns_executing", "lookups executing at once", unit="lookups at once", part="C", whole=True, fresh=True)
def dns_executing(options: Options):
    yield from _blocked(options, 0, 2 * BUSY_JOBS, 500)
