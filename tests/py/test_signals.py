"""Signals: handlers of the loop and of the signal module, Ctrl-C in a real process, the wake-up
descriptor."""
import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import pytest

import twin as twins
from twin import twin

FACTORY = ("asyncio.SelectorEventLoop" if twins.LOOP_MODULE == "asyncio" else "treadle.new_event_loop")
PRELUDE = "import asyncio, os, signal, sys, threading, time\n" + (
    "" if twins.LOOP_MODULE == "asyncio" else f"import {twins.LOOP_MODULE}\n")


def arm(body, factory=FACTORY):
    """Runs the program on a loop of that making; returns (exit code, stdout, last line of stderr)."""
    code = PRELUDE + f"factory = {factory}\n" + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, (done.stderr.splitlines() or [""])[-1]


def arms(body):
    """The same on asyncio and on treadle."""
    return [arm(body, "asyncio.SelectorEventLoop"), arm(body)]


def same(body):
    expected, got = arms(body)
    assert got == expected
    return got


def kill_while_polling(sig):
    """A thread that sends the signal once the main thread sleeps in a poll (not in a wait for the GIL)."""
    tid, futex = threading.main_thread().native_id, "202"

    def body():
        while True:
            with open(f"/proc/self/task/{tid}/syscall") as file:
                call = file.read().split()[0]
            if call not in ("running", futex):
                break
        os.kill(os.getpid(), sig)

    return threading.Thread(target=body)


@twin
def test_add_and_remove_signal_handler(t):
    def handler(*args):
        t.log("handler", args)
        t.loop.stop()

    t.call(t.loop.add_signal_handler, signal.SIGUSR1, handler, 1, 2)
    t.loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
    t.loop.run_forever()
    t.call(t.loop.remove_signal_handler, signal.SIGUSR1)
    t.call(t.loop.remove_signal_handler, signal.SIGUSR1)
    t.log(signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL)


@twin
def test_a_second_handler_replaces_the_first(t):
    t.loop.add_signal_handler(signal.SIGUSR1, t.log, "first")
    t.loop.add_signal_handler(signal.SIGUSR1, t.log, "second")
    t.loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
    t.loop.call_later(0.01, t.loop.stop)
    t.loop.run_forever()
    t.loop.remove_signal_handler(signal.SIGUSR1)


@twin
def test_wrong_signals_are_refused(t):
    async def coro():
        pass

    for sig in (signal.SIGKILL, signal.SIGSTOP, 0, 1000, -1, "INT", 1.5):
        t.call(t.loop.add_signal_handler, sig, t.log)
    t.call(t.loop.add_signal_handler, signal.SIGUSR1, coro)
    c = coro()
    t.call(t.loop.add_signal_handler, signal.SIGUSR1, c)
    c.close()
    t.call(t.loop.remove_signal_handler, 1000)
    t.call(t.loop.remove_signal_handler, signal.SIGKILL)


@twin
def test_handlers_can_only_be_added_in_the_main_thread(t):
    results = []

    def remote():
        loop = t.factory()
        try:
            loop.add_signal_handler(signal.SIGUSR1, t.log)
        except BaseException as exc:
            results.append(exc)
        finally:
            loop.close()

    thread = threading.Thread(target=remote)
    thread.start()
    thread.join()
    t.log(results)


@twin
def test_sigint_gets_back_its_default_handler(t):
    before = signal.getsignal(signal.SIGINT)
    t.loop.add_signal_handler(signal.SIGINT, t.log, "int")
    t.loop.call_soon(os.kill, os.getpid(), signal.SIGINT)
    t.loop.call_later(0.01, t.loop.stop)
    t.loop.run_forever()
    t.loop.remove_signal_handler(signal.SIGINT)
    t.log(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    signal.signal(signal.SIGINT, before)


@twin
def test_close_removes_the_handlers(t):
    t.loop.add_signal_handler(signal.SIGUSR1, t.log)
    t.loop.add_signal_handler(signal.SIGUSR2, t.log)
    t.loop.close()
    t.log([signal.getsignal(s) == signal.SIG_DFL for s in (signal.SIGUSR1, signal.SIGUSR2)])
    t.log(signal.set_wakeup_fd(-1))


@twin
def test_a_handler_may_raise_system_exit(t):
    def leave():
        raise SystemExit("graceful")

    t.loop.add_signal_handler(signal.SIGTERM, leave)

    async def main():
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(10)

    task = t.loop.create_task(main())
    t.call(t.loop.run_until_complete, task)
    t.loop.remove_signal_handler(signal.SIGTERM)
    t.log(task.done())


@twin
def test_an_exception_of_a_signal_module_handler_leaves_run_forever(t):
    class Custom(Exception):
        pass

    def handler(*args):
        raise Custom("from handler")

    old = signal.signal(signal.SIGUSR1, handler)
    thread = kill_while_polling(signal.SIGUSR1)
    t.loop.call_later(20, t.loop.stop)
    try:
        t.loop.call_soon(thread.start)
        try:
            t.loop.run_forever()
        except Custom as exc:
            t.log("left", str(exc))
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, old)


