"""Tests of released packages that pass on asyncio and not on treadle, for a reason that is no bug of
treadle's."""

# (package, test): one sentence that says why.
DIFFERENCES = {
    ("uvicorn", "tests/test_auto_detection.py::test_loop_auto"):
        "asserts that the module of the loop's class has a name that starts with asyncio",
}
