"""Released web servers and clients run on treadle as they do on asyncio."""
import asyncio
import contextlib
import http.client
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap

import pytest

import servers
import twin as twins
from twin import twin

pytestmark = pytest.mark.programs
HERE = pathlib.Path(__file__).parent
FACTORY = (
    "asyncio:SelectorEventLoop" if twins.LOOP_MODULE == "asyncio" else f"{twins.LOOP_MODULE}:new_event_loop"
)


class Server:
    """A server process that said it is ready; stopped by SIGTERM."""

    def __init__(self, command, ready, times=1):
        env = dict(
            os.environ,
            PYTHONUNBUFFERED="1",
            PYTHONPATH=os.pathsep.join([str(HERE / "apps"), str(HERE), os.environ.get("PYTHONPATH", "")]),
        )
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
            start_new_session=True,
            preexec_fn=servers.ends_with_the_tests,
        )
        self.output = []
        for line in self.process.stdout:
            self.output.append(line)
            times -= ready in line
            if not times:
                return
        self.__exit__()
        raise AssertionError(f"ended with {self.process.wait()}: {''.join(self.output)}")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def stop(self, sig=signal.SIGTERM):
        self.process.send_signal(sig)
        try:
            out, _ = self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not stop: {''.join(self.output)}") from None
        return self.process.returncode, "".join(self.output) + out


def listens(port):
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def get(port, path, method="GET", body=None, connection=None):
    connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, body=body)
    response = connection.getresponse()
    return response.status, response.read()


def check_service(port):
    kept = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for _ in range(3):
        assert get(port, "/", connection=kept) == (200, b"hello")
    kept.close()
    loop_module = get(port, "/loop")[1].decode()
    assert twins.LOOP_MODULE in loop_module, loop_module
    assert get(port, "/slow") == (200, b"hello")
    assert get(port, "/", "POST", b"y" * 300_000) == (200, b"y" * 300_000)
    assert get(port, "/large")[1] == b"x" * 2_000_000


def uvicorn(*args):
    port = servers.free_port()
    command = [sys.executable, "-m", "uvicorn", "asgi:app", "--host", "127.0.0.1", "--port", str(port),
               "--loop", FACTORY, *args]
    return command, port


@pytest.mark.parametrize("http_impl", ["httptools", "h11"])
def test_uvicorn_serves_and_stops(http_impl):
    command, port = uvicorn("--http", http_impl)
    with Server(command, "Uvicorn running on") as server:
        check_service(port)
        code, output = server.stop()
        assert "Finished server process" in output and "Traceback" not in output, output
        assert code in (0, -signal.SIGTERM)


def test_uvicorn_with_two_workers():
    command, port = uvicorn("--workers", "2")
    with Server(command, "Application startup complete", times=2) as server:
        check_service(port)
        code, output = server.stop()
        assert "Traceback" not in output, output


def test_uvicorn_stops_on_ctrl_c_and_serves_websockets():
    command, port = uvicorn()
    with Server(command, "Uvicorn running on") as server:
        async def talk():
            import websockets
            async with websockets.connect(f"ws://127.0.0.1:{port}/") as ws:
                await ws.send("shout")
                return await ws.recv()

        assert asyncio.run(talk()) == "SHOUT"
        code, output = server.stop(signal.SIGINT)
        assert "Finished server process" in output and "Traceback" not in output, output


def test_hypercorn_serves_under_runner(tmp_path):
    port = servers.free_port()
    script = tmp_path / "serve.py"
    module, name = FACTORY.split(":")
    script.write_text(textwrap.dedent(f"""
        import asyncio, signal, {module} as loops
        import hypercorn.asyncio, hypercorn.config
        from asgi import app
        async def main():
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            config = hypercorn.config.Config()
            config.bind = ["127.0.0.1:{port}"]
            await hypercorn.asyncio.serve(app, config, shutdown_trigger=stop.wait)
            print("served", flush=True)
        with asyncio.Runner(loop_factory=loops.{name}) as runner:
            runner.run(main())
        """))
    with Server([sys.executable, str(script)], "Running on") as server:
        check_service(port)
        code, output = server.stop()
        assert code == 0 and "served" in output and "Traceback" not in output, output


