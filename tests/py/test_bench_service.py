"""The full service as a measurement: its smoke run, what the load generators say, and what other processes disturb."""
import os
import subprocess
import sys
import time
import types

import pytest

from test_bench_micro import BENCH, conforms

sys.path.insert(0, str(BENCH))

import comparison  # noqa: E402
import harness  # noqa: E402
import quiet  # noqa: E402
import service  # noqa: E402

pytestmark = pytest.mark.timeout(300)
FIGURES = {"ops": 10, "wall_us": 1.0, "cpu_us": 2.0, "rate": 5.0, "cpu": 2.0, "sessions": 0.0, "p50": 1.0, "p99": 2.0,
           "http": {"status": {"200": 10}, "errors": {}}, "extra": {}}


@pytest.mark.parametrize("loop", ["treadle", "asyncio"])
def test_the_service_answers_on_its_loop_and_the_figures_fit_the_schema(loop, tmp_path):
    for package in ("granian", "litestar", "sqlalchemy", "asyncpg", "redis", "nats"):
        pytest.importorskip(package)
    done = subprocess.run([sys.executable, BENCH / "service.py", "--smoke", "--arms", loop, "--out", tmp_path],
                          capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    document = conforms(tmp_path / f"{loop}.json")
    assert len(document["samples"]) == 6 * len(service.FIGURES)
    assert all(sample["ok"] for sample in document["samples"])
    assert (tmp_path / "comparison.md").exists() and (tmp_path / "comparison.png").exists()


def test_an_endpoint_that_is_none_is_refused():
    pytest.importorskip("granian")
    with pytest.raises(SystemExit, match="no endpoint"):
        service.endpoints(["no-such-endpoint"])
    assert list(service.endpoints(["*gate", "count"])) == ["aggregate", "count"]


def test_wrk_is_read_with_its_errors():
    said = ('Running 1s test\nREPORT {"requests": 100, "us": 2000000, "p50_us": 1500, "p99_us": 9000, "connect": 0, '
            '"read": 3, "write": 0, "timeout": 1, "status": 7}\n')
    seen = harness.read_wrk(said)
    assert (seen.requests, seen.seconds, seen.p50_ms, seen.p99_ms) == (93, 2, 1.5, 9)
    assert seen.http == {"status": {"2xx": 93, "4xx or 5xx": 7}, "errors": {"read": 3, "timeout": 1}}
    with pytest.raises(RuntimeError, match="reported nothing"):
        harness.read_wrk("unable to connect")


def oha(status, errors):
    import json
    return json.dumps({"summary": {"total": 2.0, "requestsPerSec": 50.0}, "latencyPercentiles": {"p50": 0.0015, "p99": 0.009},
                       "statusCodeDistribution": status, "errorDistribution": errors})


@pytest.mark.parametrize("status, errors, ok", [
    ({"200": 100}, {}, True),
    ({"200": 100}, {"aborted due to deadline": 16}, True),
    ({"200": 100, "500": 1}, {}, False),
    ({"200": 100}, {"connection closed before message completed": 1}, False),
    ({"200": 100, "302": 4}, {"aborted due to deadline": 16}, False),
])
def test_a_row_of_oha_fails_by_bad_answers_and_transport_errors_and_not_by_its_end(status, errors, ok):
    seen = harness.read_oha(oha(status, errors))
    assert (seen.requests, seen.seconds, seen.p50_ms, seen.p99_ms) == (100, 2, 1.5, 9)
    samples = service.samples_of("count", "count read", 16, **{**FIGURES, "http": seen.http})
    assert {sample["ok"] for sample in samples} == {ok}


def test_a_failed_row_is_left_out_of_the_comparison_and_counted():
    machine = {"cpu": "test", "cores": 2, "kernel": "6", "load": 0.5}

    def document(arm, *rows):
        samples = [{**sample, "round": turn} for turn, row in enumerate(rows) for sample in row]
        return {"tool": "service.py", "arm": arm, "machine": machine, "samples": samples}

    good = service.samples_of("count", "count read", 16, **FIGURES)
    bad = service.samples_of("count", "count read", 16, error="RuntimeError: gone")
    wrong = service.samples_of("count", "count read", 16, **{**FIGURES, "http": {"status": {"200": 9, "500": 1}}})
    found = comparison.compare([document("treadle", good, bad, wrong), document("asyncio", good, good, good)])
    assert found.failed == 2 * len(service.FIGURES)
    row = next(row for row in found.rows if row.name == "count_c16_rate")
    assert row.better == "higher" and row.cells["treadle"].rounds == 1 and row.failed == {"treadle": 2}


@pytest.mark.parametrize("foreign, tries, kept, noisy", [
    ([0.01], 1, 0.01, False),
    ([0.9, 0.02], 2, 0.02, False),
    ([0.9, 0.5, 0.7], 3, 0.5, True),
])
def test_a_disturbed_row_is_measured_again_and_marked_when_it_stays_so(foreign, tries, kept, noisy, monkeypatch):
    left = iter(foreign)

    def measure(*_):
        seen = next(left)
        return {**FIGURES, "extra": {"foreign_cores": seen, "noisy": seen > 0.15}}

    monkeypatch.setattr(service, "measure", measure)
    found = service.measure_quietly(None, None, "count", 16, args=types.SimpleNamespace(again=2))
    assert found["extra"] == {"foreign_cores": kept, "noisy": noisy, "tries": tries}


def test_a_service_that_does_not_start_fails_its_rows_and_says_why(monkeypatch, capsys):
    def refuse(*_):
        raise RuntimeError("the service does not answer")

    monkeypatch.setattr(service.harness, "service", refuse)
    arm = types.SimpleNamespace(name="broken", loop="broken", env={})
    args = types.SimpleNamespace(concurrency=[16, 64], load="wrk", seconds=1, again=0, foreign=1)
    samples = service.run_arm(arm, None, {"count": "count read"}, 0, args)
    assert len(samples) == 2 * len(service.FIGURES) and not any(sample["ok"] for sample in samples)
    assert "does not answer" in capsys.readouterr().err


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_cpu_of_a_process_tree_is_its_own_and_that_of_children_it_reaped():
    before = quiet.tree_s(os.getpid())
    burn(0.2)
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert quiet.tree_s(os.getpid()) - before >= 0.45


def test_what_others_do_is_foreign_and_what_the_measured_do_is_not():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
    try:
        others = quiet.Window(child.pid)
        burn(0.5)
        assert others.foreign() > 0
    finally:
        child.communicate("\n")


def test_a_session_is_charged_with_its_members_only():
    code = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", code],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert child.stdout.readline() == "done\n"
        assert 0.25 <= quiet.session_s(child.pid) < 5
    finally:
        child.communicate("\n")
