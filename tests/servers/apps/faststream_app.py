import os

from faststream import FastStream
from faststream.redis import RedisBroker
from report import report

broker = RedisBroker(os.environ["REDIS_URL"])
app = FastStream(broker)


@broker.subscriber(list="faststream")
async def job(message: str):
    report()
