"""CPython's own test.test_asyncio with treadle as the loop: what passes on asyncio here must pass on
treadle."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import exclusions  # noqa: E402


def suite_modules():
    spec = importlib.util.find_spec("test.test_asyncio")
    if spec is None:
        return []
    folder = pathlib.Path(spec.origin).parent
    return sorted(path.stem for path in folder.glob("test_*.py") if path.stem not in exclusions.MODULES)


MODULES = suite_modules()


def run(arm, module, folder):
    """Runs one module in processes of its own: a test that ends one is marked, and the next goes on without
    it."""
    results, details, crashed = {}, {}, []
    while True:
        out = folder / f"{arm}{len(crashed)}.json"
        with open(folder / f"{arm}.out", "w+") as log:
            done = subprocess.run(
                [
                    sys.executable,
                    "-W",
                    "ignore::DeprecationWarning",
                    str(HERE / "run_module.py"),
                    arm,
                    module,
                    str(out),
                    *["-" + name for name in crashed],
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                env=dict(os.environ, PYTHONHASHSEED="0"),
            )
            log.seek(0)
            tail = log.read()[-3000:]
        data = json.loads(out.read_text()) if out.exists() else {"results": {}, "details": {}}
        results.update(data["results"])
        details.update(data["details"])
        ended_by = [name for name, word in data["results"].items() if word == "crashed"]
        if not ended_by:
            return results, details, done.returncode, tail
        crashed += ended_by
        details.update({name: tail for name in ended_by})


@pytest.mark.skipif(not MODULES, reason="this Python ships no test package")
@pytest.mark.timeout(580)
@pytest.mark.parametrize("module", MODULES or ["none"])
def test_module(module, tmp_path):
    expected, _, _, _ = run("asyncio", module, tmp_path)
    got, details, code, tail = run("treadle", module, tmp_path)
    wrong, stale = [], []
    for name, word in expected.items():
        if word != "passed":
            continue
        if name in exclusions.TESTS:
            if got.get(name) == "passed" and name not in exclusions.BY_CHANCE:
                stale.append(name)
        elif got.get(name) != "passed":
            wrong.append(f"{name}: {got.get(name, 'did not run')}\n{details.get(name, '')}")
    assert not wrong, f"{len(wrong)} of {len(expected)} (exit {code}):\n" + "\n".join(wrong) + \
        (tail if code not in (0, 1) else "")
    assert not stale, f"these pass and do not belong on the list: {stale}"
    assert len(got) >= len(expected)
