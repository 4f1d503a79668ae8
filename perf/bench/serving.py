"""Start the server and the load generator of a network row, and turn what they say into samples."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import loops
import report
import rounds
from rows import Measured, Options, Unsupported, per_op

HERE = Path(__file__).resolve().parent
START_TIMEOUT_S = 30


def tool(name: str, options: Options) -> str:
    """Path of a built C program of perf/bench: in --tools, else in a build that is neither debug nor
    sanitized."""
    builds = [report.ROOT / "build" / name / "perf" / "bench" for name in ("release", "bench-tools")]
    folders = [options.tools] if options.tools else builds
    for folder in folders:
        if (folder / name).is_file():
            return str(folder / name)
    raise Unsupported(f"{name} is not built (cmake --build build/release --target {name})")


@dataclass(frozen=True)
class Server:
    """A running server: where it listens, and the process whose CPU counts."""

    pid: int
    port: int
    path: str | None


def _first_line(process: subprocess.Popen) -> str:
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(START_TIMEOUT_S):
            return ""
    return process.stdout.readline()


@contextlib.contextmanager
def serving(
    options: Options, kind: str = "protocol", *, unix: bool = False, tls: bool = False
) -> Iterator[Server]:
    """A server of `kind` on the loop measured, ended with the block."""
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        path = str(Path(folder) / "echo.sock") if unix else None
        if options.loop == loops.LIMIT:
            command = [tool("libuv_echo", options), *(["--unix", path] if unix else [])]
        else:
            command = [sys.executable, str(HERE / "server.py"), "--loop", options.loop, "--kind", kind]
            command += ["--unix", path] if unix else []
            command += ["--cert", certificate(folder)] if tls else []
        errors = Path(folder) / "stderr"
        with errors.open("w") as stderr:
            # A session of its own: a server's workers end with it.
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
            )
        try:
            line = _first_line(process)
            if line.startswith("UNSUPPORTED"):
                raise Unsupported(line.removeprefix("UNSUPPORTED").strip() or "not implemented")
            if not line.startswith("READY"):
                process.kill()
                process.wait()
                said = errors.read_text().strip().splitlines()
                raise RuntimeError("the server did not start: " + (said[-1] if said else "no output"))
            yield Server(process.pid, int(line.split()[1]), path)
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with {process.returncode}")
        finally:
            rounds.kill_session(process)


def certificate(folder: str) -> str:
    """A self-signed certificate and its key in one file, made by the openssl program."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise Unsupported("the openssl program is missing")
    target = Path(folder) / "cert.pem"
    key = Path(folder) / "key.pem"
    subprocess.run(
        [
            openssl,
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-keyout",
            str(key),
            "-out",
            str(target),
        ],
        check=True,
        capture_output=True,
    )
    with target.open("a") as out:
        out.write(key.read_text())
    return str(target)


def cpu_ns(pid: int) -> int:
    """CPU time the process has used, by its CPU-time clock (clock_getcpuclockid's encoding)."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def _target(server: Server) -> list[str]:
    return ["--unix", server.path] if server.path else ["--port", str(server.port)]


def place(how: str, server: int, client: int, connections: int) -> None:
    """Fix the processors of the server's main thread and of the client: `together`, `apart`, or not at all
    (`free`).

    `auto` puts a single connection's two ends together. They take turns there, so nothing is lost, and the
    cost of waking an idle processor, which exceeds what the loops differ by, stays out of the figures.
    """
    if how == "free" or (how == "auto" and connections > 1):
        return
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(server, processors[:1])
    os.sched_setaffinity(client, processors[1:2] or processors if how == "apart" else processors[:1])


def _drive(command: list[str], server: Server, placement: str, connections: int, timeout_s: float) -> str:
    """Run the load generator beside `server` and return what it printed."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            place(placement, server.pid, process.pid, connections)
            printed, errors = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        text = errors.strip()
        if "built without OpenSSL" in text:
            raise Unsupported(text)
        raise RuntimeError(
            text.splitlines()[-1] if text else f"the load generator ended with {process.returncode}"
        )
    return printed


def load(options: Options, server: Server, mode: str, size: int, connections: int, *,
         tls: bool = False) -> Iterator[Measured]:
    """Drive `server` and yield its CPU per operation for each window, warm-up windows included."""
    command = [tool("treadle_load", options), *_target(server), "--mode", mode, "--size", str(size),
               "--connections", str(connections), "--samples", str(options.warmup + options.samples),
               "--warmup", "0", "--seconds", str(options.seconds), "--pid", str(server.pid)]
    command += ["--tls"] if tls else []
    limit = START_TIMEOUT_S + 3 * options.seconds * (options.warmup + options.samples)
    for line in _drive(command, server, options.placement, connections, limit).splitlines():
        found = json.loads(line)
        if found["ops"] == 0:
            raise RuntimeError("no operation was answered within the sample")
        yield per_op(found["ops"], found["wall_ns"], found["server_cpu_ns"],
                     client_cpu_us=found["client_cpu_ns"] / 1e3 / found["ops"], lost=found["lost"])


@contextlib.contextmanager
def idle(options: Options, server: Server, connections: int) -> Iterator[None]:
    """Hold `connections` open connections, each of which was answered once."""
    command = [
        tool("treadle_load", options),
        *_target(server),
        "--mode",
        "idle",
        "--connections",
        str(connections),
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        line = _first_line(process)
        if not line:
            raise RuntimeError("the idle connections were not answered")
        yield
    finally:
        process.stdin.close()
        process.stdout.close()
        process.kill()
        process.wait()


def wrk(server: Server, connections: int, seconds: float) -> Measured:
    """One run of wrk against an HTTP server; a status other than 2xx or a transport error fails it."""
    program = shutil.which("wrk")
    if program is None:
        raise Unsupported("wrk is not installed")
    whole = max(1, round(seconds))
    before, start = cpu_ns(server.pid), time.perf_counter_ns()
    done = subprocess.run(
        [program, "-t1", f"-c{connections}", f"-d{whole}s", f"http://127.0.0.1:{server.port}/"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    spent, wall = cpu_ns(server.pid) - before, time.perf_counter_ns() - start
    requests = int(re.search(r"(\d+) requests in", done.stdout).group(1))
    if "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        raise RuntimeError(done.stdout.strip().splitlines()[-3])
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout).group(1))
    return per_op(requests, wall, spent, requests_per_s=rate)
