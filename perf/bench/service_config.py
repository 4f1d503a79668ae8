"""What a measured service is: one TOML file, read and checked before anything is started.
docs/measure-your-service.md explains it."""

from __future__ import annotations

import argparse
import re
import signal
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import options

BUILTIN = Path(__file__).resolve().parent / "services" / "builtin.toml"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
#: What the command, the environment and the login may name in braces, and what it stands for.
PLACEHOLDERS = {
    "python": "the Python that measures",
    "loop": "the arm's module, as treadle",
    "factory": "what makes the arm's loop, as treadle:new_event_loop",
    "port": "the port to listen on, of 127.0.0.1",
    "postgres": "URL of the PostgreSQL that was started",
    "postgres+asyncpg": "the same for SQLAlchemy with asyncpg",
    "redis": "URL of the Redis that was started",
    "nats": "URL of the NATS that was started",
}


class Wrong(Exception):
    """A member of the file that cannot be used; the text says which, and what is allowed."""


@dataclass(frozen=True)
class Request:
    """One kind of request, and how often it comes in a mix."""

    name: str
    path: str
    title: str = ""
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    weight: float = 1


@dataclass(frozen=True)
class Login:
    """A request that is made once, before the load. What it answers goes with every request of the load: its
    cookies, or a member of its JSON object as a header."""

    path: str
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    token: str = ""
    header: str = "Authorization: Bearer {token}"


@dataclass(frozen=True)
class Config:
    """The whole file."""

    file: Path
    name: str
    command: list[str]
    requests: list[Request]
    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    stop: int = signal.SIGTERM
    ready_path: str = "/"
    ready_timeout_s: float = 60
    loop_path: str = ""
    loop_member: str = "loop"
    postgres: bool = False
    redis: bool = False
    nats: bool = False
    setup: list[str] = field(default_factory=list)
    sessions_dsn: str = ""
    login: Login | None = None
    cgroup: Path | None = None
    pid_file: Path | None = None
    pin: dict[str, set[int]] = field(default_factory=dict)
    mix: bool = False

    @property
    def sessions(self) -> bool:
        """Whether there is a PostgreSQL to ask for sessions."""
        return self.postgres or bool(self.sessions_dsn)


def fill(text: str, values: dict[str, str]) -> str:
    """`text` with the placeholders' values; those that are not known stay, since braces occur in JSON too."""
    return re.sub(r"\{([\w+]+)\}", lambda found: values.get(found[1], found[0]), text)


class _Table:
    """A table of the file, whose members are taken one by one; what is left at the end is a mistake."""

    def __init__(self, members: Any, name: str) -> None:
        if not isinstance(members, dict):
            raise Wrong(f"{name}: a table")
        self._members, self._name = dict(members), name

    def _wrong(self, key: str, what: str, value: object) -> NoReturn:
        raise Wrong(f"{self._name}{key}: {what}, got {value!r}")

    def take(
        self,
        key: str,
        kind: type,
        default: Any = None,
        *,
        check: Callable[[Any], bool] = lambda value: True,
        what: str = "",
    ) -> Any:
        """The member, or `default`; without a default it is required."""
        if key not in self._members:
            if default is None:
                raise Wrong(f"{self._name}{key}: is missing")
            return default
        value = self._members.pop(key)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)) or not check(value):
            names = {
                str: "a text",
                list: "a list of texts",
                dict: "a table of texts",
                float: "a number",
                bool: "true or false",
            }
            self._wrong(key, what or names[kind], value)
        return value

    def text(
        self,
        key: str,
        default: str | None = None,
        *,
        check: Callable[[str], bool] = lambda value: True,
        what: str = "",
    ) -> str:
        return self.take(key, str, default, check=check, what=what)

    def path(self, key: str, default: str | None = None) -> str:
        """A path of a URL."""
        return self.text(
            key, default, check=lambda value: value.startswith("/"), what="a path that begins with /"
        )

    def texts(self, key: str, default: list[str] | None = None) -> list[str]:
        return self.take(key, list, default, check=lambda value: all(isinstance(part, str) for part in value))

    def mapping(self, key: str) -> dict[str, str]:
        return self.take(
            key, dict, {}, check=lambda value: all(isinstance(part, str) for part in value.values())
        )

    def table(self, key: str) -> _Table | None:
        return _Table(self._members.pop(key), f"[{key}] ") if key in self._members else None

    def tables(self, key: str) -> list[_Table]:
        found = self._members.pop(key, None)
        if not isinstance(found, list) or not found:
            raise Wrong(f"[[{key}]]: at least one")
        return [_Table(members, f"[[{key}]] {number}: ") for number, members in enumerate(found, 1)]

    def end(self, known: str) -> None:
        """Refuse what was not taken."""
        if self._members:
            raise Wrong(f"{self._name}{next(iter(self._members))}: no such member; there are {known}")


