"""anyio and pytest-asyncio on treadle's loop."""
import asyncio
import os
import signal
import textwrap
import threading

import pytest

import twin as twins

pytestmark = pytest.mark.programs


def anyio_run(function, *args):
    import anyio
    return anyio.run(function, *args, backend_options={"loop_factory": twins.subject_loop})


def test_anyio_runs_on_the_factory():
    async def main():
        return type(asyncio.get_running_loop()).__module__

    assert twins.LOOP_MODULE in anyio_run(main)


def test_anyio_worker_threads_are_reused_under_runner():
    """find_root_task looks for run_until_complete's own done-callback; otherwise each task gets threads of
    its own."""
    import anyio.to_thread

    async def main():
        async def request():
            return await anyio.to_thread.run_sync(threading.get_ident)

        return {await asyncio.get_running_loop().create_task(request()) for _ in range(20)}

    with asyncio.Runner(loop_factory=twins.subject_loop) as runner:
        assert len(runner.run(main())) == 1


def test_anyio_threads_both_ways():
    import anyio.from_thread
    import anyio.to_thread

    async def value(x):
        return x + 1

    async def main():
        def work():
            return anyio.from_thread.run(value, 4)

        return await anyio.to_thread.run_sync(work)

    assert anyio_run(main) == 5


def test_anyio_tcp_and_unix(tmp_path):
    import anyio

    async def echo(stream):
        async with stream:
            async for chunk in stream:
                await stream.send(chunk)

    async def talk(listener, connect):
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, echo)
            async with await connect() as stream:
                await stream.send(b"x" * 100_000)
                got = b""
                while len(got) < 100_000:
                    got += await stream.receive()
            group.cancel_scope.cancel()
        await listener.aclose()
        return len(got)

    async def main():
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        tcp = await talk(listener, lambda: anyio.connect_tcp("127.0.0.1", port))
        path = str(tmp_path / "sock")
        unix = await talk(await anyio.create_unix_listener(path), lambda: anyio.connect_unix(path))
        return tcp, unix

    assert anyio_run(main) == (100_000, 100_000)


def test_anyio_udp_process_signals_and_readable():
    import anyio
    import socket

    async def main():
        async with await anyio.create_udp_socket(local_host="127.0.0.1") as udp:
            port = udp.extra(anyio.abc.SocketAttribute.local_port)
            async with await anyio.create_connected_udp_socket("127.0.0.1", port) as client:
                await client.send(b"datagram")
                data, address = await udp.receive()
        process = await anyio.run_process(["cat"], input=b"through a process")
        with anyio.open_signal_receiver(signal.SIGUSR1) as signals:
            os.kill(os.getpid(), signal.SIGUSR1)
            async for signum in signals:
                break
        a, b = socket.socketpair()
        a.setblocking(False)
        b.send(b"r")
        await anyio.wait_readable(a)
        await anyio.wait_writable(a)
        a.close()
        b.close()
        return data, process.stdout, int(signum)

    assert anyio_run(main) == (b"datagram", b"through a process", int(signal.SIGUSR1))


def test_anyio_timeouts_and_cancel_scopes():
    import anyio

    async def main():
        with anyio.move_on_after(0.005) as scope:
            await anyio.sleep(10)
        with pytest.raises(TimeoutError):
            with anyio.fail_after(0.005):
                await anyio.sleep(10)
        return scope.cancelled_caught

    assert anyio_run(main) is True


def test_anyio_runs_a_process_pool():
    import anyio.to_process

    async def main():
        return await anyio.to_process.run_sync(os.getpid, cancellable=True)

    assert anyio_run(main) != os.getpid()


def test_pytest_asyncio_takes_the_factory(python, tmp_path):
    (tmp_path / "conftest.py").write_text(textwrap.dedent("""
        import twin
        def pytest_asyncio_loop_factories(config, item):
            return {"subject": twin.subject_loop}
        """))
    (tmp_path / "test_it.py").write_text(textwrap.dedent("""
        import asyncio
        import pytest, pytest_asyncio, twin

        @pytest_asyncio.fixture
        async def server():
            server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
            yield server
            server.close()

        @pytest.mark.asyncio
        async def test_loop(server):
            assert twin.LOOP_MODULE in type(asyncio.get_running_loop()).__module__
            await asyncio.sleep(0.001)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert await reader.read() == b""
            writer.close()

        @pytest.mark.asyncio(loop_scope="module")
        async def test_other_scope():
            assert twin.LOOP_MODULE in type(asyncio.get_running_loop()).__module__
        """))
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "-o",
                  "asyncio_default_fixture_loop_scope=function", str(tmp_path))
    assert "2 passed" in done.stdout, done.stdout + done.stderr