@twin
def test_the_wakeup_fd_is_as_it_was_found(t):
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    before = signal.set_wakeup_fd(b.fileno())
    try:
        t.loop.run_until_complete(asyncio.sleep(0))
        now = signal.set_wakeup_fd(b.fileno())
        t.log(now == b.fileno())
    finally:
        signal.set_wakeup_fd(before)
        a.close()
        b.close()


@twin
def test_ctrl_c_that_came_before_a_sleep_is_raised_and_leaves_the_wakeup_fd(t):
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    before = signal.set_wakeup_fd(b.fileno())
    try:
        # A call in C, behind which Python looks for no signals: the loop is the first that does, before its
        # sleep.
        t.loop.call_soon(ctypes.CDLL(None).kill, os.getpid(), signal.SIGINT)
        t.call(t.loop.run_forever)
        t.log(signal.set_wakeup_fd(b.fileno()) == b.fileno())
    finally:
        signal.set_wakeup_fd(before)
        a.close()
        b.close()


@twin
def test_a_nested_loop_leaves_the_handlers_of_the_first(t):
    t.loop.add_signal_handler(signal.SIGUSR1, lambda: (t.log("got"), t.loop.stop()))
    results = []

    def other():
        loop = t.factory()
        try:
            loop.run_until_complete(asyncio.sleep(0))
        finally:
            loop.close()
        results.append("closed")

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    t.loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
    t.loop.run_forever()
    t.loop.remove_signal_handler(signal.SIGUSR1)
    t.log(results)


@twin
def test_many_signals_at_once_reach_their_handlers(t):
    seen = set()
    signals = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGALRM]

    def handler(sig):
        seen.add(int(sig))
        if len(seen) == len(signals):
            t.loop.stop()

    for sig in signals:
        t.loop.add_signal_handler(sig, handler, sig)
    t.loop.call_soon(lambda: [os.kill(os.getpid(), sig) for sig in signals])
    t.loop.run_forever()
    for sig in signals:
        t.loop.remove_signal_handler(sig)
    t.log(sorted(seen))


@twin
def test_siginterrupt_and_a_blocking_poll(t):
    """A signal during the poll wakes the loop and its handler runs once for each signal."""
    count = []
    t.loop.add_signal_handler(signal.SIGUSR1, lambda: count.append(1))

    async def main():
        for i in range(20):
            await t.loop.run_in_executor(None, os.kill, os.getpid(), signal.SIGUSR1)
            while len(count) <= i:
                await asyncio.sleep(0.001)
        return len(count)

    t.log(t.run(main()))
    t.loop.remove_signal_handler(signal.SIGUSR1)


def test_ctrl_c_in_a_task_under_runner():
    same("""
        async def main():
            try:
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                print("canceled")
                raise
        with asyncio.Runner(loop_factory=factory) as runner:
            try:
                runner.run(main())
            except KeyboardInterrupt:
                print("interrupt")
        """)


def test_ctrl_c_in_plain_run_forever():
    same("""
        loop = factory()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            loop.run_forever()
        except KeyboardInterrupt:
            print("interrupt", loop.is_running(), loop.is_closed())
        loop.close()
        """)


def test_ctrl_c_in_a_busy_callback():
    same("""
        loop = factory()
        def busy():
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                pass
        loop.call_soon(busy)
        try:
            loop.run_forever()
        except KeyboardInterrupt:
            print("interrupt")
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        """)


