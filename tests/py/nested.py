"""What nest_asyncio makes of a loop: nested.py (asyncio|treadle) (before|inside). Prints what happened, in
order."""
import asyncio
import sys
import threading

import nest_asyncio

import twin

ARM, WHEN = sys.argv[1:]
new_loop = twin.reference_loop if ARM == "asyncio" else twin.subject_loop


async def answer(value, delay=0.001):
    await asyncio.sleep(delay)
    return value


async def deep(loop, level):
    if level == 0:
        return await answer("deepest")
    return loop.run_until_complete(deep(loop, level - 1))


async def echo(loop):
    async def serve(reader, writer):
        writer.write(await reader.readline())
        writer.write(b"end\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello\n")
    lines = [loop.run_until_complete(reader.readline()), loop.run_until_complete(reader.readline())]
    writer.close()
    server.close()
    return lines


async def failing():
    await asyncio.sleep(0)
    raise ValueError("inside")


def from_thread(loop):
    done = loop.create_future()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(done.set_result, "thread")).start()
    return loop.run_until_complete(done)


async def main(loop):
    if WHEN == "inside":
        nest_asyncio.apply(loop)
    order = []
    current = asyncio.current_task()
    others = [asyncio.create_task(answer(i, 0)) for i in range(3)]
    for i in range(3):
        loop.call_soon(order.append, i)
    print(loop.run_until_complete(answer("nested")), order, asyncio.current_task() is current)
    print([task.result() for task in others])
    print(loop.run_until_complete(deep(loop, 5)))
    print(await echo(loop))
    print(from_thread(loop))
    print(loop.run_until_complete(loop.run_in_executor(None, int, "7")))
    try:
        loop.run_until_complete(failing())
    except ValueError as exc:
        print("raised", exc)
    nested = loop.create_future()
    loop.call_soon(lambda: nested.set_result(loop.run_until_complete(answer("in a callback"))))
    print(await nested)
    print(asyncio.run(answer("by asyncio.run")))
    return "over"


loop = new_loop()
asyncio.set_event_loop(loop)
if WHEN == "before":
    nest_asyncio.apply(loop)
print(loop.run_until_complete(main(loop)))
loop.run_until_complete(loop.shutdown_default_executor())
later = new_loop()
print(later.run_until_complete(answer("a later loop")))
later.call_later(0.001, later.stop)
later.run_forever()
later.close()
loop.close()
