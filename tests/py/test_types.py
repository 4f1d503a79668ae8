"""Types: asyncio's own classes, typing marker and stubs, what the compiled module exports."""
import asyncio
import importlib.util
import inspect
import pathlib
import pkgutil
import shutil
import subprocess
import sys

import pytest

import twin as twins

# mypy takes seconds on a quiet machine, and a busy one does not hurry.
SLOW = pytest.mark.timeout(300)

pytestmark = pytest.mark.skipif(twins.LOOP_MODULE != "treadle", reason="treadle's own package")


@pytest.fixture
def package():
    import treadle
    return pathlib.Path(treadle.__file__).parent


def test_the_package_has_a_typing_marker_and_stubs(package):
    spec = importlib.util.find_spec("treadle._treadle") or importlib.util.find_spec("_treadle")
    assert spec is not None
    assert (package / "py.typed").is_file()
    assert list(package.glob("_treadle*.pyi")), sorted(p.name for p in package.iterdir())


def test_the_public_names(package):
    import treadle
    for name in (
        "Loop",
        "new_event_loop",
        "run",
        "install",
        "uninstall",
        "info",
        "is_running",
        "__version__",
    ):
        assert hasattr(treadle, name), name
    assert set(treadle.__all__) <= set(dir(treadle))
    if sys.version_info < (3, 14):
        assert hasattr(treadle, "EventLoopPolicy")


def test_a_loop_that_ran_keeps_its_dict_empty_for_those_who_use_it(loop):
    async def main():
        await asyncio.wait_for(asyncio.sleep(0), 1)
        await loop.run_in_executor(None, int)
        loop.call_later(10, int).cancel()

    loop.run_until_complete(main())
    loop.set_debug(True)
    loop.set_exception_handler(lambda loop, context: None)
    assert vars(loop) == {}
    loop.mine = 1
    assert vars(loop) == {"mine": 1}


def test_no_slot_of_a_loop_hides_a_default_of_asyncios():
    import treadle
    for name in treadle.Loop.__slots__:
        assert not any(name in vars(base) for base in treadle.Loop.__mro__[1:]), name


def test_the_loop_is_an_asyncio_loop(loop):
    import treadle
    assert isinstance(loop, treadle.Loop)
    assert isinstance(loop, asyncio.AbstractEventLoop)


def test_signatures_of_the_loops_methods_are_asyncios(loop):
    wrong = []
    for name in dir(asyncio.BaseEventLoop):
        if name.startswith("_") or not callable(getattr(asyncio.BaseEventLoop, name)):
            continue
        expected = inspect.signature(getattr(asyncio.SelectorEventLoop, name))
        try:
            got = inspect.signature(getattr(type(loop), name))
        except ValueError:
            wrong.append((name, "no signature"))
            continue
        if [(p.name, p.kind) for p in got.parameters.values()][1:] != \
                [(p.name, p.kind) for p in expected.parameters.values()][1:]:
            wrong.append((name, str(got), str(expected)))
    assert wrong == []


@SLOW
def test_mypy_accepts_a_program_against_the_stubs(tmp_path, package):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    program = tmp_path / "program.py"
    program.write_text("""
import asyncio
import treadle

async def main() -> int:
    loop = asyncio.get_running_loop()
    loop.call_soon(print)
    return 5

value: int = treadle.run(main(), loop_factory=treadle.new_event_loop)
version: str = treadle.__version__
inside: bool = treadle.is_running()
loop: asyncio.AbstractEventLoop = treadle.new_event_loop()
other: treadle.Loop = treadle.Loop()
treadle.install()
treadle.uninstall()
""")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-incremental",
            "--cache-dir",
            str(tmp_path),
            str(program),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


TYPOS = """
import asyncio
import treadle

treadle.new_evnt_loop
loop = treadle.new_event_loop()
loop.call_son(print)
loop.call_soon(print).cancl()
loop.call_later(1, print).wen()
def look(transport: treadle.TCPTransport) -> None:
    transport.writ(b"")
"""