def test_granian_serves_through_its_registry(tmp_path):
    pytest.importorskip("granian")
    if twins.LOOP_MODULE == "asyncio":
        pytest.skip("asyncio is registered already")
    port = servers.free_port()
    script = tmp_path / "serve.py"
    script.write_text(textwrap.dedent(f"""
        import asyncio
        from granian import Granian
        from granian._loops import loops

        @loops.register("treadle", packages=["treadle"])
        def build_loop(treadle):
            loop = treadle.new_event_loop()
            asyncio.set_event_loop(loop)
            return loop

        if __name__ == "__main__":
            Granian("asgi:app", address="127.0.0.1", port={port}, interface="asgi", loop="treadle").serve()
        """))
    with Server([sys.executable, str(script)], "Started worker-1") as server:
        # The worker says that it started before it listens, and nothing after.
        while server.process.poll() is None and not listens(port):
            pass
        check_service(port)
        code, output = server.stop()
        assert code == 0 and "Traceback" not in output and "panic" not in output, output


def test_aiohttp_run_app_stops_on_sigterm(tmp_path):
    """Its signal handler raises GracefulExit, a SystemExit, out of a callback."""
    port = servers.free_port()
    module, name = FACTORY.split(":")
    script = tmp_path / "serve.py"
    script.write_text(textwrap.dedent(f"""
        import asyncio, {module} as loops
        from aiohttp import web
        async def hello(request):
            return web.Response(text=type(asyncio.get_running_loop()).__module__)
        async def closed(app):
            print("cleaned", flush=True)
        app = web.Application()
        app.router.add_get("/", hello)
        app.on_cleanup.append(closed)
        web.run_app(app, host="127.0.0.1", port={port}, loop=loops.{name}())
        """))
    with Server([sys.executable, str(script)], "Running on") as server:
        assert twins.LOOP_MODULE in get(port, "/")[1].decode()
        code, output = server.stop()
        assert code == 0 and "cleaned" in output and "Traceback" not in output, output


@twin(modes=("plain",))
async def test_aiohttp_server_and_client(t, tmp_path):
    import aiohttp
    from aiohttp import web

    file = tmp_path / f"static{int(t.subject)}"
    file.write_bytes(b"s" * 500_000)

    async def echo(request):
        return web.Response(body=await request.read(), headers={"X-Peer": request.remote})

    async def stream(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for i in range(20):
            await response.write(b"chunk %d;" % i)
        await response.write_eof()
        return response

    async def socket_handler(request):
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        async for message in ws:
            await ws.send_str(message.data[::-1])
        return ws

    async def static(request):
        return web.FileResponse(file)

    app = web.Application(client_max_size=10_000_000)
    app.add_routes([web.post("/echo", echo), web.get("/stream", stream), web.get("/ws", socket_handler),
                    web.get("/file", static)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        for size in (0, 10, 100_000, 3_000_000):
            async with session.post("/echo", data=b"z" * size) as response:
                t.log(response.status, len(await response.read()), response.headers["X-Peer"])
        async with session.get("/stream") as response:
            t.log(await response.text())
        async with session.get("/file") as response:
            t.log(len(await response.read()))
        async with session.ws_connect("/ws") as ws:
            for word in ("one", "two" * 1000):
                await ws.send_str(word)
                t.log((await ws.receive()).data == word[::-1])
        results = await asyncio.gather(*[fetch(session, i) for i in range(100)])
        t.log(results == list(range(100)))
        try:
            async with session.get("/stream", timeout=aiohttp.ClientTimeout(total=1e-9)) as response:
                await response.read()
        except asyncio.TimeoutError as exc:
            t.log(type(exc).__name__)
    await runner.cleanup()
    await asyncio.sleep(0.01)


async def fetch(session, i):
    async with session.post("/echo", data=str(i)) as response:
        return int(await response.text())


@twin(modes=("plain",))
async def test_websockets_server_and_client(t):
    import websockets

    async def echo(ws):
        async for message in ws:
            await ws.send(message)

    async with websockets.serve(echo, "127.0.0.1", 0, max_size=None) as server:
        port = server.sockets[0].getsockname()[1]
        async with websockets.connect(f"ws://127.0.0.1:{port}", max_size=None) as ws:
            for message in ("text", b"bytes", "long" * 100_000):
                await ws.send(message)
                t.log(await ws.recv() == message)
            pong = await ws.ping()
            await pong
        clients = [await websockets.connect(f"ws://127.0.0.1:{port}") for _ in range(20)]
        await asyncio.gather(*[c.send(str(i)) for i, c in enumerate(clients)])
        t.log(await asyncio.gather(*[c.recv() for c in clients]))
        await asyncio.gather(*[c.close() for c in clients])
    await asyncio.sleep(0.01)
