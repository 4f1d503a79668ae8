"""Fixtures of the tests of servers, which run in an environment of their own: see requirements.txt."""
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "py"))

import harness  # noqa: E402
import servers  # noqa: E402


REAPER = "import sys, harness; sys.stdin.read(); harness.end_run(sys.argv[1])"


@pytest.fixture(scope="session", autouse=True)
def nothing_outlives_the_tests():
    """Nor a run that is ended in the middle: a child of it sees that by the end of its input, and ends all
    that was started."""
    reaper = subprocess.Popen(
        [sys.executable, "-c", REAPER, harness.SESSION],
        stdin=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(harness.__file__).parent)},
    )
    os.environ[harness.RUN] = harness.SESSION
    yield
    del os.environ[harness.RUN]
    reaper.stdin.close()
    assert reaper.wait(2 * harness.DEADLINE_S) == 0
    assert harness.of_run(harness.SESSION) == []


@pytest.fixture
def reports(tmp_path):
    with harness.reports(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def redis_url(nothing_outlives_the_tests):
    with servers.redis() as url:
        yield url
