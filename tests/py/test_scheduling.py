"""The order of callbacks, their contexts, handles and exceptions, against asyncio."""
import asyncio
import contextvars
import functools
import gc
import warnings

import pytest

from twin import norm, twin

VAR = contextvars.ContextVar("VAR", default="unset")


@twin
def test_callbacks_run_in_the_order_they_were_scheduled(t):
    for i in range(50):
        t.loop.call_soon(t.log, i)
    t.loop.call_soon(t.loop.stop)
    t.loop.run_forever()


@twin
def test_what_a_callback_schedules_waits_for_the_next_generation(t):
    def link(n):
        t.log("link", n)
        if n:
            t.loop.call_soon(link, n - 1)

    t.loop.call_soon(link, 3)
    for i in range(3):
        t.loop.call_soon(t.log, i)
    t.loop.call_later(0, t.log, "timer")
    t.loop.call_later(0.01, t.loop.stop)
    t.loop.run_forever()


@twin
def test_stop_ends_the_loop_after_the_generation_that_asked(t):
    def c():
        t.log("c ran")

    t.loop.call_soon(t.log, "a")
    t.loop.call_soon(t.loop.stop)
    t.loop.call_soon(t.log, "b")
    t.loop.call_soon(lambda: t.loop.call_soon(c))
    t.loop.run_forever()
    t.log("stopped")
    t.loop.call_soon(t.loop.stop)
    t.loop.run_forever()


@twin
def test_stop_before_run_forever_runs_one_generation(t):
    t.loop.call_soon(t.log, "ran")
    t.loop.stop()
    t.loop.run_forever()
    t.log("again")
    t.loop.call_soon(t.log, "second")
    t.loop.call_soon(t.loop.stop)
    t.loop.run_forever()


@twin
def test_stop_through_call_soon_threadsafe_takes_effect_in_the_same_turn(t):
    t.loop.call_soon(t.log, 1)
    t.loop.call_soon_threadsafe(t.loop.stop)
    t.loop.call_soon(t.log, 2)
    t.loop.call_soon(lambda: t.loop.call_soon(t.log, "too late"))
    t.loop.run_forever()
    t.log("stopped")


@twin
def test_callbacks_get_their_arguments(t):
    for count in range(8):
        t.loop.call_soon(t.log, *range(count))
    t.loop.call_soon(functools.partial(t.log, "partial"), 1, 2)
    t.loop.call_soon(t.loop.stop)
    t.loop.run_forever()


@twin
def test_each_callback_runs_in_its_context(t):
    def show(name):
        t.log(name, VAR.get())
        VAR.set(name)

    context = contextvars.copy_context()
    context.run(VAR.set, "explicit")
    VAR.set("outer")
    t.loop.call_soon(show, "a")
    t.loop.call_soon(show, "b")
    t.loop.call_soon(show, "c", context=context)
    t.loop.call_soon(show, "d", context=context)
    t.loop.call_soon_threadsafe(show, "e", context=context)
    t.loop.call_later(0, show, "f")
    t.loop.call_later(0.001, functools.partial(show, "g"))
    t.loop.call_at(t.loop.time() + 0.002, functools.partial(show, "h"), context=context)
    t.loop.call_later(0.01, t.loop.stop)
    t.loop.run_forever()
    t.log("outside", VAR.get())
    VAR.set("unset")


@twin
def test_a_canceled_handle_does_not_run_and_drops_its_callback(t):
    class Callback:
        def __call__(self):
            t.log("must not run")

    for schedule in (t.loop.call_soon, t.loop.call_soon_threadsafe,
                     functools.partial(t.loop.call_later, 60), functools.partial(t.loop.call_later, 0)):
        callback = Callback()
        t.watch(callback)
        handle = schedule(callback)
        t.log(handle.cancelled())
        handle.cancel()
        handle.cancel()
        t.log(handle.cancelled())
    t.loop.call_soon(t.loop.stop)
    t.loop.run_forever()


@twin(modes=("plain",))
def test_a_canceled_handle_releases_callback_and_arguments_at_once(t):
    import weakref

    class Thing:
        def __call__(self, *args):
            pass

    for schedule in (t.loop.call_soon, t.loop.call_soon_threadsafe, functools.partial(t.loop.call_later, 60)):
        callback, argument = Thing(), Thing()
        refs = weakref.ref(callback), weakref.ref(argument)
        handle = schedule(callback, argument)
        del callback, argument
        t.log([r() is None for r in refs])
        handle.cancel()
        t.log([r() is None for r in refs])


