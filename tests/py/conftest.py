"""Fixtures of the Python tests: see twin.py for the comparison with asyncio, servers.py for the real
servers."""
import gc
import importlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

import servers
import twin

# A shell that starts the tests in the background ignores SIGINT, nohup SIGHUP, and every child would inherit
# that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def pytest_configure(config):
    module = importlib.import_module(twin.LOOP_MODULE)
    # What a process opens once (probes, caches) must not count as a leak of the first test.
    module.new_event_loop().close()


def pytest_report_header(config):
    module = importlib.import_module(twin.LOOP_MODULE)
    info = getattr(module, "info", dict)()
    return [f"loop under test: {twin.LOOP_MODULE} ({getattr(module, '__file__', '?')})", f"info: {info}"]


@pytest.fixture(autouse=True)
def small_heap():
    """Objects older than the test need not be looked at by each collection."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def loop():
    """A treadle loop, for what has no twin on asyncio."""
    loop = twin.subject_loop()
    yield loop
    if not loop.is_closed():
        loop.close()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    with servers.postgres() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory):
    with servers.redis() as url:
        yield url


def run_python(*args, env=None, timeout=60, code=None, check=False, **kwargs):
    """Runs the interpreter of the tests on arguments or code; returns the completed process."""
    environ = dict(os.environ, **(env or {}))
    environ.setdefault("TREADLE_TEST_LOOP", twin.LOOP_MODULE)
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), environ.get("PYTHONPATH")]))
    command = [sys.executable, *args] if code is None else [sys.executable, "-c", code, *args]
    done = subprocess.run(command, env=environ, timeout=timeout, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, **kwargs)
    if check:
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture
def python():
    return run_python


def preload(name, folder):
    """Builds tests/preload/NAME.c; returns an environment that preloads it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / f"lib{name}.so"
    command = [compiler, "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-fvisibility=hidden"]
    command += [
        "-I",
        str(ROOT / "libs/base/include"),
        str(ROOT / f"tests/preload/{name}.c"),
        "-o",
        str(library),
    ]
    subprocess.run([*command, "-ldl"], check=True)
    libraries = filter(None, [os.environ.get("LD_PRELOAD"), str(library)])  # a sanitizer comes first
    return {"LD_PRELOAD": ":".join(libraries)}
