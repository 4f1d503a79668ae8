"""Lookups with a resolver that can be held: what cancel, close, exit and fork leave behind."""
import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import preload, run_python
from twin import LOOP_MODULE

ROOT = pathlib.Path(__file__).resolve().parents[2]
treadle_only = pytest.mark.skipif(LOOP_MODULE != "treadle", reason="asyncio waits for libc")


@pytest.fixture(scope="session")
def resolver(tmp_path_factory):
    """The preload library of tests/preload, built for these tests."""
    return preload("resolver", tmp_path_factory.mktemp("resolver"))


HELD = '''
import asyncio, ctypes, gc, os, socket, sys, threading, time, twin
resolver = ctypes.CDLL(None)
SLOTS = min(32, len(os.sched_getaffinity(0)) + 4)
N = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
def tasks():
    """The threads of pools; a sanitizer may have one of its own."""
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as comm:
                names.append(comm.read())
        except OSError:
            pass
    return sum(name.startswith("treadle-") for name in names)
def wait_until(test):
    while not test():
        time.sleep(0.001)
async def until(test):
    while not test():
        await asyncio.sleep(0.001)
'''


@pytest.fixture
def held(resolver, tmp_path):
    """Runs code under the resolver; returns the process and what reached libc."""

    def run(code, *args):
        log = tmp_path / "log"
        done = run_python(*args, code=HELD + code, check=True, timeout=50,
                          env={**resolver, "TDL_RESOLVER_LOG": str(log)})
        return done.stdout, log.read_text().splitlines() if log.exists() else []

    return run


@treadle_only
def test_canceled_lookups_never_reach_libc(held):
    out, log = held("""
async def main():
    loop = asyncio.get_running_loop()
    resolver.resolver_hold()
    stuck = [asyncio.ensure_future(loop.getaddrinfo("localhost", 80)) for _ in range(SLOTS)]
    await until(lambda: resolver.resolver_inside() == SLOTS)
    waiting = [asyncio.ensure_future(loop.getaddrinfo(f"never-{i}.test", 80)) for i in range(50)]
    waiting += [asyncio.ensure_future(loop.getnameinfo(("127.0.0.1", 80))) for i in range(10)]
    await asyncio.sleep(0)
    assert loop._lookup_info()["waiting"] == 60
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert all(task.cancelled() for task in waiting)
    assert loop._lookup_info()["waiting"] == 0
    resolver.resolver_let_go()
    print(len(await asyncio.gather(*stuck)))
loop = twin.subject_loop()
loop.run_until_complete(main())
loop.close()
""")
    assert int(out) == len(log)
    assert all(line.startswith("getaddrinfo localhost") for line in log)


@treadle_only
def test_numeric_hosts_and_other_work_pass_by_held_lookups(held):
    out, log = held("""
async def main():
    loop = asyncio.get_running_loop()
    resolver.resolver_hold()
    waiting = [asyncio.ensure_future(loop.getaddrinfo("localhost", p)) for p in range(1000)]
    await until(lambda: resolver.resolver_inside() == SLOTS)
    assert await loop.run_in_executor(None, lambda: 7) == 7
    assert await loop.getaddrinfo("127.0.0.1", 80)
    assert await loop.getnameinfo(("127.0.0.1", 80), N)
    assert resolver.resolver_inside() == SLOTS
    resolver.resolver_let_go()
    print(len(await asyncio.gather(*waiting)))
loop = twin.subject_loop()
loop.run_until_complete(main())
print(loop._lookup_info()["threads_started"] <= SLOTS)
loop.run_until_complete(loop.shutdown_default_executor())
loop.close()
""")
    assert out == "1000\nTrue\n"
    assert len(log) == 1000


