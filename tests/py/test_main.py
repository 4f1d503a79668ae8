"""python -m treadle: programs run as they are."""
import json
import signal
import subprocess
import sys
import textwrap
import zipfile

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


def test_the_version_is_told(python):
    import treadle
    for flag in ("--version", "-V"):
        done = python("-m", "treadle", flag, check=True)
        assert done.stdout.startswith(
            f"treadle {treadle.__version__} (Python {sys.version.split()[0]}, libuv "
        )


SHOW = (
    "import asyncio, sys, treadle\nasync def main(): print(treadle.is_running(), sys.argv, repr(sys.path[0]), __name__)\n"
    "asyncio.run(main())\n"
)


def test_code_runs_as_the_interpreter_runs_it(python, tmp_path):
    done = python("-m", "treadle", "-c", SHOW, "one", "-m", check=True, cwd=tmp_path)
    assert done.stdout == "True ['-c', 'one', '-m'] '' __main__\n"
    assert python("-c", SHOW, "one", "-m", check=True, cwd=tmp_path).stdout == done.stdout.replace(
        "True", "False"
    )


def test_standard_input_runs_as_the_interpreter_runs_it(tmp_path):
    command = [sys.executable, "-m", "treadle", "-", "one"]
    done = subprocess.run(command, input=SHOW, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "True ['-', 'one'] '' __main__\n", done.stderr


def test_code_has_no_future_statements_but_its_own(python):
    code = "def annotated(value: int): pass\nprint(annotated.__annotations__)"
    assert python("-m", "treadle", "-c", code, check=True).stdout == python("-c", code, check=True).stdout


def test_what_is_defined_in_code_is_found_in_main(python):
    """Programs are told so by pickle, and by threads that outlive their last line."""
    code = "import pickle\nclass Here: pass\nassert type(pickle.loads(pickle.dumps(Here()))) is Here"
    python("-m", "treadle", "-c", code, check=True)


def test_safe_path_keeps_the_programs_folder_off_the_path(python, tmp_path):
    (tmp_path / "app.py").write_text("import sys\nprint(sys.path[0])\n")
    ours = python("-P", "-m", "treadle", "app.py", check=True, cwd=tmp_path).stdout
    assert ours == python("-P", "app.py", check=True, cwd=tmp_path).stdout


def test_c_and_m_ask_for_their_argument(python):
    for flag in ("-c", "-m"):
        done = python("-m", "treadle", flag)
        assert done.returncode == 2 and "usage" in done.stderr


CHILDREN = """
import asyncio, multiprocessing, os, subprocess, sys
from concurrent.futures import ProcessPoolExecutor

async def name():
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]

def run(_=None):
    return asyncio.run(name())

if __name__ == "__main__":
    found = {"self": run()}
    for method in ("fork", "spawn", "forkserver"):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
            found[method] = pool.submit(run, None).result()
    program = "import asyncio; print(type(asyncio.new_event_loop()).__module__.partition('.')[0])"
    for flags in ([], ["-E"], ["-I"]):
        done = subprocess.run([sys.executable, *flags, "-c", program], capture_output=True, text=True)
        found[" ".join(["command", *flags])] = done.stdout.strip()
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, run().encode())
        os._exit(0)
    os.wait()
    found["os.fork"] = os.read(read, 99).decode()
    print(found)
"""
EVERYWHERE = ["self", "fork", "spawn", "forkserver", "command", "command -E", "command -I", "os.fork"]


def test_children_run_treadle_however_they_are_started(python, tmp_path):
    app = tmp_path / "app.py"
    app.write_text(CHILDREN)
    done = python("-m", "treadle", str(app), check=True)
    assert eval(done.stdout) == dict.fromkeys(EVERYWHERE, "treadle")


def test_the_environment_alone_does_the_same(python, tmp_path):
    app = tmp_path / "app.py"
    app.write_text(CHILDREN)
    assert eval(python(str(app), env={"TREADLE": "1"}, check=True).stdout) == dict.fromkeys(
        EVERYWHERE, "treadle"
    )
    assert eval(python(str(app), env={"TREADLE": "0"}, check=True).stdout) == dict.fromkeys(
        EVERYWHERE, "asyncio"
    )


def test_install_holds_in_children_that_are_forked_and_in_no_others(python, tmp_path):
    app = tmp_path / "app.py"
    app.write_text(CHILDREN.replace('    found = {', '    import treadle; treadle.install()\n    found = {'))
    found = eval(python(str(app), check=True).stdout)
    assert {kind for kind, loop in found.items() if loop == "treadle"} == {"self", "fork", "os.fork"}


def test_a_program_that_imports_treadle_first_is_served_too(python):
    python(
        code="import treadle, asyncio; assert type(asyncio.new_event_loop()) is treadle.Loop",
        env={"TREADLE": "1"},
        check=True,
    )


OTHER_LOOP = """
import asyncio, warnings
for _ in range(2):
    asyncio.Runner(loop_factory=asyncio.SelectorEventLoop).run(asyncio.sleep(0))
"""


def test_another_loop_that_runs_is_told_once(python):
    done = python("-m", "treadle", "-c", OTHER_LOOP, check=True)
    assert (
        done.stderr.count(
            "RuntimeWarning: treadle was asked for, but asyncio.unix_events._UnixSelectorEventLoop runs"
        )
        == 1
    )
    assert python("-c", OTHER_LOOP, check=True).stderr == ""


def test_a_treadle_that_cannot_be_imported_is_told_and_asyncio_is_left_alone(python, tmp_path):
    (tmp_path / "treadle").mkdir()
    (tmp_path / "treadle" / "__init__.py").write_text("raise ImportError('broken here')\n")
    done = python(
        code="import asyncio; asyncio.run(asyncio.sleep(0))",
        env={"TREADLE": "1", "PYTHONPATH": str(tmp_path)},
        check=True,
    )
    assert "treadle was asked for (TREADLE=1) and cannot be imported: broken here" in done.stderr


def test_uvloop_is_hidden_from_the_module_that_takes_it_and_not_from_its_neighbors_in_a_zip_file(
    python, tmp_path
):
    app = tmp_path / "app.zip"
    with zipfile.ZipFile(app, "w") as files:
        files.writestr("uvloop.py", "")
        files.writestr("aiogram/__init__.py", "")
        files.writestr("aiogram/dispatcher/__init__.py", "")
        files.writestr(
            "aiogram/dispatcher/dispatcher.py",
            "try:\n    import uvloop\nexcept ImportError:\n    uvloop = None\n",
        )
        files.writestr("aiogram/dispatcher/neighbor.py", "import uvloop\n")
        files.writestr("__main__.py", "from aiogram.dispatcher import dispatcher, neighbor\n"
                                      "print(dispatcher.uvloop, neighbor.uvloop.__name__)\n")
    assert python(str(app), env={"TREADLE": "1"}, check=True).stdout == "None uvloop\n"


def test_is_running_tells_which_loop_it_is():
    import asyncio
    import treadle

    async def ask():
        return treadle.is_running()

    assert not treadle.is_running()
    assert treadle.run(ask())
    assert not asyncio.Runner(loop_factory=asyncio.SelectorEventLoop).run(ask())
    assert not treadle.run(ask(), loop_factory=asyncio.SelectorEventLoop)
    assert treadle.run(ask(), debug=True, loop_factory=lambda: treadle.Loop(io_uring=False))


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
