"""Fork rules: a child may run a loop of its own, whatever the parent's loop was doing."""
import asyncio
import multiprocessing
import os
import socket
import sys
import textwrap

import pytest

import twin as twins

PRELUDE = """
import asyncio, os, socket, sys, threading, signal
import twin
twin.LOOP_MODULE = os.environ["TREADLE_TEST_LOOP"]
new = twin.subject_loop
signal.alarm(30)

async def work():
    loop = asyncio.get_running_loop()
    a, b = socket.socketpair()
    r, w = await asyncio.open_connection(sock=a)
    r2, w2 = await asyncio.open_connection(sock=b)
    w.write(b'x' * 100000); await w.drain() if False else None
    data = await r2.readexactly(100000)
    assert len(data) == 100000
    assert await loop.run_in_executor(None, int, '5') == 5
    assert await asyncio.wait_for(loop.getaddrinfo('127.0.0.1', 80), 10)
    assert await asyncio.wait_for(loop.getaddrinfo('localhost', 80), 10)
    await asyncio.sleep(0.001)
    t = threading.Thread(target=loop.call_soon_threadsafe, args=(int,)); t.start(); t.join()
    p = await asyncio.create_subprocess_exec('true')
    assert await asyncio.wait_for(p.wait(), 10) == 0
    for x in (w, w2): x.close()
    return 0

def in_child():
    'Runs in the forked child: leaves the code 0 when a fresh loop works.'
    code = 1
    try:
        signal.alarm(20)
        loop = new()
        code = loop.run_until_complete(work())
        loop.close()
    except BaseException:
        import traceback; traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)

def wait(pid):
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
"""


def run(python, body, **env):
    return python(code=PRELUDE + textwrap.dedent(body), check=True, env=env)


@pytest.fixture(params=["1", "0"])
def uring(request):
    return request.param


def test_a_child_of_an_idle_loop(python, uring):
    run(python, """
        loop = new()
        loop.run_until_complete(work())
        pid = os.fork()
        if pid == 0: in_child()
        wait(pid)
        loop.run_until_complete(work())
        loop.close()
        """, TREADLE_IO_URING=uring)


def test_a_child_of_a_running_loop(python, uring):
    run(python, """
        async def main():
            await work()
            pid = os.fork()
            if pid == 0:
                asyncio._set_running_loop(None)
                in_child()
            wait(pid)
            await work()
        loop = new()
        loop.run_until_complete(main())
        loop.close()
        """, TREADLE_IO_URING=uring)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("end", ["close", "shut down", "leave"])
def test_a_child_that_goes_on_has_an_executor_of_its_own(python, debug, end):
    """asyncio's child waits for ever for threads that only its parent has."""
    run(python, f"""
        async def main():
            loop = asyncio.get_running_loop()
            loop.set_debug({debug})
            before = [loop.run_in_executor(None, int, str(i)) for i in range(4)]
            assert await asyncio.gather(*before) == [0, 1, 2, 3]
            pid = os.fork()
            if pid == 0:
                asyncio._set_running_loop(loop)
            for i in range(10):
                assert await loop.run_in_executor(None, int, str(i)) == i
            assert await loop.getaddrinfo('localhost', 80)
            assert await asyncio.to_thread(os.getpid) == os.getpid()
            if {end == "shut down"}:
                await loop.shutdown_default_executor()
            return pid
        loop = new()
        pid = loop.run_until_complete(main())
        if {end != "leave"}:
            loop.close()
        if pid:
            wait(pid)
        """)


def test_a_child_of_another_thread(python):
    run(python, """
        async def main():
            pids = []
            def fork():
                pid = os.fork()
                if pid == 0: in_child()
                pids.append(pid)
            t = threading.Thread(target=fork); t.start(); t.join()
            await asyncio.get_running_loop().run_in_executor(None, wait, pids[0])
        loop = new()
        loop.run_until_complete(main())
        loop.close()
        """)


def test_children_while_lookups_and_jobs_run(python):
    run(python, """
        async def main():
            loop = asyncio.get_running_loop()
            for _ in range(5):
                busy = [loop.run_in_executor(None, sum, range(200000)) for _ in range(4)]
                busy += [loop.getaddrinfo('localhost', 80) for _ in range(4)]
                busy = [asyncio.ensure_future(b) for b in busy]
                await asyncio.sleep(0)
                pid = os.fork()
                if pid == 0:
                    asyncio._set_running_loop(None)
                    in_child()
                await asyncio.gather(*busy)
                await loop.run_in_executor(None, wait, pid)
        loop = new()
        loop.run_until_complete(main())
        loop.close()
        """)


def test_a_grandchild(python):
    run(python, """
        loop = new()
        loop.run_until_complete(work())
        pid = os.fork()
        if pid == 0:
            other = new()
            other.run_until_complete(work())
            pid = os.fork()
            if pid == 0: in_child()
            wait(pid)
            os._exit(0)
        wait(pid)
        loop.close()
        """)


def test_the_parents_loop_goes_on_after_the_child_closed_its_own(python, uring):
    """The child drops the parent's loop object; that must not disturb the parent's descriptors."""
    run(python, """
        import gc
        loop = new()
        a, b = socket.socketpair(); a.setblocking(False); b.setblocking(False)
        got = []
        loop.add_reader(a, lambda: (got.append(a.recv(10)), loop.stop()))
        loop.call_later(0.001, loop.stop)
        loop.run_forever()
        pid = os.fork()
        if pid == 0:
            del loop
            gc.collect()
            in_child()
        wait(pid)
        b.send(b'x')
        loop.run_forever()
        assert got == [b'x'], got
        loop.remove_reader(a)
        loop.close()
        """, TREADLE_IO_URING=uring)


def test_many_children(python):
    run(python, """
        loop = new()
        loop.run_until_complete(work())
        for _ in range(10):
            pid = os.fork()
            if pid == 0: in_child()
            wait(pid)
        loop.close()
        """)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(python, tmp_path, method):
    script = tmp_path / "mp.py"
    script.write_text(textwrap.dedent("""
        import asyncio, multiprocessing, os, sys
        import twin
        twin.LOOP_MODULE = os.environ["TREADLE_TEST_LOOP"]
        async def main():
            await asyncio.sleep(0.001)
            return await asyncio.get_running_loop().run_in_executor(None, int, "5")
        def child(queue):
            loop = twin.subject_loop()
            queue.put(loop.run_until_complete(main()))
            loop.close()
        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[1])
            loop = twin.subject_loop()
            loop.run_until_complete(main())
            queue = context.Queue()
            processes = [context.Process(target=child, args=(queue,)) for _ in range(3)]
            for p in processes: p.start()
            assert [queue.get(timeout=30) for _ in processes] == [5, 5, 5]
            for p in processes:
                p.join()
                assert p.exitcode == 0
            loop.run_until_complete(main())
            loop.close()
        """))
    python(str(script), method, check=True)


def test_add_signal_handler_in_a_child_of_a_thread(python):
    run(python, """
        results = []
        def fork():
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    loop = new()
                    loop.add_signal_handler(signal.SIGUSR1, loop.stop)
                    loop.call_soon(os.kill, os.getpid(), signal.SIGUSR1)
                    loop.run_forever()
                    loop.close()
                    code = 0
                except BaseException:
                    import traceback; traceback.print_exc()
                finally:
                    os._exit(code)
            results.append(os.waitpid(pid, 0)[1])
        loop = new()
        loop.run_until_complete(asyncio.sleep(0))
        t = threading.Thread(target=fork); t.start(); t.join()
        assert results == [0], results
        loop.close()
        """)