@treadle_only
@pytest.mark.parametrize("lookups", [1, 2])
def test_threads_and_signals_reach_a_loop_that_waits_for_lookups(held, lookups):
    out, _ = held("""
import signal
async def main(count):
    loop = asyncio.get_running_loop()
    resolver.resolver_hold()
    stuck = [asyncio.ensure_future(loop.getaddrinfo("localhost", 80)) for _ in range(count)]
    await until(lambda: resolver.resolver_inside() == count)
    called = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, called.set)
    ask = threading.Semaphore(0)
    def answer():
        for turn in range(400):
            ask.acquire()
            if turn % 2:
                os.kill(os.getpid(), signal.SIGUSR1)
            else:
                loop.call_soon_threadsafe(called.set)
    thread = threading.Thread(target=answer)
    thread.start()
    for _ in range(400):
        ask.release()
        await called.wait()
        called.clear()
    thread.join()
    resolver.resolver_let_go()
    print(len(await asyncio.gather(*stuck)))
loop = twin.subject_loop()
loop.run_until_complete(main(int(sys.argv[1])))
loop.close()
""", str(lookups))
    assert out == f"{lookups}\n"


@treadle_only
def test_lookups_pass_by_a_busy_executor(held):
    out, _ = held("""
async def main():
    loop = asyncio.get_running_loop()
    gate = threading.Event()
    busy = [loop.run_in_executor(None, gate.wait) for _ in range(40)]
    assert await loop.getaddrinfo("localhost", 80)
    assert await loop.getnameinfo(("127.0.0.1", 80))
    gate.set()
    await asyncio.gather(*busy)
    print("done")
loop = twin.subject_loop()
loop.run_until_complete(main())
loop.run_until_complete(loop.shutdown_default_executor())
loop.close()
""")
    assert out == "done\n"


@treadle_only
@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("way", ["forward", "reverse"])
def test_close_leaves_executing_lookups_behind(held, count, way):
    out, _ = held("""
import weakref
count, way = int(sys.argv[1]), sys.argv[2]
async def main(loop):
    def ask():
        return loop.getaddrinfo("localhost", 80) if way == "forward" else loop.getnameinfo(("127.0.0.1", 80))
    lookups = [asyncio.ensure_future(ask()) for _ in range(count)]
    await until(lambda: resolver.resolver_inside() == min(count, SLOTS))
    return lookups
called = []
for _ in range(20):
    resolver.resolver_hold()
    loop = twin.subject_loop()
    lookups = loop.run_until_complete(main(loop))
    for task in lookups:
        task.add_done_callback(called.append)
        task._log_destroy_pending = False
    loop.close()
    loop.close()
    loop.time(), repr(loop)
    ref = weakref.ref(loop)
    del lookups, loop, task
    gc.collect()
    assert ref() is None, gc.get_referrers(ref())
    resolver.resolver_let_go()
    wait_until(lambda: tasks() == 0)
print(called)
""", str(count), way)
    assert out == "[]\n"


@treadle_only
def test_run_and_exit_do_not_wait_for_libc(held):
    out, _ = held("""
async def main():
    loop = asyncio.get_running_loop()
    stuck = [asyncio.ensure_future(loop.getaddrinfo("localhost", 80)) for _ in range(100)]
    await until(lambda: resolver.resolver_inside() == SLOTS)
    print("asked")
resolver.resolver_hold()
with asyncio.Runner(loop_factory=twin.subject_loop) as runner:
    runner.run(main())
print("closed")
""")
    assert out == "asked\nclosed\n"


@treadle_only
def test_run_returns_when_its_stuck_lookup_was_canceled(held):
    out, log = held("""
async def main():
    loop = asyncio.get_running_loop()
    for ask in (lambda: loop.getaddrinfo("localhost", 80), lambda: loop.getnameinfo(("127.0.0.1", 80))):
        try:
            await asyncio.wait_for(ask(), 0.05)
        except (TimeoutError, asyncio.TimeoutError):
            print("too late")
    await loop.getaddrinfo("localhost", 80)
async def cancel():
    task = asyncio.create_task(main())
    await until(lambda: resolver.resolver_inside() == 3)
    task.cancel()
    await task
resolver.resolver_hold()
with asyncio.Runner(loop_factory=twin.subject_loop) as runner:
    try:
        runner.run(cancel())
    except asyncio.CancelledError:
        print("canceled")
""")
    assert out == "too late\ntoo late\ncanceled\n"
    assert len(log) == 3


@treadle_only
def test_exit_with_an_open_loop_does_not_wait_for_libc(held):
    out, _ = held("""
resolver.resolver_hold()
loop = twin.subject_loop()
async def main():
    for _ in range(100):
        asyncio.ensure_future(loop.getaddrinfo("localhost", 80))._log_destroy_pending = False
    await until(lambda: resolver.resolver_inside() == SLOTS)
loop.run_until_complete(main())
print("leaving")
""")
    assert out == "leaving\n"


