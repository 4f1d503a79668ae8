"""Loads treadle.fileio under the name caio, so that programs and test suites written for that name run on it
unchanged."""

import importlib.util
import pathlib
import sys

import treadle

_folder = pathlib.Path(treadle.__file__).parent / "fileio"
_spec = importlib.util.spec_from_file_location(
    "caio", _folder / "__init__.py", submodule_search_locations=[str(_folder)]
)
_module = importlib.util.module_from_spec(_spec)
sys.modules["caio"] = _module
_spec.loader.exec_module(_module)
