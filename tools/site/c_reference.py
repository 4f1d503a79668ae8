"""Pages of the C reference, one for each library, out of its public headers: what stands over a declaration
is its text."""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tidy  # noqa: E402

ORDER = ("base", "core", "wake", "ring", "host", "hold", "pool", "resolve", "fileio", "ffi")
COMMENT = re.compile(r"/\*.*?\*/\n", re.DOTALL)


def libraries(root):
    """The libraries with public headers, those without others below them first."""
    found = {path.parents[2].name for path in root.glob("libs/*/include/treadle/*.h*")}
    return [name for name in ORDER if name in found] + sorted(found - set(ORDER))


def headers(root, library):
    return sorted(root.glob(f"libs/{library}/include/treadle/*.h*"))


def page(root, library):
    """One library's page as Markdown."""
    parts = [
        f"# {library}\n",
        f"`pkg-config --cflags --libs treadle-{library}`, or the CMake target `treadle::{library}`.\n",
    ]
    for path in headers(root, library):
        parts += header(path.name.removesuffix(".in"), path.read_text())
    return "\n".join(parts)


def header(name, text):
    """A heading, the comment at the top, then each declaration in its order."""
    end = text.index("*/") + 2
    yield f"## treadle/{name}\n"
    yield prose(comment_lines(text[:end]))
    for comment, code in declarations(text[end:]):
        yield from declaration(comment, code)


def declarations(text):
    """Pairs of comment and code at file level, without what only compilers read."""
    position = 0
    while position < len(text):
        line = text[position: text.find("\n", position) + 1 or len(text)]
        comment = COMMENT.match(text, position)
        if comment:
            code = declared(text, comment.end())
            if code.strip() and "clang-format" not in comment.group(0):
                yield comment.group(0), code
            position = comment.end() + len(code)
        elif re.match(r"struct \w+ \{|enum \w+ \{|typedef ", line):
            code = declared(text, position)
            yield "", code
            position += len(code)
        else:
            position += len(line) or 1


def declared(text, start):
    """What the comment before `start` is about: a macro, a type, or a function with or without its body."""
    if text.startswith("#define", start):
        return re.compile(r"(?:.*\\\n)*.*\n").match(text, start).group(0)
    if text.startswith(("#", "\n", "/*"), start):
        return ""
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0 and (text[at] == ";" or (text[at] == "}" and text[at + 1] == "\n")):
            return text[start: at + 2]
    return ""


def declaration(comment, code):
    lines = comment_lines(comment)
    contract = [line for line in lines if re.match(r"(Thread|Owns|Errors|Cost):", line)]
    first = lines.index(contract[0]) if contract else len(lines)
    function = contract and tidy.DECLARATION.search(code)
    if function:
        yield f"### {function.group('name')}\n"
        code = re.split(r"\n\{", code)[0].rstrip().rstrip(";") + ";"
        code = code.replace("TDL_INLINE ", "").replace("static inline ", "")
    elif code.startswith("#define"):
        macro = re.match(r"#define (\w+)(\([^)]*\))?(.*)", code)
        yield f"### {macro.group(1)}\n"
        code = (
            code
            if "\\\n" not in code or "_MAP(" in code
            else f"#define {macro.group(1)}{macro.group(2) or ''}"
        )
    elif named := re.search(r"((?:struct|enum) \w+)|(\w+);", code):
        yield f"### {named.group(1) or named.group(2)}\n"
    yield prose(lines[:first])
    yield f"```c\n{code.strip()}\n```\n"
    if contract:
        yield contract_list(lines[first:])


def comment_lines(comment):
    inner = comment.strip().removeprefix("/*").removesuffix("*/").rstrip()
    return [re.sub(r"^ \* ?", "", line) if at else line.strip() for at, line in enumerate(inner.splitlines())]


def contract_list(lines):
    items = []
    for line in lines:
        if found := re.match(r"(Thread|Owns|Errors|Cost): +(.*)", line):
            items.append(f"- **{found.group(1)}**: {escape(found.group(2))}")
        elif items:
            items[-1] += " " + escape(line.strip())
    return "\n".join(items) + "\n"


def prose(lines):
    """Paragraphs as they are; what is indented, a table or an example, keeps its columns."""
    out, block = [], []
    for line in [*lines, ""]:
        if line.startswith("    ") or (line.startswith("  ") and (block or line[2] != " ")):
            block.append(line)
            continue
        if block:
            code = any(row.endswith((";", "{")) for row in block)
            out += ["", "```c" if code else "```text", *dedent(block), "```", ""]
            block = []
        out.append(escape(line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out).strip()) + "\n"


def dedent(lines):
    width = min(len(line) - len(line.lstrip()) for line in lines)
    return [line[width:] for line in lines]


def escape(text):
    text = text.replace("<", "&lt;")
    return (
        re.sub(r"(?<!`)\b((?:tdl|TDL|io|IORING)_\w+)(?:\(\))?(?!`)", r"`\1`", text)
        if "`" not in text
        else text
    )
