"""The command-line tools in C: what they refuse, what they leave behind, and what a signal cannot take from
them."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time

import pytest
from test_bench_micro import ROOT, built  # noqa: F401  (a fixture)

jsonschema = pytest.importorskip("jsonschema")
pytestmark = pytest.mark.timeout(600)

TOOLS = ("micro", "dns", "fileio", "pool_churn")
SIGNALS_PER_TOOL = 50 if os.environ.get("TREADLE_TEST_FULL") else 4


@pytest.fixture(params=TOOLS)
def tool(request, built):  # noqa: F811
    path = built / "cli" / request.param
    if not path.exists():
        pytest.skip(f"{request.param} was not built")
    return path


def run(tool, *arguments, **more):
    return subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, timeout=120, **more)


def options_of(tool):
    """Each option's name and what stands behind it in the help."""
    return dict(re.findall(r"^  --([\w-]+)(.*)$", run(tool, "--help").stdout, re.MULTILINE))


def refuses(tool, name, *arguments, codes=(2,)):
    done = run(tool, *arguments)
    assert done.returncode in codes, (arguments, done)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and f"--{name}" in lines[0], (arguments, done.stderr)


def conforms(path):
    document = json.loads(path.read_text())
    jsonschema.validate(document, json.loads((ROOT / "perf" / "schema.json").read_text()))
    return document


def test_every_number_is_refused_outside_its_range_in_one_line_that_says_the_range(tool):
    for name, rest in options_of(tool).items():
        found = re.search(r"; (-?\d+) to (-?\d+)", rest)
        if not found:
            continue
        low, high = map(int, found.groups())
        for wrong in (low - 1, high + 1, 10**30, "", "one", f"{low} ", f"{low}x", "0x1"):
            refuses(tool, name, f"--{name}={wrong}", "--smoke")
            refuses(tool, name, f"--{name}", wrong, "--smoke")
            assert f"{low} to {high}" in run(tool, f"--{name}={wrong}").stderr


def test_every_text_is_refused_when_it_is_empty_or_missing(tool):
    for name, rest in options_of(tool).items():
        if re.search(r"; (-?\d+) to (-?\d+)", rest) or name in ("version", "list", "smoke"):
            continue
        refuses(tool, name, f"--{name}=", "--smoke")
        refuses(tool, name, "--smoke", f"--{name}")


def test_what_is_no_option_is_refused_by_its_name(tool):
    refuses(tool, "no-such-option", "--no-such-option")
    refuses(tool, "no-such-option", "--no-such-option=3")
    refuses(tool, "samp", "--samp", "3")
    refuses(tool, "list", "--list=1")
    for wrong in ("word", "-", "-x", "--"):
        assert run(tool, wrong).returncode == 2


def test_a_case_that_matches_nothing_is_refused_beside_one_that_matches(tool):
    first = run(tool, "--list").stdout.split()[0]
    refuses(tool, "case", "--case", first, "--case", "no-such-case", "--smoke")


def test_a_place_for_the_results_that_cannot_be_written_is_refused_before_anything_is_measured(
    tool, tmp_path
):
    for wrong in (tmp_path, tmp_path / "missing" / "x.json", "/dev/full", "/proc/x.json"):
        done = run(tool, "--smoke", "--json", wrong)
        assert done.returncode == 2 and done.stdout == "" and "--json" in done.stderr


def test_processors_that_are_not_there_are_refused(tool):
    for wrong in ("100000", "0-", "-1", "a", "0,,1", "1-0", "900"):
        refuses(tool, "cpus", f"--cpus={wrong}", "--smoke")


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("engine", ["--engine", "bogus"]),
        ("mode", ["--mode", "bogus"]),
        ("folder", ["--folder", "/proc"]),
        ("folder", ["--folder", "/no/such/folder"]),
        ("folder", ["--folder", "/dev/null"]),
        ("folder", ["--file-mib", "65536", "--folder", "/dev/shm"]),
        ("sqpoll", ["--sqpoll", "1", "--engine", "threads"]),
        ("block", ["--block", "16777216", "--file-mib", "8"]),
        ("depth", ["--depth", "4096", "--block", "16777216"]),
    ],
)
def test_fileio_refuses_what_cannot_be_measured(name, wrong, built):  # noqa: F811
    refuses(built / "cli" / "fileio", name, *wrong)


