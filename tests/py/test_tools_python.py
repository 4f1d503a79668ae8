"""The benchmark programs in Python: what they refuse, what a signal leaves, and what a measured process does
not obey."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import uuid

import pytest
from test_bench_micro import BENCH, conforms

pytestmark = pytest.mark.timeout(600)
SIGNALS_PER_TOOL = 50 if os.environ.get("TREADLE_TEST_FULL") else 2
SHORT = ["--arms", "treadle,asyncio", "--rounds", "1", "--seconds", "0.01"]

# Program, and what makes it measure for long.
TOOLS = {
    "micro.py": [
        "--loop",
        "asyncio",
        "--case",
        "chain",
        "--samples",
        "100000",
        "--seconds",
        "0.01",
        "--warmup",
        "0",
    ],
    "run.py": [
        "--arms",
        "treadle,asyncio",
        "--rounds",
        "500",
        "--case",
        "chain",
        "--case",
        "echo_64_1",
        "--seconds",
        "0.01",
    ],
    "dns.py": ["--arms", "treadle,asyncio", "--rounds", "500", "--case", "dns_numeric", "--seconds", "0.01"],
    "fileio.py": [
        "--arms",
        "treadle,executor",
        "--rounds",
        "500",
        "--case",
        "hot_4k_8",
        "--scale",
        "0.01",
        "--file-mib",
        "2",
    ],
    "pool_churn.py": ["--arms", "treadle,asyncio", "--rounds", "500", "--requests", "80"],
}


def run(name, *arguments, **more):
    return subprocess.run(
        [sys.executable, BENCH / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **more,
    )


def refuses(name, option, *arguments):
    done = run(name, *arguments)
    assert done.returncode == 2, (arguments, done)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and option in lines[0] and "Traceback" not in done.stderr, (arguments, done.stderr)


@pytest.mark.parametrize("name", TOOLS)
def test_every_number_is_refused_outside_its_range_by_a_line_that_names_the_option(name):
    found = re.findall(
        r"--([\w-]+)[^-]*?(-?\d+(?:\.\d+)?) to (\d+)", " ".join(run(name, "--help").stdout.split())
    )
    assert found
    for option, low, high in found:
        for wrong in (float(low) - 1, float(high) * 10, ""):
            wrong = int(wrong) if wrong != "" and float(wrong).is_integer() else wrong
            refuses(name, f"--{option}: {low} to {high}", f"--{option}={wrong}")


@pytest.mark.parametrize(
    "name, option, arguments",
    [
        *[(name, "--no-such", ["--no-such"]) for name in TOOLS],
        *[(name, "--case", ["--case", "no-such-row"]) for name in TOOLS if name != "pool_churn.py"],
        *[(name, "--arms", ["--arms", "no_such_loop"]) for name in TOOLS if name != "micro.py"],
        *[(name, "--out", [*TOOLS[name], "--out", "/proc/none"]) for name in TOOLS if name != "micro.py"],
        *[(name, "--out", [*TOOLS[name], "--out", "/etc/passwd"]) for name in TOOLS if name != "micro.py"],
        *[(name, "--cpus", ["--cpus", wrong]) for name in TOOLS for wrong in ("", "x", "4096", "1-0")],
        ("micro.py", "--loop", ["--loop", "no_such_loop"]),
        ("micro.py", "--loop", ["--loop", "json"]),
        ("micro.py", "--json", ["--json", "/no/such/folder/x.json"]),
        ("micro.py", "--json", ["--json", "/dev/full"]),
        ("micro.py", "--json", ["--json", "/"]),
        ("micro.py", "--tools", ["--tools", "/no/such/folder"]),
        ("run.py", "--arms", ["--arms", "treadle@/no/such/wheel.whl"]),
        ("run.py", "--arms", ["--arms", "treadle+none"]),
        ("run.py", "--compare", ["--compare", "HEAD", "--arms", "treadle"]),
        ("run.py", "--arms", ["--compare", "no-such-revision", "--case", "chain"]),
        ("fileio.py", "--folder", ["--folder", "/proc/none"]),
        ("fileio.py", "--limit", ["--limit", "/no/such/tool"]),
        ("fileio.py", "--arms", ["--arms", "treadle+bogus"]),
        ("fileio.py", "--arms", ["--arms", "limit"]),
        ("pool_churn.py", "--server", ["--server", "nowhere"]),
        ("pool_churn.py", "--query", ["--query", " "]),
        ("pool_churn.py", "--tool", ["--tool", "/no/such/tool"]),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_measured(name, option, arguments):
    refuses(name, option, *arguments)


def handles(pid, number):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE).group(1), 16) >> (number - 1) & 1


def marked(mark):
    """The processes that have the mark in their environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry.name, (entry / "cmdline").read_bytes()))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", TOOLS)
