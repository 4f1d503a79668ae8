#!/usr/bin/env python3
"""A service on several loops, side by side: each kind of request under load, arms in rotated order.

Per row and loop: requests/s, latency at the 50th and 99th percentile, CPU-ms of the service and, where a
PostgreSQL can be asked, new sessions per 1,000 requests. Rows disturbed by other processes are measured
again, and marked if they stay so. The service is perf/bench/services/builtin.toml, or that of --config
(docs/measure-your-service.md).
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import arms
import comparison
import harness
import options
import quiet
import rounds
import run
import service_config
import service_process
from service_config import Config, Request

DEFAULT_ARMS = ["treadle", "uvloop", "rsloop", "asyncio"]
PACKAGES = (
    "granian",
    "litestar",
    "uvicorn",
    "fastapi",
    "sqlalchemy",
    "asyncpg",
    "redis",
    "nats-py",
    "treadle",
    "uvloop",
    "rsloop",
    "rloop",
)
FIGURES = {
    "rate": "requests/s",
    "cpu": "cpu ms per 1,000",
    "sessions": "new sessions per 1,000",
    "p50": "ms",
    "p99": "ms",
}
WARMUP = 0.25
MIX = "mix"


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    number = options.number
    parser = options.Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=options.existing, default=service_config.BUILTIN, metavar="FILE",
                        help="TOML file of the service; default: the built-in one")
    parser.add_argument("--arms", help=f"{arms.HELP}; default: {', '.join(DEFAULT_ARMS)}")
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        metavar="PATTERN",
        help="kinds of request, repeatable; default: all",
    )
    parser.add_argument("--concurrency", type=options.numbers(1, 10000), default=[16, 64],
                        help="requests at once, comma-separated, each 1 to 10000 (16,64)")
    rounds.add_arguments(parser)
    parser.add_argument(
        "--seconds", type=number(float, 0.1, 3600), default=5, help="length of a row, 0.1 to 3600 (5)"
    )
    parser.add_argument("--load", choices=["auto", "oha", "wrk"], default="auto", help="load generator")
    parser.add_argument("--foreign", type=number(float, 0, 1024), default=quiet.LIMIT,
                        help=f"cores of foreign CPU beyond which a row is noisy, 0 to 1024 ({quiet.LIMIT})")
    parser.add_argument(
        "--again",
        type=number(int, 0, 100),
        default=2,
        help="how often a noisy row is measured again, 0 to 100 (2)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="2 rounds of short rows, noisy ones kept: about 5 minutes"
    )
    parser.add_argument("--smoke", action="store_true", help="one short round: does it run at all")
    parser.add_argument(
        "--control", action="store_true", help="add treadle#2, the same loop as its own control"
    )
    given = parser.parse_args(argv)
    if given.quick:
        parser.set_defaults(rounds=2, seconds=2, again=0)
    if given.smoke:
        parser.set_defaults(rounds=1, seconds=1, again=0, concurrency=[4])
    return parser.parse_args(argv)


def choose_arms(args: argparse.Namespace) -> list[arms.Arm]:
    """The arms asked for; of the default ones those that can run."""
    names = args.arms.split(",") if args.arms else list(DEFAULT_ARMS)
    names += ["treadle#2"] if args.control else []
    return arms.present(arms.parse_all(",".join(names)), asked=bool(args.arms))


def cases(config: Config, patterns: list[str]) -> dict[str, list[Request]]:
    """The rows that match: each kind of request by itself, and their mix by weight where the file wants
    it."""
    found = {request.name: [request] for request in config.requests}
    if config.mix:
        found[MIX] = config.requests
    return {name: found[name] for name in options.matching(patterns, found)}


def title_of(name: str, requests: list[Request]) -> str:
    return requests[0].title or name if len(requests) == 1 else "all requests by weight"


def figures_of(config: Config) -> dict[str, str]:
    """The figures of a row; sessions only where there is a PostgreSQL to ask."""
    return {figure: unit for figure, unit in FIGURES.items() if figure != "sessions" or config.sessions}


def samples_of(name: str, title: str, connections: int, units: dict[str, str], **figures) -> list[dict]:
    """One sample per figure, or as many failed ones when `error` says why."""
    found = []
    for figure, unit in units.items():
        sample = {
            "case": f"{name}_c{connections}_{figure}",
            "title": f"{title} c{connections}: {figure}",
            "part": "service",
            "unit": unit,
        }
        if "error" in figures:
            sample |= {"ok": False, "kind": "failed", "error": figures["error"]}
        else:
            sample |= {"ok": True, "value": figures[figure],
                       **{key: figures[key] for key in ("ops", "wall_us", "cpu_us", "http", "extra")}}
            why = comparison.fault(sample)
            if why:
                for key in ("ops", "value", "wall_us", "cpu_us"):
                    del sample[key]
                sample |= {"ok": False, "kind": "failed", "error": why}
        found.append(sample)
    return found


def measure(
    running: service_process.Service,
    around: service_process.Servers,
    requests: list[Request],
    connections: int,
    args: argparse.Namespace,
) -> dict:
    """The figures of one row at one concurrency."""
    asks = running.config.sessions
    sessions = around.sessions() if asks else 0
    cpu = running.cpu_s()
    window = quiet.Window()
    seen = running.load(args.load, requests, connections, args.seconds)
    foreign = window.foreign()
    cpu = running.cpu_s() - cpu
    sessions = around.sessions() - sessions if asks else 0
    if not seen.requests:
        raise RuntimeError(f"no request was answered: {json.dumps(seen.http)}")
    per_op = 1 / seen.requests
    return {
        "rate": seen.requests / seen.seconds,
        "cpu": cpu * 1e6 * per_op,
        "sessions": sessions * 1e3 * per_op,
        "p50": seen.p50_ms,
        "p99": seen.p99_ms,
        "ops": seen.requests,
        "wall_us": seen.seconds * 1e6 * per_op,
        "cpu_us": cpu * 1e6 * per_op,
        "http": seen.http,
        "extra": {"foreign_cores": round(foreign, 3), "noisy": foreign > args.foreign},
    }


def measure_quietly(*row, args: argparse.Namespace) -> dict:
    """Measure, again while others disturb it; the quietest try counts."""
    tries = []
    for _ in range(args.again + 1):
        tries.append(measure(*row, args))
        if not tries[-1]["extra"]["noisy"]:
            break
    best = min(tries, key=lambda found: found["extra"]["foreign_cores"])
    best["extra"]["tries"] = len(tries)
    return best


def run_arm(
    config: Config,
    arm: arms.Arm,
    around: service_process.Servers,
    chosen: dict[str, list[Request]],
    turn: int,
    args: argparse.Namespace,
) -> list[dict]:
    """All rows of one round on one arm, on a service started for it."""
    units = figures_of(config)
    rows = [(name, connections) for name in chosen for connections in args.concurrency]
    found: list[dict] = []
    with service_process.service(config, arm, around) as running:
        for requests in chosen.values():
            running.load(args.load, requests, max(args.concurrency), args.seconds * WARMUP)
        for name, connections in arms.rotated(rows, turn):
            try:
                figures = measure_quietly(running, around, chosen[name], connections, args=args)
            except (OSError, RuntimeError, ValueError) as error:
                figures = {"error": f"{type(error).__name__}: {error}"}
            found += samples_of(name, title_of(name, chosen[name]), connections, units, **figures)
    order = list(units)
    return sorted(found, key=lambda sample: order.index(sample["case"].rpartition("_")[2]))


def failure(
    config: Config, chosen: dict[str, list[Request]], args: argparse.Namespace, error: str
) -> list[dict]:
    """A service that did not start, or ended early, leaves all of the round's rows failed."""
    return [
        sample
        for name, requests in chosen.items()
        for connections in args.concurrency
        for sample in samples_of(name, title_of(name, requests), connections, figures_of(config), error=error)
    ]


