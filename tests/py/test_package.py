"""What pip installed: one version, types, licences, and a module that shows nothing but its entry."""
import importlib.metadata
import pathlib
import re
import shutil
import subprocess

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
    [module] = [name for name in distribution.files if name.name.startswith("_treadle.") and name.suffix == ".so"]
    listed = subprocess.run(["nm", "-D", "--defined-only", str(distribution.locate_file(module))],
                            capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in listed.splitlines()} == {"PyInit__treadle"}
