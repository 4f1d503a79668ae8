"""Holds every #include and call against the layer tables in cmake/TreadleLayers.cmake: layers.py [ROOT].

A file of libs/<lib> (or cli) may include its own lib's headers, public headers of the libs its line of the
table allows, and system headers; Python.h and uv.h belong to pyloop alone. Inside of libs/pyloop/src the same
holds for folders, by the second table: includes, and every name with external linkage that a file of another
folder uses. The tables may have no circle. Prints each violation; exit code 1 if any.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
ROW = r"^set\(TREADLE_%s_(\w+)\s+([^)]*)\)"
FOLDERS = "libs/pyloop/src"
# What a C file defines for others: a function with its body, or an object with its value.
DEFINITION = re.compile(
    r"^(?!static|typedef|return)(?:\w+[ *]+)+\**(tdl_\w+)(?:\([^;{}]*\)\s*\{|(?:\[\])* =)", re.MULTILINE
)
NAME = re.compile(r"\btdl_\w+\b")
PYLOOP_ONLY = {"Python.h", "uv.h"}


def read_table(root, kind="LAYER"):
    text = (root / "cmake/TreadleLayers.cmake").read_text()
    rows = re.findall(ROW % kind, text, re.MULTILINE)
    return {name: set(below.replace('"', "").split()) for name, below in rows}


def circles(table):
    """Yields each name that stands on itself."""
    for name in table:
        below, left = set(), list(table[name])
        while left:
            one = left.pop()
            if one not in below:
                below.add(one)
                left += table.get(one, ())
        if name in below:
            yield name


def without_comments(text):
    return re.sub(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*', "", text, flags=re.DOTALL)


def check_folders(root):
    """Yields what crosses the folders of pyloop the wrong way."""
    table, top = read_table(root, "FOLDER"), root / FOLDERS
    for name in circles(table):
        yield f"cmake/TreadleLayers.cmake: the folder {name} stands on itself"
    files = [(path, path.read_text()) for path in sorted(top.glob("*/*.[ch]"))]
    owners = {name: path.parent.name for path, text in files if path.suffix == ".c"
              for name in DEFINITION.findall(without_comments(text))}
    for path, text in files:
        folder, place = path.parent.name, path.relative_to(root)
        if folder not in table:
            yield f"{place}: the folder {folder} has no line in the second table"
            continue
        for quote, name in INCLUDE.findall(text):
            other = name.split("/")[0]
            if quote == '"' and (top / name).exists() and other not in table[folder] | {folder}:
                yield f"{place}: {folder}/ may not include {name}"
        for name in sorted(set(NAME.findall(without_comments(text)))):
            if owners.get(name, folder) not in table[folder] | {folder}:
                yield f"{place}: {folder}/ may not use {name} of {owners[name]}/"


def public_headers(root):
    """Maps "treadle/x.h" to the lib that owns it."""
    owners = {}
    for header in sorted(root.glob("libs/*/include/treadle/*.h")) + sorted(
        root.glob("libs/*/include/treadle/*.h.in")
    ):
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
            elif quote == '"' and not any(
                (base / name).exists() for base in (path.parent, folder, folder / "src")
            ):
                problems.append(f"{place}: {name} is neither {lib}'s own nor a public header")
    problems += check_folders(root)
    problems += [f"cmake/TreadleLayers.cmake: {name} stands on itself" for name in circles(table)]
    if not seen:
        problems.append(f"no sources under {root}")
    return problems


def main(root="."):
    problems = check(pathlib.Path(root).resolve())
    print("\n".join(problems) if problems else "layers: no violation")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
