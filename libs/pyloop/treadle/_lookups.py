"""getaddrinfo and getnameinfo of a loop: in C where that gives what asyncio's executor would, else by the
executor."""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from asyncio.log import logger
from typing import Any

from ._asyncio import is_asyncios_pool, set_result_unless_cancelled

_GIVEN: Any = object()  # no executor is this
_class_of: Any = type  # the built-in, which an argument of getaddrinfo hides


class Lookups:
    """The lookups of treadle.Loop, whose C part tells for each call whether it can answer.

    A subclass of Loop, a default executor of the user's and a replaced socket.getaddrinfo all have reasons to
    see each lookup, so they do.
    """

    _default_executor: Any
    # The default executor when it was last found to be of asyncio's making, or None.
    _own_executor: Any = _GIVEN
    _looks_up_natively: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._looks_up_natively = False

    async def getaddrinfo(
        self: Any, host: Any, port: Any, *, family: Any = 0, type: Any = 0, proto: Any = 0, flags: Any = 0
    ) -> Any:
        """Look up a host and a port, as socket.getaddrinfo; numeric hosts are answered at once."""
        if self._default_executor is self._own_executor or self._executor_is_own():
            answer = self._getaddrinfo(host, port, family, type, proto, flags)
            if _class_of(answer) is list:
                return answer
            if answer is not None:
                if self._debug:
                    return await self._lookup_logged(answer, host, port, family, type, proto, flags)
                try:
                    return await answer
                except (asyncio.CancelledError, GeneratorExit):
                    self._drop_lookup(answer)
                    raise
        named = {"family": family, "type": type, "proto": proto, "flags": flags}
        # As the caller gave them, for who looks.
        given = {name: value for name, value in named.items() if value != 0}
        return await super().getaddrinfo(host, port, **given)  # type: ignore[misc]

    async def getnameinfo(self: Any, sockaddr: Any, flags: Any = 0) -> Any:
        """Look up the names of an address, as socket.getnameinfo; numeric names are answered at once."""
        if self._default_executor is self._own_executor or self._executor_is_own():
            answer = self._getnameinfo(sockaddr, flags)
            if type(answer) is tuple:
                return answer
            if answer is not None:
                return await self._lookup(answer)
        return await super().getnameinfo(sockaddr, flags)  # type: ignore[misc]

    async def _lookup(self: Any, future: Any) -> Any:
        try:
            return await future
        except (asyncio.CancelledError, GeneratorExit):
            self._drop_lookup(future)
            raise

    async def _lookup_logged(
        self: Any, answer: Any, host: Any, port: Any, family: Any, type: Any, proto: Any, flags: Any
    ) -> Any:
        # As BaseEventLoop._getaddrinfo_debug.
        named = {"family": family, "type": type, "proto": proto, "flags": flags}
        text = ", ".join(
            [f"{host}:{port!r}"] + [f"{name}={value!r}" for name, value in named.items() if value]
        )
        logger.debug("Get address info %s", text)
        t0 = self.time()
        rows = await self._lookup(answer)
        dt = self.time() - t0
        log = logger.info if dt >= self.slow_callback_duration else logger.debug
        log(f"Getting address info {text} took {dt * 1e3:.3f}ms: {rows!r}")
        return rows

    def _asks_no_executor(self) -> bool:
        return self._default_executor is self._own_executor or self._executor_is_own()

    def _executor_is_own(self) -> bool:
        executor = self._default_executor
        if not self._looks_up_natively:
            return False
        if executor is not None and not (
            is_asyncios_pool(executor)
        ):
            return False
        self._own_executor = executor
        return True

    def _leave_lookups_to_python(self) -> None:
        self._looks_up_natively = False
        self._own_executor = _GIVEN

    def set_default_executor(self, executor: Any) -> None:
        """Set the executor that run_in_executor(None, ...) uses; from now on lookups go there too."""
        super().set_default_executor(executor)  # type: ignore[misc]
        self._leave_lookups_to_python()

    if sys.version_info >= (3, 12):

        async def shutdown_default_executor(self: Any, timeout: Any = None) -> None:
            """Wait for the default executor's jobs to end, for timeout seconds at most; lookups are refused
            from now on."""
            replaced = self._patched("shutdown_default_executor")
            if replaced is not None:
                self._leave_lookups_to_python()
                return await (replaced() if timeout is None else replaced(timeout))  # type: ignore[no-any-return]
            await self._end_executor(timeout)

    else:

        async def shutdown_default_executor(self: Any) -> None:
            """Wait for the default executor's jobs to end; lookups are refused from now on, as its jobs
            are."""
            replaced = self._patched("shutdown_default_executor")
            if replaced is not None:
                self._leave_lookups_to_python()
                return await replaced()  # type: ignore[no-any-return]
            await self._end_executor(None)

    async def _end_executor(self: Any, timeout: float | None) -> None:
        # A cancel and the timeout leave the waiting to the thread (gh-111358); asyncio's join blocks the
        # loop.
        self._leave_lookups_to_python()
        self._forget_inherited_executor()
        self._executor_shutdown_called = True
        executor = self._default_executor
        if executor is None:
            return
        future = self.create_future()
        thread = threading.Thread(target=self._do_shutdown, args=(future,))
        thread.start()
        try:
            # Not asyncio.timeout(), which asks for a task: nest_asyncio's are none for asyncio.current_task()
            # from 3.14 on.
            done, _ = await asyncio.wait({future}, timeout=timeout)
        finally:
            future.cancel()
        if done:
            future.result()
            thread.join()
        else:
            # Asyncio's.
            text = f"The executor did not finishing joining its threads within {timeout} seconds."
            warnings.warn(text, RuntimeWarning, stacklevel=3)
            executor.shutdown(wait=False)

    def _do_shutdown(self: Any, future: Any) -> None:
        try:
            self._default_executor.shutdown(wait=True)
            if not self.is_closed():
                self.call_soon_threadsafe(set_result_unless_cancelled, future, None)
        except Exception as exc:
            if not self.is_closed() and not future.cancelled():
                self.call_soon_threadsafe(future.set_exception, exc)


for _method in (
    Lookups.getaddrinfo,
    Lookups.getnameinfo,
    Lookups.set_default_executor,
    Lookups.shutdown_default_executor,
):
    _method.__qualname__ = f"BaseEventLoop.{_method.__name__}"  # errors and coroutines then read as asyncio's