@twin
def test_a_callback_may_cancel_one_later_in_its_own_generation(t):
    later = None

    def first():
        later.cancel()

    t.loop.call_soon(first)
    later = t.loop.call_soon(t.log, "must not run")
    t.loop.call_soon(t.log, "runs")
    t.loop.call_soon(t.loop.stop)
    t.loop.run_forever()


@twin
def test_handles_are_asyncio_handles(t):
    a = t.loop.call_soon(t.log)
    b = t.loop.call_later(5, t.log)
    c = t.loop.call_soon_threadsafe(t.log)
    d = t.loop.call_at(t.loop.time() + 5, t.log)
    for handle in (a, b, c, d):
        t.log(isinstance(handle, asyncio.Handle), isinstance(handle, asyncio.TimerHandle))
        handle.cancel()


def named():
    pass


class Named:
    def method(self, *args):
        pass


@twin
def test_handle_repr_is_asyncios(t):
    handles = [
        t.loop.call_soon(named),
        t.loop.call_soon(named, 1, "two"),
        t.loop.call_soon(Named().method, None),
        t.loop.call_soon(functools.partial(named, 3)),
        t.loop.call_soon(print, *range(3)),
        t.loop.call_soon_threadsafe(named),
    ]
    for handle in handles:
        t.log(repr(handle))
        handle.cancel()
        t.log(repr(handle))


@twin
def test_timer_handle_repr_is_asyncios(t):
    timer = t.loop.call_at(1e9, named, 5)
    t.log(repr(timer).replace(str(timer.when()), "WHEN"))
    timer.cancel()
    t.log(repr(timer).replace(str(timer.when()), "WHEN"))


@twin
def test_when_repr_and_cancel_still_answer_after_the_timer_ran(t):
    timer = t.loop.call_at(t.loop.time() - 1, t.log, "ran")
    when = timer.when()
    t.loop.call_later(0.001, t.loop.stop)
    t.loop.run_forever()
    t.log(timer.when() == when, timer.cancelled())
    t.log(repr(timer).replace(str(when), "WHEN"))
    timer.cancel()
    t.log(timer.cancelled())


@twin
def test_timer_handles_compare_and_hash_as_asyncios(t):
    when = t.loop.time() + 100
    a, b = t.loop.call_at(when, named), t.loop.call_at(when, named)
    c = t.loop.call_at(when + 1, named)
    t.log(a == b, a != b, a < c, a <= c, c > a, c >= a, a == a, hash(a) == hash(when), a == object(), a < c)
    t.call(lambda: a < 5)
    for handle in (a, b, c):
        handle.cancel()


@twin
def test_handle_attributes_that_programs_read(t):
    handle = t.loop.call_soon(named, 1, 2)
    t.log(handle._callback is named, handle._args, handle._cancelled, handle._loop is t.loop)
    handle.cancel()
    t.log(handle._callback, handle._args, handle._cancelled)
    context = contextvars.copy_context()
    other = t.loop.call_soon(named, context=context)
    t.log(other._context is context)
    if hasattr(asyncio.Handle, "get_context"):
        t.log(other.get_context() is context)
    timer = t.loop.call_later(100, named)
    t.log(timer._scheduled)
    timer.cancel()


@twin
def test_an_exception_in_a_callback_goes_to_the_handler_and_the_loop_goes_on(t):
    def fail(*args):
        raise ValueError("from callback")

    t.loop.call_soon(fail, 1)
    t.loop.call_soon(t.log, "next")
    t.loop.call_later(0, fail)
    t.loop.call_soon_threadsafe(fail, "x")
    t.loop.call_later(0.01, t.loop.stop)
    t.loop.run_forever()


@twin
def test_the_default_exception_handler_logs_as_asyncio(t):
    t.loop.set_exception_handler(None)
    t.log(t.loop.get_exception_handler())

    def fail():
        raise ValueError("from callback")

    t.loop.call_soon(fail)
    t.loop.call_soon(t.loop.stop)
    t.loop.run_forever()
    t.loop.call_exception_handler({"message": "custom", "future": None, "other": 5})
    t.loop.default_exception_handler({"message": "direct"})


@twin
def test_a_failing_exception_handler_is_reported(t):
    def handler(loop, context):
        raise KeyError("in handler")

    t.loop.set_exception_handler(handler)
    t.loop.call_soon(lambda: 1 / 0)
    t.loop.call_soon(t.log, "next")
    t.loop.call_soon(t.loop.stop)
    t.loop.run_forever()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
