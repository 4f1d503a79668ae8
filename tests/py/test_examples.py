"""The Python programs of examples/ do what they say, each as a user starts it."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

import servers

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


def run(*command, **options):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=30,
        **options,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_echo_gives_its_client_the_line_back():
    assert run("-X", "dev", "echo.py") == "hello\n"


def test_tls_echo_is_trusted_by_its_certificate(tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            key,
            "-out",
            certificate,
            "-days",
            "7",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ],
        check=True,
        capture_output=True,
    )
    assert run("-X", "dev", "tls.py", certificate, key) == "TLSv1.3 hello\n"


def test_files_come_back_as_they_were_written(tmp_path):
    assert run("-X", "dev", "files.py", tmp_path) == "1690 characters\n42.txt\nlast line\n"


def test_lookups_are_answered_in_the_order_of_the_names():
    first, second = run("-X", "dev", "dns.py", "127.0.0.2", "::1").splitlines()
    assert (first, second) == ("127.0.0.2: 127.0.0.2", "::1: ::1")


def test_children_end_with_their_codes():
    lines = run("-X", "dev", "children.py").splitlines()
    assert [line for line in lines if line.startswith("first")] == [
        "first: one",
        "first: two",
        "first: ended with 0",
    ]
    assert [line for line in lines if line.startswith("second")] == ["second: ended with 3"]


def test_tests_of_an_application_run_on_treadle():
    # The plugins that are beside this one here are no user's.
    assert "1 passed" in run(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "pytest_asyncio.plugin",
        "tests",
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


def listens(port):
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.programs
@pytest.mark.parametrize(
    "server", [("uvicorn",), ("granian", "--interface", "asgi")], ids=lambda server: server[0]
)
def test_an_application_is_served_on_treadle(server):
    pytest.importorskip("fastapi")
    pytest.importorskip(server[0])
    port = servers.free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "treadle", "-m", *server, "--port", str(port), "http_app:app"],
        cwd=EXAMPLES,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=servers.ends_with_the_tests,
    )
    try:
        # Granian's workers say that they started before they listen, and nothing after.
        while process.poll() is None and not listens(port):
            pass
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
            assert json.load(answer) == {"treadle": True}
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and its workers