def test_ctrl_c_in_a_busy_chain():
    same("""
        loop = factory()
        def chain():
            loop.call_soon(chain)
        chain()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            loop.run_forever()
        except KeyboardInterrupt:
            print("interrupt")
        loop.close()
        """)


def test_uncaught_ctrl_c_ends_the_process_as_on_asyncio():
    got = same("""
        async def main():
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(30)
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())
        """)
    assert got[0] == -signal.SIGINT or got[0] == 130 or got[2] == "KeyboardInterrupt"


def test_sys_exit_in_data_received_ends_the_process():
    got = same("""
        import socket
        class P(asyncio.Protocol):
            def data_received(self, data):
                sys.exit(7)
        async def main():
            a, b = socket.socketpair()
            await asyncio.get_running_loop().create_connection(P, sock=a)
            b.send(b"x")
            await asyncio.sleep(30)
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())
        """)
    assert got[0] == 7


def test_child_signals_and_threads_do_not_disturb_each_other():
    same("""
        loop = factory()
        got = []
        loop.add_signal_handler(signal.SIGCHLD, lambda: (got.append(1), loop.stop()))
        import subprocess
        child = subprocess.Popen(["true"])
        loop.run_forever()
        print(child.wait(), len(got))
        loop.remove_signal_handler(signal.SIGCHLD)
        loop.close()
        """)


def test_sigterm_ends_a_process_that_has_no_handler():
    expected, got = arms("""
        loop = factory()
        loop.call_soon(os.kill, os.getpid(), signal.SIGTERM)
        loop.run_forever()
        """)
    assert got[0] == expected[0] == -signal.SIGTERM


THIEVES = {
    "nobody": "pass",
    "switched off": "signal.set_wakeup_fd(-1)",
    "another's": "signal.set_wakeup_fd(b.fileno())",
    "another's, closed": "signal.set_wakeup_fd(b.fileno()); b.close()",
    "a new loop's": "other = factory(); other.add_signal_handler(signal.SIGUSR2, print)",
    "a closed loop's": "other = factory(); other.add_signal_handler(signal.SIGUSR2, print); other.close()",
    "a loop of asyncio's": "other = asyncio.SelectorEventLoop(); other.add_signal_handler(signal.SIGUSR2, print)",
}
STEAL = """
    import socket
    a, b = socket.socketpair()
    a.setblocking(False); b.setblocking(False)
    tid = threading.main_thread().native_id
    def kill_while_polling(sig):
        # once the main thread sleeps in a poll, and not in a wait for the GIL (system call 202)
        def body():
            calls = []
            while len(calls) < 3 or calls[-1] in ("running", "202") or len(set(calls[-3:])) > 1:
                with open(f"/proc/self/task/{tid}/syscall") as file:
                    calls.append(file.read().split()[0])
            os.kill(os.getpid(), sig)
        threading.Thread(target=body).start()
    """


@pytest.mark.parametrize("when", ["before", "in the run"])
@pytest.mark.parametrize("thief", THIEVES)
def test_ctrl_c_ends_a_sleep_whoever_has_the_wakeup_descriptor(thief, when):
    expected, got = arms(textwrap.dedent(STEAL) + textwrap.dedent(f"""
        loop = factory()
        def steal():
            global other
            {THIEVES[thief]}
        if {when == "before"}:
            steal()
        else:
            loop.call_soon(steal)
        loop.call_soon(kill_while_polling, signal.SIGINT)
        loop.call_later(20, loop.stop)
        try:
            loop.run_forever()
            print("slept")
        except KeyboardInterrupt:
            print("interrupt")
        loop.close()
        """))
    assert got[:2] == expected[:2] == (0, "interrupt\n")  # CPython may grumble of the closed descriptor


@pytest.mark.parametrize("handled", [False, True])
def test_the_program_finds_the_wakeup_descriptor_that_it_set(handled):
    """And what it would read from it."""
    same(textwrap.dedent(STEAL) + textwrap.dedent(f"""
        loop = factory()
        got = []
        def look(fd):
            got.append(signal.set_wakeup_fd(fd))
        signal.signal(
            signal.SIGUSR1, lambda *args: (got.append("handled"), loop.call_soon_threadsafe(loop.stop))
        )
        if {handled}:
            loop.add_signal_handler(signal.SIGUSR2, print)
            loop.call_soon(look, b.fileno())
        look(b.fileno())
        for fd in (b.fileno(), -1, b.fileno()):
            loop.call_soon(look, fd)
            loop.call_later(0.001, loop.stop)
            loop.run_forever()
        loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
        loop.run_forever()
        loop.call_soon(kill_while_polling, signal.SIGUSR1)
        loop.run_forever()
        look(-1)
        print([fd if fd in (-1, "handled") else fd == b.fileno() for fd in got][{handled} * 2:], a.recv(100))
        loop.close()
        """))


