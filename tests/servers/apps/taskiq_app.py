import os

from report import report
from taskiq_redis import ListQueueBroker

broker = ListQueueBroker(os.environ["REDIS_URL"], queue_name="taskiq")


@broker.task(task_name="job")
async def job():
    report()
