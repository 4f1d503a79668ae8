"""python -m treadle and TREADLE=1 reach what a server starts, though uvloop is installed; what they cannot
reach is told."""
import importlib.util
import signal
import sys

import harness
import pytest

assert importlib.util.find_spec("uvloop"), "these servers would choose it"

MODULE = [sys.executable, "-m"]
TREADLE = [sys.executable, "-m", "treadle"]

# Module, its arguments, and the signal that ends it. PORT and N are filled in.
SERVERS = {
    "uvicorn": ["uvicorn", "asgi:app", "--port", "PORT", "--workers", "N"],
    "gunicorn": ["gunicorn", "asgi:app", "-k", "asgi", "-b", "127.0.0.1:PORT", "-w", "N"],
    "gunicorn+uvicorn": [
        "gunicorn",
        "asgi:app",
        "-k",
        "uvicorn_worker.UvicornWorker",
        "-b",
        "127.0.0.1:PORT",
        "-w",
        "N",
    ],
    "gunicorn+aiohttp": [
        "gunicorn",
        "aiohttp_app:app",
        "-k",
        "aiohttp.GunicornWebWorker",
        "-b",
        "127.0.0.1:PORT",
        "-w",
        "N",
    ],
    "granian": ["granian", "--interface", "asgi", "asgi:app", "--port", "PORT", "--workers", "N"],
    "hypercorn": ["hypercorn", "asgi:app", "-b", "127.0.0.1:PORT", "-w", "N"],
    "sanic": ["sanic", "sanic_app:app", "--port", "PORT", "--workers", "N", "--no-motd"],
}
# Sanic's first process waits for ever when SIGTERM comes, on every loop.
STOPS = {"sanic": signal.SIGKILL}
WARNING = "RuntimeWarning: treadle was asked for, but"


def serve(command, reports, workers, name="", **kwargs):
    """{pid: loop} of the workers of a server, and all that it said."""
    port = harness.free_port()
    command = [part.replace("PORT", str(port)) if part != "N" else str(workers) for part in command]
    with harness.running(
        *command, report=reports.path, stop=STOPS.get(name, signal.SIGTERM), **kwargs
    ) as process:
        harness.wait_for_port(process, port)
        found = harness.loops_of_workers(f"http://127.0.0.1:{port}/", reports, workers)
    return found, process.output.text


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", SERVERS)
def test_each_worker_of_a_server_runs_treadle(name, workers, reports):
    found, text = serve([*TREADLE, "-m", *SERVERS[name]], reports, workers, name)
    assert list(found.values()) == ["treadle"] * workers, text
    assert "treadle was asked for" not in text


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("name", ["granian", "sanic"])  # the others leave no choice
def test_each_worker_runs_treadle_however_it_was_started(name, method, workers, reports):
    command = SERVERS[name] if name == "sanic" else ["granian_main", method, "PORT", "N"]
    found, text = serve([*TREADLE, "-m", *command], reports, workers, name, env={"START_METHOD": method})
    assert list(found.values()) == ["treadle"] * workers, text
    assert "treadle was asked for" not in text


def push_to_faststream(url):
    import redis

    with redis.Redis.from_url(url) as client:
        client.rpush("faststream", "work")


def push_to_taskiq(url):
    import redis
    from taskiq import InMemoryBroker, TaskiqMessage

    message = InMemoryBroker().formatter.dumps(
        TaskiqMessage(task_id="1", task_name="job", labels={}, args=[], kwargs={})
    )
    with redis.Redis.from_url(url) as client:
        client.lpush("taskiq", message.message)


