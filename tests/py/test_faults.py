"""Each system call of each kind of work fails once, with each errno it can: see fault_table.py. A sample of
the cells runs here, all of them with TREADLE_FAULTS=all."""
import os
import pathlib

import pytest

from conftest import preload, run_python

TABLE = pathlib.Path(__file__).with_name("fault_table.py")
ALL = os.environ.get("TREADLE_FAULTS") == "all"


@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer wraps the same functions"
)
@pytest.mark.timeout(10_000 if ALL else 120)
def test_each_failing_call_is_told_or_survived_as_on_asyncio(tmp_path):
    args = ["--all"] if ALL else ["--seconds", "35"]
    done = run_python(str(TABLE), *args, env=preload("fault", tmp_path), timeout=10_000 if ALL else 110)
    print(done.stdout[-2000:])
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


FULL = """
import asyncio, os, resource, socket, sys
def fill():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return taken
if sys.argv[1] == "treadle":
    import treadle
loop = treadle.new_event_loop() if sys.argv[1] == "treadle" else asyncio.SelectorEventLoop()
"""


@pytest.mark.parametrize("arm", ["asyncio", "treadle"])
def test_a_run_needs_no_descriptor(arm):
    done = run_python("-c", FULL + """
fill()
loop.call_soon(loop.stop)
loop.run_forever()
print("ran")
""", arm)
    assert done.stdout == "ran\n", done.stderr


@pytest.mark.parametrize("arm", ["asyncio", "treadle"])
def test_a_handler_may_close_the_server_that_has_no_descriptors_left(arm):
    done = run_python("-c", FULL + """
async def main():
    told = loop.create_future()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    def handler(loop, context):
        if not told.done():
            told.set_result(context["message"])
            server.close()
    loop.set_exception_handler(handler)
    client = socket.socket()
    client.setblocking(False)
    taken = fill()
    client.connect_ex(server.sockets[0].getsockname())
    print(await told)
    for fd in taken:
        os.close(fd)
    await asyncio.sleep(0)
    client.close()
loop.run_until_complete(main())
print("ran")
""", arm)
    assert done.stdout == "socket.accept() out of system resource\nran\n", done.stderr
