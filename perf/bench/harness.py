"""The servers a service needs, from Debian's packages, each on a free port in a temporary folder; the service
itself as a process on a loop; and the load upon it, by oha or wrk."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import rounds

HERE = Path(__file__).resolve().parent
START_TIMEOUT_S = 60
PASSWORD = "treadle"


class Missing(RuntimeError):
    """A program or package that the harness needs is not installed."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def program(*names: str, package: str) -> str:
    """The path of the first of `names` that is installed."""
    for name in names:
        found = shutil.which(name) or shutil.which(f"/usr/sbin/{name}")
        if found:
            return found
    raise Missing(f"no {names[0]} here: install Debian's package {package}")


def _postgres_programs() -> Path:
    for folder in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True):
        if os.access(Path(folder, "initdb"), os.X_OK):
            return Path(folder)
    return Path(program("initdb", package="postgresql")).resolve().parent


def _account() -> dict:
    """PostgreSQL refuses to run as root: whom its programs run as, in subprocess's words."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise Missing("no unprivileged user to run PostgreSQL as")


class Process:
    """A server under way; its output is kept, so that it never blocks and can be shown."""

    def __init__(self, command: list, ready: str, **more) -> None:
        self.said: list[str] = []
        self._ready = threading.Event()
        self._text = ready
        # A terminal's Ctrl-C is for the tool, which then ends its servers in order.
        more.setdefault("start_new_session", True)
        self.popen = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      stdin=subprocess.DEVNULL, text=True, errors="replace", **more)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(START_TIMEOUT_S) or self.popen.poll() is not None:
            self.stop(signal.SIGKILL)
            raise RuntimeError(f"{command[0]} did not start: {''.join(self.said[-5:]).strip() or 'no output'}")

    def _read(self) -> None:
        for line in self.popen.stdout:
            if len(self.said) < 1000:
                self.said.append(line)
            if self._text in line:
                self._ready.set()
        self._ready.set()

    def stop(self, how: int = signal.SIGTERM, timeout: float = 30) -> int:
        """End the process and return its exit code; it is killed when it does not end in time."""
        if self.popen.poll() is None:
            self.popen.send_signal(how)
        try:
            self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self._reader.join(5)
        return self.popen.returncode


@dataclass
class Postgres:
    """A cluster of its own with SCRAM passwords; it can be restarted in place."""

    port: int
    folder: Path
    process: Process | None = None
    database: str = "service"

    def dsn(self, database: str | None = None, driver: str = "") -> str:
        return f"postgresql{driver}://treadle:{PASSWORD}@127.0.0.1:{self.port}/{database or self.database}"

    def start(self) -> None:
        command = [_postgres_programs() / "postgres", "-D", self.folder / "data", "-p", self.port]
        for setting in ("listen_addresses=127.0.0.1", "fsync=off", f"unix_socket_directories={self.folder}",
                        "log_destination=stderr", "log_checkpoints=off", "max_connections=200"):
            command += ["-c", setting]
        self.process = Process(command, "ready to accept connections", cwd=self.folder, **_account())

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop(signal.SIGINT)
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def run(self, *statements: str, database: str | None = None) -> object:
        """Carry out statements on a connection of their own; the last one's first value."""
        import asyncpg

        async def carry_out():
            connection = await asyncpg.connect(self.dsn(database))
            try:
                for statement in statements[:-1]:
                    await connection.execute(statement)
                return await connection.fetchval(statements[-1])
            finally:
                await connection.close()

        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(carry_out())

    def sessions(self) -> int:
        """Sessions that the database had so far; this question is asked in another database."""
        return self.run(f"SELECT sessions FROM pg_stat_database WHERE datname = '{self.database}'", database="postgres")

    def settled_sessions(self, timeout: float = 20) -> int:
        """The same once every session has ended: only then is each of them in the counter for certain."""
        until = time.monotonic() + timeout
        alive = f"SELECT count(*), pg_sleep(0.02) FROM pg_stat_activity WHERE datname = '{self.database}'"
        while self.run(alive, database="postgres"):
            if time.monotonic() > until:
                raise RuntimeError(f"sessions stay in {self.database}")
        return self.sessions()


