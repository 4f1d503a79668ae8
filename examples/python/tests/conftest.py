"""Every test that pytest-asyncio runs, runs on treadle."""
import treadle


def pytest_asyncio_loop_factories(config, item):
    return {"treadle": treadle.new_event_loop}
