#!/usr/bin/env python3
"""Runs the test suites of caio and aiofile with their newest source distributions, on caio and on
treadle.fileio.

Usage: files.py [--build DIR] [--junit FILE] [PACKAGE...]

The suites are unmodified; tests/py/shim loads treadle.fileio under the name caio. What passes on caio must
pass on
treadle: a test that does not runs again alone, and then counts. A package whose source distribution cannot be
had, or has no tests, is skipped by name.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SHIM = ROOT / "tests" / "py" / "shim"
PACKAGES = ("caio", "aiofile")
NEEDS = ("pytest", "pytest-rerunfailures", "aiomisc-pytest")
# A suite takes a minute or two; one that takes longer hangs.
SUITE_S = 1200


class Absent(Exception):
    """Why a package's suite cannot run here."""


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, **options)


def make_environment(build):
    """The newest wheels, what their suites need, and this tree's treadle."""
    python = build / "venv" / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", build / "venv")
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run(*pip, "--upgrade", *PACKAGES, *NEEDS, "-r", ROOT / "scripts" / "requirements.txt")
    run(*pip, "--no-build-isolation", "--no-deps", "--force-reinstall", ROOT)
    return python


def unpack(build, python, package):
    """The tests of the newest source distribution, without the package that would hide the wheel."""
    sdists, work = build / "sdists" / package, build / "work" / package
    shutil.rmtree(sdists, ignore_errors=True)
    try:
        run(
            python,
            "-m",
            "pip",
            "download",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-binary",
            package,
            "-d",
            sdists,
            package,
            timeout=SUITE_S,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise Absent("its source distribution is not to be had") from error
    archive = next(sdists.glob("*.tar.gz"))
    shutil.rmtree(work, ignore_errors=True)
    shutil.unpack_archive(archive, work)
    tree = next(work.iterdir())
    shutil.rmtree(tree / package)
    if not (tree / "tests").is_dir():
        raise Absent(f"{archive.name} carries no tests")
    return tree


def outcomes(python, tree, arm, out, only=("tests",)):
    """The word for each test's end, by its name."""
    out.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(SHIM) if arm == "treadle" else "",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with open(out.with_suffix(".txt"), "w") as log:
        subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={out}", *only],
            cwd=tree,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=SUITE_S,
            check=False,
        )
    if not out.exists():
        raise RuntimeError(f"the suite ended without a report: see {out.with_suffix('.txt')}")
    found = {}
    for case in ElementTree.parse(out).iter("testcase"):
        parts = case.get("classname").split(".")
        depth = next(
            n for n in range(len(parts), 0, -1) if tree.joinpath(*parts[:n]).with_suffix(".py").exists()
        )
        name = "::".join(["/".join(parts[:depth]) + ".py", *parts[depth:], case.get("name")])
        bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[name] = bad[0] if bad else "passed"
    return found


def passes(found):
    return {test for test, word in found.items() if word == "passed"}


def compare(build, python, package):
    """Both arms; what fails on treadle only, after a second run alone."""
    tree, out = unpack(build, python, package), build / "out" / package
    shutil.rmtree(out, ignore_errors=True)
    plain = outcomes(python, tree, "caio", out / "caio.xml")
    ours = outcomes(python, tree, "treadle", out / "treadle.xml")
    lost = passes(plain) - passes(ours)
    if lost:
        ours.update(outcomes(python, tree, "treadle", out / "again.xml", sorted(lost)))
        lost -= passes(ours)
    print(f"{package:<10}{tree.name:<20}{len(plain):>5} tests, {len(passes(plain))} pass on caio, "
          f"{len(passes(ours))} on treadle, {len(lost)} lost")
    for test in sorted(lost):
        print(f"  lost: {test}")
    return sorted(passes(ours)), sorted(lost)


def write_junit(path, rows):
    """A report for scripts/test."""
    root = ElementTree.Element("testsuites")
    for package, (good, lost) in rows.items():
        suite = ElementTree.SubElement(root, "testsuite", name=package)
        for test in (*good, *lost):
            case = ElementTree.SubElement(suite, "testcase", classname=package, name=test)
            if test in lost:
                ElementTree.SubElement(case, "failure")
    ElementTree.ElementTree(root).write(path)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "packages-files")
    parser.add_argument("--junit", type=pathlib.Path, help="also write a JUnit report there")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"default: {' '.join(PACKAGES)}")
    args = parser.parse_args()
    build = args.build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    try:
        python = make_environment(build)
    except subprocess.SubprocessError as error:
        print(f"skipped: the packages are not to be had: {error}")
        return 0
    rows = {}
    for package in args.packages or PACKAGES:
        try:
            rows[package] = compare(build, python, package)
        except Absent as why:
            print(f"{package:<10}skipped: {why}")
    if args.junit:
        write_junit(args.junit, rows)
    return 1 if any(lost for _, lost in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
