"""Subprocesses: started as asyncio starts them, their exit seen through a pidfd on the loop itself, from any thread."""

from __future__ import annotations

import os
import sys
import threading
from asyncio import tasks, unix_events
from asyncio.log import logger
from typing import Any


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
        return os.waitstatus_to_exitcode(status)
    except ValueError:
        return status


def _tell_exit(transport: Any, code: int) -> None:
    """Tell a transport that its process ended, and let wait() return though a grandchild may still hold a pipe."""
    transport._process_exited(code)
    waiters, transport._exit_waiters = transport._exit_waiters or [], []  # gh-119710, mended in Python 3.13
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(code)


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
        waiter = self.create_future()
        transport = unix_events._UnixSubprocessTransport(  # type: ignore[attr-defined]
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
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # an old kernel, a seccomp filter, or no descriptor left
            threading.Thread(
                target=self._wait_for_child, args=(pid, transport), name=f"treadle-waitpid-{pid}", daemon=True
            ).start()
            return
        self._children[pidfd] = pid
        self._add_reader(pidfd, self._child_exited, pidfd, transport)

    def _child_exited(self: Any, pidfd: int, transport: Any) -> None:
        self._remove_reader(pidfd)
        os.close(pidfd)
        code = _exit_code(self._children.pop(pidfd), transport)
        if sys.version_info >= (3, 14):
            transport._process_exited(code)
        else:
            self.call_soon(_tell_exit, transport, code)  # asyncio's watchers take one more turn there

    def _wait_for_child(self: Any, pid: int, transport: Any) -> None:
        code = _exit_code(pid, transport)
        if self.is_closed():
            logger.warning("Loop %r that handles pid %r is closed", self, pid)
        else:
            self.call_soon_threadsafe(_tell_exit, transport, code)

    def _forget_children(self) -> None:
        for pidfd in self._children:
            os.close(pidfd)
        self._children.clear()