def _request(table: _Table) -> Request:
    found = Request(
        name=table.text(
            "name", check=lambda value: bool(re.fullmatch(r"[\w-]+", value)), what="letters, digits, _ and -"
        ),
        path=table.path("path"),
        title=table.text("title", ""),
        method=table.text("method", "GET", check=METHODS.__contains__, what=f"one of {', '.join(METHODS)}"),
        headers=table.mapping("headers"),
        body=table.text("body", ""),
        weight=table.take(
            "weight", float, 1.0, check=lambda value: 0 < value <= 1e6, what="above 0, at most 1000000"
        ),
    )
    table.end("name, title, path, method, headers, body, weight")
    return found


def _login(table: _Table | None) -> Login | None:
    if table is None:
        return None
    found = Login(
        path=table.path("path"),
        method=table.text("method", "POST", check=METHODS.__contains__, what=f"one of {', '.join(METHODS)}"),
        headers=table.mapping("headers"),
        body=table.text("body", ""),
        token=table.text("token", ""),
        header=table.text(
            "header",
            Login.header,
            check=lambda value: ": " in value,
            what="as in 'Authorization: Bearer {token}'",
        ),
    )
    table.end("path, method, headers, body, token, header")
    return found


def _pin(table: _Table | None) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for key in ("app", "load", "servers") if table else ():
        text = table.text(key, "")
        if text:
            try:
                found[key] = options.cpus(text)
            except argparse.ArgumentTypeError as error:
                raise Wrong(f"[pin] {key}: {error}") from None
    if table:
        table.end("app, load, servers")
    return found


def _signal(name: str) -> int:
    try:
        return signal.Signals[name]
    except KeyError:
        raise Wrong(f"stop: a signal's name as SIGTERM, got {name!r}") from None


def parse(members: dict[str, Any], file: Path) -> Config:
    """Check and take everything. Raises Wrong."""
    top = _Table(members, "")
    ready, loop, servers, cpu = (top.table(key) for key in ("ready", "loop", "servers", "cpu"))
    empty = _Table({}, "")
    folder = (file.parent / top.text("folder", ".")).resolve()
    if not folder.is_dir():
        raise Wrong(f"folder: a folder that is there, got {str(folder)!r}")
    requests = [_request(table) for table in top.tables("request")]
    if len({request.name for request in requests}) < len(requests):
        raise Wrong("[[request]]: each name once")
    found = Config(
        file=file,
        name=top.text("name"),
        command=top.texts("command"),
        requests=requests,
        folder=folder,
        env=top.mapping("env"),
        stop=_signal(top.text("stop", "SIGTERM")),
        login=_login(top.table("login")),
        pin=_pin(top.table("pin")),
        mix=top.take("mix", bool, False),
        ready_path=(ready or empty).path("path", requests[0].path),
        ready_timeout_s=(ready or empty).take("timeout_s", float, 60.0),
        loop_path=(loop or empty).path("path", "/") if loop else "",
        loop_member=(loop or empty).text("member", "loop"),
        postgres=(servers or empty).take("postgres", bool, False),
        redis=(servers or empty).take("redis", bool, False),
        nats=(servers or empty).take("nats", bool, False),
        setup=(servers or empty).texts("setup", []),
        sessions_dsn=(servers or empty).text("sessions_dsn", ""),
        cgroup=Path(text) if (text := (cpu or empty).text("cgroup", "")) else None,
        pid_file=folder / text if (text := (cpu or empty).text("pid_file", "")) else None,
    )
    for table, known in (
        (ready, "path, timeout_s"),
        (loop, "path, member"),
        (servers, "postgres, redis, nats, setup, sessions_dsn"),
        (cpu, "cgroup, pid_file"),
    ):
        if table:
            table.end(known)
    top.end(
        "name, command, folder, env, stop, mix, [ready], [loop], [servers], [login], [cpu], [pin], [[request]]"
    )
    if not found.command:
        raise Wrong("command: at least the program")
    if found.cgroup and not (found.cgroup / "cpu.stat").is_file():
        raise Wrong(f"[cpu] cgroup: a folder of cgroup version 2, got {str(found.cgroup)!r}")
    return found


def load(file: Path) -> Config:
    """Read the file; what is wrong ends the program with one line that names it."""
    try:
        return parse(tomllib.loads(file.read_text()), file.resolve())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, Wrong) as error:
        options.refuse("--config", f"{file}: {error}")
