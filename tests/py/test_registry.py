"""asyncio's registry of tasks, whose add() is in C from the first treadle loop on, up to Python 3.13: the
WeakSet it was."""
import asyncio
import contextlib
import gc
import subprocess
import sys
import textwrap
import threading
from weakref import WeakSet

import pytest

import treadle

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="the registry is a list in C from Python 3.14 on"
)
NAME = "_all_tasks" if sys.version_info < (3, 12) else "_scheduled_tasks"


@pytest.fixture
def registry():
    treadle.new_event_loop().close()
    registry = getattr(asyncio.tasks, NAME)
    assert isinstance(registry.add, type(len))
    gc.collect()
    return registry


class Thing:
    pass


def both(registry, script):
    assert script(registry) == script(WeakSet())


def test_what_was_added_is_there_once_until_it_dies(registry):
    def script(group):
        before = len(group)
        kept, lost = Thing(), Thing()
        log = [
            group.add(kept),
            group.add(lost),
            group.add(kept),
            len(group) - before,
            kept in group,
            lost in group,
        ]
        del lost
        log += [len(group) - before, kept in set(group)]
        group.discard(kept)
        return log + [len(group) - before, kept in group]

    both(registry, script)


def test_what_dies_while_somebody_iterates_goes_afterwards(registry):
    def script(group):
        before = len(group)
        things = [Thing() for _ in range(5)]
        for thing in things:
            group.add(thing)
        turn = iter(group)
        next(turn)
        thing = None
        things.clear()
        log = [len(group) - before <= 1]
        late = Thing()
        with contextlib.suppress(RuntimeError):  # a set that changed size
            group.add(late)
            list(turn)
        turn.close()
        return log + [len(group) - before, late in group, len(group._pending_removals)]

    both(registry, script)


def test_what_waited_for_an_iteration_that_was_dropped_is_removed_by_the_next_add(registry):
    def script(group):
        before = len(group)
        group._iterating.add("somebody")
        gone = Thing()
        group.add(gone)
        del gone
        log = [len(group._pending_removals), len(group) - before]
        group._iterating.discard("somebody")
        late = Thing()
        group.add(late)
        return log + [len(group._pending_removals), len(group) - before, len(group.data) - before]

    both(registry, script)


def test_what_cannot_be_added_is_refused_as_before(registry):
    class Unhashable:
        __hash__ = None

    def script(group):
        log = []
        before = len(group)
        for item in (1, None, Unhashable(), WeakSet):
            try:
                log.append(group.add(item))
            except TypeError as exc:
                log.append(str(exc))
        for items, named in (
            ((), {}),
            ((Thing(), Thing()), {}),
            ((), {"thing": 1}),
            ((Thing(),), {"item": 1}),
        ):
            with pytest.raises(TypeError):
                group.add(*items, **named)
        named = Thing()
        group.add(item=named)
        log.append(named in group)
        group.discard(named)
        group.discard(WeakSet)
        return log + [len(group) - before]

    both(registry, script)


def test_all_tasks_shows_what_runs_on_its_loop(registry):
    async def main():
        mine = [asyncio.create_task(asyncio.sleep(0)) for _ in range(3)]
        names = {task.get_name() for task in asyncio.all_tasks()} - {task.get_name() for task in mine}
        assert names == {asyncio.current_task().get_name()}
        await asyncio.gather(*mine)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    for run in (treadle.run, asyncio.run):
        run(main())
    assert not asyncio.all_tasks(asyncio.SelectorEventLoop())


def test_tasks_of_many_threads_leave_nothing(registry):
    before = len(registry)
    found = []

    def run():
        async def main():
            for _ in range(200):
                await asyncio.gather(*[asyncio.create_task(asyncio.sleep(0)) for _ in range(10)])
                assert len(asyncio.all_tasks()) == 1

        try:
            treadle.run(main())
        except BaseException as exc:
            found.append(exc)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert found == [] and len(registry) == before


def test_an_add_that_somebody_else_replaced_is_left_alone():
    code = textwrap.dedent(f"""
        import asyncio, treadle
        registry = asyncio.tasks.{NAME}
        seen = []
        def add(task, add=registry.add):
            seen.append(task)
            add(task)
        registry.add = add
        treadle.run(asyncio.sleep(0))
        assert registry.add is add and len(seen) >= 1
    """)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
