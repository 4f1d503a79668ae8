"""asyncpg and redis-py against real servers, on asyncio and on treadle."""
import asyncio

import pytest

from twin import twin

pytestmark = [pytest.mark.programs, pytest.mark.timeout(90)]


@twin(modes=("plain",))
async def test_asyncpg(t, postgres):
    import asyncpg
    connection = await asyncpg.connect(postgres)
    t.log(await connection.fetchval("select 1 + 1"))
    await connection.execute("create temporary table items (id int, body text)")
    await connection.executemany("insert into items values ($1, $2)", [(i, "x" * i) for i in range(500)])
    rows = await connection.fetch("select * from items order by id")
    t.log(len(rows), sum(len(r["body"]) for r in rows))
    async with connection.transaction():
        async for row in connection.cursor("select generate_series(1, 20) n"):
            t.log(row["n"])
    try:
        await connection.execute("select 1 / 0")
    except asyncpg.DivisionByZeroError as exc:
        t.log(type(exc).__name__)
    try:
        await connection.execute("select pg_sleep(10)", timeout=0.05)
    except asyncio.TimeoutError as exc:
        t.log(type(exc).__name__)
    t.log(await connection.fetchval("select 'still here'"))
    copied = await connection.copy_records_to_table("items", records=[(i, "copy") for i in range(1000)])
    t.log(copied)
    got = asyncio.Queue()
    await connection.add_listener("channel", lambda *args: got.put_nowait(args[-1]))
    await connection.execute("notify channel, 'heard'")
    t.log(await asyncio.wait_for(got.get(), 5))
    await connection.close()
    await t.turns(3)


@twin(modes=("plain",))
async def test_asyncpg_pool(t, postgres):
    import asyncpg

    async def work(pool, i):
        async with pool.acquire() as connection:
            return await connection.fetchval("select $1::int * 2", i)

    async with asyncpg.create_pool(postgres, min_size=2, max_size=8) as pool:
        t.log(await asyncio.gather(*[work(pool, i) for i in range(200)]))
        task = t.loop.create_task(work(pool, 1))
        await t.turns(2)
        task.cancel()
        await asyncio.wait([task])
        t.log(await work(pool, 21))
    await t.turns(5)


@twin(modes=("plain",))
async def test_redis(t, redis_url):
    import redis.asyncio as redis
    client = redis.from_url(redis_url)
    await client.flushall()
    t.log(await client.set("key", "value"), await client.get("key"))
    t.log(await asyncio.gather(*[client.incr("counter") for _ in range(50)]) is not None)
    t.log(int(await client.get("counter")))
    async with client.pipeline(transaction=True) as pipe:
        for i in range(100):
            pipe.set(f"k{i}", "v" * i)
        t.log(await pipe.execute())
    await client.set("large", b"L" * 3_000_000)
    t.log(len(await client.get("large")))
    pubsub = client.pubsub()
    await pubsub.subscribe("channel")
    t.log((await pubsub.get_message(timeout=5))["type"])
    await client.publish("channel", "message")
    t.log((await pubsub.get_message(timeout=5))["data"])
    await pubsub.aclose()
    t.log(await client.blpop(["nothing"], timeout=0.05))
    await client.aclose()
    await t.turns(5)
