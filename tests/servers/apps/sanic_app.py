from report import report
from sanic import Sanic, text

app = Sanic("app")


@app.get("/")
async def answer(request):
    return text(report())
