"""Runs one module of CPython's test.test_asyncio with asyncio's own loop or with treadle, and writes each
result.

usage: run_module.py {asyncio,treadle} MODULE OUT.json [PART-OF-NAME|-NAME...]

Of names, those that hold a part are run and those behind a minus are not.

For treadle, every place where the suite asks for a loop gives a treadle loop: asyncio.new_event_loop, the
policy, and asyncio.SelectorEventLoop (whose selector argument is dropped: treadle has one poller, so the four
selector variants of a test case become one).
"""
import asyncio
import faulthandler
import importlib
import json
import signal
import sys
import unittest
import warnings

import exclusions

# A shell that starts the tests in the background ignores SIGINT, which the suite sends to itself.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Variants of one case by selector: with one poller they would only repeat.
SELECTOR_VARIANTS = (
    "KqueueEventLoopTests",
    "PollEventLoopTests",
    "SelectEventLoopTests",
    "KqueueTests",
    "PollTests",
    "SelectTests",
)
TEST_S = 60
EXCLUDED_TEST_S = 15


def use_treadle(module):
    """Replaces asyncio's loop before the test module is imported."""
    import treadle

    class SuiteLoop(treadle.Loop):
        def __init__(self, selector=None):
            super().__init__()
            if selector is not None:
                selector.close()

    SuiteLoop.__name__ = SuiteLoop.__qualname__ = "Loop"
    asyncio.SelectorEventLoop = SuiteLoop
    asyncio.unix_events.SelectorEventLoop = SuiteLoop
    if hasattr(asyncio, "EventLoop"):
        asyncio.EventLoop = SuiteLoop
        asyncio.unix_events.EventLoop = SuiteLoop
    policy = getattr(asyncio.unix_events, "_UnixDefaultEventLoopPolicy", None) or \
        getattr(asyncio.unix_events, "_DefaultEventLoopPolicy", None)
    if policy is not None:
        policy._loop_factory = SuiteLoop
    return SuiteLoop


class Results(unittest.TestResult):
    """One word for each test: passed, failed, error, skipped; subtests count for their test."""

    def __init__(self, out):
        super().__init__()
        self.out, self.results, self.details = out, {}, {}

    def startTest(self, test):
        super().startTest(test)
        faulthandler.dump_traceback_later(EXCLUDED_TEST_S if is_excluded(test) else TEST_S, exit=True)
        self.results[name_of(test)] = "crashed"
        self.save()

    def stopTest(self, test):
        super().stopTest(test)
        faulthandler.cancel_dump_traceback_later()
        if self.results[name_of(test)] == "crashed":
            self.results[name_of(test)] = "passed"

    def _set(self, test, word, detail=""):
        name = name_of(test)
        if self.results.get(name) in (None, "crashed", "passed"):
            self.results[name] = word
        self.details[name] = detail

    def addError(self, test, err):
        super().addError(test, err)
        self._set(test, "error", self._exc_info_to_string(err, test))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._set(test, "failed", self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._set(test, "skipped", reason)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._set(test, "failed", self._exc_info_to_string(err, subtest))

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)

    def save(self):
        with open(self.out, "w") as file:
            json.dump({"results": self.results, "details": self.details}, file)


def name_of(test):
    return str(test.id() if hasattr(test, "id") else test).split(" ")[0].removeprefix("test.test_asyncio.")


def is_excluded(test):
    return name_of(test) in exclusions.TESTS


def tests_of(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        elif type(item).__name__ not in SELECTOR_VARIANTS:
            yield item


def main(arm, module, out, *names):
    only = [name for name in names if not name.startswith("-")]
    left_out = [name[1:] for name in names if name.startswith("-")]
    # The suite's own modules deprecate what they test.
    warnings.simplefilter("ignore", DeprecationWarning)
    if arm == "treadle":
        use_treadle(module)
    try:
        test_module = importlib.import_module(f"test.test_asyncio.{module}")
    except unittest.SkipTest as exc:
        with open(out, "w") as file:
            json.dump({"results": {}, "details": {}, "skipped": str(exc)}, file)
        return
    suite = unittest.TestSuite(
        t
        for t in tests_of(unittest.defaultTestLoader.loadTestsFromModule(test_module))
        if name_of(t) not in left_out and (not only or any(o in t.id() for o in only))
    )
    results = Results(out)
    suite.run(results)
    results.save()
    if only:
        for name, detail in results.details.items():
            print(name, results.results[name], detail, sep="\n")
        print(f"{sum(w == 'passed' for w in results.results.values())} of {len(results.results)} passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