CONSUMERS = {
    "faststream": (["faststream", "run", "faststream_app:app", "--workers", "N"], push_to_faststream),
    "taskiq": (["taskiq", "worker", "taskiq_app:broker", "--workers", "N"], push_to_taskiq),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", CONSUMERS)
def test_each_worker_that_takes_messages_runs_treadle(name, workers, reports, redis_url):
    command, push = CONSUMERS[name]
    command = [str(workers) if part == "N" else part for part in command]
    with harness.running(*TREADLE, "-m", *command, report=reports.path, env={"REDIS_URL": redis_url},
                         stop=signal.SIGKILL) as process:
        found = harness.loops_of_consumers(lambda: push(redis_url), reports, workers)
    assert list(found.values()) == ["treadle"] * workers, process.output.text
    assert "treadle was asked for" not in process.output.text


@pytest.mark.parametrize("name", ["uvicorn", "gunicorn+uvicorn", "granian", "sanic"])
def test_the_environment_does_the_same_for_a_command_line_that_is_not_ours(name, reports):
    found, text = serve([*MODULE, *SERVERS[name]], reports, 2, name, env={"TREADLE": "1"})
    assert list(found.values()) == ["treadle"] * 2, text


def test_without_either_they_run_uvloop(reports):
    """Else these tests would show nothing."""
    found, _ = serve([*MODULE, *SERVERS["uvicorn"]], reports, 2, env={"TREADLE": "0"})
    assert list(found.values()) == ["uvloop"] * 2


def test_uvicorns_reloader_starts_treadle(reports):
    found, text = serve([*TREADLE, "-m", "uvicorn", "asgi:app", "--port", "PORT", "--reload"], reports, 1)
    assert list(found.values()) == ["treadle"], text


@pytest.mark.parametrize(
    "command, loop, advice",
    [
        (
            ["uvicorn", "asgi:app", "--port", "PORT", "--loop", "uvloop"],
            "uvloop.Loop",
            "--loop auto, or --loop treadle:new_event_loop",
        ),
        (
            ["uvicorn", "asgi:app", "--port", "PORT", "--loop", "asyncio"],
            "asyncio.unix_events._UnixSelectorEventLoop",
            "--loop auto",
        ),
        (
            ["granian", "--interface", "asgi", "asgi:app", "--port", "PORT", "--loop", "uvloop"],
            "uvloop.Loop",
            "granian --loop auto",
        ),
        (
            ["hypercorn", "asgi:app", "-b", "127.0.0.1:PORT", "-k", "uvloop"],
            "uvloop.Loop",
            "hypercorn --worker-class asyncio",
        ),
        (
            ["gunicorn", "asgi:app", "-k", "asgi", "--asgi-loop", "uvloop", "-b", "127.0.0.1:PORT"],
            "uvloop.Loop",
            "--asgi-loop auto",
        ),
        (
            ["gunicorn", "aiohttp_app:app", "-k", "aiohttp.GunicornUVLoopWebWorker", "-b", "127.0.0.1:PORT"],
            "uvloop.Loop",
            "--worker-class aiohttp.GunicornWebWorker",
        ),
    ],
    ids=lambda value: "-".join(value[:1] + value[-1:]) if isinstance(value, list) else "",
)
def test_another_loop_that_was_asked_for_runs_and_is_told_once(command, loop, advice, reports):
    found, text = serve([*TREADLE, "-m", *command], reports, 1)
    assert list(found.values()) == [loop.partition(".")[0]]
    told = [line for line in text.splitlines() if WARNING in line]
    assert len(told) == 1 and f"{WARNING} {loop} runs here" in told[0] and advice in told[0], text


def test_sanics_own_choice_of_uvloop_is_told(reports):
    found, text = serve(
        [*TREADLE, "-m", *SERVERS["sanic"]], reports, 1, "sanic", env={"SANIC_USE_UVLOOP": "true"}
    )
    assert list(found.values()) == ["uvloop"]
    assert f"{WARNING} uvloop.Loop runs here: leave Sanic's USE_UVLOOP unset" in text


POLLING = """
import sys
import treadle
from aiogram import Bot, Dispatcher

dispatcher = Dispatcher()


@dispatcher.startup()
async def started():
    print(f"treadle: {treadle.is_running()}", flush=True)


dispatcher.run_polling(Bot("1:" + "a" * 35))
"""


def test_aiograms_run_polling_gets_treadle():
    with harness.running(
        *TREADLE, "-c", POLLING, env={"PYTHONPATH": harness.OFFLINE}, stop=signal.SIGKILL
    ) as process:
        process.output.wait_for("treadle: True")


@pytest.mark.parametrize(
    "program, advice",
    [
        (
            "import asyncio, uvloop; uvloop.install(); asyncio.run(asyncio.sleep(0))",
            "leave out its uvloop.install()",
        ),
        ("import asyncio, uvloop; uvloop.run(asyncio.sleep(0))", "call asyncio.run()"),
        (
            "import anyio; anyio.run(anyio.sleep, 0, backend_options={'use_uvloop': True})",
            "give anyio.run() backend_options=",
        ),
    ],
    ids=["install", "run", "anyio"],
)
def test_a_program_that_names_uvloop_is_told(program, advice):
    with harness.running(*TREADLE, "-c", program) as process:
        process.wait(harness.DEADLINE_S)
    process.output.wait_for(WARNING)
    assert f"{WARNING} uvloop.Loop runs here: " in process.output.text and advice in process.output.text