def test_dns_and_pool_churn_say_which_host_or_server_does_not_answer(built):  # noqa: F811
    refuses(built / "cli" / "dns", "host", "--host", "no-such-host.invalid", "--smoke")
    refuses(built / "cli" / "dns", "numeric-host", "--numeric-host", "localhost", "--smoke")
    if (built / "cli" / "pool_churn").exists():
        refuses(built / "cli" / "pool_churn", "dsn", "--dsn", "host=/no/such/folder", "--smoke")


def test_a_case_that_needs_a_preload_says_how_to_give_it_and_nothing_measured_is_an_error(
    built,
):  # noqa: F811
    done = run(built / "cli" / "dns", "--case", "close_blocked")
    assert (
        done.returncode == 1 and "LD_PRELOAD=" in done.stdout and "nothing could be measured" in done.stderr
    )


def test_both_forms_of_an_option_and_the_arm_reach_the_results(tool, tmp_path):
    target = tmp_path / "out.json"
    case = run(tool, "--list").stdout.split()[0]
    done = run(tool, "--smoke", f"--case={case}", "--arm", "before", f"--json={target}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = conforms(target)
    assert found["arm"] == "before" and found["build"]["type"] == "Release" and found["build"]["compiler"]
    assert found["machine"]["affinity"] and found["summary"][case]["n"] == 1
    assert sorted(os.listdir(tmp_path)) == ["out.json"]


def test_help_and_version_are_given_whatever_stands_beside_them(tool):
    for asked in ("-h", "--help", "--version"):
        done = run(tool, "--bogus", asked)
        assert done.returncode == 0 and done.stdout and not done.stderr


def test_a_kept_file_is_used_again_and_never_deleted(built, tmp_path):  # noqa: F811
    tool = built / "cli" / "fileio"
    kept = tmp_path / "treadle-fileio.data"
    common = ("--folder", tmp_path, "--file-mib", 1, "--smoke")
    assert run(tool, *common, "--keep", 1, "--case", "hot_read").returncode == 0
    before = kept.stat()
    for more in (
        ["--keep", "1"],
        ["--keep", "0"],
        ["--help"],
        ["--list"],
        ["--bogus"],
        ["--engine", "bogus"],
    ):
        run(tool, *common, *more)
        assert kept.stat().st_ino == before.st_ino and kept.stat().st_size == 1 << 20
    assert os.listdir(tmp_path) == ["treadle-fileio.data"]


@pytest.fixture
def open_folder():
    """A folder that the server's user may enter, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="treadle-tools-") as folder:
        path = pathlib.Path(folder)
        path.chmod(0o777)
        yield path


def is_ready_for(pid, number):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^SigBlk:\s*(\w+)", status, re.MULTILINE).group(1), 16) >> (number - 1) & 1


def children_of(pid):
    found = set()
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                    found.add(int(entry.name))
            except (OSError, IndexError):
                continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_leaves_what_was_measured_and_nothing_else(
    tool, number, tmp_path, open_folder
):
    target = tmp_path / "out.json"
    folder = open_folder
    more = ["--folder", folder, "--file-mib", "8"] if tool.name == "fileio" else []
    longest_s = 2.5 if tool.name == "pool_churn" else 0.4
    for seed in range(SIGNALS_PER_TOOL):
        target.unlink(missing_ok=True)
        process = subprocess.Popen([tool, "--samples", "1000000", "--warmup", "0", "--json", target, *more],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "TMPDIR": str(folder)})
        while not is_ready_for(process.pid, number):
            assert process.poll() is None
        time.sleep(random.Random(seed).uniform(0, longest_s))  # the moment, and not a wait for something
        children = children_of(process.pid)
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert f"{tool.name}: stopped after" in errors
        if target.exists():
            found = conforms(target)
            assert [s for s in found["samples"] if not s["ok"]] == []
            assert abs(len(found["samples"]) - output.count("\n")) <= 1
        assert os.listdir(folder) == []
        assert not [child for child in children if pathlib.Path(f"/proc/{child}").exists()]
