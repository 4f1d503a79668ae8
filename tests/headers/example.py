"""Writes a C file with the example of a header's first comment: example.py HEADER PRELUDE OUT.

The example is the first run of comment lines indented by five spaces or more after the line that begins with
"Example", or the first such run of the comment where no line says so. A header without one is an error.
"""
import pathlib
import sys


def example_lines(text):
    comment = text[: text.index("*/")].splitlines()
    starts = [i for i, line in enumerate(comment) if line.startswith(" * Example")]
    lines = []
    for line in comment[starts[0] if starts else 0:]:
        if line.startswith(" *     "):
            lines.append(line[3:])
        elif lines:
            break
    return lines


def main(header, prelude, out):
    header, prelude = pathlib.Path(header), pathlib.Path(prelude)
    lines = example_lines(header.read_text())
    if not lines:
        sys.exit(f"{header}: no example at its head")
    name = header.stem
    text = [f'#include "treadle/{header.name}"', "#include <stdio.h>", "#include <unistd.h>"]
    if prelude.exists():
        text.append(f'#include "{prelude}"')
    text += [f"void {name}_example(void);", f"void {name}_example(void)", "{", *lines, "}", ""]
    pathlib.Path(out).write_text("\n".join(text))


if __name__ == "__main__":
    main(*sys.argv[1:])