@twin
def test_exit_exceptions_leave_run_forever_and_the_rest_runs_later(t, kind):
    def leave():
        raise kind("out")

    t.loop.call_soon(t.log, 1)
    t.loop.call_soon(leave)
    t.loop.call_soon(t.log, 2)
    t.call(t.loop.run_forever)
    t.log(t.loop.is_running(), t.loop.is_closed())
    t.loop.call_soon(t.log, 3)
    t.loop.call_soon(t.loop.stop)
    t.loop.run_forever()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
@twin
def test_exit_exceptions_of_tasks_leave_run_until_complete(t, kind):
    async def leave():
        await asyncio.sleep(0)
        raise kind("out")

    async def main():
        task = asyncio.ensure_future(leave())
        try:
            await task
        except BaseException as exc:
            t.log("main saw", exc)
            raise

    t.call(t.loop.run_until_complete, main())
    t.log(t.loop.is_running())


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
@twin
def test_exit_exceptions_of_timers_and_threadsafe_callbacks_leave_run_forever(t, kind):
    def leave():
        raise kind("out")

    t.loop.call_later(0, leave)
    t.call(t.loop.run_forever)
    t.loop.call_soon_threadsafe(leave)
    t.call(t.loop.run_forever)


@twin
def test_a_base_exception_of_a_callback_goes_to_the_handler(t):
    class Odd(BaseException):
        pass

    def fail():
        raise Odd("odd")

    t.loop.call_soon(fail)
    t.loop.call_soon(t.loop.stop)
    t.call(t.loop.run_forever)


@twin
async def test_local_and_remote_calls_from_one_thread_keep_their_order(t):
    for i in range(50):
        (t.loop.call_soon if i % 2 else t.loop.call_soon_threadsafe)(t.log, i)
    await t.turns(2)


@twin
async def test_tasks_and_futures_interleave_as_on_asyncio(t):
    async def worker(name, count):
        for i in range(count):
            t.log(name, i)
            await asyncio.sleep(0)
        return name

    future = t.loop.create_future()
    future.add_done_callback(lambda f: t.log("future", f.result()))
    tasks = [t.loop.create_task(worker(n, 3)) for n in "abc"]
    t.loop.call_soon(future.set_result, 1)
    done = await asyncio.gather(*tasks)
    t.log(done)


@twin
async def test_create_task_takes_what_this_python_takes(t):
    context = contextvars.copy_context()
    context.run(VAR.set, "task")

    async def show():
        return VAR.get(), asyncio.current_task().get_name()

    t.log(await t.loop.create_task(show(), name="first", context=context))
    t.log((await t.loop.create_task(show(), name="second"))[1])
    if hasattr(asyncio, "eager_task_factory"):
        t.loop.set_task_factory(asyncio.eager_task_factory)
        task = t.loop.create_task(show(), name="eager")
        t.log(task.done(), (await task)[1])
        t.loop.set_task_factory(None)
    t.log(isinstance(t.loop.create_future(), asyncio.Future))


@twin
async def test_task_factories_get_only_what_the_caller_gave(t):
    def factory(loop, coro, **kwargs):
        t.log(sorted(kwargs))
        return asyncio.Task(coro, loop=loop, **kwargs)

    async def nothing():
        pass

    t.loop.set_task_factory(factory)
    t.log(t.loop.get_task_factory() is factory)
    await t.loop.create_task(nothing())
    await t.loop.create_task(nothing(), name="n")
    await t.loop.create_task(nothing(), context=contextvars.copy_context())
    t.loop.set_task_factory(None)
    t.call(t.loop.set_task_factory, 5)


@twin
def test_a_plain_factory_without_keywords_works(t):
    def factory(loop, coro, context=None):
        t.log("factory")
        return asyncio.Task(coro, loop=loop)

    async def nothing():
        return 4

    t.loop.set_task_factory(factory)
    t.log(t.loop.run_until_complete(nothing()))


@twin
def test_a_coroutine_never_awaited_warns_as_on_asyncio(t):
    async def coro():
        pass

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        t.call(t.loop.call_soon, coro())
        t.loop.call_soon(t.loop.stop)
        t.loop.run_forever()
        gc.collect()
    t.log([(w.category.__name__, norm(str(w.message))) for w in seen if w.category is RuntimeWarning])


@twin
async def test_cancel_reaches_a_task_at_each_await(t):
    async def worker(steps):
        try:
            for _ in range(3):
                await asyncio.sleep(0)
                steps.append("woke")
        except asyncio.CancelledError as exc:
            t.log("canceled", steps, exc)
            raise

    for at in range(5):
        task = t.loop.create_task(worker([]))
        await t.turns(at)
        t.log(task.cancel(f"at {at}"))
        await asyncio.gather(task, return_exceptions=True)
        t.log(task.cancelled())
