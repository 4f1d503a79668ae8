"""A FastAPI application, on treadle whatever serves it:

python -m treadle -m uvicorn http_app:app
python -m treadle -m granian --interface asgi http_app:app
"""
import fastapi
import treadle

app = fastapi.FastAPI()


@app.get("/")
async def loop():
    return {"treadle": treadle.is_running()}
