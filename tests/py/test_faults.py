"""Each system call of each kind of work fails once, with each errno it can: see fault_table.py. A sample of the cells runs here, all of
them with TREADLE_FAULTS=all."""
import os
import pathlib

import pytest

from conftest import preload, run_python

TABLE = pathlib.Path(__file__).with_name("fault_table.py")
ALL = os.environ.get("TREADLE_FAULTS") == "all"


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer wraps the same functions")
@pytest.mark.timeout(10_000 if ALL else 120)
def test_each_failing_call_is_told_or_survived_as_on_asyncio(tmp_path):
    args = ["--all"] if ALL else ["--seconds", "35"]
    done = run_python(str(TABLE), *args, env=preload("fault", tmp_path), timeout=10_000 if ALL else 110)
    print(done.stdout[-2000:])
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
