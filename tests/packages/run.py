#!/usr/bin/env python3
"""Runs the test suites of released packages on asyncio and on treadle and compares them test by test.

Usage: run.py [--build DIR] [--jobs N] [--junit FILE] [PACKAGE...]

The suites are those of the packages' source distributions, unmodified; the package under test is the wheel of
the same version. What passes on asyncio and not on treadle runs again without the rest, since some tests hold
only on a quiet machine; what fails again must be explained in explained.py, and what does not is printed as
"only alone". Ends with 1 when a difference is not explained, or an explanation is out of date.
"""
import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import explained

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "py"))
import servers  # noqa: E402

# An arm takes minutes; one that takes longer hangs.
ARM_S = 3600
# Names shown of each kind of difference.
SHOWN = 20


@dataclasses.dataclass
class Suite:
    """How one package's tests are run. Its version is the one in requirements.txt."""

    name: str
    # Folders of the source distribution that hide the installed wheel.
    drop: tuple = ()
    args: tuple = ()
    tests: tuple = ("tests",)
    plugins: tuple = ()
    # Why there is nothing to run.
    absent: str = ""
    server: str = ""
    # The suite does what root may not, or expects what root is not refused: it runs under another number for
    # root.
    unprivileged: bool = False


SUITES = [
    Suite("anyio", drop=("src",), plugins=("anyio", "pytest_mock", "timeout")),
    Suite(
        "aiohttp",
        drop=("aiohttp", "aiohttp.egg-info"),
        plugins=("pytest_mock", "timeout", "xdist", "pytest_cov", "codspeed"),
        # Its benchmarks are a job of their own there too.
        args=("-n", "{jobs}", "--no-cov", "--durations=0", "--ignore-glob=*/test_benchmarks_*"),
        unprivileged=True,
    ),
    Suite("websockets", absent="its source distribution carries no tests"),
    Suite(
        "uvicorn",
        drop=("uvicorn",),
        plugins=("anyio", "pytest_mock", "xdist", "codspeed"),
        args=("-n", "{jobs}"),
    ),
    Suite(
        "asyncpg",
        drop=("asyncpg", "asyncpg.egg-info"),
        # Style of sources that are not there.
        args=("--ignore=tests/test__sourcecode.py",),
        unprivileged=True,
    ),
    Suite(
        "redis",
        drop=("redis",),
        plugins=("asyncio", "timeout"),
        # One plain server: no cluster, proxy, modules, TLS or fault injector.
        args=(
            "--redis-url={server}",
            "-m",
            "not onlycluster and not redismod and not ssl and not cp_integration and not multidb_integration",
            "--ignore=tests/test_asyncio/test_scenario",
        ),
        # The rest is of the blocking client, which makes no loop.
        tests=(
            "tests/test_asyncio",
            "tests/test_auth",
            "tests/test_background.py",
            "tests/maint_notifications/test_async_maint_notifications_handling.py",
        ),
        server="redis",
    ),
]


def versions():
    """The pinned packages of requirements.txt."""
    pins = {}
    for line in (HERE / "requirements.txt").read_text().splitlines():
        name, equals, version = line.partition("==")
        if equals:
            pins[name.strip()] = version.strip()
    return pins


def run(*command, **options):
    subprocess.run([str(part) for part in command], check=True, **options)


def make_environment(build):
    """A virtual environment with the wheels under test, what their suites need, and this tree's treadle."""
    venv = build / "venv"
    python = venv / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", venv)
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run(*pip, "-r", HERE / "requirements.txt", "-r", ROOT / "scripts" / "requirements.txt")
    run(*pip, "--no-build-isolation", "--no-deps", "--force-reinstall", ROOT)
    return python


def unpack(build, python, suite, version):
    """The source distribution's tree without the package itself, in a fresh folder."""
    sdists, work = build / "sdists", build / "work" / suite.name
    archive = sdists / f"{suite.name}-{version}.tar.gz"
    if not archive.exists():
        run(python, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--no-binary",
            suite.name, "-d", sdists, f"{suite.name}=={version}")
    shutil.rmtree(work, ignore_errors=True)
    shutil.unpack_archive(archive, work)
    tree = work / f"{suite.name}-{version}"
    for folder in suite.drop:
        shutil.rmtree(tree / folder)
    return tree


def is_root():
    return os.getuid() == 0


def pytest_command(python, suite, jobs, server, tests):
    command = (
        ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
        if suite.unprivileged and is_root()
        else []
    )
    command += [str(python), "-m", "pytest", "-p", "arm", "-p", "no:cacheprovider"]
    for plugin in suite.plugins:
        command += ["-p", plugin]
    if "timeout" in suite.plugins:
        command += ["--timeout=600"]  # the suites' own limits are for machines that do nothing else
    return command + [arg.format(jobs=jobs, server=server) for arg in suite.args] + list(tests)


