"""Subprocesses, against asyncio."""
import asyncio
import asyncio.subprocess as sp
import os
import signal
import subprocess
import sys
import threading

import pytest

from twin import twin


class Process(asyncio.SubprocessProtocol):
    """Records events; data is merged by descriptor."""

    def __init__(self, t):
        self.t, self.done, self.exited = t, t.loop.create_future(), False

    def connection_made(self, transport):
        self.transport = transport
        self.t.log("made")

    def pipe_data_received(self, fd, data):
        self.t.log_data(f"fd{fd}", bytes(data))

    def pipe_connection_lost(self, fd, exc):
        self.t.log("pipe lost", exc, channel=f"fd{fd}")

    def process_exited(self):
        self.t.log("exited", self.transport.get_returncode())

    def connection_lost(self, exc):
        self.t.log("lost", exc)
        self.done.set_result(None)


async def started(function, *args, **kwargs):
    return await function(*args, **kwargs)


@twin
async def test_communicate_with_much_data(t):
    process = await asyncio.create_subprocess_exec("cat", stdin=sp.PIPE, stdout=sp.PIPE)
    out, err = await process.communicate(b"x" * 200_000)
    t.log(len(out), err, process.returncode)


@twin
async def test_shell_output_error_and_code(t):
    process = await asyncio.create_subprocess_shell(
        "echo out; echo err >&2; exit 3", stdout=sp.PIPE, stderr=sp.PIPE
    )
    t.log(await process.communicate(), process.returncode)


@twin
async def test_protocol_events_come_in_order(t):
    transport, protocol = await t.loop.subprocess_exec(
        lambda: Process(t), "sh", "-c", "echo one; echo two >&2"
    )
    await protocol.done
    t.log(transport.get_returncode(), transport.get_pid() > 0, transport.get_pipe_transport(9))
    transport.close()


@twin
async def test_all_data_comes_before_connection_lost(t):
    for i in range(5):
        transport, protocol = await t.loop.subprocess_exec(
            lambda: Process(t), "head", "-c", "300000", "/dev/zero", stdin=None
        )
        await protocol.done
    t.channels["fd1"] = [e if e[0] != "data" else ("data", len(e[1])) for e in t.channels["fd1"]]


def test_wait_returns_at_exit_though_a_grandchild_holds_stdout(loop):
    """asyncio itself waits for the pipe up to Python 3.12 (gh-119710); the exit is what was asked for."""
    async def main():
        process = await asyncio.create_subprocess_shell("sleep 5 & exit 4", stdout=sp.PIPE)
        code = await asyncio.wait_for(process.wait(), 4)
        process._transport.close()
        await asyncio.sleep(0)
        return code

    assert loop.run_until_complete(main()) == 4


@twin
async def test_signals_reach_the_child(t):
    for how in ("terminate", "kill", "send_signal"):
        process = await asyncio.create_subprocess_exec("sleep", "60")
        getattr(process, how)(*([signal.SIGHUP] if how == "send_signal" else []))
        t.log(how, await process.wait())
        t.call(process.send_signal, signal.SIGTERM)
        t.call(process.kill)


@twin
async def test_a_missing_program_is_told_and_leaves_nothing(t):
    for _ in range(10):
        await t.acall(started(asyncio.create_subprocess_exec, "/nonexistent/program", stdout=sp.PIPE))


@twin
async def test_wrong_arguments(t):
    for args, kwargs in (
        [("echo", "a\0b"), {}],
        [("true",), {"universal_newlines": True}],
        [("true",), {"shell": True}],
        [("true",), {"bufsize": 5}],
        [("true",), {"text": True}],
        [("true",), {"encoding": "utf-8"}],
        [("true",), {"errors": "strict"}],
        [(5,), {}],
    ):
        await t.acall(started(t.loop.subprocess_exec, lambda: Process(t), *args, **kwargs))
    for args, kwargs in ([(["list"],), {}], [("true",), {"shell": False}], [("true",), {"bufsize": 1}]):
        await t.acall(started(t.loop.subprocess_shell, lambda: Process(t), *args, **kwargs))


@twin
async def test_standard_streams_are_real_pipes(t):
    process = await asyncio.create_subprocess_shell(
        "cat /dev/stdin > /proc/self/fd/1", stdin=sp.PIPE, stdout=sp.PIPE
    )
    t.log(await process.communicate(b"through"), process.returncode)