@pytest.mark.parametrize("thief", THIEVES)
@pytest.mark.parametrize("sleeping", [False, True])
def test_a_handler_of_the_loop_is_called_whoever_has_the_wakeup_descriptor(thief, sleeping):
    """Each once for each signal. On asyncio they are lost."""
    got = arm(textwrap.dedent(STEAL) + textwrap.dedent(f"""
        loop = factory()
        seen = []
        def note():
            seen.append(1)
            loop.call_soon(loop.stop)
        loop.add_signal_handler(signal.SIGUSR1, note)
        def steal():
            global other
            {THIEVES[thief]}
        loop.call_soon(steal)
        for _ in range(3):
            kill = kill_while_polling if {sleeping} else lambda sig: os.kill(os.getpid(), sig)
            loop.call_soon(kill, signal.SIGUSR1)
            guard = loop.call_later(20, loop.stop)
            loop.run_forever()
            guard.cancel()
        print(len(seen))
        loop.remove_signal_handler(signal.SIGUSR1)
        print(signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL)
        loop.close()
        """))
    assert got[:2] == (0, "3\nTrue\n"), got


@pytest.mark.parametrize("way", ["close", "remove"])
@pytest.mark.parametrize("kind", ["factory", "asyncio.SelectorEventLoop"])
def test_the_end_of_an_old_loop_leaves_the_handlers_of_a_new_one(way, kind):
    """asyncio gives the signal its default action back."""
    got = arm(f"""
        old = factory()
        old.add_signal_handler(signal.SIGUSR1, print, "old")
        old.call_soon(old.stop)
        old.run_forever()
        new = {kind}()
        new.add_signal_handler(signal.SIGUSR1, lambda: (print("new"), new.stop()))
        old.remove_signal_handler(signal.SIGUSR1) if {way == "remove"} else old.close()
        new.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
        new.call_later(20, new.stop)
        new.run_forever()
        print(new.remove_signal_handler(signal.SIGUSR1), signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL)
        print(signal.set_wakeup_fd(-1))
        old.close()
        new.close()
        """)
    assert got[:2] == (0, "new\nTrue True\n-1\n"), got


def test_a_wakeup_descriptor_that_was_closed_is_not_written_to_under_its_number():
    got = arm(textwrap.dedent(STEAL) + textwrap.dedent("""
        loop = factory()
        signal.set_wakeup_fd(b.fileno())
        loop.add_signal_handler(signal.SIGUSR1, loop.stop)
        number = b.fileno()
        b.close()
        c, d = socket.socketpair()
        c.setblocking(False); d.setblocking(False)
        if c.fileno() != number:
            os.dup2(c.fileno(), number)
        loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
        loop.run_forever()
        loop.remove_signal_handler(signal.SIGUSR1)
        try:
            print(d.recv(10))
        except BlockingIOError:
            print("nothing", signal.set_wakeup_fd(-1))
        loop.close()
        """))
    assert got[:2] == (0, "nothing -1\n"), got


def test_ctrl_c_ends_a_chain_of_callbacks_in_c():
    same("""
        import functools
        loop = factory()
        chain = functools.partial(loop.call_soon)
        chain.__setstate__((loop.call_soon, (chain,), {}, {}))
        chain()
        loop.call_soon(threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start)
        try:
            loop.run_forever()
        except KeyboardInterrupt:
            print("interrupt")
        loop.close()
        """)


def test_a_loop_with_handlers_is_not_kept_by_the_signal_module():
    got = arm("""
        import gc, weakref
        loop = factory()
        loop.add_signal_handler(signal.SIGUSR1, print)
        loop._close_native() if hasattr(loop, "_close_native") else None
        gone = weakref.ref(loop)
        del loop
        gc.collect()
        print(gone())
        os.kill(os.getpid(), signal.SIGUSR1)
        """)
    assert got[:2] == (0, "None\n"), got
