"""What pip installed: one version, types, licences, and a module that shows nothing but its entry."""
import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def distribution():
    try:
        return importlib.metadata.distribution("treadle")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("treadle is on the path without being installed")


def test_the_version_is_the_one_of_the_build(distribution):
    text = (ROOT / "CMakeLists.txt").read_text()
    assert distribution.version == re.search(r"project\(treadle VERSION (\S+)", text).group(1)
    import treadle
    assert treadle.__version__ == distribution.version


def test_types_and_licences_are_installed(distribution):
    names = {str(name) for name in distribution.files}
    assert "treadle/py.typed" in names
    assert "treadle/_treadle.pyi" in names
    assert {pathlib.PurePath(name).name for name in names} >= {"LICENSE", "LICENSE-APACHE", "LICENSE-MIT"}


def test_nothing_of_the_build_is_installed(distribution):
    kept = {".py", ".pyi", ".so", ".typed", ".pyc"}
    for name in distribution.files:
        if name.parts[0] == "treadle":
            assert name.suffix in kept or name.name == "py.typed", name


def test_the_module_shows_its_entry_only(distribution):
    if shutil.which("nm") is None:
        pytest.skip("no nm")
    [module] = [
        name for name in distribution.files if name.name.startswith("_treadle.") and name.suffix == ".so"
    ]
    listed = subprocess.run(["nm", "-D", "--defined-only", str(distribution.locate_file(module))],
                            capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in listed.splitlines()} == {"PyInit__treadle"}


def test_the_module_is_hardened(distribution):
    if shutil.which("readelf") is None:
        pytest.skip("no readelf")
    import treadle
    if not re.fullmatch(r"Release \w+ [\d.]+", treadle.info()["build"]):
        pytest.skip("hardening is for releases; a sanitizer's module has its own")
    [module] = [
        name for name in distribution.files if name.name.startswith("_treadle.") and name.suffix == ".so"
    ]
    done = subprocess.run(
        [sys.executable, ROOT / "tools/elf.py", distribution.locate_file(module)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_what_is_not_hardened_is_told(tmp_path):
    if shutil.which("readelf") is None or shutil.which("gcc") is None:
        pytest.skip("no readelf or no gcc")
    (tmp_path / "soft.c").write_text(
        "#include <string.h>\nvoid soft(char *to, const char *from) { strcpy(to, from); }\n"
    )
    subprocess.run(
        [
            "gcc",
            "-shared",
            "-fPIC",
            "-O2",
            "-fno-stack-protector",
            "-U_FORTIFY_SOURCE",
            "-fcf-protection=none",
            "-Wl,-z,norelro,-z,lazy,-z,execstack,-rpath,/somewhere",
            "-o",
            "soft.so",
            "soft.c",
        ],
        cwd=tmp_path,
        check=True,
    )
    done = subprocess.run(
        [sys.executable, ROOT / "tools/elf.py", tmp_path / "soft.so"], capture_output=True, text=True
    )
    assert done.returncode == 1
    for word in (
        "-z relro",
        "-z now",
        "the stack is executable",
        "looks for libraries",
        "-fstack-protector-strong",
        "_FORTIFY_SOURCE",
    ):
        assert word in done.stdout, word


def test_each_interpreter_looks_at_one_line_that_does_nothing_by_itself(distribution, python):
    [pth] = [name for name in distribution.files if name.name == "treadle.pth"]
    assert len(pth.parts) == 1
    [line] = distribution.locate_file(pth).read_text().splitlines()
    assert line.startswith("import os; ")  # what site runs; any other line would be a folder
    listed = (
        "import sys; "
        "print([name for name in ('asyncio', 'treadle', '_treadle_startup') if name in sys.modules])"
    )
    environ = {"TREADLE": ""}
    assert python(code=listed, env=environ, check=True).stdout == "[]\n"
    environ["TREADLE"] = "0"
    assert python(code=listed, env=environ, check=True).stdout == "[]\n"
    environ["TREADLE"] = "1"
    # And no more before asyncio.
    assert python(code=listed, env=environ, check=True).stdout == "['_treadle_startup']\n"


UNTESTED = """
import asyncio, sys, warnings
sys.version_info = (3, 99, 0, "final", 0)
import treadle
assert treadle.new_event_loop
"""


def test_a_python_that_nobody_has_tested_is_told_at_import(python):
    done = python(code=UNTESTED, check=True)
    assert "RuntimeWarning: treadle is tested on Python 3.11 to 3.15, not on 3.99" in done.stderr
    assert "<string>:4" in done.stderr, "the warning shows who imports treadle"
    done = python(code=UNTESTED.replace("import treadle", "del asyncio.SelectorEventLoop\nimport treadle"))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert (
        last.startswith("ImportError: treadle is tested on Python 3.11 to 3.15")
        and "SelectorEventLoop" in last
    )


def test_a_python_without_private_names_of_asyncio_can_import_it(python):
    gone = "del asyncio.futures._convert_future_exc\ndel asyncio.constants._SendfileMode\nimport treadle"
    assert "not on 3.99" in python(code=UNTESTED.replace("import treadle", gone), check=True).stderr


def test_a_python_that_stays_without_the_gil_is_refused(python):
    done = python(code="import sys\nsys._is_gil_enabled = lambda: False\nimport treadle")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: treadle needs the GIL, which PYTHON_GIL=0")


def test_the_tested_pythons_are_those_that_the_package_names(distribution):
    from treadle import _versions
    named = {
        tuple(map(int, name.rsplit(" ", 1)[1].split(".")))
        for name in distribution.metadata.get_all("Classifier")
        if re.search(r"Python :: \d+\.\d+$", name)
    }
    assert (min(named), max(named)) == (_versions.OLDEST, _versions.NEWEST)
