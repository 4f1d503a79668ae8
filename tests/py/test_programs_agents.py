"""Agents, test guards and nest_asyncio, as released: what they see and do on treadle is what they see and do
on asyncio."""
import importlib.util
import pathlib

import pytest

import twin

pytestmark = [pytest.mark.programs, pytest.mark.timeout(120),
              pytest.mark.skipif(twin.LOOP_MODULE != "treadle", reason="compares treadle with asyncio")]
SCRIPTS = pathlib.Path(__file__).parent
PACKAGES = {
    "sentry": "sentry_sdk",
    "opentelemetry_threading": "opentelemetry.instrumentation.threading",
    "opentelemetry_asyncio": "opentelemetry.instrumentation.asyncio",
    "ddtrace": "ddtrace",
    "elastic": "elasticapm",
    "pytest_socket": "pytest_socket",
}


def both(python, script, *args):
    return [
        python(str(SCRIPTS / script), arm, *args, check=True, timeout=60).stdout
        for arm in ("asyncio", "treadle")
    ]


def need(package):
    """A package that this Python has none of: they are installed where scripts/setup installs all."""
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize("agent", PACKAGES)
def test_an_agent_sees_what_it_sees_on_asyncio(python, agent):
    need(PACKAGES[agent])
    asyncio, treadle = both(python, "observed.py", agent)
    assert asyncio  # it saw something
    assert treadle == asyncio


@pytest.mark.parametrize("when", ["before", "inside"])
def test_nest_asyncio_nests_and_breaks_no_later_loop(python, when):
    need("nest_asyncio")
    asyncio, treadle = both(python, "nested.py", when)
    assert "a later loop" in asyncio
    assert treadle == asyncio
