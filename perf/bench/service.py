#!/usr/bin/env python3
"""The full service on several loops, side by side: each endpoint under load, arms in rotated order.

Per row and loop: requests/s, latency at the 50th and 99th percentile, CPU-ms of the service and new PostgreSQL
sessions per 1,000 requests. Rows disturbed by other processes are measured again, and marked if they stay so.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import arms
import comparison
import harness
import quiet
import report

DEFAULT_ARMS = ["treadle", "uvloop", "rsloop", "asyncio"]
PACKAGES = ("granian", "litestar", "sqlalchemy", "asyncpg", "redis", "nats-py", "treadle", "uvloop", "rsloop", "rloop")
FIGURES = {
    "rate": "requests/s",
    "cpu": "cpu ms per 1,000",
    "sessions": "new sessions per 1,000",
    "p50": "ms",
    "p99": "ms",
}
WARMUP = 0.25


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", help="comma-separated: LOOP, LOOP#2 (control), LOOP+mmap; default: treadle, uvloop, rsloop, asyncio")
    parser.add_argument("--case", action="append", default=[], metavar="PATTERN", help="endpoints; default: all")
    parser.add_argument("--concurrency", default="16,64", help="requests at once, comma-separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="length of a row")
    parser.add_argument("--load", choices=["auto", "oha", "wrk"], default="auto", help="load generator")
    parser.add_argument("--foreign", type=float, default=quiet.LIMIT, help="cores of foreign CPU beyond which a row is noisy")
    parser.add_argument("--again", type=int, default=2, help="how often a noisy row is measured again")
    parser.add_argument("--quick", action="store_true", help="2 rounds of short rows, noisy ones kept: about 5 minutes")
    parser.add_argument("--smoke", action="store_true", help="one short round: does it run at all")
    parser.add_argument("--control", action="store_true", help="add treadle#2, the same loop as its own control")
    parser.add_argument("--out", type=Path, help="folder for the results; default: a new one under out/")
    args = parser.parse_args(argv)
    if args.quick:
        args.rounds, args.seconds, args.again = 2, 2, 0
    if args.smoke:
        args.rounds, args.seconds, args.again, args.concurrency = 1, 1, 0, "4"
    args.concurrency = [int(text) for text in args.concurrency.split(",")]
    return args


def choose_arms(args: argparse.Namespace) -> list[arms.Arm]:
    """The arms asked for that can run; those that cannot are named."""
    names = args.arms.split(",") if args.arms else list(DEFAULT_ARMS)
    names += ["treadle#2"] if args.control else []
    wanted = [arms.parse(name) for name in dict.fromkeys(names)]
    missing = sorted({arm.loop for arm in wanted if not arms.installed(arm)})
    if missing:
        print(f"not installed here, left out: {', '.join(missing)}")
    return [arm for arm in wanted if arms.installed(arm)]


def endpoints(patterns: list[str]) -> dict[str, str]:
    """The endpoints that match, with their titles."""
    from service_app import ENDPOINTS

    chosen = {name: title for name, title in ENDPOINTS.items()
              if not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)}
    if not chosen:
        raise SystemExit(f"no endpoint matches; there are {', '.join(ENDPOINTS)}")
    return chosen


def samples_of(name: str, title: str, connections: int, **figures) -> list[dict]:
    """One sample per figure, or as many failed ones when `error` says why."""
    found = []
    for figure, unit in FIGURES.items():
        sample = {"case": f"{name}_c{connections}_{figure}", "title": f"{title} c{connections}: {figure}", "part": "service",
                  "unit": unit}
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


def measure(running: harness.Service, servers: harness.Backing, name: str, connections: int, args: argparse.Namespace) -> dict:
    """The figures of one endpoint at one concurrency."""
    sessions = servers.postgres.sessions()
    cpu = quiet.session_s(running.session)
    window = quiet.Window()
    seen = harness.load(args.load, running.url(f"/{name}"), connections, args.seconds)
    foreign = window.foreign()
    cpu = quiet.session_s(running.session) - cpu
    sessions = servers.postgres.sessions() - sessions
    if not seen.requests:
        raise RuntimeError(f"no request was answered: {json.dumps(seen.http)}")
    per_op = 1 / seen.requests
    return {"rate": seen.requests / seen.seconds, "cpu": cpu * 1e6 * per_op, "sessions": sessions * 1e3 * per_op,
            "p50": seen.p50_ms, "p99": seen.p99_ms, "ops": seen.requests, "wall_us": seen.seconds * 1e6 * per_op,
            "cpu_us": cpu * 1e6 * per_op, "http": seen.http,
            "extra": {"foreign_cores": round(foreign, 3), "noisy": foreign > args.foreign}}


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


def run_arm(arm: arms.Arm, servers: harness.Backing, chosen: dict[str, str], turn: int, args: argparse.Namespace) -> list[dict]:
    """All rows of one round on one arm, on a service started for it."""
    rows = [(name, connections) for name in chosen for connections in args.concurrency]
    found: list[dict] = []
    done: set[tuple[str, int]] = set()
    try:
        with harness.service(arm.loop, servers, arm.env) as running:
            for name in chosen:
                harness.load(args.load, running.url(f"/{name}"), max(args.concurrency), args.seconds * WARMUP)
            for name, connections in arms.rotated(rows, turn):
                try:
                    figures = measure_quietly(running, servers, name, connections, args=args)
                except (OSError, RuntimeError, ValueError) as error:
                    figures = {"error": f"{type(error).__name__}: {error}"}
                found += samples_of(name, chosen[name], connections, **figures)
                done.add((name, connections))
    except (OSError, RuntimeError) as error:
        if not done:
            print(f"{arm.name}: {error}", file=sys.stderr)
        for name, connections in rows:
            if (name, connections) not in done:
                found += samples_of(name, chosen[name], connections, error=f"{type(error).__name__}: {error}")
    return [{**sample, "round": turn} for sample in found]


def packages() -> dict[str, str]:
    """Versions of what takes part."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def run(chosen_arms: list[arms.Arm], chosen: dict[str, str], args: argparse.Namespace) -> dict[str, list[dict]]:
    """All rounds over all arms; each arm's samples."""
    from service_app import SCHEMA

    merged: dict[str, list[dict]] = {arm.name: [] for arm in chosen_arms}
    with harness.backing() as servers:
        servers.postgres.run(*SCHEMA)
        for turn in range(args.rounds):
            order = arms.rotated(chosen_arms, turn)
            print(f"round {turn + 1} of {args.rounds}: {', '.join(arm.name for arm in order)}", flush=True)
            for arm in order:
                started = time.monotonic()
                merged[arm.name] += run_arm(arm, servers, chosen, turn, args)
                noisy = sum(1 for s in merged[arm.name] if s["round"] == turn and s.get("extra", {}).get("noisy"))
                marked = f", {noisy // len(FIGURES)} rows noisy" if noisy else ""
                print(f"  {arm.name}: {time.monotonic() - started:.0f} s{marked}", flush=True)
    return merged


