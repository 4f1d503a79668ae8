"""Memory: each case is a script of its own in a fresh interpreter, so that nothing else moves the figures."""
import pathlib

import pytest

SCRIPTS = sorted((pathlib.Path(__file__).parent / "isolated").glob("*.py"))


@pytest.mark.timeout(150)
@pytest.mark.parametrize("script", SCRIPTS, ids=[s.stem for s in SCRIPTS])
def test_isolated(script, python):
    done = python(str(script), timeout=140)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "passed" in done.stdout, done.stdout
