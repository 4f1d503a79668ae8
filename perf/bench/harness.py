"""The servers a service needs, from Debian's packages, each on a free port in a temporary folder; and the
load upon it, by oha or wrk."""

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
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import rounds

if TYPE_CHECKING:
    from service_config import Request

START_TIMEOUT_S = 60
PASSWORD = "treadle"


class Missing(RuntimeError):
    """A program or package that the harness needs is not installed."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A folder that is gone after the block."""
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        yield Path(folder)


def sessions_of(dsn: str) -> int:
    """Sessions that the database of `dsn` had so far. The question is a session of its own, which counts in
    both of two askings."""
    import asyncpg

    async def ask() -> int:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(
                "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
            )
        finally:
            await connection.close()

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(ask())


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
        self.popen = subprocess.Popen(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            **more,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(START_TIMEOUT_S) or self.popen.poll() is not None:
            self.stop(signal.SIGKILL)
            raise RuntimeError(
                f"{command[0]} did not start: {''.join(self.said[-5:]).strip() or 'no output'}"
            )

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
        return self.run(
            f"SELECT sessions FROM pg_stat_database WHERE datname = '{self.database}'", database="postgres"
        )

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
        made = rounds.child(
            [
                _postgres_programs() / "initdb",
                "-D",
                folder / "data",
                "-A",
                "scram-sha-256",
                "-U",
                "treadle",
                f"--pwfile={folder / 'password'}",
                "-E",
                "UTF8",
                "-N",
            ],
            env={},
            timeout=START_TIMEOUT_S,
            cwd=folder,
            **account,
        )
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
        server = Process(
            [
                program("redis-server", "valkey-server", package="redis-server"),
                "--port",
                port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--dir",
                folder,
                "--daemonize",
                "no",
            ],
            "eady to accept connections",
        )
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


WRK_SCRIPT = """
local total, kinds = 0, {}
local function add(weight, method, path, headers, body)
  total = total + weight
  kinds[#kinds + 1] = {total, wrk.format(method, path, headers, body)}
end
function init(args)
  math.randomseed(20261130)
  %s
end
function request()
  if #kinds == 1 then return kinds[1][2] end
  local pick = math.random() * total
  for _, kind in ipairs(kinds) do
    if pick <= kind[1] then return kind[2] end
  end
  return kinds[#kinds][2]
end
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\\nREPORT {"requests": %%d, "us": %%d, "p50_us": %%.0f, "p99_us": %%.0f, '
    .. '"connect": %%d, "read": %%d, "write": %%d, "timeout": %%d, "status": %%d}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.connect, e.read, e.write, e.timeout, e.status))
end
"""


def _lua(text: str) -> str:
    """A text as Lua reads it, byte by byte where it is not plain."""
    return (
        '"'
        + "".join(
            chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03d}"
            for byte in text.encode()
        )
        + '"'
    )


def wrk_script(requests: list[Request], headers: dict[str, str]) -> str:
    """What wrk runs: the requests by their weights, and a report that can be read."""
    lines = []
    for request in requests:
        fields = ", ".join(
            f"[{_lua(name)}] = {_lua(value)}" for name, value in {**request.headers, **headers}.items()
        )
        body = _lua(request.body) if request.body else "nil"
        lines.append(
            f"add({request.weight!r}, {_lua(request.method)}, {_lua(request.path)}, {{{fields}}}, {body})"
        )
    return WRK_SCRIPT % "\n  ".join(lines)


def read_wrk(output: str) -> Load:
    """Read what wrk printed by WRK_SCRIPT; it counts answers of 400 and above without telling them apart."""
    found = re.search(r"^REPORT (\{.*\})$", output, re.MULTILINE)
    if not found:
        raise RuntimeError(f"wrk reported nothing: {output.strip()[-200:]}")
    said = json.loads(found.group(1))
    bad = said["status"]
    status = {"2xx": said["requests"] - bad, **({"4xx or 5xx": bad} if bad else {})}
    errors = {kind: said[kind] for kind in ("connect", "read", "write", "timeout") if said[kind]}
    return Load(
        said["requests"] - bad, said["us"] / 1e6, said["p50_us"] / 1e3, said["p99_us"] / 1e3, status, errors
    )


def read_oha(output: str) -> Load:
    """Read oha's JSON object; the requests cut off at its end are among the errors and do not count."""
    said = json.loads(output)
    status = {str(code): count for code, count in said.get("statusCodeDistribution", {}).items()}
    good = sum(count for code, count in status.items() if code.startswith("2"))
    percentiles = said.get("latencyPercentiles", {})
    return Load(
        good,
        said["summary"]["total"],
        (percentiles.get("p50") or 0) * 1e3,
        (percentiles.get("p99") or 0) * 1e3,
        status,
        dict(said.get("errorDistribution", {})),
    )


def generator(choice: str = "auto") -> str:
    """The load generator to use: `oha` where it is installed, else `wrk`, which sees no redirect."""
    if choice == "auto":
        choice = "oha" if shutil.which("oha") else "wrk"
    if shutil.which(choice) is None:
        how = "apt-get install wrk" if choice == "wrk" else "cargo install --locked oha"
        raise Missing(f"no {choice} here: {how}")
    return choice


def _oha(
    base: str,
    requests: list[Request],
    connections: int,
    seconds: float,
    headers: dict[str, str],
    folder: Path,
) -> list[str]:
    first = requests[0]
    if any((r.method, r.headers, r.body) != (first.method, first.headers, first.body) for r in requests):
        raise Missing("oha mixes only requests that differ in nothing but their path: give --load wrk")
    command = [
        "oha",
        "-z",
        f"{seconds:g}s",
        "-c",
        str(connections),
        "--no-tui",
        "--output-format",
        "json",
        "--redirect",
        "0",
        "-m",
        first.method,
    ]
    for name, value in {**first.headers, **headers}.items():
        command += ["-H", f"{name}: {value}"]
    if first.body:
        command += ["-d", first.body]
    if len(requests) == 1:
        return [*command, base + first.path]
    # A line is as likely as another, so a weight is a number of lines.
    least = min(r.weight for r in requests)
    urls = folder / "urls"
    urls.write_text("".join(f"{base}{r.path}\n" * max(1, round(r.weight / least)) for r in requests))
    return [*command, "--urls-from-file", str(urls)]


def load(
    tool: str,
    base: str,
    requests: list[Request],
    connections: int,
    seconds: float,
    headers: dict[str, str] | None = None,
) -> Load:
    """Keep `connections` requests under way for `seconds`; of several kinds each comes by its weight."""
    with temporary_folder("treadle-load-") as folder:
        if tool == "oha":
            command = _oha(base, requests, connections, seconds, headers or {}, folder)
        else:
            script = folder / "requests.lua"
            script.write_text(wrk_script(requests, headers or {}))
            command = [
                "wrk",
                "-t",
                "1",
                "-c",
                str(connections),
                "-d",
                f"{max(1, round(seconds))}s",
                "--timeout",
                "10s",
                "-s",
                str(script),
                base,
            ]
        done = rounds.child(command, env={}, timeout=seconds + 60)
    if done.returncode != 0:
        raise RuntimeError(f"{tool} failed: {done.stderr.strip()[-200:]}")
    return read_oha(done.stdout) if tool == "oha" else read_wrk(done.stdout)