def test_a_signal_at_any_moment_leaves_what_was_measured_and_nothing_else(name, number, tmp_path):
    if name == "pool_churn.py":
        pytest.importorskip("sqlalchemy")
    for seed in range(SIGNALS_PER_TOOL):
        mark, out, folder = uuid.uuid4().hex, tmp_path / f"out{seed}", tmp_path / f"tmp{seed}"
        folder.mkdir()
        where = ["--json", out / "arm.json"] if name == "micro.py" else ["--out", out]
        out.mkdir()
        process = subprocess.Popen(
            [sys.executable, BENCH / name, *TOOLS[name], *map(str, where)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TDL_TEST_MARK": mark},
        )
        while not handles(process.pid, signal.SIGTERM):  # which the interpreter itself does not handle
            assert process.poll() is None, process.communicate()
        time.sleep(random.Random(seed).uniform(0, 3))  # the moment, and not a wait for something
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert "Traceback" not in errors and "stopped by" in errors
        assert marked(mark) == []
        for path in out.glob("*.json"):
            if path.name != "comparison.json":
                text = path.read_text()
                assert text == "" or all(sample["ok"] for sample in conforms(path)["samples"])
        assert not [path.name for path in out.iterdir() if path.name.startswith(".")]


def test_a_measured_process_does_not_obey_what_its_caller_set_for_itself(tmp_path):
    done = run(
        "run.py",
        *SHORT,
        "--case",
        "chain",
        "--out",
        tmp_path,
        env={**os.environ, "PYTHONASYNCIODEBUG": "1", "MALLOC_ARENA_MAX": "1", "UV_THREADPOOL_SIZE": "1"},
    )
    assert done.returncode == 0, done.stderr
    document = conforms(tmp_path / "treadle.json")
    assert document["args"]["env_removed"] == {
        "PYTHONASYNCIODEBUG": "1",
        "MALLOC_ARENA_MAX": "1",
        "UV_THREADPOOL_SIZE": "1",
    }


def test_a_program_that_measures_in_its_own_process_says_what_it_obeys(tmp_path):
    done = run("micro.py", "--loop", "asyncio", "--smoke", "--case", "chain", "--json", tmp_path / "x.json",
               env={**os.environ, "PYTHONASYNCIODEBUG": "1"})
    assert "PYTHONASYNCIODEBUG=1" in done.stderr
    assert conforms(tmp_path / "x.json")["args"]["environment"]["PYTHONASYNCIODEBUG"] == "1"


@pytest.fixture
def fake_loop(tmp_path):
    """A module with a loop, as an installed prefix."""
    package = tmp_path / "prefix" / "my_loop"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import asyncio\nnew_event_loop = asyncio.new_event_loop\nmake = new_event_loop\n"
    )
    return tmp_path / "prefix"


def test_an_arm_may_be_an_installed_prefix_and_a_factory_of_any_module(fake_loop, tmp_path):
    done = run(
        "run.py",
        "--arms",
        f"my_loop@{fake_loop},asyncio:new_event_loop,my_loop:make@{fake_loop}#2",
        "--rounds",
        "1",
        "--seconds",
        "0.01",
        "--case",
        "chain",
        "--out",
        tmp_path / "out",
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "out").glob("my_loop*.json"))) == 2
    for path in (tmp_path / "out").glob("my_loop*.json"):
        assert conforms(path)["samples"][0]["ok"]


def test_a_build_whose_figures_would_mislead_is_refused_unless_asked_for(tmp_path):
    package = tmp_path / "treadle"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import asyncio, types\nnew_event_loop = asyncio.new_event_loop\n"
        "_treadle = types.SimpleNamespace(features=lambda: {'build_type': 'Debug', 'sanitizers': 'address'})\n"
    )
    asked = [
        "--arms",
        f"treadle@{tmp_path}",
        "--rounds",
        "1",
        "--seconds",
        "0.01",
        "--case",
        "chain",
        "--out",
        tmp_path / "out",
    ]
    refuses("run.py", "--allow-debug", *asked)
    assert run("run.py", *asked, "--allow-debug").returncode == 0


def test_a_row_that_fails_on_every_arm_is_an_error(fake_loop, tmp_path):
    (fake_loop / "my_loop" / "__init__.py").write_text(
        "def new_event_loop():\n    raise OSError('no loop today')\n"
    )
    done = run(
        "run.py",
        "--arms",
        f"my_loop@{fake_loop}",
        "--rounds",
        "1",
        "--case",
        "chain",
        "--out",
        tmp_path / "out",
    )
    assert done.returncode == 1 and "no loop today" in done.stdout
    assert (
        json.loads(next((tmp_path / "out").glob("my_loop*.json")).read_text())["summary"]["chain"]["failed"]
        == 1
    )