@twin
async def test_popen_arguments_are_passed_on(t, tmp_path):
    async def output(*args, **kwargs):
        process = await asyncio.create_subprocess_exec(*args, stdout=sp.PIPE, **kwargs)
        out, _ = await process.communicate()
        return out, process.returncode

    t.log(await output("pwd", cwd="/"))
    t.log(await output("env", env={"ONLY": "this"}))
    t.log(await output("sh", "-c", "test $(cut -d ' ' -f 6 /proc/$$/stat) = $$", start_new_session=True))
    t.log(await output("sh", "-c", "umask", umask=0o27))
    t.log(await output("sh", "-c", "echo err >&2", stderr=sp.STDOUT))
    t.log(await output("sh", "-c", "echo err >&2", stderr=sp.DEVNULL))
    r, w = os.pipe()
    t.log(await output("sh", "-c", f"echo passed > /proc/self/fd/{w}", pass_fds=(w,)))
    t.log(os.read(r, 100))
    os.set_inheritable(w, True)
    t.log(
        (await output("sh", "-c", f"echo x > /proc/self/fd/{w}", close_fds=True, stderr=sp.DEVNULL))[1] != 0
    )
    os.close(r)
    os.close(w)
    t.log(await output("cat", stdin=open(os.devnull)))
    with open(tmp_path / f"out{int(t.subject)}{int(t.debug)}", "w+b") as file:
        process = await asyncio.create_subprocess_exec("echo", "to a file", stdout=file)
        await process.wait()
        file.seek(0)
        t.log(file.read())
    r, w = os.pipe()
    t.log(await output("true", preexec_fn=lambda: os.write(w, b"pre")))
    t.log(os.read(r, 10))
    os.close(r)
    os.close(w)
    if sys.version_info >= (3, 11):
        t.log((await output("true", process_group=0))[1])
    if os.getuid() == 0:
        t.log(await output("id", "-u", user=65534))


@twin
async def test_no_descriptor_leaks_into_the_child(t):
    process = await asyncio.create_subprocess_exec(
        "ls", "/proc/self/fd", stdin=sp.PIPE, stdout=sp.PIPE, stderr=sp.PIPE
    )
    out, _ = await process.communicate()
    t.log(out.split())


@twin
async def test_writing_to_a_dead_child(t):
    process = await asyncio.create_subprocess_exec("true", stdin=sp.PIPE)
    await process.wait()
    for _ in range(5):
        process.stdin.write(b"x" * 1000)
        try:
            await process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            t.log("told")
            break
    process._transport.close()
    await t.turns(3)
    t.channels["main"] = t.channels.get("main", [])[:1]


@twin
async def test_interactive_lines(t):
    process = await asyncio.create_subprocess_exec("cat", stdin=sp.PIPE, stdout=sp.PIPE)
    for i in range(5):
        process.stdin.write(b"line %d\n" % i)
        t.log(await process.stdout.readline())
    process.stdin.close()
    t.log(await process.stdout.read(), await process.wait())


@twin
async def test_many_children_at_once(t):
    async def one(i):
        process = await asyncio.create_subprocess_exec("sh", "-c", f"exit {i % 50}")
        return await process.wait()

    t.log(await asyncio.gather(*[one(i) for i in range(60)]))


@twin
def test_a_loop_in_another_thread_starts_children(t):
    results = []

    def body():
        loop = t.new_loop()

        async def main():
            process = await asyncio.create_subprocess_exec("echo", "thread", stdout=sp.PIPE)
            return await process.communicate(), process.returncode

        results.append(loop.run_until_complete(main()))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    t.log(results)


@twin
async def test_closing_the_transport_kills_the_child(t):
    transport, protocol = await t.loop.subprocess_exec(lambda: Process(t), "sleep", "60")
    transport.close()
    await protocol.done
    t.call(transport.send_signal, signal.SIGTERM)
    t.call(transport.terminate)
    t.log(transport.is_closing())
    t.channels = {"main": [e for e in t.channels["main"]]}


def test_close_of_a_child_that_has_ended_leaves_its_code(loop):
    """close() looks whether there is something to kill, and thereby takes the code from whoever waits for
    it."""

    async def main():
        end, hold = os.pipe()  # the child ends behind the loop's back, and not before
        transport, protocol = await loop.subprocess_exec(
            asyncio.SubprocessProtocol, "sh", "-c", "read line; exit 3", stdin=end, stdout=None, stderr=None
        )
        os.close(end)
        os.close(hold)
        os.waitid(os.P_PID, transport.get_pid(), os.WEXITED | os.WNOWAIT)
        transport.close()
        assert await transport._wait() == 3

    loop.run_until_complete(main())


@twin
async def test_cancel_of_communicate_and_wait(t):
    process = await asyncio.create_subprocess_exec("sleep", "60", stdout=sp.PIPE)
    task = t.loop.create_task(process.communicate())
    await t.turns(2)
    task.cancel()
    await asyncio.wait([task])
    t.log(task.cancelled(), process.returncode)
    process.kill()
    t.log(await process.wait())


@twin
async def test_no_zombie_stays(t):
    pids = []
    for _ in range(10):
        process = await asyncio.create_subprocess_exec("true")
        pids.append(process.pid)
        await process.wait()
    t.log([os.path.exists(f"/proc/{pid}") for pid in pids])
