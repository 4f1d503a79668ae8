"""Tests of released packages that pass on asyncio and not on treadle, for a reason that is no bug of treadle's."""

# (package, test): one sentence that says why.
DIFFERENCES = {
    ("aiohttp", "tests/test_helpers.py::test_when_timeout_smaller_second_with_low_threshold[pyloop]"):
        "asserts that a timer's private _when is an int; treadle's is always a float: see docs/asyncio-compat.md",
    ("uvicorn", "tests/test_auto_detection.py::test_loop_auto"):
        "asserts that the module of the loop's class has a name that starts with asyncio",
}
