"""Where an arm's package comes from when it is not the installed one: a version of the index, a wheel, an
installed prefix, a checkout, or a revision of this repository. Each ends as a folder that is put first on the
arm's module path."""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import report
from arms import Arm
from environment import clean
from options import refuse

CACHE = report.ROOT / "out" / "arms"
# Beside the module itself, what a comparison needs to know of it.
_PROBE = """
import importlib, json, sys
module = importlib.import_module(sys.argv[1])
features = getattr(getattr(module, "_treadle", None), "features", dict)()
file = getattr(module, "__file__", None) or ""
print(json.dumps({"file": file, **{k: str(v) for k, v in features.items()}}))
"""


def _fail(arm: Arm, why: str) -> NoReturn:
    refuse("--arms", f"{arm.name}: {why}")


def _run(arm: Arm, *command: object) -> None:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=clean(), stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        _fail(arm, f"cannot build: {said[-1] if said else done.returncode}")


def _pip(arm: Arm, target: Path, *what: object) -> Path:
    """Install `what` without its dependencies into `target`; a folder appears whole or not at all."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / "made"
        _run(
            arm,
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "--target",
            made,
            *what,
        )
        made.rename(target)
    return target


def _key(*parts: object) -> str:
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return tag + "-" + hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]


def _checkout(arm: Arm, source: Path, target: Path) -> Path:
    """Build a source tree; with build isolation only where this environment lacks what the build needs."""
    isolated = importlib.util.find_spec("scikit_build_core") is None
    with tempfile.TemporaryDirectory() as build:
        return _pip(
            arm, target, *([] if isolated else ["--no-build-isolation"]), f"-Cbuild-dir={build}", source
        )


def _commit(revision: str) -> str | None:
    done = subprocess.run(
        ["git", "-C", str(report.ROOT), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"],
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() or None


def _revision(arm: Arm, commit: str) -> Path:
    target = CACHE / _key("revision", commit)
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(prefix="treadle-arm-") as folder:
        archive = Path(folder) / "source.tar"
        source = Path(folder) / "source"
        source.mkdir()
        _run(arm, "git", "-C", report.ROOT, "archive", "-o", archive, commit)
        shutil.unpack_archive(archive, source)
        return _checkout(arm, source, target)


def _prefix(path: Path, module: str) -> Path | None:
    """The folder of an installed prefix, or of a plain module path, that holds `module`."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for folder in (
        path,
        path / "lib" / version / "site-packages",
        path / "lib" / "python3" / "dist-packages",
    ):
        if (folder / module / "__init__.py").exists():
            return folder
    return None


def _folder(arm: Arm) -> Path:
    """The folder that has the arm's package, made if need be."""
    if arm.build.startswith("=="):
        return _pip(arm, CACHE / _key("index", arm.module, arm.build), f"{arm.module}{arm.build}")
    path = Path(arm.build).expanduser()
    if path.suffix == ".whl" and path.is_file():
        return _pip(arm, CACHE / _key("wheel", hashlib.sha256(path.read_bytes()).hexdigest()), path.resolve())
    if (path / "pyproject.toml").is_file():
        # A working tree changes under the same name, so it is built each time.
        target = CACHE / _key("checkout", path.resolve(), os.getpid())
        atexit.register(shutil.rmtree, target, ignore_errors=True)
        return _checkout(arm, path.resolve(), target)
    found = _prefix(path, arm.module)
    if found is not None:
        return found.resolve()
    commit = _commit(arm.build)
    if commit is None:
        _fail(arm, "no wheel, installed prefix, checkout or revision of that name")
    return _revision(arm, commit)


def _suspicious(features: dict[str, str]) -> str | None:
    """Why figures of a build would mislead, or None. A build of before the features said so cannot be
    told."""
    if features.get("sanitizers"):
        return f"built with the sanitizers {features['sanitizers']}"
    kind = features.get("build_type", "Release")
    return None if kind in ("Release", "RelWithDebInfo", "MinSizeRel") else f"a {kind or 'plain'} build"


def probe(arm: Arm) -> dict[str, str]:
    """What the arm's module says of itself when it is imported as it will be measured."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, arm.module], capture_output=True, text=True, env={**clean(), **arm.env}
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        _fail(arm, f"cannot be imported: {said[-1] if said else done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def resolve(arms: list[Arm], *, allow_debug: bool = False) -> list[Arm]:
    """The arms with their packages made and first on their module path; a debug or sanitizer build is
    refused."""
    ready = []
    for arm in arms:
        if arm.build:
            folder = _folder(arm)
            arm = replace(arm, env={**arm.env, "PYTHONPATH": str(folder)})
        if arm.module not in ("asyncio", "libuv"):
            seen = probe(arm)
            if arm.build and not Path(seen["file"]).resolve().is_relative_to(folder.resolve()):
                _fail(arm, f"another one is imported: {seen['file']}")
            why = _suspicious(seen)
            if why and not allow_debug:
                _fail(arm, f"{why}; give --allow-debug to measure it all the same")
        ready.append(arm)
    return ready
