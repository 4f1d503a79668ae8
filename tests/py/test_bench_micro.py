"""The measuring tools, in their smoke modes: each row runs, and what is written fits the one schema."""
import fcntl
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "perf" / "bench"
BUILD = ROOT / "build" / "bench-tools"
# A C tool that needs a server of its own is tested where that server is started.
TOOLS = sorted(path.stem for path in (ROOT / "cli").glob("*.c") if path.stem != "pool_churn")

PROGRAMS = {
    "aiohttp_server",
    "aiohttp_client",
    "uvicorn_post",
    "granian",
    "httpx_client",
    "websockets_echo",
    "redis_get",
    "redis_pipeline",
    "asyncpg_select",
    "asyncpg_rows",
    "sqlalchemy_session",
    "nats_request",
    "grpc_unary",
    "open_localhost",
    "lines_streams",
}

jsonschema = pytest.importorskip("jsonschema")
pytestmark = pytest.mark.timeout(300)


def conforms(path):
    document = json.loads(pathlib.Path(path).read_text())
    jsonschema.validate(document, json.loads((ROOT / "perf" / "schema.json").read_text()))
    return document


@pytest.fixture(scope="session")
def built():
    """The folder of a release build of the C tools, made once however many processes test."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            [
                "cmake",
                "-S",
                ROOT,
                "-B",
                BUILD,
                "-G",
                "Ninja",
                "-DCMAKE_BUILD_TYPE=Release",
                "-DTREADLE_BUILD_TESTS=OFF",
            ],
            ["cmake", "--build", BUILD, "-j", "2"],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return BUILD


def run_micro(*arguments, **more):
    return subprocess.run(
        [sys.executable, BENCH / "micro.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **more,
    )


@pytest.mark.parametrize("loop", ["treadle", "asyncio"])
def test_every_row_with_a_target_runs_and_fits_the_schema(loop, built, tmp_path):
    target = tmp_path / "micro.json"
    done = run_micro("--loop", loop, "--smoke", "--tools", built / "perf" / "bench", "--json", target)
    found = conforms(target)
    failed = [f"{s['case']}: {s['error']}" for s in found["samples"] if s.get("kind") == "failed"]
    assert not failed
    assert done.returncode == 0, done.stderr
    assert set(found["summary"]) | PROGRAMS == set(
        json.loads((ROOT / "perf" / "targets.json").read_text())["rows"]
    )


def test_every_row_of_a_real_program_runs_and_fits_the_schema(built, tmp_path):
    target = tmp_path / "programs.json"
    asked = [word for name in PROGRAMS for word in ("--case", name)]
    done = run_micro("--smoke", "--tools", built / "perf" / "bench", "--json", target, *asked)
    failed = [
        f"{s['case']}: {s['error']}"
        for s in conforms(target)["samples"]
        if not s["ok"] and not s["error"].startswith("needs ")
    ]
    assert not failed and done.returncode == 0, done.stderr


def test_the_plain_c_server_has_the_rows_of_a_server(built, tmp_path):
    target = tmp_path / "limit.json"
    run_micro(
        "--loop",
        "libuv",
        "--smoke",
        "--tools",
        built / "perf" / "bench",
        "--case",
        "*_64_64",
        "--case",
        "churn",
        "--json",
        target,
    )
    kinds = {s["case"]: s.get("kind") for s in conforms(target)["samples"]}
    assert kinds["echo_64_64"] is None and kinds["unix_64_64"] is None and kinds["churn"] is None
    assert kinds["streams_64_64"] == "unsupported"


@pytest.mark.parametrize("tool", TOOLS)
def test_every_c_tool_runs_its_smoke_mode_and_fits_the_schema(tool, built, tmp_path):
    target = tmp_path / "tool.json"
    done = subprocess.run([built / "cli" / tool, "--smoke", "--json", target], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = conforms(target)
    assert found["samples"] and not [s for s in found["samples"] if s.get("kind") == "failed"]


@pytest.mark.parametrize("tool", TOOLS)
def test_every_c_tool_lists_its_cases_and_refuses_what_it_does_not_know(tool, built):
    listed = subprocess.run([built / "cli" / tool, "--list"], capture_output=True, text=True)
    assert listed.returncode == 0 and listed.stdout.strip()
    assert subprocess.run([built / "cli" / tool, "--help"], capture_output=True).returncode == 0
    for wrong in (["--no-such-option"], ["--samples", "none"], ["--case", "no-such-case"], ["--json"]):
        assert subprocess.run([built / "cli" / tool, *wrong], capture_output=True).returncode == 2, wrong


def test_a_row_that_fails_is_reported_and_the_others_go_on(tmp_path):
    (tmp_path / "broken_loop.py").write_text(
        "import asyncio\n"
        "class Loop(asyncio.SelectorEventLoop):\n"
        "    def call_later(self, *args, **kwargs):\n"
        "        raise RuntimeError('no timers today')\n"
        "def new_event_loop():\n"
        "    return Loop()\n")
    target = tmp_path / "broken.json"
    done = run_micro(
        "--loop",
        "broken_loop",
        "--smoke",
        "--json",
        target,
        "--case",
        "chain",
        "--case",
        "timer_cancel",
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    outcome = {s["case"]: s["ok"] for s in conforms(target)["samples"]}
    assert outcome == {"chain": True, "timer_cancel": False}


def test_rows_are_named_once_and_an_unknown_one_is_refused():
    listed = run_micro("--list", "--case", "*")
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert len(names) == len(set(names)) > 50
    assert run_micro("--case", "no-such-row").returncode != 0


def test_arms_are_interleaved_over_rounds_and_compared(tmp_path):
    out = tmp_path / "out"
    done = subprocess.run(
        [
            sys.executable,
            BENCH / "run.py",
            "--arms",
            "treadle,asyncio,treadle#2",
            "--rounds",
            "2",
            "--seconds",
            "0.02",
            "--case",
            "chain",
            "--case",
            "burst",
            "--out",
            out,
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for arm in ("treadle", "asyncio", "treadle#2"):
        found = conforms(out / f"{arm}.json")
        assert sorted({(s["case"], s["round"]) for s in found["samples"]}) == [
            ("burst", 0), ("burst", 1), ("chain", 0), ("chain", 1)]
    assert (out / "comparison.png").exists() and (out / "comparison.md").exists()
    assert "A/A control" in done.stdout
