"""Subprocesses: started as asyncio starts them, their exit seen through a pidfd on the loop itself, from any
thread."""

from __future__ import annotations

import os
import signal
import sys
import threading
from asyncio import tasks, transports
from asyncio.log import logger
from typing import Any

from ._asyncio import UnixSubprocessTransport, give_child_watcher

# In the second case it is not used.
_AsyncioTransport: Any = UnixSubprocessTransport or transports.SubprocessTransport


def _exit_code(pid: int, transport: Any) -> int:
    try:
        status = os.waitpid(pid, 0)[1]
    except ChildProcessError:
        code = getattr(transport._proc, "returncode", None)
        if code is not None:  # the transport's close() looked first
            return int(code)
        logger.warning("child process pid %d exit status already read: will report returncode 255", pid)
        return 255
    try:
        code = os.waitstatus_to_exitcode(status)
    except ValueError:
        code = status
    if transport._proc is not None:
        transport._proc.returncode = code  # the number is free now, though the transport is told a turn later
    return code


def _close(fd: int) -> None:
    """Close a descriptor; the number is free even if that fails, and whoever waits for the child is told
    nonetheless."""
    try:
        os.close(fd)
    except OSError:
        pass


class SubprocessTransport(_AsyncioTransport):  # type: ignore[misc]
    """asyncio's transport with what newer Pythons mended in it; docs/asyncio-compat.md lists it."""

    _closed: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._waiting: set[Any] = set()  # for the exit: asyncio's own list is for the end of the pipes too
        super().__init__(*args, **kwargs)

    async def _wait(self) -> int:
        if self._returncode is None:
            waiter = self._loop.create_future()
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)
        return int(self._returncode)

    def _process_exited(self, returncode: int) -> None:
        super()._process_exited(returncode)
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    def send_signal(self, signal: int) -> None:
        """Send a signal, unless the process is known to have ended."""
        self._check_proc()
        if self._returncode is None and self._proc.returncode is None:
            try:
                os.kill(self._proc.pid, signal)  # Popen's own would take the exit status from the loop
            except ProcessLookupError:
                pass

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close the pipes and kill the process, if it runs."""
        if self._closed:
            return
        self._closed = True
        if self._loop is not None and not self._loop.is_closed():
            for protocol in self._pipes.values():
                if protocol is not None:
                    protocol.pipe.close()
        if self._proc is not None and self._returncode is None and self._proc.poll() is None:
            if self._loop.get_debug():
                logger.warning("Close running child process: kill %r", self)
            try:
                self._proc.kill()
            except (ProcessLookupError, PermissionError):  # it ended, or is another user's (setuid)
                pass

    async def _connect_pipes(self, waiter: Any) -> None:
        await super()._connect_pipes(waiter)
        if self._pending_calls is not None and self._proc is not None:  # it failed or was canceled
            for protocol in self._pipes.values():
                if protocol is not None:
                    protocol.pipe.close()
            for pipe in (self._proc.stdin, self._proc.stdout, self._proc.stderr):
                if pipe is not None:
                    pipe.close()


# As its repr has it on asyncio.
SubprocessTransport.__name__ = SubprocessTransport.__qualname__ = "_UnixSubprocessTransport"


class Processes:
    """The part of a loop that watches children; needs no child watcher."""

    _children: dict[int, int]

    async def _make_subprocess_transport(
        self: Any,
        protocol: Any,
        args: Any,
        shell: bool,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        bufsize: int,
        extra: Any = None,
        **kwargs: Any,
    ) -> Any:
        if UnixSubprocessTransport is None:
            give_child_watcher(self)
            return await super()._make_subprocess_transport(  # type: ignore[misc]
                protocol, args, shell, stdin, stdout, stderr, bufsize, extra=extra, **kwargs
            )
        waiter = self.create_future()
        transport = SubprocessTransport(
            self, protocol, args, shell, stdin, stdout, stderr, bufsize, waiter=waiter, extra=extra, **kwargs
        )
        self._watch_child(transport)
        try:
            await waiter
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            transport.close()
            await tasks.shield(transport._wait())
            raise
        return transport

    def _watch_child(self: Any, transport: Any) -> None:
        pid = transport.get_pid()
        pidfd = -1
        try:
            pidfd = os.pidfd_open(pid)
            self._add_reader(pidfd, self._child_exited, pidfd, transport)
        except OSError:  # an old kernel, a seccomp filter, or no descriptor left, or no room to poll it
            if pidfd != -1:
                _close(pidfd)
            threading.Thread(
                target=self._wait_for_child, args=(pid, transport), name=f"treadle-waitpid-{pid}", daemon=True
            ).start()
            return
        self._children[pidfd] = pid

    def _child_exited(self: Any, pidfd: int, transport: Any) -> None:
        self._remove_reader(pidfd)
        _close(pidfd)
        code = _exit_code(self._children.pop(pidfd), transport)
        if sys.version_info >= (3, 14):
            transport._process_exited(code)
        else:
            self.call_soon(transport._process_exited, code)  # asyncio's watchers take one more turn there

    def _wait_for_child(self: Any, pid: int, transport: Any) -> None:
        """Wait in a thread until a child ended; the loop takes its status, so that its number is its own
        until then."""
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            pass  # somebody else has its status
        try:
            self.call_soon_threadsafe(self._child_ended, pid, transport)
        except RuntimeError:
            _exit_code(pid, transport)
            logger.warning("Loop %r that handles pid %r is closed", self, pid)

    def _child_ended(self, pid: int, transport: Any) -> None:
        transport._process_exited(_exit_code(pid, transport))

    def _forget_children(self) -> None:
        for pidfd in self._children:
            _close(pidfd)
        self._children.clear()
