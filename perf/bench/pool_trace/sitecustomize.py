"""An opt-in trace of SQLAlchemy's connection pools, in any process that this folder is on the path of:

    PYTHONPATH=perf/bench/pool_trace TREADLE_POOL_TRACE=trace.txt python ...

Each line: microseconds on the monotonic clock, process, event, connections open and in use after it.
"""
import importlib.util
import os
import sys
import time

EVENTS = {
    "connect": (1, 0),
    "close": (-1, 0),
    "close_detached": (-1, 0),
    "checkout": (0, 1),
    "checkin": (0, -1),
}


def trace(path):
    """Listen to all pools and append what they do to `path`."""
    from sqlalchemy import event
    from sqlalchemy.pool import Pool

    out = open(path, "a", buffering=1)
    count = {"open": 0, "used": 0}

    def listener(name, opened, used):
        def note(*_):
            count["open"] += opened
            count["used"] += used
            out.write(f"{time.monotonic_ns() // 1000} {os.getpid()} {name} {count['open']} {count['used']}\n")
        return note

    for name, change in EVENTS.items():
        event.listen(Pool, name, listener(name, *change))


class _AfterImport:
    """Finds sqlalchemy as others would, and has `trace` called once it was imported."""

    def __init__(self, path):
        self.path = path

    def find_spec(self, name, path=None, target=None):
        if name != "sqlalchemy":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            trace(self.path)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("TREADLE_POOL_TRACE"):
    sys.meta_path.insert(0, _AfterImport(os.environ["TREADLE_POOL_TRACE"]))