def main(argv: list[str] | None = None) -> int:
    import compare

    args = arguments(argv)
    try:
        args.load = harness.generator(args.load)
        chosen = endpoints(args.case)
        merged = run(choose_arms(args), chosen, args)
    except (harness.Missing, ModuleNotFoundError) as error:
        print(f"service: {error}; pip install -r perf/bench/requirements-service.txt has the packages", file=sys.stderr)
        return 2
    out = args.out or report.ROOT / "out" / time.strftime("service-%Y%m%d-%H%M%S")
    shown = {"rounds": args.rounds, "seconds": args.seconds, "concurrency": args.concurrency, "load": args.load,
             "foreign": args.foreign, "again": args.again}
    figure_order = list(FIGURES)
    files = []
    for name, samples in merged.items():
        samples.sort(key=lambda s: (s["round"], figure_order.index(s["case"].rpartition("_")[2])))
        document = report.document("service.py", name, {**shown, "env": arms.parse(name).env}, samples, packages=packages())
        files.append(str(out / f"{name}.json"))
        report.write(files[-1], document)
    print()
    compare.main([*files, "--markdown", str(out / "comparison.md"), "--png", str(out / "comparison.png")])
    print(f"\nwritten to {out}")
    failed = sum(1 for found in merged.values() for s in found if not s["ok"])
    return 1 if args.smoke and failed else 0


if __name__ == "__main__":
    sys.exit(main())
