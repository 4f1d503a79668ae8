"""A pytest plugin that puts one loop under a foreign test suite, without a change to the suite.

PACKAGES_ARM says which: "asyncio" leaves everything as it is, "treadle" makes treadle what asyncio's names
give. The outcome of each test and the number of loops made, by class, go as JSON into the folder
PACKAGES_OUT.
"""
import asyncio
import collections
import gc
import json
import os
import pathlib

ARM = os.environ["PACKAGES_ARM"]
OUT = pathlib.Path(os.environ["PACKAGES_OUT"])

loops = collections.Counter()
outcomes = {}


def _count_loops():
    original = asyncio.BaseEventLoop.__init__

    def __init__(self, *args, **kwargs):
        family = next(cls for cls in type(self).__mro__ if cls.__module__.startswith(("treadle", "asyncio")))
        loops[f"{family.__module__}.{family.__qualname__}"] += 1
        original(self, *args, **kwargs)

    asyncio.BaseEventLoop.__init__ = __init__


def _use_treadle():
    import treadle

    treadle.install()
    # What names the class itself, as uvicorn does, goes around every policy.
    asyncio.SelectorEventLoop = treadle.Loop
    if hasattr(asyncio, "EventLoop"):
        asyncio.EventLoop = treadle.Loop


_count_loops()
if ARM == "treadle":
    _use_treadle()


def pytest_collection_finish(session):
    """Takes the suite itself out of the collections that some suites ask for behind each test, most of their
    time else."""
    gc.collect()
    gc.freeze()


# From the best to the worst: a test whose teardown fails did not pass.
_RANK = ("passed", "xfailed", "skipped", "failed")


def pytest_runtest_logreport(report):
    outcome = report.outcome
    if hasattr(report, "wasxfail"):
        outcome = "xfailed" if outcome == "skipped" else outcome
    if outcome == "passed" and report.when != "call":
        return
    before = outcomes.get(report.nodeid, {"outcome": "passed"})
    if _RANK.index(outcome) >= _RANK.index(before["outcome"]):
        outcomes[report.nodeid] = {
            "outcome": outcome,
            "text": report.longreprtext if outcome == "failed" else "",
        }


def pytest_unconfigure(config):
    name = os.environ.get("PYTEST_XDIST_WORKER", "main")
    (OUT / f"loops-{name}.json").write_text(json.dumps(loops))
    if name == "main":
        (OUT / "outcomes.json").write_text(json.dumps(outcomes))
