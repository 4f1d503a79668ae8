"""The pool under threads, in C and in Python: both run, count what the server counts, and differ by their
turn."""
import asyncio
import os
import subprocess
import sys
import tempfile
import types

import pytest

from test_bench_micro import BENCH, built, conforms  # noqa: F401

sys.path.insert(0, str(BENCH))

import harness  # noqa: E402

pytestmark = pytest.mark.timeout(300)
CASES = {"churn_connections", "churn_cpu", "churn_rate"}


@pytest.fixture(scope="module")
def server():
    """One cluster for all runs that need none of their own: to make it takes longer than they do."""
    pytest.importorskip("asyncpg")
    with harness.postgres() as running:
        yield running


def run_tool(built, *arguments, **env):  # noqa: F811
    return subprocess.run(
        [built / "cli" / "pool_churn", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
    )


def run_churn(server, *arguments, env=None):
    command = [sys.executable, BENCH / "pool_churn.py", "--server", f"{server.port}/{server.database}"]
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=200,
                          env={**os.environ, **(env or {})})


def figures(document):
    assert {sample["case"] for sample in document["samples"]} == CASES
    assert all(sample["ok"] for sample in document["samples"]), document["samples"]
    return {sample["case"]: sample["value"] for sample in document["samples"]}


def test_the_c_tool_starts_a_server_of_its_own_and_fits_the_schema(built, tmp_path):  # noqa: F811
    target = tmp_path / "churn.json"
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # PostgreSQL runs as another user
        done = run_tool(built, "--smoke", "--json", target, TMPDIR=folder)
        assert not os.listdir(folder), "the tool left its cluster behind"
    assert done.returncode == 0, done.stdout + done.stderr
    assert figures(conforms(target))["churn_rate"] > 0


