"""The fenced blocks of the pages, for the tests that run them; by itself, writes the C ones out: snippets.py
FOLDER.

A comment on the line above a block, <!-- not run: REASON --> or <!-- run by TEST -->, says who answers for
it.
"""
import dataclasses
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Languages of programs; a block in another one is a picture, an output or a file that nobody runs.
PROGRAMS = ("python", "sh", "c", "cmake", "toml")
PLAIN = ("text", "output")


@dataclasses.dataclass
class Block:
    page: str
    line: int
    language: str
    text: str
    note: str = ""
    output: str | None = None  # what the page says that it prints

    @property
    def name(self):
        return f"{self.page}:{self.line}"

    @property
    def file(self):
        """The file that its first line names, if it does."""
        named = re.match(r"(?:# |/\* )(\w[\w./]*\.\w+)(?: \*/)?\n", self.text)
        return named and named.group(1)


def pages():
    """The pages that people read, as paths in the tree."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("perf/*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def blocks(page):
    """The page's blocks in their order; an output belongs to the program before it."""
    text, found = (ROOT / page).read_text(), []
    for match in re.finditer(
        r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    ):
        line = text.count("\n", 0, match.start(3))
        block = Block(page, line, match.group(2), match.group(3), match.group(1) or "")
        if block.language == "output" and found:
            found[-1].output = block.text
        found.append(block)
    return found


def every_block():
    return [block for page in pages() for block in blocks(page)]


def write_c(folder):
    """Writes each C block that is a program, with what it prints beside it, and prints the names."""
    folder.mkdir(parents=True, exist_ok=True)
    for block in every_block():
        if block.language == "c" and not block.note:
            name = re.sub(r"\W", "_", block.name.removeprefix("docs/"))
            (folder / f"{name}.c").write_text(f'#line {block.line + 1} "{ROOT / block.page}"\n{block.text}')
            (folder / f"{name}.txt").write_text(block.output or "")
            print(name)


if __name__ == "__main__":
    write_c(pathlib.Path(sys.argv[1]))