@treadle_only
def test_a_lost_loop_with_executing_lookups_is_collected(held):
    out, _ = held("""
import warnings, weakref
warnings.simplefilter("ignore", ResourceWarning)
resolver.resolver_hold()
loop = twin.subject_loop()
async def main():
    lookups = [asyncio.ensure_future(loop.getaddrinfo("localhost", 80)) for _ in range(20)]
    for task in lookups:
        task._log_destroy_pending = False
    await until(lambda: resolver.resolver_inside() == SLOTS)
loop.run_until_complete(main())
ref = weakref.ref(loop)
del loop
asyncio.set_event_loop(None)
gc.collect()
print(ref())
resolver.resolver_let_go()
wait_until(lambda: tasks() == 0)
""")
    assert out == "None\n"


@treadle_only
def test_errors_of_the_system_carry_their_errno(held):
    out, _ = held("""
loop = twin.subject_loop()
for host in ("system-5.test", "system-0.test", "eai-3.test", "eai-77.test"):
    def ask(f):
        try:
            f()
        except Exception as exc:
            return type(exc), exc.args, str(exc)
    expected = ask(lambda: socket.getaddrinfo(host, 80))
    got = ask(lambda: loop.run_until_complete(loop.getaddrinfo(host, 80)))
    assert got == expected, (got, expected)
    print(got[0].__name__, got[1])
loop.close()
""")
    assert out.splitlines()[:3] == [
        "OSError (5, 'Input/output error')",
        "OSError (0, 'Error')",
        "gaierror (-3, 'Temporary failure in name resolution')",
    ]


MESSAGE = """
import asyncio, socket, sys
import twin

def ask(call):
    try:
        call()
    except Exception as exc:
        return type(exc), exc.args

expected = ask(lambda: socket.getaddrinfo("eai-3.test", 80))
loop = twin.subject_loop()
got = ask(lambda: loop.run_until_complete(loop.getaddrinfo("eai-3.test", 80)))
loop.close()
# The running Python may be older than the mend.
assert expected[0] is UnicodeDecodeError or got == expected, expected
print(got[0].__name__, ascii(got[1]))
"""


@treadle_only
def test_a_message_of_libc_may_be_in_any_encoding(resolver):
    env = {**resolver, "TDL_RESOLVER_ERROR": os.fsdecode("Name ung\xfcltig".encode("latin-1")),
           "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    assert run_python(code=MESSAGE, check=True, env=env).stdout == "gaierror (-3, 'Name ung\\udcfcltig')\n"


@treadle_only
@pytest.mark.parametrize("when", ["idle", "queued", "executing"])
def test_a_forked_child_looks_up_with_the_loop_it_inherits(held, when):
    held("""
when = sys.argv[1]
loop = twin.subject_loop()
async def ask(count):
    return await asyncio.gather(*[loop.getaddrinfo("localhost", 80) for _ in range(count)])
async def all_of(tasks):
    return await asyncio.wait_for(asyncio.gather(ask(3), *tasks), 20)
for _ in range(30):
    loop.run_until_complete(ask(3))
    pending = []
    if when != "idle":
        if when == "queued":
            resolver.resolver_hold()
        pending = [loop.create_task(ask(1)) for _ in range(20)]
        loop.run_until_complete(asyncio.sleep(0))
        if when == "queued":
            wait_until(lambda: resolver.resolver_inside() == SLOTS)
    pid = os.fork()
    if pid == 0:
        resolver.resolver_after_fork()
        resolver.resolver_let_go()
        loop.run_until_complete(all_of(pending))
        assert loop.run_until_complete(loop.run_in_executor(None, int)) == 0
        loop.close()
        fresh = twin.subject_loop()
        assert fresh.run_until_complete(fresh.getaddrinfo("localhost", 80))
        fresh.close()
        os._exit(0)
    resolver.resolver_let_go()
    loop.run_until_complete(all_of(pending))
    assert os.waitpid(pid, 0)[1] == 0
loop.close()
""", when)
