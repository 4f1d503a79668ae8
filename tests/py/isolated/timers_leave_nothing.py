"""1,000,000 timers armed and canceled leave no object and no memory."""
import asyncio
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import measure  # noqa: E402

COUNT = int(os.environ.get("TREADLE_TEST_TIMERS", "1000000"))
BATCH = 10_000


async def main():
    loop = asyncio.get_running_loop()
    usage = measure.Usage()
    for done in range(0, COUNT, BATCH):
        handles = [loop.call_later(1000 + i, print, i) for i in range(BATCH)]
        for handle in handles:
            handle.cancel()
        del handles, handle
        await asyncio.sleep(0)
        if done == COUNT // 5:
            usage.mark()
    usage.check(rss_kib=2048)


measure.run(main)
