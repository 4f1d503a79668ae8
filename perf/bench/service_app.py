#!/usr/bin/env python3
"""The full service that loops are compared under: Litestar on Granian, SQLAlchemy and asyncpg on PostgreSQL,
redis-py, nats-py.

    python service_app.py --loop treadle --port 8000 --workers 2

The servers' addresses come by the environment: SERVICE_DSN, SERVICE_REDIS, SERVICE_NATS;
services/builtin.toml sets them, makes the tables and lists what is asked.

Granian names its loops in a registry. Its command line knows a fixed set of names, but `Granian(...,
loop=NAME)` takes any name that is registered in the worker process. A worker started by spawn runs this
script's module level again, so that is where the loop is registered; with fork it is inherited.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from pathlib import Path

from granian import Granian
from granian._loops import loops as granian_loops

sys.path.insert(0, str(Path(__file__).resolve().parent))

import loops

LOOP_VARIABLE = "SERVICE_LOOP"
USERS = 500  # as services/builtin.toml makes them

@granian_loops.register("measured")
def build_loop() -> asyncio.AbstractEventLoop:
    """The loop of this worker, made current as Granian's own builders do."""
    loop = loops.factory(os.environ.get(LOOP_VARIABLE, "treadle"))()
    asyncio.set_event_loop(loop)
    return loop


def session_key(user: int) -> str:
    return f"session:{user}"


class State:
    """What one worker keeps: an engine with a small pool, and a Redis client."""

    def __init__(self) -> None:
        import redis.asyncio
        from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

        self.engine = create_async_engine(
            os.environ["SERVICE_DSN"],
            pool_size=int(os.environ.get("SERVICE_POOL", "4")),
            max_overflow=int(os.environ.get("SERVICE_OVERFLOW", "2")),
            connect_args={"ssl": False},
        )
        self.sessions = async_sessionmaker(self.engine, expire_on_commit=False)
        self.redis = redis.asyncio.from_url(os.environ["SERVICE_REDIS"])

    async def open(self) -> None:
        values = {
            session_key(user): json.dumps({"user": user, "roles": ["reader"]}) for user in range(1, USERS + 1)
        }
        await self.redis.mset(values)

    async def close(self) -> None:
        await self.engine.dispose()
        await self.redis.aclose()


def make_app():
    """The application; imported late, so that the process that only starts workers stays small."""
    import nats
    from litestar import Litestar, get
    from sqlalchemy import text

    kept: dict[str, State] = {}

    async def opened() -> None:
        kept["state"] = State()
        await kept["state"].open()

    async def closed() -> None:
        await kept.pop("state").close()

    async def read_session() -> dict:
        state = kept["state"]
        return json.loads(await state.redis.get(session_key(random.randint(1, USERS))))

    async def rows(statement: str, **values) -> list[dict]:
        async with kept["state"].sessions() as session:
            return [dict(row) for row in (await session.execute(text(statement), values)).mappings()]

    @get("/session")
    async def session() -> dict:
        return await read_session()

    @get("/profile")
    async def profile() -> dict:
        user = (await read_session())["user"]
        (found,) = await rows("SELECT id, name, email, plan FROM account WHERE id = :user", user=user)
        return found

    @get("/aggregate")
    async def aggregate() -> list[dict]:
        user = random.randint(1, USERS - 50)
        return await rows(
            "SELECT kind, count(*) AS events, sum(amount) AS amount FROM event"
            " WHERE account BETWEEN :low AND :high GROUP BY kind ORDER BY kind",
            low=user,
            high=user + 20,
        )

    @get("/count")
    async def count() -> dict:
        (found,) = await rows(
            "SELECT count(*) AS events FROM event WHERE account = :user", user=random.randint(1, USERS)
        )
        return found

    @get("/list")
    async def list_accounts() -> list[dict]:
        low = random.randint(1, USERS - 50)
        return await rows(
            "SELECT id, name, email, plan FROM account WHERE id >= :low ORDER BY id LIMIT 50", low=low
        )

    @get("/health")
    async def health() -> dict:
        connection = await nats.connect(os.environ["SERVICE_NATS"], allow_reconnect=False, connect_timeout=5)
        try:
            await connection.flush(5)
        finally:
            await connection.close()
        return {"nats": True}

    @get("/info")
    async def info() -> dict:
        loop = asyncio.get_running_loop()
        return {"loop": type(loop).__module__, "pid": os.getpid()}

    return Litestar([session, profile, aggregate, count, list_accounts, health, info], on_startup=[opened],
                    on_shutdown=[closed])


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loop", default="treadle", help="module of the loop")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(argv)
    os.environ[LOOP_VARIABLE] = args.loop
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH")])
    )
    Granian(
        "service_app:make_app",
        factory=True,
        address="127.0.0.1",
        port=args.port,
        interface="asgi",
        workers=args.workers,
        loop="measured",
        websockets=False,
        respawn_failed_workers=False,
    ).serve()


if __name__ == "__main__":
    main()
