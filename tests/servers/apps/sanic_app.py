import os

from report import report
from sanic import Sanic, text

if "START_METHOD" in os.environ:
    Sanic.start_method = os.environ["START_METHOD"]
app = Sanic("app")


@app.get("/")
async def answer(request):
    return text(report())
