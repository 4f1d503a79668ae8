"""Holds every #include against the layer table in cmake/TreadleLayers.cmake: layers.py [ROOT].

A file of libs/<lib> (or cli) may include its own lib's headers, public headers of the libs its line of the table
allows, and system headers; Python.h and uv.h belong to pyloop alone. Prints each violation; exit code 1 if any.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
ROW = re.compile(r"^set\(TREADLE_LAYER_(\w+)\s+([^)]*)\)", re.MULTILINE)
PYLOOP_ONLY = {"Python.h", "uv.h"}


def read_table(root):
    text = (root / "cmake/TreadleLayers.cmake").read_text()
    return {name: set(below.replace('"', "").split()) for name, below in ROW.findall(text)}


def public_headers(root):
    """Maps "treadle/x.h" to the lib that owns it."""
    owners = {}
    for header in sorted(root.glob("libs/*/include/treadle/*.h")) + sorted(root.glob("libs/*/include/treadle/*.h.in")):
        name = "treadle/" + header.name.removesuffix(".in")
        owners[name] = header.relative_to(root).parts[1]
    return owners


def sources(root):
    """Yields (lib, folder of the lib, file)."""
    for folder in sorted(root.glob("libs/*")) + [root / "cli"]:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".c", ".h"):
                yield folder.name, folder, path


def check(root):
    table, owners = read_table(root), public_headers(root)
    problems, seen = [], 0
    for lib, folder, path in sources(root):
        seen += 1
        place = path.relative_to(root)
        if lib not in table:
            problems.append(f"{place}: {lib} has no line in the layer table")
            continue
        for quote, name in INCLUDE.findall(path.read_text()):
            if name in PYLOOP_ONLY and lib != "pyloop":
                problems.append(f"{place}: {name} belongs to pyloop alone")
            elif name in owners:
                if owners[name] != lib and owners[name] not in table[lib]:
                    problems.append(f"{place}: {lib} may not include {name} of {owners[name]}")
            elif quote == '"' and not any((base / name).exists() for base in (path.parent, folder, folder / "src")):
                problems.append(f"{place}: {name} is neither {lib}'s own nor a public header")
    if not seen:
        problems.append(f"no sources under {root}")
    return problems


def main(root="."):
    problems = check(pathlib.Path(root).resolve())
    print("\n".join(problems) if problems else "layers: no violation")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
