"""The full service on treadle under 64 connections for ten minutes, while PostgreSQL is restarted twice and
NATS killed
once: every request is answered or fails with an error status, none hangs, and the workers' memory stays flat.
TREADLE_SOAK_SECONDS shortens it."""
import asyncio
import collections
import os
import pathlib
import signal
import statistics
import sys
import time

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "perf" / "bench"
sys.path.insert(0, str(BENCH))

aiohttp = pytest.importorskip("aiohttp")
for package in ("granian", "litestar", "sqlalchemy", "asyncpg", "redis", "nats"):
    pytest.importorskip(package)

import arms  # noqa: E402
import service_config  # noqa: E402
import service_process  # noqa: E402

CONFIG = service_config.load(service_config.BUILTIN)
PATHS = [request.path for request in CONFIG.requests]

SECONDS = float(os.environ.get("TREADLE_SOAK_SECONDS", "600"))
CONNECTIONS = 64
# Longer than any time-out within the service: a request that takes longer hangs.
HANG_S = 60

pytestmark = [pytest.mark.soak, pytest.mark.timeout(SECONDS + 300)]


def memory_kb(session):
    """Resident memory of the service's workers, its largest processes."""
    found = []
    for folder in os.listdir("/proc"):
        if folder.isdigit():
            try:
                fields = pathlib.Path("/proc", folder, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session:
                found.append(int(fields[21]) * os.sysconf("SC_PAGE_SIZE") // 1024)
    return sum(found)


class Soak:
    """The requests of one soak and what became of them."""

    def __init__(self, running, servers):
        self.running = running
        self.servers = servers
        self.until = time.monotonic() + SECONDS
        self.status = collections.Counter()
        self.broken = collections.Counter()
        self.last_good = dict.fromkeys(PATHS, 0.0)
        self.memory = []

    async def ask(self, client, number):
        names = PATHS
        turn = number
        while time.monotonic() < self.until:
            name = names[turn % len(names)]
            turn += 1
            try:
                async with client.get(self.running.url(name)) as answer:
                    await answer.read()
                    self.status[answer.status] += 1
                    if answer.status == 200:
                        self.last_good[name] = time.monotonic()
            except asyncio.TimeoutError:
                self.broken["no answer in time"] += 1
            except aiohttp.ClientError as error:
                self.broken[type(error).__name__] += 1

    async def watch(self):
        while time.monotonic() < self.until:
            self.memory.append(memory_kb(self.running.session))
            await asyncio.sleep(min(5, SECONDS / 40))

    async def disturb(self):
        """PostgreSQL restarts at a quarter and at a half of the time, NATS is killed at three eighths and
        comes back."""
        steps = [
            (0.25, self.servers.postgres.restart),
            (0.375, lambda: self.servers.nats.stop(signal.SIGKILL)),
            (0.45, self.servers.nats.start),
            (0.5, self.servers.postgres.restart),
        ]
        begin = time.monotonic()
        for share, step in steps:
            await asyncio.sleep(begin + share * SECONDS - time.monotonic())
            await asyncio.to_thread(step)

    async def run(self):
        timeout = aiohttp.ClientTimeout(total=HANG_S)
        connector = aiohttp.TCPConnector(limit=CONNECTIONS)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as client:
            async with asyncio.TaskGroup() as group:
                for number in range(CONNECTIONS):
                    group.create_task(self.ask(client, number))
                group.create_task(self.watch())
                group.create_task(self.disturb())


def test_the_service_outlives_its_servers_restarts_without_a_hang_and_in_flat_memory(capsys):
    with service_process.servers(CONFIG) as servers:
        with service_process.service(CONFIG, arms.parse("treadle"), servers) as running:
            soak = Soak(running, servers)
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                runner.run(soak.run())
    with capsys.disabled():
        print(
            f"\nservice soak: {dict(soak.status)}, {dict(soak.broken)}, memory {soak.memory[:3]} .. {soak.memory[-3:]} KiB"
        )
    assert not soak.broken
    assert soak.status[200] > CONNECTIONS * len(PATHS)
    assert set(soak.status) <= {200, 500, 503}
    late = time.monotonic() - 0.25 * SECONDS - HANG_S
    assert all(good > late for good in soak.last_good.values()), soak.last_good
    third = len(soak.memory) // 3
    middle, end = statistics.median(soak.memory[third:2 * third]), statistics.median(soak.memory[-third:])
    assert end < 1.1 * middle + 4096, soak.memory
