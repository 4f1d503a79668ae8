"""call_soon_threadsafe: order, storms from threads and signal handlers, and close."""
import asyncio
import concurrent.futures
import contextlib
import faulthandler
import os
import queue
import signal
import socket
import sys
import textwrap
import threading
import time

import pytest

from conftest import preload, run_python
from twin import LOOP_MODULE, subject_loop, twin

STALL_S = 5.0
ROUNDS = int(os.environ.get("TREADLE_TEST_ROUNDS", "2000"))


class Stall:
    """Ends the process with all stacks when a counter stands still: a lost wake-up must not look like a slow
    test."""

    def __init__(self, progress):
        self.progress, self.over = progress, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        last = None
        while not self.over.wait(STALL_S):
            now = self.progress()
            if now == last:
                faulthandler.dump_traceback(file=sys.__stderr__)
                print(f"stalled at {now}", file=sys.__stderr__, flush=True)
                os._exit(70)
            last = now

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        self.thread.join()


@twin
def test_a_call_from_another_thread_wakes_a_sleeping_loop(t):
    def poke():
        t.loop.call_soon_threadsafe(t.log, "from thread")
        t.loop.call_soon_threadsafe(t.loop.stop)

    thread = threading.Thread(target=poke)
    t.loop.call_soon(thread.start)
    t.loop.run_forever()
    thread.join()


@twin
async def test_alternating_calls_run_in_schedule_order(t):
    for i in range(50):
        if i % 2:
            t.loop.call_soon(t.log, i)
        else:
            thread = threading.Thread(target=t.loop.call_soon_threadsafe, args=(t.log, i))
            thread.start()
            thread.join()
    await t.turns(3)


@twin
def test_remote_calls_made_before_and_between_runs_keep_their_order(t):
    def remote(*args):
        thread = threading.Thread(target=t.loop.call_soon_threadsafe, args=args)
        thread.start()
        thread.join()

    for turn in range(4):
        t.loop.call_soon(t.log, turn, "local 1")
        remote(t.log, turn, "remote 1")
        t.loop.call_soon(t.log, turn, "local 2")
        remote(t.loop.stop)
        remote(t.log, turn, "remote 2")
        t.loop.call_soon(t.log, turn, "local 3")
        t.loop.run_forever()
        t.log("ran")


@twin
def test_each_thread_keeps_its_own_order(t):
    seen = {n: [] for n in range(4)}
    left = [4]

    def produce(n):
        for i in range(500):
            t.loop.call_soon_threadsafe(seen[n].append, i)
        t.loop.call_soon_threadsafe(finish)

    def finish():
        left[0] -= 1
        if not left[0]:
            t.loop.stop()

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    with Stall(lambda: sum(map(len, seen.values()))):
        t.loop.run_forever()
    for thread in threads:
        thread.join()
    t.log([seen[n] == list(range(500)) for n in range(4)])


@twin
def test_ping_pong_with_a_thread_loses_no_wake(t):
    todo, done = queue.SimpleQueue(), [0]

    def resolver():
        while (future := todo.get()) is not None:
            t.loop.call_soon_threadsafe(future.set_result, None)

    async def main():
        for _ in range(ROUNDS):
            future = t.loop.create_future()
            todo.put(future)
            await future
            done[0] += 1
        todo.put(None)

    thread = threading.Thread(target=resolver)
    thread.start()
    with Stall(lambda: done[0]):
        t.run(main())
    thread.join()
    t.log(done[0])


@twin(modes=("plain",))
def test_storm_of_coroutines_from_threads(t):
    done = [0]

    async def work(i):
        await asyncio.sleep(0)
        done[0] += 1
        return i

    def driver(out):
        futures = [asyncio.run_coroutine_threadsafe(work(i), t.loop) for i in range(300)]
        out.append([f.result() for f in futures])

    outs = [[] for _ in range(4)]
    threads = [threading.Thread(target=driver, args=(o,)) for o in outs]

    async def main():
        for thread in threads:
            thread.start()
        while any(not o for o in outs):
            await asyncio.sleep(0.001)

    with Stall(lambda: done[0]):
        t.run(main())
    for thread in threads:
        thread.join()
    t.log([o == [list(range(300))] for o in outs])


@twin
def test_executor_storm_resolves_everything(t):
    async def main():
        done = 0
        for _ in range(20):
            done += sum(await asyncio.gather(*[t.loop.run_in_executor(None, int, 1) for _ in range(20)]))
        return done

    t.log(t.run(main()))


