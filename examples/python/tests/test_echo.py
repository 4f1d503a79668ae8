"""Run with: python -m pytest tests"""
import asyncio
import pathlib
import sys

import pytest
import treadle

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from echo import echo


@pytest.mark.asyncio
async def test_a_line_comes_back():
    assert treadle.is_running()
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"one\n")
        assert await reader.read() == b"one\n"
        writer.close()
        await writer.wait_closed()
