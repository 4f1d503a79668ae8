#!/usr/bin/env python3
"""What a loop does to SQLAlchemy's connection pool behind threads, on any loop or on asyncio with another
turn.

Eight threads make requests of two queries. A query is handed to the loop by call_soon_threadsafe, takes a
connection of asyncpg out of a pool of 4 with 2 overflow, and puts it back; with --per-checkout 2 one
connection serves a request. With --arms, several loops are measured interleaved and compared.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import arms
import environment
import harness
import loops
import options
import report
import rounds
import run

# Waits on the server, as for a disk: what keeps the loop busy all the time bunches answers in any turn.
QUERY = "SELECT count(*) FROM pg_class, pg_sleep(0.003)"
CASES = {
    "churn_connections": ("connections opened, by pg_stat_database", "per 1,000 requests"),
    "churn_cpu": ("CPU of all threads per request", "cpu us/op"),
    "churn_rate": ("requests answered", "requests/s"),
}
TURNS = ("generation", "quiescent")


class ShapedLoop(asyncio.SelectorEventLoop):
    """asyncio's loop with another turn: to quiescence before it polls again, or spinning before it sleeps."""

    def __init__(self, quiescent: bool, spin_s: float) -> None:
        super().__init__()
        self._quiescent = quiescent
        self._spin_s = spin_s

    def _spin(self) -> bool:
        """Watch for callbacks from other threads, which get the GIL meanwhile; True if there are any."""
        until = time.monotonic() + self._spin_s
        while not self._ready and time.monotonic() < until:
            time.sleep(0)
        return bool(self._ready)

    def _settle(self) -> None:
        while not self._stopping and (self._ready or (self._spin_s and self._spin())):
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle._cancelled:
                    handle._run()

    def _run_once(self) -> None:
        if self._spin_s and not self._quiescent and not self._stopping:
            self._spin()
        super()._run_once()
        if self._quiescent:
            self._settle()


def factory(args: argparse.Namespace):
    """The loop asked for; other turns are made of asyncio's loop, or by the loop itself where it offers
    them."""
    make = loops.factory(args.loop)
    if args.turn == "generation" and not args.spin_us:
        return make
    if args.loop == "asyncio":
        return lambda: ShapedLoop(args.turn == "quiescent", args.spin_us / 1e6)

    def shaped():
        loop = make()
        if not hasattr(loop, "_shape_turns"):
            raise SystemExit(f"{args.loop} has one turn only; --turn and --spin-us work with asyncio")
        loop._shape_turns(args.turn == "quiescent")
        loop._set_spin(args.spin_us)
        return loop

    return shaped


class Churn:
    """One run: an engine, the threads that ask it, and what that took."""

    def __init__(self, args: argparse.Namespace, dsn: str) -> None:
        from sqlalchemy import event, text
        from sqlalchemy.ext.asyncio import create_async_engine

        self.args = args
        self.query = text(args.query)
        self.opened = 0
        self.answered = self.warm = 0
        self.begun: tuple[float, float, int] | None = None
        # Without TLS from the start: some loops cannot change a transport's protocol, which asyncpg's offer
        # of TLS needs.
        self.engine = create_async_engine(
            dsn.replace("postgresql://", "postgresql+asyncpg://"),
            pool_size=args.pool,
            max_overflow=args.overflow,
            connect_args={"ssl": False},
            isolation_level=None if args.transaction else "AUTOCOMMIT",
        )
        event.listen(self.engine.sync_engine.pool, "connect", self._count)

    def _count(self, *_) -> None:
        self.opened += 1

    async def ask(self, queries: int, ends: bool) -> None:
        """The part of a request that one connection serves."""
        async with self.engine.connect() as connection:
            for _ in range(queries):
                await connection.execute(self.query)
        self.answered += ends
        if ends and self.answered == self.warm:
            self.begun = time.monotonic(), time.process_time(), self.opened

    def drive(self, loop: asyncio.AbstractEventLoop, count: int, failed: list) -> None:
        try:
            for left in count * list(range(self.args.queries, 0, -self.args.per_checkout)):
                part = self.ask(min(left, self.args.per_checkout), left <= self.args.per_checkout)
                asyncio.run_coroutine_threadsafe(part, loop).result(60)
        except BaseException as error:
            failed.append(error)

    async def drivers(self, each: int) -> None:
        """Let each thread make `each` requests."""
        loop = asyncio.get_running_loop()
        done, failed = asyncio.Event(), []

        def drive() -> None:
            self.drive(loop, each, failed)
            loop.call_soon_threadsafe(ended)

        def ended() -> None:
            nonlocal running
            running -= 1
            if not running:
                done.set()

        running = self.args.threads
        threads = [threading.Thread(target=drive, daemon=True) for _ in range(running)]
        for thread in threads:
            thread.start()
        await done.wait()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    async def run(self, each: int) -> dict:
        """Warm up and measure without a pause, which would empty the pool; it is empty afterwards."""
        warm_each = each // 5 + 1
        self.warm = warm_each * self.args.threads
        try:
            await self.drivers(warm_each + each)
            wall, cpu, kept = self.begun
            wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        finally:
            await self.engine.dispose()
        return {"ops": each * self.args.threads, "wall_s": wall, "cpu_s": cpu, "kept": kept}


