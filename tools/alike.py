"""Finds code that stands twice: alike.py [ROOT]. Six lines in a row of one file that have the shape of six
lines in a row of another one, whatever their names and numbers, among the files of GROUPS. Prints each pair;
exit code 1 if any.

A line counts when it does something: braces, case labels, rows of tables, comments and includes do not. What
is known to stand twice has a number in KNOWN, to be lowered as pieces become one.
"""
import collections
import pathlib
import re
import sys

LINES = 6
GROUPS = {
    "transports": ("libs/pyloop/src/transport/*.c",),
    "rings": ("libs/ring/src/*.c", "libs/fileio/src/uring/*.c"),
}
# Pairs that may still be there, by group: each is a piece to be shared.
KNOWN = {"transports": 80, "rings": 0}
WORDS = {
    "if",
    "else",
    "for",
    "while",
    "do",
    "return",
    "switch",
    "case",
    "default",
    "break",
    "continue",
    "goto",
    "sizeof",
    "static",
    "const",
    "struct",
    "enum",
    "int",
    "bool",
    "void",
    "NULL",
    "true",
    "false",
}
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\S")


def shape_of(line):
    """The line with each name as a letter and each number or string as a zero; empty where it says
    nothing."""
    tokens = TOKEN.findall(line)
    if not any(re.match(r"\w", token) for token in tokens) or tokens[0] in (
        "#",
        "{",
        ".",
        "case",
        "default",
        "break",
    ):
        return ""
    return " ".join(token if token in WORDS else "x" if re.match(r"[A-Za-z_]", token)
                    else "0" if re.match(r"[\d\"']", token) else token for token in tokens)


def lines_of(text):
    """Yields (number, shape) of the lines that count."""
    blank = re.sub(r"/\*.*?\*/|//[^\n]*", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    for number, line in enumerate(blank.splitlines(), 1):
        shape = shape_of(line)
        if shape:
            yield number, shape


def runs_of(root, patterns):
    """Maps each run of shapes to the places it stands at."""
    places = collections.defaultdict(list)
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            lines = list(lines_of(path.read_text()))
            for at in range(len(lines) - LINES + 1):
                run = tuple(shape for _, shape in lines[at:at + LINES])
                places[run].append((path.relative_to(root), lines[at][0]))
    return places


def pairs_of(root, patterns):
    """The places at which a run of one file stands in another one too."""
    pairs = {}
    for places in runs_of(root, patterns).values():
        for i, (name, number) in enumerate(places):
            for other, there in places[i + 1:]:
                if other != name:
                    pairs[name, number, other, there] = f"{name}:{number}: as {other}:{there}"
    # The first run of a longer piece stands for all of it.
    return [text for (name, number, other, there), text in pairs.items()
            if not any((name, number - back, other, there - back) in pairs for back in (1, 2, 3))]


def check(root):
    problems = []
    for group, patterns in GROUPS.items():
        found = pairs_of(root, patterns)
        if len(found) > KNOWN[group]:
            problems += found + [f"{group}: {len(found)} pieces stand twice, at most {KNOWN[group]}"]
    return problems


def main(root="."):
    root = pathlib.Path(root).resolve()
    problems = check(root)
    print("\n".join(problems) if problems else "alike: nothing new stands twice")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
