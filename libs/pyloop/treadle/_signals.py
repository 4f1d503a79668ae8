"""add_signal_handler of a loop, and what it shares with whoever else wants CPython's one wakeup descriptor.

A sleep of the loop always has the wakeup descriptor, and gives it back before Python code runs (run.c). So a
signal ends every sleep, whoever set another descriptor meanwhile, and the program finds the one that it set.
Only with a handler of add_signal_handler does the loop keep it, as on asyncio: its bytes count the signals.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
import weakref
from asyncio import coroutines, events
from asyncio.log import logger
from typing import Any

from ._asyncio import iscoroutinefunction, signal_handler

_loops: Any = weakref.WeakValueDictionary()  # by the wakeup descriptor of each that had a handler


def _wakeup_fd() -> int:
    """Return the descriptor that CPython writes signals to, -1 for none."""
    fd = signal.set_wakeup_fd(-1)
    if fd != -1:
        try:
            signal.set_wakeup_fd(fd, warn_on_full_buffer=fd in _loops)
        except (ValueError, OSError):
            return -1  # closed by its owner
    return fd


class _Arrival:
    """What signal.signal() is given for a loop: keeps a signal from its default action, and does not keep the
    loop."""

    __slots__ = ("_loop",)

    def __init__(self, loop: Any) -> None:
        self._loop = weakref.ref(loop)

    def __call__(self, signum: int, frame: Any) -> None:
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            loop._signal_arrived(signum)


class _Foreign:
    """A wakeup descriptor that was found set. Its owner may close it, and its number be another's: it is
    looked at again."""

    __slots__ = ("_fd", "_file")

    def __init__(self, fd: int) -> None:
        self._fd, self._file = fd, self._look(fd)

    @staticmethod
    def _look(fd: int) -> Any:
        try:
            found = os.fstat(fd)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def number(self) -> int:
        """Return the descriptor, or -1 if it was closed."""
        return self._fd if self._file is not None and self._look(self._fd) == self._file else -1


class Signals:
    """The part of a loop that calls back on signals."""

    _signal_handlers: dict[int, Any]
    _signal_arrival: _Arrival | None
    _foreign_wakeup: _Foreign | None

    def _signal_bytes(self: Any, former: int) -> bytes:
        """Take the numbers of the signals that arrived; whose wakeup descriptor was put aside meanwhile gets
        them too."""
        rfd, wfd = self._signal_fds()
        try:
            data = os.read(rfd, 4096)
        except (BlockingIOError, InterruptedError):
            return b""
        if former == wfd:
            former = -1 if self._foreign_wakeup is None else self._foreign_wakeup.number()
        if former != -1:
            try:
                os.write(former, data)
            except OSError:
                pass
        self._process_self_data(data)
        return data

    def _signal_arrived(self: Any, signum: int) -> None:
        """The signal module calls: the bytes do the work, unless somebody else gets them."""
        former = self._wakeup_put_aside()
        if former is None:
            former = _wakeup_fd()
        if former != self._signal_fds()[1] and signum not in self._signal_bytes(former):
            self._process_self_data(bytes([signum]))

    def add_signal_handler(self: Any, sig: int, callback: Any, *args: Any) -> Any:
        """Call callback(*args) in the loop when a signal arrives; main thread only.

        Raises ValueError or RuntimeError for a signal that cannot be caught, as asyncio does.
        """
        replaced = self._patched("add_signal_handler")
        if replaced is not None:
            return replaced(sig, callback, *args)
        if coroutines.iscoroutine(callback) or iscoroutinefunction(callback):
            raise TypeError("coroutines cannot be used with add_signal_handler()")
        self._check_signal(sig)
        self._check_closed()
        wfd = self._signal_fds()[1]
        try:
            old = signal.set_wakeup_fd(wfd)
        except (ValueError, OSError) as exc:
            raise RuntimeError(str(exc)) from None
        if old != wfd:
            loop = _loops.get(old)  # which hears of its signals without the descriptor
            ours = loop is not None and not loop.is_closed()
            self._foreign_wakeup = None if old == -1 or ours else _Foreign(old)
        _loops[wfd] = self
        self._signal_handlers[sig] = events.Handle(callback, args, self, None)
        if self._signal_arrival is None:
            self._signal_arrival = _Arrival(self)
        try:
            signal.signal(sig, self._signal_arrival)
            signal.siginterrupt(sig, False)
        except OSError as exc:
            del self._signal_handlers[sig]
            self._release_wakeup_fd()
            if exc.errno == 22:
                raise RuntimeError(f"sig {sig} cannot be caught") from None
            raise

    def remove_signal_handler(self: Any, sig: int) -> bool:
        """Give a signal its default action back; True if it had a handler here."""
        replaced = self._patched("remove_signal_handler")
        if replaced is not None:
            return bool(replaced(sig))
        self._check_signal(sig)
        try:
            del self._signal_handlers[sig]
        except KeyError:
            return False
        handler = signal.default_int_handler if sig == signal.SIGINT else signal.SIG_DFL
        if not self._belongs_to_another_loop(signal.getsignal(sig)):
            try:
                signal.signal(sig, handler)
            except OSError as exc:
                if exc.errno == 22:
                    raise RuntimeError(f"sig {sig} cannot be caught") from None
                raise
        self._release_wakeup_fd()
        return True

    def _belongs_to_another_loop(self, handler: Any) -> bool:
        if isinstance(handler, _Arrival):
            return handler is not self._signal_arrival
        return handler is not None and handler is signal_handler

    def _release_wakeup_fd(self: Any) -> None:
        """Without handlers the wakeup descriptor is not ours; another's that was set since is left alone."""
        if self._signal_handlers or _wakeup_fd() != self._signal_fds()[1]:
            return
        former = -1 if self._foreign_wakeup is None else self._foreign_wakeup.number()
        self._foreign_wakeup = None
        try:
            signal.set_wakeup_fd(former)
        except (ValueError, OSError) as exc:
            logger.info("set_wakeup_fd(-1) failed: %s", exc)

    def _forget_signals(self: Any) -> None:
        if not self._signal_handlers:
            return
        if sys.is_finalizing():
            warnings.warn(
                f"Closing the loop {self!r} on interpreter shutdown stage, skipping signal handlers removal",
                ResourceWarning,
                source=self,
            )
            self._signal_handlers.clear()
            return
        for sig in list(self._signal_handlers):
            self.remove_signal_handler(sig)
