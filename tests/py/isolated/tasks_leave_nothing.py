"""100,000 tasks that sleep, wait and are canceled leave no object and no memory."""
import asyncio
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import measure  # noqa: E402

COUNT = int(os.environ.get("TREADLE_TEST_TASKS", "100000"))
BATCH = 1000


async def work(i):
    await asyncio.sleep(0 if i % 3 else 1e-5)
    if i % 7 == 0:
        await asyncio.sleep(1000)
    return i


async def main():
    loop = asyncio.get_running_loop()
    usage = measure.Usage()
    for done in range(0, COUNT, BATCH):
        tasks = [loop.create_task(work(i)) for i in range(BATCH)]
        await asyncio.sleep(0.001)
        for task in tasks[::7]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        del tasks, task
        if done == COUNT // 5:
            usage.mark()
    usage.check(rss_kib=2048)
    assert len(asyncio.all_tasks()) == 1


measure.run(main)