@contextlib.contextmanager
def postgres(database: str = "service") -> Iterator[Postgres]:
    """A fresh cluster with one empty database, gone after the block."""
    folder = Path(tempfile.mkdtemp(prefix="treadle-pg-"))
    server = Postgres(free_port(), folder, database=database)
    account = _account()
    try:
        (folder / "password").write_text(PASSWORD + "\n")
        if account:
            for path in (folder, folder / "password"):
                os.chown(path, account["user"], account["group"])
        made = rounds.child([_postgres_programs() / "initdb", "-D", folder / "data", "-A", "scram-sha-256", "-U", "treadle",
                             f"--pwfile={folder / 'password'}", "-E", "UTF8", "-N"], env={}, timeout=START_TIMEOUT_S, cwd=folder, **account)
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed: {made.stderr.strip()}")
        server.start()
        try:
            server.run(f"CREATE DATABASE {database}", "SELECT 1", database="postgres")
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """The URL of a fresh server that saves nothing."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="treadle-redis-") as folder:
        server = Process([program("redis-server", "valkey-server", package="redis-server"), "--port", port, "--bind", "127.0.0.1",
                          "--save", "", "--appendonly", "no", "--dir", folder, "--daemonize", "no"],
                         "eady to accept connections")
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.stop()


@dataclass
class Nats:
    """A NATS server; it can be killed and started again in place."""

    port: int
    process: Process | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [program("nats-server", package="nats-server"), "-a", "127.0.0.1", "-p", self.port]
        self.process = Process(command, "Server is ready")

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.stop(how)
            self.process = None


@contextlib.contextmanager
def nats() -> Iterator[Nats]:
    """A fresh NATS server."""
    server = Nats(free_port())
    server.start()
    try:
        yield server
    finally:
        server.stop()


@dataclass
class Backing:
    """The three servers, and what the service is told of them by its environment."""

    postgres: Postgres
    redis_url: str
    nats: Nats

    @property
    def env(self) -> dict[str, str]:
        return {"SERVICE_DSN": self.postgres.dsn(driver="+asyncpg"), "SERVICE_REDIS": self.redis_url,
                "SERVICE_NATS": self.nats.url}


@contextlib.contextmanager
def backing() -> Iterator[Backing]:
    """PostgreSQL, Redis and NATS, all gone after the block."""
    with postgres() as database, redis() as cache, nats() as bus:
        yield Backing(database, cache, bus)


@dataclass
class Service:
    """The service on one loop: its processes are those of one session."""

    process: Process
    port: int

    @property
    def session(self) -> int:
        return self.process.popen.pid

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def get(self, path: str, timeout: float = 30) -> tuple[int, bytes]:
        with urllib.request.urlopen(self.url(path), timeout=timeout) as answer:
            return answer.status, answer.read()


@contextlib.contextmanager
def service(loop: str, servers: Backing, env: dict[str, str] | None = None, workers: int = 2) -> Iterator[Service]:
    """The service on `loop`, answering; ended with the block."""
    port = free_port()
    command = [sys.executable, HERE / "service_app.py", "--loop", loop, "--port", port, "--workers", workers]
    process = Process(command, "Started worker-", env={**os.environ, **servers.env, **(env or {})}, start_new_session=True)
    running = Service(process, port)
    try:
        _await_answers(running)
        on = json.loads(running.get("/info")[1])["loop"]
        if on.partition(".")[0] != loop.partition(".")[0]:
            raise RuntimeError(f"the service runs on {on}, not on {loop}")
        yield running
        if process.popen.poll() is not None:
            raise RuntimeError(f"the service ended with {process.popen.returncode}: {''.join(process.said[-5:]).strip()}")
    finally:
        process.stop()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.session, signal.SIGKILL)


def _await_answers(running: Service) -> None:
    """A worker says that it started before it listens."""
    until = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            running.get("/session")
            return
        except OSError as error:
            if time.monotonic() > until or running.process.popen.poll() is not None:
                said = "".join(running.process.said[-8:]).strip()
                raise RuntimeError(f"the service does not answer ({error}): {said}") from None
            time.sleep(0.05)


@dataclass
class Load:
    """What a load generator saw."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    status: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def http(self) -> dict:
        return {"status": self.status, "errors": self.errors}


WRK_REPORT = """
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\\nREPORT {"requests": %d, "us": %d, "p50_us": %.0f, "p99_us": %.0f, "connect": %d, '
    .. '"read": %d, "write": %d, "timeout": %d, "status": %d}\\n', summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), e.connect, e.read, e.write, e.timeout, e.status))
end
"""


def read_wrk(output: str) -> Load:
    """Read what wrk printed by WRK_REPORT; it counts answers of 400 and above without telling them apart."""
    found = re.search(r"^REPORT (\{.*\})$", output, re.MULTILINE)
    if not found:
        raise RuntimeError(f"wrk reported nothing: {output.strip()[-200:]}")
    said = json.loads(found.group(1))
    bad = said["status"]
    status = {"2xx": said["requests"] - bad, **({"4xx or 5xx": bad} if bad else {})}
    errors = {kind: said[kind] for kind in ("connect", "read", "write", "timeout") if said[kind]}
    return Load(said["requests"] - bad, said["us"] / 1e6, said["p50_us"] / 1e3, said["p99_us"] / 1e3, status, errors)


def read_oha(output: str) -> Load:
    """Read oha's JSON object; the requests cut off at its end are among the errors and do not count."""
    said = json.loads(output)
    status = {str(code): count for code, count in said.get("statusCodeDistribution", {}).items()}
    good = sum(count for code, count in status.items() if code.startswith("2"))
    percentiles = said.get("latencyPercentiles", {})
    return Load(good, said["summary"]["total"], (percentiles.get("p50") or 0) * 1e3, (percentiles.get("p99") or 0) * 1e3,
                status, dict(said.get("errorDistribution", {})))


def generator(choice: str = "auto") -> str:
    """The load generator to use: `oha` where it is installed (cargo install --locked oha), else `wrk`."""
    if choice == "auto":
        choice = "oha" if shutil.which("oha") else "wrk"
    program(choice, package="wrk" if choice == "wrk" else "oha, by cargo install --locked")
    return choice


def load(tool: str, url: str, connections: int, seconds: float) -> Load:
    """Keep `connections` requests under way for `seconds`."""
    limit = seconds + 60
    if tool == "oha":
        command = ["oha", "-z", f"{seconds:g}s", "-c", str(connections), "--no-tui", "--output-format", "json", url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError(f"oha failed: {done.stderr.strip()[-200:]}")
        return read_oha(done.stdout)
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(WRK_REPORT)
        script.flush()
        command = ["wrk", "-t", "1", "-c", str(connections), "-d", f"{max(1, round(seconds))}s", "--timeout", "10s", "-s", script.name,
                   url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"wrk failed: {done.stderr.strip()[-200:]}")
    return read_wrk(done.stdout)