def run_arm(build, python, suite, tree, arm, jobs, only=()):
    """Outcomes by test, and loops made by class, of one run."""
    out = build / "out" / suite.name / (f"{arm}-again" if only else arm)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    environment = {**os.environ, "PACKAGES_ARM": arm, "PACKAGES_OUT": str(out), "PYTHONPATH": str(HERE),
                   "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    start = getattr(servers, suite.server) if suite.server else contextlib.nullcontext
    with start() as server, open(out / "log.txt", "w") as log:
        subprocess.run(
            pytest_command(python, suite, jobs, server, only or suite.tests),
            cwd=tree,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=ARM_S,
        )
    if not (out / "outcomes.json").exists():
        raise RuntimeError(f"{suite.name} on {arm} ended without a result: see {out / 'log.txt'}")
    loops = collections.Counter()
    for part in out.glob("loops-*.json"):
        loops.update(json.loads(part.read_text()))
    outcomes = json.loads((out / "outcomes.json").read_text())
    # Some tests are named after the loop's class.
    return {test.replace("_UnixSelectorEventLoop", "Loop"): {**result, "id": test}
            for test, result in outcomes.items()}, dict(loops)


def passes(outcomes):
    return {test for test, result in outcomes.items() if result["outcome"] in ("passed", "xfailed")}


def compare(build, python, suite, tree, jobs):
    """Runs both arms and sorts what differs."""
    plain, _ = run_arm(build, python, suite, tree, "asyncio", jobs)
    ours, loops = run_arm(build, python, suite, tree, "treadle", jobs)
    named = {test for package, test in explained.DIFFERENCES if package == suite.name}
    lost = passes(plain) - passes(ours) - named
    again = [ours[test]["id"] for test in lost if test in ours]
    steady = passes(run_arm(build, python, suite, tree, "treadle", 1, again)[0]) if again else set()
    return {
        "tests": len(plain),
        "asyncio": len(passes(plain)),
        "passes": passes(ours),
        "loops": loops,
        "explained": named - passes(ours),
        "unexplained": lost - steady,
        "only alone": lost & steady,
        "only on treadle": passes(ours) - passes(plain),
        "explained but passes": named & passes(ours),
    }


def is_bad(row):
    """Whether a row of the report fails the run: nothing ran, or not on treadle, or something is left to
    explain."""
    return bool(row.get("error") or row.get("unexplained") or row.get("explained but passes")) or (
        "loops" in row and not any(name.startswith("treadle") for name in row["loops"]))


def report(rows):
    print(
        f"\n{'package':<12}{'version':<10}{'tests':>7}{'asyncio':>9}{'treadle':>9}{'explained':>11}  loops made"
    )
    for name, version, row in rows:
        if "tests" not in row:
            print(f"{name:<12}{version:<10}  {row.get('note') or row['error']}")
            continue
        loops = ", ".join(f"{count} {name}" for name, count in sorted(row["loops"].items()))
        print(f"{name:<12}{version:<10}{row['tests']:>7}{row['asyncio']:>9}{len(row['passes']):>9}"
              f"{len(row['explained']):>11}  {loops}")
        for kind in ("unexplained", "explained but passes", "only alone", "only on treadle"):
            for test in sorted(row[kind])[:SHOWN]:
                print(f"    {kind}: {test}")
            if len(row[kind]) > SHOWN:
                print(f"    {kind}: {len(row[kind]) - SHOWN} more")


def write_junit(path, rows):
    """A report for scripts/test: what passes on treadle passed, what is left to explain failed."""
    root = ElementTree.Element("testsuites")
    for name, _, row in rows:
        suite = ElementTree.SubElement(root, "testsuite", name=name)
        bad = {*row.get("unexplained", ()), *row.get("explained but passes", ())}
        if is_bad(row) and not bad:
            bad = {"the suite"}
        for test in sorted(bad | row.get("passes", set())):
            case = ElementTree.SubElement(suite, "testcase", classname=name, name=test)
            if test in bad:
                ElementTree.SubElement(case, "failure")
    ElementTree.ElementTree(root).write(path)


def run_suite(build, python, suite, version, jobs):
    if suite.absent:
        return {"note": suite.absent}
    try:
        return compare(build, python, suite, unpack(build, python, suite, version), jobs)
    except (RuntimeError, subprocess.SubprocessError) as error:
        return {"error": str(error)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "packages")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--junit", type=pathlib.Path, help="also write a JUnit report there")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE")
    args = parser.parse_args()
    unknown = set(args.packages) - {suite.name for suite in SUITES}
    if unknown:
        parser.error(f"no suite of {', '.join(sorted(unknown))}")
    build = args.build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    python, pins = make_environment(build), versions()
    rows = [(suite.name, pins[suite.name], run_suite(build, python, suite, pins[suite.name], args.jobs))
            for suite in SUITES if not args.packages or suite.name in args.packages]
    report(rows)
    if args.junit:
        write_junit(args.junit, rows)
    return 1 if any(is_bad(row) for _, _, row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
