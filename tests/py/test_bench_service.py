"""The full service as a measurement: its smoke run, what the load generators say, and what other processes
disturb."""
import collections
import http.server
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import types
import uuid

import pytest

from test_bench_micro import BENCH, ROOT, conforms
from test_tools_python import marked

sys.path.insert(0, str(BENCH))

import comparison  # noqa: E402
import harness  # noqa: E402
import quiet  # noqa: E402
import service  # noqa: E402
import service_config  # noqa: E402

pytestmark = pytest.mark.timeout(300)
FIGURES = {
    "ops": 10,
    "wall_us": 1.0,
    "cpu_us": 2.0,
    "rate": 5.0,
    "cpu": 2.0,
    "sessions": 0.0,
    "p50": 1.0,
    "p99": 2.0,
    "http": {"status": {"200": 10}, "errors": {}},
    "extra": {},
}


@pytest.mark.parametrize("loop", ["treadle", "asyncio"])
def test_the_service_answers_on_its_loop_and_the_figures_fit_the_schema(loop, tmp_path):
    for package in ("granian", "litestar", "sqlalchemy", "asyncpg", "redis", "nats"):
        pytest.importorskip(package)
    done = subprocess.run(
        [sys.executable, BENCH / "service.py", "--smoke", "--arms", loop, "--out", tmp_path],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = conforms(tmp_path / f"{loop}.json")
    assert len(document["samples"]) == 6 * len(service.FIGURES)
    assert all(sample["ok"] for sample in document["samples"])
    assert (tmp_path / "comparison.md").exists() and (tmp_path / "comparison.png").exists()


def write(tmp_path, text):
    path = tmp_path / "service.toml"
    path.write_text(text)
    return path


GOOD = 'name = "x"\ncommand = ["true"]\n[[request]]\nname = "a"\npath = "/a"\n'


@pytest.mark.parametrize(
    "text, wrong",
    [
        ("", "[[request]]: at least one"),
        (GOOD.replace('name = "x"\n', ""), "name: is missing"),
        (GOOD.replace('"x"', "3"), "name: a text, got 3"),
        ('name = "x"\ncommand = "true"', "[[request]]: at least one"),
        ("nonsense", "Expected"),
        (GOOD + 'body = 3', "[[request]] 1: body: a text"),
        (GOOD + 'method = "FETCH"', "[[request]] 1: method: one of GET"),
        (GOOD + "weight = 0", "weight: above 0"),
        (GOOD + "weight = true", "weight: above 0"),
        (GOOD + 'colour = "red"', "[[request]] 1: colour: no such member; there are name"),
        (GOOD.replace('"/a"', '"a"'), "path: a path that begins with /"),
        (GOOD + '[[request]]\nname = "a"\npath = "/b"', "each name once"),
        (GOOD + '[pin]\napp = "4096"', "[pin] app: processors out of"),
        (GOOD + '[cpu]\ncgroup = "/proc"', "[cpu] cgroup: a folder of cgroup"),
        ('stop = "SIGNOTHING"\n' + GOOD, "stop: a signal's name"),
        ('folder = "/no/such/folder"\n' + GOOD, "folder: a folder that is there"),
        ('colour = "red"\n' + GOOD, "colour: no such member"),
        (GOOD + '[login]\npath = "/l"\nheader = "x"', "[login] header"),
        (GOOD.replace('["true"]', "[]"), "command: at least the program"),
        (GOOD + '[ready]\ntimeout_s = "long"', "[ready] timeout_s: a number"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_its_member_before_anything_is_started(
    text, wrong, tmp_path, capsys
):
    with pytest.raises(SystemExit) as ended:
        service_config.load(write(tmp_path, text))
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--config" in line and wrong in line


def test_a_kind_of_request_that_is_none_is_refused_with_the_list_of_those_that_are(capsys):
    config = service_config.load(service_config.BUILTIN)
    with pytest.raises(SystemExit):
        service.cases(config, ["no-such-endpoint"])
    assert "one of session, profile, aggregate, count, list, health" in capsys.readouterr().err
    assert list(service.cases(config, ["*gate", "count"])) == ["aggregate", "count"]


def snippets(page):
    """The page's code by language, in order."""
    found = {}
    for language, text in re.findall(
        r"^```(\w+)\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL
    ):
        found.setdefault(language, []).append(text)
    return found


def own_service(tmp_path):
    pytest.importorskip("fastapi")
    code = snippets("measure-your-service.md")
    (tmp_path / "app.py").write_text(code["python"][0])
    command = code["sh"][0]
    words = shlex.split(command.replace("\\\n", ""))
    assert words[:2] == [".venv/bin/python", "perf/bench/service.py"] and words[3] == "service.toml"
    return [sys.executable, ROOT / words[1], words[2], write(tmp_path, code["toml"][0])], words[4:]


def test_the_service_of_the_page_is_measured_as_written_there(tmp_path):
    command, more = own_service(tmp_path)
    assert more[:1] == ["--arms"]
    done = subprocess.run(
        [*command, "--arms", "treadle,asyncio", "--smoke", "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for arm in ("treadle", "asyncio"):
        document = conforms(tmp_path / "out" / f"{arm}.json")
        assert {sample["case"].partition("_")[0] for sample in document["samples"]} == {
            "list",
            "place",
            "mix",
        }
        assert all(sample["ok"] for sample in document["samples"]), document["samples"]
        assert not [sample for sample in document["samples"] if sample["case"].endswith("_sessions")]


def test_a_signal_in_the_middle_of_a_service_leaves_nothing_of_it(tmp_path):
    command, _ = own_service(tmp_path)
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [
            *command,
            "--arms",
            "treadle,asyncio",
            "--rounds",
            "100",
            "--seconds",
            "1",
            "--concurrency",
            "4",
            "--out",
            tmp_path / "out",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TDL_TEST_MARK": mark},
    )
    while not (tmp_path / "out" / "treadle.json").exists():
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert marked(mark) == []
    assert all(sample["ok"] for sample in conforms(tmp_path / "out" / "treadle.json")["samples"])


@pytest.mark.parametrize("change, why", [
    ('"secret"}', "the login answers with status 401"), ("access_token", "has no text 'no_token'"),
    ("/loop", "runs on"), ("app:app", "does not answer at /docs")])
def test_a_service_that_cannot_be_measured_fails_its_rows_and_says_why(change, why, tmp_path):
    command, _ = own_service(tmp_path)
    wrong = {
        '"secret"}': '"guess"}',
        "access_token": "no_token",
        "/loop": "/openapi.json",
        "app:app": "app:none",
    }[change]
    write(tmp_path, (tmp_path / "service.toml").read_text().replace(change, wrong))
    done = subprocess.run(
        [*command, "--arms", "asyncio", "--smoke", "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1 and why in done.stdout, done.stdout + done.stderr
    assert all(
        sample["kind"] == "failed" for sample in conforms(tmp_path / "out" / "asyncio.json")["samples"]
    )


def test_a_mix_reaches_the_service_by_its_weights(tmp_path):
    seen = collections.Counter()

    class Answer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen[self.command, self.path, self.headers["X-Kind"], self.headers["Cookie"], body] += 1
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_):
            pass

    Request = service_config.Request
    kinds = [
        Request("a", "/a?x=1", headers={"X-Kind": 'q"uo\\te'}, weight=3),
        Request("b", "/b", method="POST", body='{"é": 1}', weight=1),
    ]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        load = harness.load("wrk", f"http://127.0.0.1:{server.server_port}", kinds, 4, 1, {"Cookie": "k=v"})
        server.shutdown()
    assert load.requests > 50 and set(load.status) == {"2xx"}
    first, second = ("GET", "/a?x=1", 'q"uo\\te', "k=v", b""), (
        "POST",
        "/b",
        None,
        "k=v",
        '{"é": 1}'.encode(),
    )
    assert set(seen) == {first, second} and 2 < seen[first] / seen[second] < 4.5


def test_wrk_is_read_with_its_errors():
    said = (
        'Running 1s test\nREPORT {"requests": 100, "us": 2000000, "p50_us": 1500, "p99_us": 9000, "connect": 0, '
        '"read": 3, "write": 0, "timeout": 1, "status": 7}\n'
    )
    seen = harness.read_wrk(said)
    assert (seen.requests, seen.seconds, seen.p50_ms, seen.p99_ms) == (93, 2, 1.5, 9)
    assert seen.http == {"status": {"2xx": 93, "4xx or 5xx": 7}, "errors": {"read": 3, "timeout": 1}}
    with pytest.raises(RuntimeError, match="reported nothing"):
        harness.read_wrk("unable to connect")


def oha(status, errors):
    import json
    return json.dumps(
        {
            "summary": {"total": 2.0, "requestsPerSec": 50.0},
            "latencyPercentiles": {"p50": 0.0015, "p99": 0.009},
            "statusCodeDistribution": status,
            "errorDistribution": errors,
        }
    )


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
    samples = service.samples_of("count", "count read", 16, service.FIGURES, **{**FIGURES, "http": seen.http})
    assert {sample["ok"] for sample in samples} == {ok}


def test_a_failed_row_is_left_out_of_the_comparison_and_counted():
    machine = {"cpu": "test", "cores": 2, "kernel": "6", "load": 0.5}

    def document(arm, *rows):
        samples = [{**sample, "round": turn} for turn, row in enumerate(rows) for sample in row]
        return {"tool": "service.py", "arm": arm, "machine": machine, "samples": samples}

    good = service.samples_of("count", "count read", 16, service.FIGURES, **FIGURES)
    bad = service.samples_of("count", "count read", 16, service.FIGURES, error="RuntimeError: gone")
    wrong = service.samples_of(
        "count", "count read", 16, service.FIGURES, **{**FIGURES, "http": {"status": {"200": 9, "500": 1}}}
    )
    found = comparison.compare([document("treadle", good, bad, wrong), document("asyncio", good, good, good)])
    assert found.failed == 2 * len(service.FIGURES)
    row = next(row for row in found.rows if row.name == "count_c16_rate")
    assert row.better == "higher" and row.cells["treadle"].rounds == 1 and row.failed == {"treadle": 2}


@pytest.mark.parametrize("foreign, tries, kept, noisy", [
    ([0.01], 1, 0.01, False),
    ([0.9, 0.02], 2, 0.02, False),
    ([0.9, 0.5, 0.7], 3, 0.5, True),
])
def test_a_disturbed_row_is_measured_again_and_marked_when_it_stays_so(
    foreign, tries, kept, noisy, monkeypatch
):
    left = iter(foreign)

    def measure(*_):
        seen = next(left)
        return {**FIGURES, "extra": {"foreign_cores": seen, "noisy": seen > 0.15}}

    monkeypatch.setattr(service, "measure", measure)
    found = service.measure_quietly(None, None, [], 16, args=types.SimpleNamespace(again=2))
    assert found["extra"] == {"foreign_cores": kept, "noisy": noisy, "tries": tries}


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