@twin
def test_a_signal_handler_may_schedule(t):
    old = signal.signal(signal.SIGUSR1, lambda *a: (t.loop.call_soon_threadsafe(t.log, "signal"),
                                                    t.loop.call_soon_threadsafe(t.loop.stop)))
    try:
        t.loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
        t.loop.run_forever()
    finally:
        signal.signal(signal.SIGUSR1, old)


@twin
def test_a_signal_from_another_thread_wakes_a_loop_that_sleeps(t):
    old = signal.signal(signal.SIGUSR1, lambda *a: t.loop.call_soon_threadsafe(t.loop.stop))
    thread = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1))
    try:
        t.loop.call_soon(thread.start)
        t.loop.run_forever()
        t.log("stopped")
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, old)


@twin
def test_after_close_it_is_refused(t):
    t.loop.close()
    t.call(t.loop.call_soon_threadsafe, t.log)
    results = []

    def remote():
        try:
            t.loop.call_soon_threadsafe(t.log)
        except BaseException as exc:
            results.append(exc)

    thread = threading.Thread(target=remote)
    thread.start()
    thread.join()
    t.log(results)


@twin(modes=("plain",))
def test_close_against_threads_that_still_call(t):
    stop = threading.Event()
    errors = []

    def hammer(loop):
        while not stop.is_set():
            try:
                loop.call_soon_threadsafe(int)
            except RuntimeError as exc:
                errors.append(str(exc))
                return

    for _ in range(6):
        loop = t.new_loop()
        threads = [threading.Thread(target=hammer, args=(loop,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        loop.call_later(0.002, loop.stop)
        loop.run_forever()
        loop.close()
        for thread in threads:
            thread.join()
    stop.set()
    t.log(set(errors), len(errors))


@twin(modes=("plain",))
def test_cancel_from_another_thread_races_with_the_run(t):
    count = 300
    ran = []
    handles = queue.SimpleQueue()

    def canceler():
        while (handle := handles.get()) is not None:
            handle.cancel()

    async def main():
        for i in range(count):
            handles.put(t.loop.call_soon_threadsafe(ran.append, i))
            await asyncio.sleep(0)
        handles.put(None)

    thread = threading.Thread(target=canceler)
    thread.start()
    t.run(main())
    thread.join()
    t.log(len(ran) <= count and ran == sorted(ran))


@pytest.mark.skipif(
    not hasattr(asyncio.events, "_ThreadSafeHandle"), reason="Python 3.14's thread-safe handles"
)
@twin
async def test_thread_safe_handles_are_asyncios(t):
    handle = t.loop.call_soon_threadsafe(t.log, "ran")
    t.log(isinstance(handle, asyncio.events._ThreadSafeHandle))
    handle.cancel()
    t.log(handle.cancelled())


@twin
async def test_run_coroutine_threadsafe_can_be_canceled_from_its_thread(t):
    started, seen = threading.Event(), []

    async def sleeper():
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            t.log("task canceled")
            raise

    def thread():
        future = asyncio.run_coroutine_threadsafe(sleeper(), t.loop)
        started.wait()
        seen.append(future.cancel())
        try:
            future.result()
        except concurrent.futures.CancelledError as exc:
            seen.append(type(exc).__name__)

    await t.loop.run_in_executor(None, thread)
    await t.turns(3)
    t.log(seen)


@twin(modes=("plain",))
def test_a_loop_per_thread(t):
    results = []

    def body(n):
        loop = t.factory()

        async def main():
            reader, writer = socketpair_streams = await connected()
            writer.write(str(n).encode() * 100)
            await writer.drain()
            return len(await reader.readexactly(100))

        async def connected():
            import socket
            a, b = socket.socketpair()
            r, _w = await asyncio.open_connection(sock=a)
            r2, w2 = await asyncio.open_connection(sock=b)
            closers.extend([_w, w2])
            return r, w2

        closers = []
        try:
            results.append((n, loop.run_until_complete(main())))

            async def close():
                for w in closers:
                    w.close()
                    await w.wait_closed()

            loop.run_until_complete(close())
        finally:
            loop.close()

    threads = [threading.Thread(target=body, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    t.log(sorted(results))


def test_another_thread_gets_the_gil_while_the_loop_is_busy(loop):
    counter, stop = [0], [False]

    def count():
        while not stop[0]:
            counter[0] += 1
            time.sleep(0)

    def chain(n):
        if n == 0:
            loop.stop()
        else:
            loop.call_soon(chain, n - 1)

    thread = threading.Thread(target=count)
    thread.start()
    loop.call_soon(chain, 50_000)
    loop.run_forever()
    seen = counter[0]
    stop[0] = True
    thread.join()
    assert seen > 0


class Lost(asyncio.Protocol):
    """Counts how often it was told that its connection is lost."""

    def __init__(self, loop):
        self.times, self.over = 0, loop.create_future()

    def connection_lost(self, exc):
        self.times += 1
        if not self.over.done():
            self.over.set_result(None)


@twin(modes=("plain",))  # debug mode refuses the other thread's call
async def test_a_transport_that_another_thread_aborts_while_it_sends_is_lost_once(t):
    data = bytes(64 * 1024)
    for _ in range(ROUNDS // 20):
        ours, theirs = socket.socketpair()
        transport, protocol = await t.loop.create_connection(lambda: Lost(t.loop), sock=ours)
        go = threading.Event()
        thread = threading.Thread(target=lambda: go.wait() and transport.abort())
        thread.start()
        for _ in range(3):
            await asyncio.sleep(0)  # a poll has seen the thread, so system calls give the GIL away
        go.set()
        while not transport.is_closing():
            transport.write(data)
            with contextlib.suppress(BlockingIOError):
                theirs.recv(len(data), socket.MSG_DONTWAIT)
        thread.join()
        transport.write(data)
        await protocol.over
        t.log(protocol.times, transport.get_write_buffer_size())
        theirs.close()


CUT = """
import asyncio, ctypes, socket, threading, twin

class Protocol(asyncio.Protocol):
    calls = []

    def pause_writing(self):
        self.calls.append("pause")

    def connection_lost(self, exc):
        self.calls.append("lost")

async def main():
    ours, theirs = socket.socketpair()
    transport, _ = await asyncio.get_running_loop().create_connection(Protocol, sock=ours)
    transport.set_write_buffer_limits(high=100)

    def abort():
        thread = threading.Thread(target=transport.abort)
        thread.start()
        thread.join()

    others = threading.Event()
    other = threading.Thread(target=others.wait)
    other.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # a poll has seen the thread, so system calls give the GIL away
    call = ctypes.CFUNCTYPE(None)(abort)
    ctypes.CDLL(None).tdl_send_cut(ctypes.c_size_t(10), call)
    transport.write(bytes(1000))
    print(transport.is_closing(), transport.get_write_buffer_size(), len(theirs.recv(1000)), *Protocol.calls)
    others.set()
    other.join()
    while "lost" not in Protocol.calls:
        await asyncio.sleep(0)
    print(*Protocol.calls)
    theirs.close()

loop = twin.subject_loop()
loop.run_until_complete(main())
loop.close()
"""


@pytest.mark.skipif(
    LOOP_MODULE != "treadle", reason="asyncio queues the rest, and watches a closed descriptor for it"
)
def test_what_the_kernel_did_not_take_is_dropped_where_another_thread_aborted_meanwhile(tmp_path):
    done = run_python(code=CUT, check=True, env=preload("send", tmp_path))
    assert done.stdout.splitlines() == ["True 0 10", "lost"]


def flooding(loop, count, work=lambda: None, until=lambda: False):
    """Threads that post without a pause; what each has posted, and in what order its posts ran."""
    posted, ran = [0] * count, [[] for _ in range(count)]

    def produce(k):
        while not until():
            loop.call_soon_threadsafe(lambda i=posted[k]: (ran[k].append(i), work()))
            posted[k] += 1

    threads = [threading.Thread(target=produce, args=(k,)) for k in range(count)]
    return threads, posted, ran


@pytest.mark.parametrize("work_s", [0, 1e-5, 1e-3])
@pytest.mark.parametrize("count", [1, 4])
def test_producers_that_never_pause_do_not_run_away_from_the_loop(loop, count, work_s):
    """Nothing is lost or out of order, what waits stays bounded, and the loop does other things meanwhile."""
    stop, most, ticks = [], 0, 0
    threads, posted, ran = flooding(loop, count, lambda: work_s and time.sleep(work_s), lambda: stop)
    enough = 400_000 if not work_s else 1000

    async def main():
        nonlocal most, ticks
        for thread in threads:
            thread.start()
        while sum(map(len, ran)) < enough:
            await asyncio.sleep(0)
            ticks += 1
            most = max(most, sum(posted) - sum(map(len, ran)))
        stop.append(1)
        for thread in threads:
            await loop.run_in_executor(None, thread.join)
        await loop.shutdown_default_executor()

    with Stall(lambda: sum(map(len, ran))):
        loop.run_until_complete(main())
    loop.run_until_complete(asyncio.sleep(0))
    for k in range(count):
        assert ran[k] == list(range(posted[k]))
    assert ticks > 5
    assert most < (300_000 if not work_s else 20_000)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("kind", ["callbacks", "coroutines"])
def test_a_timer_waits_for_few_of_what_producers_post(loop, kind, count):
    """Of callbacks of 1 ms dozens run before a timer that is due, not thousands; of coroutines too, whose
    cost shows late."""
    stop, posted, ran, between = [], [0] * count, 0, []

    def work():
        nonlocal ran
        ran += 1
        end = time.thread_time() + 1e-3
        while time.thread_time() < end:
            pass

    async def step():
        work()

    def produce(k):
        while not stop:
            if kind == "callbacks":
                loop.call_soon_threadsafe(work)
            else:
                asyncio.run_coroutine_threadsafe(step(), loop)
            posted[k] += 1

    threads = [threading.Thread(target=produce, args=(k,)) for k in range(count)]

    async def main():
        for thread in threads:
            thread.start()
        while len(between) < 10:
            before = ran
            await asyncio.sleep(0.001)
            between.append(ran - before)
        stop.append(1)
        for thread in threads:
            await loop.run_in_executor(None, thread.join)
        while ran < sum(posted):
            await asyncio.sleep(0)
        await loop.shutdown_default_executor()

    with Stall(lambda: ran):
        loop.run_until_complete(main())
    # A thread that the machine lets stand leaves its loop behind for a while, so the best of the ten is
    # looked at. Without the pace none of them ends in time.
    assert min(between) < 60, between


def test_a_producer_that_holds_what_the_loop_waits_for_goes_on(loop):
    lock, ran = threading.Lock(), []

    def produce():
        with lock:
            loop.call_soon_threadsafe(take)
            for i in range(20_000):
                loop.call_soon_threadsafe(ran.append, i)
        loop.call_soon_threadsafe(loop.stop)

    def take():
        with lock:
            ran.append("locked")

    thread = threading.Thread(target=produce)
    with Stall(lambda: len(ran)):
        loop.call_soon(thread.start)
        loop.run_forever()
        thread.join()
    assert ran == ["locked", *range(20_000)]


def test_a_loop_that_posts_to_itself_or_does_not_run_holds_nobody_up(loop):
    ran = []

    def produce():
        for i in range(100_000):
            loop.call_soon_threadsafe(ran.append, i)

    loop.call_soon(produce)
    loop.call_soon(loop.stop)
    loop.run_forever()
    thread = threading.Thread(target=produce)
    thread.start()
    thread.join()
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert ran == list(range(100_000)) * 2


def test_two_loops_that_flood_each_other_come_to_an_end():
    loops, ran = [subject_loop(), subject_loop()], [0, 0]

    def run(k):
        def got():
            ran[k] += 1
            if ran[k] == 100_000:
                loops[k].stop()

        def produce():
            for _ in range(100_000):
                loops[1 - k].call_soon_threadsafe(gots[1 - k])

        gots[k] = got
        ready.wait()
        loops[k].call_soon(produce)
        loops[k].run_forever()

    gots, ready = [None, None], threading.Barrier(2)
    threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
    with Stall(lambda: sum(ran)):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for loop in loops:
        loop.close()
    assert ran == [100_000, 100_000]


@pytest.mark.parametrize("end", ["stop", "close"])
def test_a_loop_may_end_while_producers_wait_for_it(loop, end):
    failed, stop = [], []

    def produce():
        try:
            while not stop:
                loop.call_soon_threadsafe(int)
        except RuntimeError as exc:
            failed.append(str(exc))

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    loop.call_later(0.05, loop.stop)
    loop.run_forever()
    if end == "close":
        loop.close()
    else:
        stop.append(1)
    for thread in threads:
        thread.join()
    assert failed == (["Event loop is closed"] * 4 if end == "close" else [])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_in_a_flood_goes_on(python):
    python(code=textwrap.dedent(f"""
        import asyncio, os, threading, signal, {LOOP_MODULE}
        signal.alarm(30)
        loop = {LOOP_MODULE}.new_event_loop()
        stop = []
        def produce():
            while not stop:
                loop.call_soon_threadsafe(int)
        threads = [threading.Thread(target=produce) for _ in range(4)]
        async def main():
            for thread in threads: thread.start()
            await asyncio.sleep(0.05)
            pid = os.fork()
            if not pid:
                asyncio._set_running_loop(loop)
            else:
                stop.append(1)
                for thread in threads: thread.join()
            done = loop.create_future()
            def again():
                for _ in range(50_000): loop.call_soon_threadsafe(int)
                loop.call_soon_threadsafe(done.set_result, None)
            threading.Thread(target=again).start()
            await done
            return pid
        pid = loop.run_until_complete(main())
        loop.close()
        if pid:
            assert os.waitpid(pid, 0)[1] == 0
        else:
            os._exit(0)
        """), check=True)
