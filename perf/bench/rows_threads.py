"""Rows that cross threads: call_soon_threadsafe, a threaded server's request, the executor."""

from __future__ import annotations

import queue
import threading

from rows import loop_row


@loop_row("threadsafe_pingpong", "call_soon_threadsafe ping-pong", step=200)
def threadsafe_pingpong(loop, n: int) -> None:
    asks: queue.SimpleQueue = queue.SimpleQueue()

    def resolve() -> None:
        while (future := asks.get()) is not None:
            loop.call_soon_threadsafe(future.set_result, None)

    async def main() -> None:
        for _ in range(n):
            future = loop.create_future()
            asks.put(future)
            await future

    other = threading.Thread(target=resolve)
    other.start()
    try:
        loop.run_until_complete(main())
    finally:
        asks.put(None)
        other.join()


@loop_row("threadsafe_flood", "call_soon_threadsafe flood", step=2_000)
def threadsafe_flood(loop, n: int) -> None:
    def nothing() -> None:
        return None

    def flood() -> None:
        for _ in range(n - 1):
            loop.call_soon_threadsafe(nothing)
        loop.call_soon_threadsafe(loop.stop)

    other = threading.Thread(target=flood)
    loop.call_soon(other.start)
    loop.run_forever()
    other.join()


class _Service:
    """A request as Granian makes it: a driver thread starts a coroutine, which awaits what another thread
    resolves."""

    def __init__(self, loop) -> None:
        self.loop = loop
        self.asks: queue.SimpleQueue = queue.SimpleQueue()

    async def handle(self, done: queue.SimpleQueue) -> None:
        future = self.loop.create_future()
        self.asks.put(future)
        await future
        done.put(None)

    def start(self, done: queue.SimpleQueue) -> None:
        self.loop.create_task(self.handle(done))

    def resolve(self) -> None:
        while (future := self.asks.get()) is not None:
            self.loop.call_soon_threadsafe(future.set_result, None)

    def drive(self, requests: int, finished) -> None:
        done: queue.SimpleQueue = queue.SimpleQueue()
        for _ in range(requests):
            self.loop.call_soon_threadsafe(self.start, done)
            done.get()
        self.loop.call_soon_threadsafe(finished)


def _granian(loop, n: int, drivers: int) -> None:
    service = _Service(loop)
    running = drivers

    def finished() -> None:
        nonlocal running
        running -= 1
        if not running:
            loop.stop()

    resolver = threading.Thread(target=service.resolve)
    threads = [threading.Thread(target=service.drive, args=(n // drivers, finished)) for _ in range(drivers)]
    resolver.start()
    loop.call_soon(lambda: [t.start() for t in threads])
    try:
        loop.run_forever()
    finally:
        service.asks.put(None)
        for thread in [*threads, resolver]:
            thread.join()


@loop_row("granian_1", "Granian-shaped request, 1 thread", step=200)
def granian_1(loop, n: int) -> None:
    _granian(loop, n, 1)


@loop_row("granian_4", "Granian-shaped request, 4 threads", step=200)
def granian_4(loop, n: int) -> None:
    _granian(loop, n, 4)


@loop_row("executor", "run_in_executor(None, int)", step=100)
def executor(loop, n: int) -> None:
    async def main() -> None:
        for _ in range(n):
            await loop.run_in_executor(None, int)

    loop.run_until_complete(main())
