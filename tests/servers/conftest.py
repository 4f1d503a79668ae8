"""Fixtures of the tests of servers, which run in an environment of their own: see requirements.txt."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "py"))

import harness  # noqa: E402
import servers  # noqa: E402


@pytest.fixture
def reports(tmp_path):
    with harness.reports(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def redis_url():
    with servers.redis() as url:
        yield url
