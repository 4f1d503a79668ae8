"""The shared library exports the functions of its list, no more and no fewer: symbols.py LIBRARY LIST NM
[--write].

A name that goes away breaks programs, so it needs a new soname; one that comes is added with --write.
"""
import pathlib
import re
import subprocess
import sys


def exported(library, nm):
    lines = subprocess.run(
        [nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    names = {line.split()[-1] for line in lines.splitlines()}
    # There in the builds for tests only.
    return {name for name in names if not name.startswith("tdl_failpoint_")}


def promised(root):
    """The functions that the public headers declare, but the atomics and what stands in macros."""
    names = set()
    for header in [*root.glob("libs/*/include/treadle/*.h"), *root.glob("libs/*/include/treadle/*.h.in")]:
        if header.name in ("atomic.h", "failpoint.h", "heap.h"):
            continue
        text = re.sub(
            r"/\*.*?\*/|^\s*#(?:.*\\\n)*.*$", "", header.read_text(), flags=re.DOTALL | re.MULTILINE
        )
        text = re.sub(r"\{[^{}]*\}", ";", re.sub(r"\{[^{}]*\}", "", text))
        names |= set(re.findall(r"^[A-Za-z_][^;=]*?\b(tdl_[a-z]\w*)\(", text, re.MULTILINE))
    return names


def main(library, listed, nm, *rest):
    here, listed = exported(library, nm), pathlib.Path(listed)
    if "--write" in rest:
        listed.write_text("\n".join(sorted(here)) + "\n")
    wanted = set(listed.read_text().split())
    problems = [f"gone: {name}" for name in sorted(wanted - here)]
    problems += [f"new, not in {listed.name}: {name}" for name in sorted(here - wanted)]
    problems += [
        f"declared in a header, not exported: {name}" for name in sorted(promised(listed.parents[2]) - here)
    ]
    problems += [f"not of treadle: {name}" for name in sorted(here) if not re.match(r"tdl_[a-z]", name)]
    sections = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    soname = re.search(r"SONAME.*\[(.*)\]", sections)
    if not soname or not re.fullmatch(r"libtreadle\.so\.\d+\.\d+", soname[1]):
        problems.append(f"soname: {soname and soname[1]}")
    print("\n".join(problems) if problems else f"{len(here)} symbols, {soname[1]}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