def packages() -> dict[str, str]:
    """Versions of what takes part."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    config = service_config.load(args.config)
    chosen = cases(config, args.case)
    try:
        args.load = harness.generator(args.load)
    except harness.Missing as error:
        options.refuse("--load", str(error))
    wanted = rounds.prepare(args, choose_arms(args))
    shown = {
        "config": args.config.name,
        "service": config.name,
        "rounds": args.rounds,
        "seconds": args.seconds,
        "concurrency": args.concurrency,
        "load": args.load,
        "foreign": args.foreign,
        "again": args.again,
        "pin": {name: sorted(cpus) for name, cpus in config.pin.items()},
    }
    out = rounds.new_folder(args, "service")
    try:
        with service_process.servers(config) as around:
            found = rounds.Plan(
                "service.py",
                wanted,
                [config.name],
                args.rounds,
                out,
                shown,
                measure=lambda arm, _, turn: run_arm(config, arm, around, chosen, turn, args),
                failure=lambda _, error: failure(config, chosen, args, error),
                packages=packages(),
            )
            code = rounds.run(found)
    except (harness.Missing, ModuleNotFoundError) as error:
        options.refuse(
            "--config", f"{error}; pip install -r perf/bench/requirements-service.txt has the packages"
        )
    code = run.finish(found, code)
    failed = any(not sample["ok"] for samples in found.samples.values() for sample in samples)
    return code or (1 if args.smoke and failed else 0)


if __name__ == "__main__":
    sys.exit(rounds.guarded(main))
