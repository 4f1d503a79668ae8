"""The public options of a loop: as arguments, in treadle.run, and as variables."""
import asyncio
import functools
import os
import subprocess
import sys

import pytest

import treadle
from treadle import fileio

DEFAULT_SLOTS = min(32, len(os.sched_getaffinity(0)) + 4)


def made(**options):
    loop = treadle.Loop(**options)
    try:
        return loop.info()
    finally:
        loop.close()


def test_without_options_a_loop_does_not_spin_and_has_slots_for_the_machine(monkeypatch):
    for name in ("TREADLE_SPIN_US", "TREADLE_LOOKUP_SLOTS"):
        monkeypatch.delenv(name, raising=False)
    assert (made()["spin_us"], made()["lookup_slots"]) == (0, DEFAULT_SLOTS)


def test_options_reach_the_loop_as_arguments_by_run_and_as_variables(monkeypatch):
    async def main():
        return asyncio.get_running_loop().info()

    found = [made(spin_us=50, lookup_slots=3), treadle.run(main(), spin_us=50, lookup_slots=3)]
    monkeypatch.setenv("TREADLE_SPIN_US", "50")
    monkeypatch.setenv("TREADLE_LOOKUP_SLOTS", "3")
    found.append(made())
    assert [(info["spin_us"], info["lookup_slots"]) for info in found] == [(50, 3)] * 3
    assert made(spin_us=0)["spin_us"] == 0, "an argument goes before a variable"


@pytest.mark.parametrize("options, error, text", [
    ({"spin_us": -1}, ValueError, "spin_us must be 0 to 1000000, got -1"),
    ({"spin_us": 1_000_001}, ValueError, "spin_us must be 0 to 1000000"),
    ({"spin_us": 2**80}, ValueError, "spin_us must be 0 to 1000000"),
    ({"spin_us": 1.5}, TypeError, "spin_us must be an int, got float"),
    ({"spin_us": True}, TypeError, "spin_us must be an int, got bool"),
    ({"lookup_slots": 0}, ValueError, "lookup_slots must be 1 to 1000, got 0"),
    ({"lookup_slots": "4"}, TypeError, "lookup_slots must be an int, got str"),
])
def test_a_value_out_of_range_is_refused_with_the_range(options, error, text):
    with pytest.raises(error, match=text):
        treadle.Loop(**options)


@pytest.mark.parametrize("name, value, text", [
    ("TREADLE_SPIN_US", "fast", "TREADLE_SPIN_US must be 0 to 1000000, got 'fast'"),
    ("TREADLE_LOOKUP_SLOTS", "0", "TREADLE_LOOKUP_SLOTS must be 1 to 1000, got '0'"),
    ("TREADLE_IO_URING", "no", "TREADLE_IO_URING must be 0 or 1, got 'no'"),
])
def test_a_variable_that_cannot_be_used_is_named(name, value, text, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=text):
        treadle.Loop()


def test_options_beside_a_factory_of_another_loop_are_refused():
    async def main():
        raise AssertionError("not run")

    coroutine = main()
    with pytest.raises(ValueError, match="spin_us is for treadle's own loop"):
        treadle.run(coroutine, loop_factory=asyncio.new_event_loop, spin_us=1)
    coroutine.close()


def test_a_loop_that_spins_hears_of_callbacks_from_threads_and_of_timers_and_sockets():
    async def main():
        loop = asyncio.get_running_loop()
        assert (
            await asyncio.to_thread(
                lambda: asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "there"), loop).result()
            )
            == "there"
        )
        server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert await reader.read() == b""
            writer.close()
        await asyncio.sleep(0.001)

    treadle.run(main(), spin_us=300)


def test_no_more_lookups_are_in_libc_at_once_than_there_are_slots():
    async def main():
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.getaddrinfo("localhost", port) for port in range(1, 40)))
        return loop._lookup_info()

    found = treadle.run(main(), lookup_slots=1)
    assert found["native"] and found["threads_started"] == 1


@pytest.mark.parametrize("make, off", [
    (functools.partial(treadle.Loop, io_uring=False), {}), (treadle.Loop, {"TREADLE_IO_URING": "0"}),
    (asyncio.new_event_loop, {"TREADLE_IO_URING": "0"})])
def test_without_io_uring_neither_the_loop_nor_its_files_use_it(make, off, tmp_path, monkeypatch):
    for name, value in off.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "file"
    path.write_bytes(b"bytes")

    async def main():
        assert await fileio.read_bytes(path) == b"bytes"
        assert fileio._contexts.context().caps()["engine"] == "threads"
        return getattr(asyncio.get_running_loop(), "info", dict)()

    with asyncio.Runner(loop_factory=make) as runner:
        assert runner.run(main()).get("gate", "off") == "off"


def test_a_program_takes_the_variables_by_the_command_line_too():
    code = (
        "import asyncio, treadle\n"
        "async def main(): print(asyncio.get_running_loop().info()['spin_us'])\n"
        "treadle.run(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TREADLE_SPIN_US": "20"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "20\n", done.stderr
