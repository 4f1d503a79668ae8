"""Holds the layout of every C source against .clang-format: layout.py [ROOT]. Prints each file that is off;
exit code 1 if any.

Another version of clang-format lays some lines out otherwise, so only the one that scripts/setup installs on
Debian is asked; where there is none of it the check is skipped (exit code 77).
"""
import pathlib
import re
import shutil
import subprocess
import sys

VERSION = 14
FOLDERS = ("libs", "cli", "tests", "perf", "examples")
SKIPPED = 77


def find_formatter():
    """The program's path, or None where there is none of the right version."""
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path is None:
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
        if re.search(rf"version {VERSION}\.", said):
            return path
    return None


def sources(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".c", ".h", ".cpp"):
                yield path


def check(root, formatter):
    files = [str(path) for path in sources(root)]
    if not files:
        return [f"no sources under {root}"]
    said = subprocess.run(
        [formatter, "--dry-run", "--ferror-limit=1", *files], capture_output=True, text=True, cwd=root
    )
    off = re.findall(
        r"^(\S+?):\d+:\d+: (?:warning|error): code should be clang-formatted", said.stderr, re.MULTILINE
    )
    problems = [
        f"{pathlib.Path(name).relative_to(root)}: run clang-format -i on it" for name in dict.fromkeys(off)
    ]
    return problems or ([said.stderr] if said.returncode else [])


def main(root="."):
    formatter = find_formatter()
    if formatter is None:
        print(f"layout: no clang-format {VERSION} here")
        return SKIPPED
    problems = check(pathlib.Path(root).resolve(), formatter)
    print("\n".join(problems) if problems else "layout: nothing to change")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
