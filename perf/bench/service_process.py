"""A service of a configuration under way: its servers, its process on one loop, its login, its CPU, and the
load upon it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import environment
import harness
import quiet
import rounds
from arms import Arm
from service_config import Config, Request, fill


@contextlib.contextmanager
def pinned(chosen: set[int] | None) -> Iterator[None]:
    """What is started within the block runs on these processors."""
    before = os.sched_getaffinity(0)
    if chosen:
        os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass
class Servers:
    """The servers of a configuration, with what its placeholders stand for."""

    values: dict[str, str] = field(default_factory=dict)
    postgres: harness.Postgres | None = None
    nats: harness.Nats | None = None
    sessions_dsn: str = ""

    def sessions(self) -> int:
        """Sessions that the service's database had so far."""
        if self.postgres is not None:
            return self.postgres.sessions()
        return harness.sessions_of(self.sessions_dsn)


@contextlib.contextmanager
def servers(config: Config) -> Iterator[Servers]:
    """The servers that the configuration wants, gone after the block."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(pinned(config.pin.get("servers")))
        found = Servers(sessions_dsn=config.sessions_dsn)
        if config.postgres:
            found.postgres = stack.enter_context(harness.postgres())
            found.values |= {
                "postgres": found.postgres.dsn(),
                "postgres+asyncpg": found.postgres.dsn(driver="+asyncpg"),
            }
            if config.setup:
                found.postgres.run(*config.setup, "SELECT 1")
        if config.redis:
            found.values["redis"] = stack.enter_context(harness.redis())
        if config.nats:
            found.nats = stack.enter_context(harness.nats())
            found.values["nats"] = found.nats.url
        yield found


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


@dataclass
class Service:
    """The service on one loop."""

    config: Config
    process: subprocess.Popen
    port: int
    headers: dict[str, str] = field(default_factory=dict)  # what the login gave, for every request

    @property
    def session(self) -> int:
        """The session of its processes."""
        return self.process.pid

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def ask(self, request: Request, timeout: float = 30) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Make one request; a redirect and an error are answers too."""
        made = urllib.request.Request(
            self.url(request.path),
            method=request.method,
            data=request.body.encode() or None,
            headers={**request.headers, **self.headers},
        )
        try:
            with _OPENER.open(made, timeout=timeout) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    def cpu_s(self) -> float:
        """CPU seconds so far of what counts: a cgroup, the process of a PID file and its descendants, or all
        that was started."""
        if self.config.cgroup is not None:
            fields = dict(line.split() for line in (self.config.cgroup / "cpu.stat").read_text().splitlines())
            return int(fields["usage_usec"]) / 1e6
        if self.config.pid_file is not None:
            return quiet.tree_s(int(self.config.pid_file.read_text()))
        return quiet.session_s(self.session)

    def load(self, tool: str, requests: list[Request], connections: int, seconds: float) -> harness.Load:
        """Put a load of one kind of request, or of a mix by weight, on the service."""
        with pinned(self.config.pin.get("load")):
            return harness.load(tool, self.url(""), requests, connections, seconds, self.headers)


def _log_in(running: Service) -> None:
    login = running.config.login
    if login is None:
        return
    status, headers, body = running.ask(
        Request("login", login.path, method=login.method, headers=login.headers, body=login.body)
    )
    if not 200 <= status < 400:
        raise RuntimeError(f"the login answers with status {status}: {body[:200]!r}")
    if login.token:
        token: object = json.loads(body)
        for part in login.token.split("."):
            token = token.get(part) if isinstance(token, dict) else None
        if not isinstance(token, str):
            raise RuntimeError(f"the login's answer has no text {login.token!r}: {body[:200]!r}")
        name, _, value = login.header.partition(": ")
        running.headers[name] = value.replace("{token}", token)
        return
    cookies = [cookie.partition(";")[0] for cookie in headers.get_all("Set-Cookie") or []]
    if not cookies:
        raise RuntimeError("the login set no cookie; give [login] token = MEMBER if it answers with a token")
    running.headers["Cookie"] = "; ".join(cookies)


def _await_ready(running: Service, log: Path) -> None:
    config = running.config
    until = time.monotonic() + config.ready_timeout_s
    why = "no answer"
    while True:
        try:
            status, _, _ = running.ask(Request("ready", config.ready_path), timeout=5)
            if status < 500:
                return
            why = f"status {status}"
        except OSError as error:
            why = str(error)
        if time.monotonic() > until or running.process.poll() is not None:
            said = log.read_text(errors="replace").strip()[-500:]
            raise RuntimeError(
                f"the service does not answer at {config.ready_path} ({why}): {said or 'it said nothing'}"
            )
        time.sleep(0.05)


def _check_loop(running: Service, arm: Arm) -> None:
    """A server that silently takes another loop would be measured under the wrong name."""
    if not running.config.loop_path:
        return
    _, _, body = running.ask(Request("loop", running.config.loop_path))
    on = str(json.loads(body).get(running.config.loop_member))
    if on.partition(".")[0] != arm.module:
        raise RuntimeError(f"the service runs on {on}, not on {arm.module}")


@contextlib.contextmanager
def service(config: Config, arm: Arm, around: Servers) -> Iterator[Service]:
    """The service on the arm's loop, answering and logged in; ended with the block."""
    with harness.temporary_folder("treadle-service-") as folder:
        port = harness.free_port()
        factory = arm.loop if ":" in arm.loop else f"{arm.loop}:new_event_loop"
        values = {
            **around.values,
            "python": sys.executable,
            "loop": arm.module,
            "factory": factory,
            "port": str(port),
        }
        command = [fill(part, values) for part in config.command]
        env = {
            **environment.clean(),
            **{key: fill(value, values) for key, value in config.env.items()},
            **arm.env,
        }
        log = folder / "log"
        with log.open("wb") as output, pinned(config.pin.get("app")):
            process = subprocess.Popen(
                command,
                cwd=config.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        running = Service(config, process, port)
        try:
            _await_ready(running, log)
            _check_loop(running, arm)
            _log_in(running)
            yield running
            if process.poll() is not None:
                said = log.read_text(errors="replace").strip()[-500:]
                raise RuntimeError(f"the service ended with {process.returncode}: {said}")
        finally:
            if process.poll() is None:
                process.send_signal(config.stop)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
            rounds.kill_session(process)
