"""A small ASGI application that servers under test serve."""
import asyncio


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await send({"type": "lifespan.shutdown.complete"})
                return
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        message = await receive()
        await send({"type": "websocket.send", "text": message["text"].upper()})
        await send({"type": "websocket.close"})
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    if scope["path"] == "/loop":
        loop = asyncio.get_running_loop()
        body = type(loop).__module__.encode()
    elif scope["path"] == "/slow":
        await asyncio.sleep(0.01)
    elif scope["path"] == "/large":
        body = b"x" * 2_000_000
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body or b"hello"})
