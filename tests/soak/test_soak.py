"""Long runs: descriptors, memory and live objects stay where they were after the warm-up. Each is its own
process."""
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = sorted((HERE / "scripts").glob("*.py"))

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.mark.parametrize("script", SCRIPTS, ids=[s.stem for s in SCRIPTS])
def test_soak(script):
    env = dict(
        os.environ, PYTHONPATH=os.pathsep.join([str(HERE.parent / "py"), os.environ.get("PYTHONPATH", "")])
    )
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=880,
                          stdin=subprocess.DEVNULL)
    assert (
        done.returncode == 0 and "passed" in done.stdout
    ), f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
