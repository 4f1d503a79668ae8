"""Real PostgreSQL and Redis servers from Debian's packages, each on a free port in a folder of its own."""
import contextlib
import ctypes
import glob
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading


PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


def ends_with_the_tests():
    """Called in a child that is about to become a server: the kernel ends it with us, also if we are ended in
    the middle."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def _postgres_bindir():
    found = []
    if shutil.which("pg_config"):
        found.append(subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True).stdout.strip())
    found += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    for folder in found:
        if os.access(os.path.join(folder, "initdb"), os.X_OK) and os.access(
            os.path.join(folder, "postgres"), os.X_OK
        ):
            return folder
    raise FileNotFoundError("no PostgreSQL server: install Debian's package postgresql")


def _unprivileged():
    """The server refuses to run as root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise KeyError("no unprivileged user to run PostgreSQL as")


def _wait_for(process, stream, text):
    """Reads the server's output up to the line that says it is ready, then drains it in the background."""
    seen = []
    for line in stream:
        seen.append(line)
        if text in line:
            threading.Thread(target=lambda: [None for _ in stream], daemon=True).start()
            return
    raise RuntimeError(f"server ended with {process.wait()}: {''.join(seen)}")


@contextlib.contextmanager
def postgres():
    """Yields a dsn of a fresh cluster with trust authentication."""
    bindir, user, port = _postgres_bindir(), _unprivileged(), free_port()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="treadle-pg-"))
    account = {}
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
        account = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    data = str(folder / "data")
    try:
        subprocess.run([f"{bindir}/initdb", "-D", data, "-A", "trust", "-U", "treadle", "-E", "UTF8", "-N"],
                       check=True, capture_output=True, cwd=folder, **account)
        server = subprocess.Popen(
            [
                f"{bindir}/postgres",
                "-D",
                data,
                "-p",
                str(port),
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "fsync=off",
                "-c",
                f"unix_socket_directories={folder}",
                "-c",
                "log_destination=stderr",
            ],
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            preexec_fn=ends_with_the_tests,
            **account,
        )
        try:
            _wait_for(server, server.stderr, "ready to accept connections")
            yield f"postgresql://treadle@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(2)
            server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def redis():
    """Yields the URL of a fresh server that saves nothing."""
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        raise FileNotFoundError("no Redis server: install Debian's package redis-server")
    port = free_port()
    folder = tempfile.mkdtemp(prefix="treadle-redis-")
    server = subprocess.Popen(
        [
            binary,
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            folder,
            "--daemonize",
            "no",
        ],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=ends_with_the_tests,
    )
    try:
        _wait_for(server, server.stdout, "eady to accept connections")
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
