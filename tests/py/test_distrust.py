"""With each check of an inside of CPython, asyncio or libuv made to fail, treadle imports, says so, and its
twin tests pass.

ground/cpython.h, ground/asyncio.h, poll/uvpriv.h and treadle/_asyncio.py list the checks and what is done
without each.
"""
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
# By check: the files that have its concern, and which of their tests.
CONCERNS = {
    "context_vars": ("test_scheduling.py", "context"),
    "type_tags": ("test_seams.py", "call_soon or create_task or clock or overrides"),
    "dict_tags": ("test_dns.py", "replaced_getaddrinfo or replaced_getnameinfo"),
    "new_reference": ("test_scheduling.py", "test_callbacks or repr"),
    "origin_depth": ("test_streams.py", "forgets_to_await or lines"),
    "method_defs": ("test_tcp.py", "write_in_connection_made or close_flushes_first"),
    "socket_numbers": ("test_tcp.py", "given_socket or accepted_socket or extra_info"),
    "uv_handles": (
        "test_sockops.py",
        "sock_recv or sock_accept or while_data or replacing or reader_and_writer",
    ),
    "flow_control": ("test_tcp.py", "echo or pause_and_resume or water_marks"),
    "task_registry": ("test_scheduling.py", "task"),
    "sslproto": ("test_tls.py", "(echo or start_tls or server) and not trusted and not refused"),
    "_interleave_addrinfos": ("test_tcp.py", "happy_eyeballs or all_errors"),
    "_check_ssl_socket": ("test_sockops.py", "sock_accept"),
    "_format_handle": ("test_lifecycle.py", "slow_callbacks"),
    "_SendfileFallbackProtocol": ("test_sendfile.py", "fallback or values"),
    "_set_result_unless_cancelled": ("test_lifecycle.py", "executor"),
    "_convert_future_exc": ("test_lifecycle.py", "executor"),
    "_SendfileMode": ("test_sendfile.py", "peer_that_leaves"),
    "_format_callback_source": ("test_scheduling.py", "order_they_were_scheduled"),
    "_enter_task": ("test_scheduling.py", "task"),
    "_leave_task": ("test_scheduling.py", "task"),
    "_UnixSubprocessTransport": ("test_subprocess.py", "(exit or output) and not grandchild"),
    "_global_shutdown_lock": ("test_lifecycle.py", "executor"),
}


def without(check):
    return {**os.environ, "TREADLE_TEST_DISTRUST": check}


def trusted(check):
    program = (
        "import treadle, treadle._asyncio as a; treadle.new_event_loop().close(); "
        "print(a.trusted | treadle._treadle._trusted())"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], env=without(check), capture_output=True, text=True, check=True
    )
    return eval(run.stdout)


def test_every_check_holds_on_this_python():
    gone = {"dict_tags": (3, 12), "task_registry": (3, 14)}
    absent = {check for check, version in gone.items() if sys.version_info >= version}
    assert {check for check, held in trusted("").items() if not held} == absent


def test_every_check_is_made_to_fail_here():
    assert set(trusted("")) == set(CONCERNS)


def test_a_check_of_another_name_is_trusted():
    assert trusted("context,vars,_") == trusted("")


@pytest.mark.parametrize("check", CONCERNS)
def test_without_it_the_twins_agree(check):
    assert not trusted(check)[check]
    file, chosen = CONCERNS[check]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        str(HERE / file),
        "-k",
        chosen,
    ]
    run = subprocess.run(command, env=without(check), capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-1000:]