@SLOW
def test_mypy_tells_typos_in_the_names_of_the_package(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    program = tmp_path / "program.py"
    program.write_text(TYPOS)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-incremental",
            "--cache-dir",
            str(tmp_path),
            str(program),
        ],
        capture_output=True,
        text=True,
    )
    told = [line for line in done.stdout.splitlines() if "attr-defined" in line]
    assert len(told) == 5, done.stdout


@SLOW
@pytest.mark.parametrize("hidden", ["_loop.pyi", "_loop.py"])
def test_mypy_accepts_the_package_itself(tmp_path, package, hidden):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    # Not where it is installed: beside other packages, mypy takes those for modules of the program. The stub
    # of the loop's module stands for its code there, and here each is looked at.
    shutil.copytree(package, tmp_path / "treadle", ignore=shutil.ignore_patterns("*.so", hidden))
    startup = importlib.util.find_spec("_treadle_startup").origin
    shutil.copy(startup, tmp_path)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--cache-dir",
            str(tmp_path / "cache"),
            "treadle",
            "_treadle_startup.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@SLOW
def test_the_stubs_say_what_the_modules_have(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "treadle"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def public_members():
    """(name, object) of every class, function and method that the package shows without an underscore."""
    import treadle
    import treadle.fileio
    names = ["treadle"] + [
        m.name for m in pkgutil.walk_packages(treadle.__path__, "treadle.") if "__main__" not in m.name
    ]
    for module in map(importlib.import_module, names):
        for name, value in vars(module).items():
            if name.startswith("_") or not str(getattr(value, "__module__", "")).startswith("treadle"):
                continue
            yield f"{module.__name__}.{name}", value
            for cls in value.__mro__ if isinstance(value, type) else ():
                if cls.__module__.startswith("treadle"):
                    for member, inner in vars(cls).items():
                        if not member.startswith("_") and type(inner).__name__ != "member_descriptor":
                            yield f"{cls.__qualname__}.{member}", getattr(inner, "__func__", inner)


def test_every_public_name_has_a_docstring_and_a_signature():
    wrong = []
    for name, value in public_members():
        documented = (
            getattr(value, "__doc__", None) or not callable(value) and not isinstance(value, property)
        )
        if not documented:
            wrong.append((name, "no docstring"))
        if callable(value) and not isinstance(value, type):
            try:
                inspect.signature(value)
            except ValueError:
                wrong.append((name, "no signature"))
    assert wrong == []


def test_the_compiled_module_exports_its_init_only(package):
    found = list(package.glob("_treadle*.so"))
    if not found:
        import treadle._treadle as module
        found = [pathlib.Path(module.__file__)]
    out = subprocess.run(
        ["nm", "-D", "--defined-only", str(found[0])], capture_output=True, text=True, check=True
    )
    symbols = [line.split()[-1] for line in out.stdout.splitlines()]
    assert [s for s in symbols if not s.startswith(("PyInit_", "_init", "_fini"))] == []


def test_two_loops_do_not_share_state(loop):
    import treadle
    other = treadle.new_event_loop()
    seen = []
    loop.call_soon(seen.append, "one")
    other.call_soon(seen.append, "two")
    for each in (other, loop):
        each.call_soon(each.stop)
        each.run_forever()
    other.close()
    assert seen == ["two", "one"]


SUBINTERPRETER = """
import sys
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
i = interpreters.create()
run = interpreters.run_string if hasattr(interpreters, 'run_string') else interpreters.exec
run(i, sys.argv[1])
interpreters.destroy(i)
print('alive')
"""


def test_a_subinterpreter_is_refused_or_works(python):
    """What the module declares must be true: either the import fails cleanly or a loop runs there."""
    if python("import asyncio", code=SUBINTERPRETER).returncode != 0:
        pytest.skip("this Python cannot load asyncio itself in a subinterpreter and end")
    done = python("""
try:
    import treadle, asyncio
except ImportError:
    pass
else:
    treadle.run(asyncio.sleep(0))
""", code=SUBINTERPRETER)
    assert done.returncode == 0 and "alive" in done.stdout, done.stderr
