"""Starts a server as its users do, asks each of its workers which loop runs there, and stops it."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid

APPS = pathlib.Path(__file__).resolve().parent / "apps"
OFFLINE = str(pathlib.Path(__file__).resolve().parent / "offline")  # on PYTHONPATH it refuses other machines
DEADLINE_S = 25
# In the environment of all that these tests have started, whatever group or session it is in since.
RUN = "TREADLE_TEST_RUN"
SESSION = uuid.uuid4().hex


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Output:
    """The lines of a process, kept, with a wait for the one that has a text."""

    def __init__(self, stream):
        self.lines = []
        self.changed = threading.Condition()
        self.ended = False
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream):
        for line in stream:
            with self.changed:
                self.lines.append(line)
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    @property
    def text(self):
        return "".join(self.lines)

    def wait_for(self, text):
        with self.changed:
            self.changed.wait_for(lambda: self.ended or text in self.text, DEADLINE_S)
        assert text in self.text, f"{text!r} is not in what it said:\n{self.text}"


def of_run(run):
    """The processes that are left of one run, or of all runs of a session."""
    mark, left = f"{RUN}={run}".encode(), []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if any(entry.startswith(mark) for entry in (folder / "environ").read_bytes().split(b"\0")):
                left.append(int(folder.name))
        except OSError:
            pass  # gone, or another user's
    return left


def end_run(run):
    """Kills what is left of a run, and waits until nothing is."""
    deadline = time.monotonic() + DEADLINE_S
    while left := of_run(run):
        assert time.monotonic() < deadline, f"still alive: {left}"
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


@contextlib.contextmanager
def running(*command, env=None, cwd=APPS, report=None, stop=signal.SIGTERM):
    """A process and its output, both streams; it is stopped at the end, with all that it started."""
    run = f"{SESSION}.{uuid.uuid4().hex}"
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(APPS), **(env or {}), RUN: run}
    if report is not None:
        environ["LOOP_REPORT"] = report
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    process.output = Output(process.stdout)
    try:
        yield process
    finally:
        process.send_signal(stop)
        try:
            process.wait(DEADLINE_S)
        finally:
            process.kill()
            process.wait()
            end_run(run)


class Reports:
    """Where applications say which process and loop they run in; each stays blocked until release()."""

    def __init__(self, folder):
        self.path = str(folder / "report")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        self.listener.settimeout(DEADLINE_S)
        self.held = []

    def next(self):
        """(pid, loop) of the next one to report."""
        sock, _ = self.listener.accept()
        self.held.append(sock)
        pid, name = sock.makefile().readline().split()
        return int(pid), name

    def release(self):
        for sock in self.held:
            sock.close()
        self.held = []

    def close(self):
        self.release()
        self.listener.close()


@contextlib.contextmanager
def reports(folder):
    made = Reports(folder)
    try:
        yield made
    finally:
        made.close()


def wait_for_port(process, port):
    """Until somebody listens; nothing announces it, so it is asked for."""
    for _ in range(DEADLINE_S * 50):
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, process.output.text
        time.sleep(0.02)
    raise AssertionError(f"nobody listens: {process.output.text}")


def get(url):
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return answer.read().decode()


def loops_of_workers(url, reports, workers):
    """{pid: loop} as seen inside requests, of that many workers.

    The first request blocks its worker, so a further one is answered by another; where the kernel has dealt
    it to the first one's own queue, one more is sent.
    """
    found, threads, answers = {}, [], []
    reports.listener.settimeout(0.25)
    for _ in range(DEADLINE_S * 4):
        threads.append(threading.Thread(target=lambda: answers.append(get(url)), daemon=True))
        threads[-1].start()
        try:
            pid, name = reports.next()
        except TimeoutError:
            continue
        found[pid] = name
        if len(found) == workers:
            break
    # What came second to a blocked worker reports as soon as that is free.
    while threads:
        reports.release()
        threads[0].join(0.01)
        if not threads[0].is_alive():
            threads.pop(0)
            continue
        with contextlib.suppress(TimeoutError):
            reports.listener.settimeout(0.05)
            reports.next()
    assert set(answers) == set(found.values()), answers
    return found


def loops_of_consumers(send, reports, workers):
    """{pid: loop} as seen inside the handling of messages, by that many workers.

    The first message blocks its worker. One that was dealt to it all the same, by a request that it had made
    before, waits there; then one more is sent.
    """
    found = {}
    reports.listener.settimeout(DEADLINE_S)
    for _ in range(DEADLINE_S):
        send()
        with contextlib.suppress(TimeoutError):
            pid, name = reports.next()
            found[pid] = name
        if len(found) == workers:
            break
        reports.listener.settimeout(1)
    reports.release()
    return found
