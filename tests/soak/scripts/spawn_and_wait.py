"""1,000 children started, waited for and talked to."""
import asyncio
import os

import measure

COUNT = int(os.environ.get("TREADLE_SOAK_COUNT", "1000"))


async def one(i):
    if i % 3 == 0:
        process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
        out, _ = await process.communicate(b"x" * 1000)
        assert len(out) == 1000
    else:
        process = await asyncio.create_subprocess_exec("sh", "-c", f"exit {i % 5}")
        assert await process.wait() == i % 5


async def main():
    usage = measure.Usage()
    for i in range(0, COUNT, 4):
        await asyncio.gather(*[one(i + k) for k in range(4)])
        if i == COUNT // 5:
            usage.mark()
    await asyncio.sleep(0.05)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    usage.check(rss_kib=4096, blocks=COUNT // 2)


measure.run(main)