def measure(args: argparse.Namespace, server: harness.Postgres) -> list[dict]:
    """The samples of one run, or as many failed ones."""
    try:
        each = max(1, args.requests // args.threads)
        before = server.settled_sessions()
        churn = Churn(args, server.dsn())
        with asyncio.Runner(loop_factory=factory(args)) as runner:
            found = runner.run(churn.run(each))
        sessions = server.settled_sessions() - before
        if sessions != churn.opened:
            raise RuntimeError(
                f"the pool opened {churn.opened} connections, pg_stat_database counted {sessions}"
            )
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        return [{"case": case, "title": title, "unit": unit, "ok": False, "kind": "failed", "error": why}
                for case, (title, unit) in CASES.items()]
    ops = found["ops"]
    times = {"ops": ops, "wall_us": found["wall_s"] * 1e6 / ops, "cpu_us": found["cpu_s"] * 1e6 / ops}
    values = {"churn_connections": (sessions - found["kept"]) * 1e3 / ops, "churn_cpu": times["cpu_us"],
              "churn_rate": ops / found["wall_s"]}
    return [{"case": case, "title": title, "unit": unit, "ok": True, "value": values[case], **times}
            for case, (title, unit) in CASES.items()]


def packages() -> dict[str, str]:
    """Versions of what takes part."""
    from importlib import metadata

    found = {"python": sys.version.split()[0]}
    for name in ("sqlalchemy", "asyncpg", "treadle", "uvloop", "rsloop", "rloop"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@contextlib.contextmanager
def server_of(args: argparse.Namespace):
    """The server named by --server, else one of our own."""
    if args.server:
        port, _, database = args.server.partition("/")
        yield harness.Postgres(int(port), Path(), database=database or "service")
    else:
        with harness.postgres() as server:
            yield server


SHOWN = (
    "loop",
    "turn",
    "spin_us",
    "pool",
    "overflow",
    "threads",
    "requests",
    "queries",
    "per_checkout",
    "query",
    "transaction",
    "samples",
)


def write(args: argparse.Namespace, samples: list[dict], obeyed: dict[str, str]) -> dict:
    shown = {name: getattr(args, name) for name in SHOWN}
    document = report.document(
        "pool_churn.py", args.arm or args.loop, {**shown, "environment": obeyed}, samples, packages=packages()
    )
    if args.json:
        report.write(args.json, document)
    return document


def run_here(args: argparse.Namespace) -> int:
    """All samples on one loop, in this process."""
    samples: list[dict] = []
    loops.factory(args.loop)
    if args.cpus:
        os.sched_setaffinity(0, args.cpus)
    obeyed = environment.warn()
    try:
        with server_of(args) as server:
            for turn in range(args.samples):
                for sample in measure(args, server):
                    samples.append({**sample, "round": turn})
    finally:
        document = write(args, samples, obeyed)
    if args.json != "-":
        for case, fold in document["summary"].items():
            if fold["n"]:
                print(
                    f"{case:<18} {fold['median']:10.2f} {fold['unit']}   ({fold['min']:.2f} to {fold['max']:.2f})"
                )
        for sample in samples:
            if not sample["ok"]:
                print(f"{sample['case']}: {sample['error']}", file=sys.stderr)
    return 0 if all(sample["ok"] for sample in samples) else 1


def shape_of(name: str) -> list[str]:
    """The options of an arm LOOP[/TURN[/SPIN_US]]."""
    loop, _, rest = name.partition("/")
    turn, _, spin_us = rest.partition("/")
    return ["--loop", arms.parse(loop).loop, "--turn", turn or "generation", "--spin-us", spin_us or "0"]


def command_of(name: str, args: argparse.Namespace, server: harness.Postgres) -> list[str]:
    """The process that takes one sample of an arm; the arm `C/...` is the tool in C."""
    asked = [
        "--pool",
        args.pool,
        "--overflow",
        args.overflow,
        "--threads",
        args.threads,
        "--requests",
        args.requests,
        "--queries",
        args.queries,
        "--per-checkout",
        args.per_checkout,
        "--query",
        args.query,
        "--samples",
        1,
        "--arm",
        name,
    ]
    if name.partition("/")[0] == "C":
        tool = next(
            (
                path
                for path in (
                    report.ROOT / "build" / build / "cli" / "pool_churn"
                    for build in ("release", "bench-tools")
                )
                if path.exists()
            ),
            "pool_churn",
        )
        command = [args.tool or tool, "--dsn", server.dsn(), "--warmup", 0, *shape_of(name)[2:]]
    else:
        command = [
            sys.executable,
            Path(__file__).resolve(),
            "--server",
            f"{server.port}/{server.database}",
            *shape_of(name),
        ]
        command += ["--transaction"] if args.transaction else []
    return [str(part) for part in [*command, *asked]]


def available(name: str) -> bool:
    """Whether an arm's loop is installed; the tool in C builds its rows itself."""
    loop = name.partition("/")[0]
    return loop == "C" or arms.installed(arms.parse(loop))


def failure(error: str) -> list[dict]:
    return [{"case": case, "title": title, "unit": unit, "ok": False, "kind": "failed", "error": error}
            for case, (title, unit) in CASES.items()]


def run_arms(args: argparse.Namespace) -> int:
    """Rounds over all arms, one server for all; then the comparison."""
    names = list(dict.fromkeys(args.arms.split(",")))
    missing = [name for name in names if not available(name)]
    if missing:
        options.refuse("--arms", f"not installed here: {', '.join(missing)}")
    chosen = [arms.Arm(name, name, arms.parse(name.partition("/")[0]).env) for name in names]
    if args.cpus:
        os.sched_setaffinity(0, args.cpus)
    shown = {key: getattr(args, key) for key in (*SHOWN, "rounds")}
    with server_of(args) as server:
        found = rounds.Plan(
            "pool_churn.py",
            chosen,
            [None],
            args.rounds,
            rounds.new_folder(args, "churn"),
            shown,
            measure=lambda arm, _, turn: rounds.tool_sample(
                command_of(arm.name, args, server), arm, args.timeout
            ),
            failure=lambda _, error: failure(error),
            label=lambda _: "all rows",
            packages=packages(),
        )
        code = rounds.run(found)
    return run.finish(found, code)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    number = options.number
    parser = options.Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--loop", default="treadle", help="module of the loop, or module:factory")
    parser.add_argument("--arm", help="name of the loop in the figures")
    parser.add_argument(
        "--arms",
        help="measure and compare several, each LOOP[/TURN[/SPIN_US]]; C/TURN/SPIN_US is cli/pool_churn",
    )
    parser.add_argument("--turn", choices=TURNS, default="generation", help="shape of the loop's turn")
    parser.add_argument("--spin-us", type=number(int, 0, 1000000), default=0,
                        help="how long the loop watches for callbacks before it sleeps, 0 to 1000000 us (0)")
    parser.add_argument(
        "--pool", type=number(int, 1, 1000), default=4, help="connections kept, 1 to 1000 (4)"
    )
    parser.add_argument(
        "--overflow", type=number(int, 0, 1000), default=2, help="connections beyond those, 0 to 1000 (2)"
    )
    parser.add_argument(
        "--threads",
        type=number(int, 1, 1000),
        default=8,
        help="threads, one request each at a time, 1 to 1000 (8)",
    )
    parser.add_argument(
        "--requests",
        type=number(int, 1, 100000000),
        default=4000,
        help="requests per sample, 1 to 100000000 (4000)",
    )
    parser.add_argument(
        "--queries", type=number(int, 1, 1000), default=2, help="queries per request, 1 to 1000 (2)"
    )
    parser.add_argument("--query", default=QUERY, help="what is asked")
    parser.add_argument("--per-checkout", type=number(int, 1, 1000), default=1,
                        help="queries that are posted together and asked on one connection, 1 to 1000 (1)")
    parser.add_argument(
        "--transaction",
        action="store_true",
        help="BEGIN and ROLLBACK around the queries of a connection, which the tool in C lacks",
    )
    parser.add_argument(
        "--samples", type=number(int, 1, 1000000), default=5, help="samples on one loop, 1 to 1000000 (5)"
    )
    rounds.add_arguments(parser)
    parser.add_argument(
        "--server", metavar="PORT/DATABASE", help="a server that harness.py started; default: one of its own"
    )
    parser.add_argument(
        "--tool", type=options.existing, metavar="FILE", help="path of cli/pool_churn for the arms C/..."
    )
    parser.add_argument(
        "--json",
        type=options.output,
        metavar="FILE",
        help="write the JSON object there; - for standard output",
    )
    parser.add_argument("--smoke", action="store_true", help="a few requests, once: does it run at all")
    args = parser.parse_args(argv)
    if args.server is not None and not re.fullmatch(r"\d{1,5}(/\w+)?", args.server):
        options.refuse("--server", f"PORT or PORT/DATABASE, got {args.server!r}")
    if args.query.strip() == "":
        options.refuse("--query", "a statement that the server understands, got nothing")
    if args.smoke:
        args.requests, args.samples, args.rounds = 80, 1, 1
    return args


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    try:
        return run_arms(args) if args.arms else run_here(args)
    except harness.Missing as error:
        options.refuse("--server", str(error))


if __name__ == "__main__":
    sys.exit(rounds.guarded(main))
