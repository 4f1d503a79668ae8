"""Wraps the paragraphs and list items of pages that have a line over the limit of tidy.py: wrap.py PAGE..."""
import pathlib
import re
import sys
import textwrap

import tidy

ITEM = r"\s*(?:[-*] |\d+\. )"
#: Lines that stay as they are: tables, headings, comments, footnotes, pictures, and the fences of code.
FIXED = re.compile(r"\||#|<!--|\[\^|!\[|```|\s*$")


def wrapped(text):
    out, lines, at, code = [], text.split("\n"), 0, False
    while at < len(lines):
        if FIXED.match(lines[at]) or code:
            code ^= lines[at].startswith("```")
            out.append(lines[at])
            at += 1
            continue
        end = at + 1
        while end < len(lines) and not FIXED.match(lines[end]) and not re.match(ITEM, lines[end]):
            end += 1
        out += paragraph(lines[at:end])
        at = end
    return "\n".join(out)


def paragraph(lines):
    if max(map(len, lines)) <= tidy.PAGE_LINE_LENGTH:
        return lines
    first = re.match(rf"(?:{ITEM})?\s*", lines[0]).group(0)
    words = " ".join([lines[0][len(first):], *(line.strip() for line in lines[1:])])
    return textwrap.wrap(
        words,
        tidy.PAGE_LINE_LENGTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def main(*names):
    for path in map(pathlib.Path, names):
        path.write_text(wrapped(path.read_text()))


if __name__ == "__main__":
    main(*sys.argv[1:])
