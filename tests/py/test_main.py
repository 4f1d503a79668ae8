"""python -m treadle: programs run as they are."""
import json
import signal
import subprocess
import sys
import textwrap

import pytest

import twin as twins

pytestmark = pytest.mark.skipif(twins.LOOP_MODULE != "treadle", reason="treadle's own command")

APP = """
import asyncio, sys
async def main():
    loop = asyncio.get_running_loop()
    print(type(loop).__module__.split('.')[0].lstrip('_'), sys.argv[1:], __name__)
asyncio.run(main())
"""


def test_a_script_runs_on_treadle_with_its_arguments(python, tmp_path):
    app = tmp_path / "app.py"
    app.write_text(APP)
    done = python("-m", "treadle", str(app), "one", "--two", check=True)
    assert done.stdout.split() == ["treadle", "['one',", "'--two']", "__main__"]


def test_the_scripts_folder_and_name_are_those_of_python(python, tmp_path):
    (tmp_path / "sibling.py").write_text("VALUE = 7\n")
    app = tmp_path / "app.py"
    app.write_text("import sibling, sys\nprint(sibling.VALUE, sys.argv[0] == __file__, __file__)\n")
    done = python("-m", "treadle", str(app), check=True)
    assert done.stdout.split()[:2] == ["7", "True"]


def test_a_module_runs_on_treadle(python, tmp_path):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(APP)
    done = python("-m", "treadle", "-m", "pkg", "x", check=True, cwd=tmp_path)
    assert done.stdout.split() == ["treadle", "['x']", "__main__"]


def test_new_event_loop_gives_a_treadle_loop_too(python, tmp_path):
    app = tmp_path / "app.py"
    app.write_text("import asyncio\nloop = asyncio.new_event_loop()\nprint(type(loop).__module__)\n"
                   "loop.run_until_complete(asyncio.sleep(0))\nloop.close()\n")
    done = python("-m", "treadle", str(app), check=True)
    assert "treadle" in done.stdout


def test_exit_codes_and_tracebacks_pass_through(python, tmp_path):
    app = tmp_path / "app.py"
    app.write_text("import sys\nsys.exit(9)\n")
    assert python("-m", "treadle", str(app)).returncode == 9
    app.write_text("def broken():\n    raise ValueError('shown')\nbroken()\n")
    done = python("-m", "treadle", str(app))
    assert done.returncode == 1 and "ValueError: shown" in done.stderr and "in broken" in done.stderr


def test_a_missing_program_is_told(python):
    done = python("-m", "treadle", "/nonexistent/app.py")
    assert done.returncode != 0 and "app.py" in done.stderr
    done = python("-m", "treadle", "-m", "no_such_module_here")
    assert done.returncode != 0 and "no_such_module_here" in done.stderr


def test_help_and_no_arguments(python):
    done = python("-m", "treadle", "--help", check=True)
    assert "treadle" in done.stdout
    assert python("-m", "treadle").returncode != 0 or "usage" in python("-m", "treadle").stdout.lower()


def test_info(python):
    done = python("-m", "treadle", "info", check=True)
    for word in ("libuv", "gate"):
        assert word in done.stdout.lower()
    assert done.stderr == ""


def test_info_says_when_the_ring_is_switched_off(python):
    on = python("-m", "treadle", "info", check=True).stdout
    off = python("-m", "treadle", "info", check=True, env={"TREADLE_IO_URING": "0"}).stdout
    assert on != off


def test_ctrl_c_ends_a_program(tmp_path):
    app = tmp_path / "app.py"
    app.write_text(textwrap.dedent("""
        import asyncio
        async def main():
            print("ready", flush=True)
            try:
                await asyncio.sleep(60)
            finally:
                print("cleaned", flush=True)
        asyncio.run(main())
        """))
    process = subprocess.Popen([sys.executable, "-m", "treadle", str(app)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert out == "cleaned\n" and "KeyboardInterrupt" in err
    assert process.returncode in (130, -signal.SIGINT)
