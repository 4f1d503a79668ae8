from aiohttp import web
from report import report


async def answer(request):
    return web.Response(text=report())


app = web.Application()
app.router.add_get("/", answer)