def test_the_c_tool_takes_another_shape_and_a_server_that_is_there(built, server, tmp_path):  # noqa: F811
    target = tmp_path / "churn.json"
    done = run_tool(
        built,
        "--smoke",
        "--arm",
        "shape",
        "--turn",
        "quiescent",
        "--spin-us",
        50,
        "--work-us",
        5,
        "--think-us",
        10,
        "--queries",
        3,
        "--per-checkout",
        2,
        "--query",
        "SELECT 1",
        "--dsn",
        server.dsn(),
        "--json",
        target,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = conforms(target)
    assert document["arm"] == "shape" and figures(document)["churn_rate"] > 0


def test_the_c_tool_lists_its_cases_and_refuses_what_it_does_not_know(built):  # noqa: F811
    assert {line.split()[0] for line in run_tool(built, "--list").stdout.splitlines()} == CASES
    assert run_tool(built, "--help").returncode == 0
    for wrong in (["--no-such-option"], ["--threads", "0"], ["--json"], ["--case", "no-such-case"]):
        assert run_tool(built, *wrong).returncode == 2, wrong


def test_a_turn_that_is_none_and_a_server_that_is_not_there_are_refused(built, tmp_path):  # noqa: F811
    done = run_tool(built, "--smoke", "--turn", "sideways")
    assert done.returncode == 2 and "generation or quiescent" in done.stderr
    done = run_tool(built, "--smoke", "--dsn", f"host={tmp_path} dbname=none")
    assert done.returncode == 2 and "--dsn: a server that answers" in done.stderr


@pytest.mark.parametrize("loop, shape", [
    ("treadle", []),
    ("asyncio", []),
    ("asyncio", ["--turn", "quiescent", "--spin-us", "100"]),
    ("treadle", ["--turn", "quiescent", "--spin-us", "100", "--transaction", "--per-checkout", "2"]),
])
def test_the_python_one_runs_on_any_loop_and_fits_the_schema(loop, shape, server, tmp_path):
    pytest.importorskip("sqlalchemy")
    target = tmp_path / "churn.json"
    done = run_churn(server, "--smoke", "--loop", loop, *shape, "--json", target)
    assert done.returncode == 0, done.stdout + done.stderr
    assert figures(conforms(target))["churn_cpu"] > 0


def test_a_loop_without_the_turn_asked_for_is_refused(server, tmp_path):
    pytest.importorskip("sqlalchemy")
    (tmp_path / "plain_loop.py").write_text("from asyncio import new_event_loop\n")
    done = run_churn(
        server, "--smoke", "--loop", "plain_loop", "--turn", "quiescent", env={"PYTHONPATH": str(tmp_path)}
    )
    assert done.returncode != 0 and "one turn only" in done.stderr


def test_shapes_in_c_and_in_python_are_measured_interleaved_and_compared(
    built, server, tmp_path
):  # noqa: F811
    pytest.importorskip("sqlalchemy")
    names = ["treadle", "asyncio/quiescent/50", "C/generation/0", "C/quiescent/50"]
    done = run_churn(
        server,
        "--smoke",
        "--arms",
        ",".join(names),
        "--tool",
        built / "cli" / "pool_churn",
        "--out",
        tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in names:
        document = conforms(tmp_path / f"{name.replace('/', '-')}.json")
        assert document["arm"] == name
        figures(document)
    assert (tmp_path / "comparison.md").exists() and "per 1,000 requests" in done.stdout


def test_the_trace_follows_each_connection_through_the_pool(server, tmp_path):
    pytest.importorskip("sqlalchemy")
    trace = tmp_path / "trace.txt"
    path = os.pathsep.join(filter(None, [str(BENCH / "pool_trace"), os.environ.get("PYTHONPATH")]))
    done = run_churn(server, "--smoke", "--loop", "asyncio", "--json", tmp_path / "churn.json",
                     env={"PYTHONPATH": path, "TREADLE_POOL_TRACE": str(trace)})
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in trace.read_text().splitlines()]
    times = [int(line[0]) for line in lines]
    events = [line[2] for line in lines]
    assert times == sorted(times)
    assert events.count("checkout") == events.count("checkin") > 80
    assert events.count("connect") >= 4
    assert all(0 <= int(used) <= int(opened) <= 6 for _, _, event, opened, used in lines)
    assert lines[-1][3:] == ["0", "0"]


def test_without_its_variable_the_trace_changes_nothing():
    done = subprocess.run(
        [sys.executable, "-c", "import sys; print([f for f in sys.meta_path if 'AfterImport' in repr(f)])"],
        env={**os.environ, "PYTHONPATH": str(BENCH / "pool_trace"), "TREADLE_POOL_TRACE": ""},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]"


def shaped(name, quiescent, spin_us):
    """A loop as pool_churn.py makes it."""
    import pool_churn

    return pool_churn.factory(
        types.SimpleNamespace(loop=name, turn=pool_churn.TURNS[quiescent], spin_us=spin_us)
    )()


@pytest.mark.parametrize("name", ["asyncio", "treadle"])
@pytest.mark.parametrize("quiescent, expected", [(False, [0, 1, "polled", 2]), (True, [0, 1, 2, "polled"])])
def test_a_quiescent_turn_works_off_what_it_scheduled_before_it_polls(name, quiescent, expected):
    seen = []
    loop = shaped(name, quiescent, 0)
    reader, writer = os.pipe()
    try:
        def polled():
            os.read(reader, 1)
            seen.append("polled")
            if len(seen) == 4:
                loop.stop()

        def step(number):
            seen.append(number)
            if number == 0:
                os.write(writer, b"x")
            if number < 2:
                loop.call_soon(step, number + 1)
            elif len(seen) == 4:
                loop.stop()

        loop.add_reader(reader, polled)
        loop.call_soon(step, 0)
        loop.run_forever()
    finally:
        loop.close()
        os.close(reader)
        os.close(writer)
    # The poll that finds the pipe ready puts its callback behind what was scheduled before it.
    assert seen == expected


@pytest.mark.parametrize("name", ["asyncio", "treadle"])
@pytest.mark.parametrize("quiescent", [False, True])
def test_a_spinning_loop_takes_what_another_thread_posts_and_still_ends(name, quiescent):
    with asyncio.Runner(loop_factory=lambda: shaped(name, quiescent, 1000)) as runner:
        async def main():
            await asyncio.sleep(0.001)
            return await asyncio.get_running_loop().run_in_executor(None, int, "7")

        assert runner.run(main()) == 7


def test_an_arm_names_loop_turn_and_spin():
    import pool_churn

    assert pool_churn.shape_of("treadle") == ["--loop", "treadle", "--turn", "generation", "--spin-us", "0"]
    assert pool_churn.shape_of("asyncio/quiescent/50") == [
        "--loop",
        "asyncio",
        "--turn",
        "quiescent",
        "--spin-us",
        "50",
    ]
    assert pool_churn.shape_of("treadle#2/generation")[1] == "treadle"
