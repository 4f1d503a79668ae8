"""The style law that a machine can see: tidy.py [ROOT]. Prints each violation; exit code 1 if any.

C: functions of at most 50 lines, files of at most 450; memory orders in base/atomic.h only; calls that have a
better replacement; braces around every branch and loop; no prefix on statics; the four contract lines over
every function of a public header; sources that no CMakeLists.txt names. All text: line length, tabs, trailing
blanks, unfinished marks, banners, names that say nothing. Pages: line length, which wrap.py mends.
"""
import pathlib
import re
import sys

FUNCTION_LINES = 50
FILE_LINES = 450
# Other files that are still over, by how long they may be: to be split, never to grow.
LONG_FILES = {"tests/model/model.c": 640, "tests/unit/fileio/conform_ut.c": 530}
LINE_LENGTH = 110
SCRIPT_LINE_LENGTH = 140  # CMake and shell
# Lines of Python that may be longer: a text in one piece, and what only its mark for mypy makes long.
LONG_LINE = re.compile(r"""\s*("[^"]+": |text = )?r?f?["'].*["'][,)]*$|.{1,110}  # type: ignore\[""")
PAGE_LINE_LENGTH = 120
FOLDERS = ("libs", "cli", "tests", "tools", "perf", "scripts", "cmake")
CONTRACT = ("Thread:", "Owns:", "Errors:", "Cost:")

# (pattern, where it is looked for, where it is allowed, what to do instead)
NOWHERE = r"$^"
BELOW_PYTHON = r"libs/(?!pyloop/).*"
BANS = [
    (
        r"\bmemory_order_\w+|__ATOMIC_\w+|\bstdatomic\.h|__sync_\w+",
        r".*\.[ch]$",
        r"libs/base/include/treadle/atomic\.h",
        "name the order by an operation of treadle/atomic.h",
    ),
    (
        r"\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|alloca)\s*\(",
        r".*\.[ch]$",
        NOWHERE,
        "use the bounded or checking form",
    ),
    (
        r"(?<![\w.>])(malloc|calloc|realloc|free|strdup)\s*\(",
        BELOW_PYTHON + r"\.[ch]$",
        r"libs/base/src/alloc\.c",
        "use tdl_malloc and its kin, which pass the failpoints",
    ),
    (r"(?<![\w.>])assert\s*\(|<assert\.h>", r"(libs|cli)/.*\.[ch]$", NOWHERE, "use TDL_ASSERT or TDL_VERIFY"),
    (
        r"(?<![\w.>])(printf|fprintf|puts|perror|getenv|secure_getenv)\s*\(",
        BELOW_PYTHON + r"src/.*\.[ch]$",
        NOWHERE,
        "libraries neither print nor read the environment",
    ),
    (
        r"(?<![\w.>])(sleep|usleep|nanosleep)\s*\(",
        r"(libs|cli|tests)/.*\.[ch]$",
        r"tests/preload/",
        "wait for the event itself",
    ),
    (
        r"\b_Py\w+|\btp_(dict|version_tag|cache|subclasses)\b|\bm_ml\b|\bma_version_tag\b|PyThreadState_Get\(\)->",
        r"libs/pyloop/src/.*\.[ch]$",
        r"libs/pyloop/src/ground/cpython\.[ch]",
        "what CPython does not document stands in ground/cpython, with its check",
    ),
    (
        r"\b(io_watcher|watcher_queue|pending_queue|async_io_watcher|uv__\w+)\b",
        r"libs/pyloop/src/.*\.[ch]$",
        r"libs/pyloop/src/poll/uvpriv\.[ch]",
        "libuv's insides stand in poll/uvpriv, with their check",
    ),
    (
        r"\b(asyncio|base_events|base_subprocess|constants|coroutines|events|format_helpers|futures|selector_events"
        r"|sslproto|staggered|streams|tasks|thread|transports|trsock|unix_events)\._[a-z]\w*",
        r"libs/pyloop/treadle/.*\.py$",
        r"libs/pyloop/treadle/_asyncio\.py",
        "private names of asyncio stand in treadle/_asyncio.py, with what is done without them",
    ),
]
MARKS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
BANNER = re.compile(r"[/#*]\s*[-=*#]{6,}|/\*{3,}")
EMPTY_NAMES = re.compile(r"(^|_)(utils?|misc|helpers?|common|stuff)(_|\.|$)")
ONE_MACHINE = re.compile(r"(?<![\w.])/(?:wor" r"k|roo" r"t|far" r"m)/")


def text_files(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if (
                path.suffix in (".c", ".h", ".cpp", ".py", ".cmake", ".sh", ".pyi")
                or path.name == "CMakeLists.txt"
            ):
                if "__pycache__" not in path.parts:
                    yield path.relative_to(root), path.read_text()


def blank_lines(match):
    return "\n" * match.group(0).count("\n")


def check_pages(root):
    """Lines of pages, but for rows of tables, footnotes, what a program prints, and what has no blank to
    break at."""
    for path in sorted([*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("perf/*.md")]):
        text = re.sub(
            r"^```(?:text|output)\n.*?^```$", blank_lines, path.read_text(), flags=re.MULTILINE | re.DOTALL
        )
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > PAGE_LINE_LENGTH and not re.match(r"\||\[\^|\S+$", line):
                yield path.relative_to(
                    root
                ), number, f"{len(line)} columns, at most {PAGE_LINE_LENGTH}: tools/wrap.py wraps pages"


def strip_comments(text):
    """Blanks comments and strings, keeping the lines."""
    def blank(match):
        word = match.group(0)
        return '""' if word[0] in "\"'" else "\n" * word.count("\n")
    return re.sub(
        r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', blank, text, flags=re.DOTALL
    )


def check_text(name, text):
    python = name.suffix in (".py", ".pyi")
    if text and not text.endswith("\n"):
        yield name, 0, "no newline at the end"
    limit = LINE_LENGTH if python or name.suffix in (".c", ".h", ".cpp") else SCRIPT_LINE_LENGTH
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > limit and not (python and LONG_LINE.match(line)):
            yield name, number, f"{len(line)} columns, at most {limit}"
        if "\t" in line:
            yield name, number, "a tab"
        if line != line.rstrip():
            yield name, number, "blanks at the end"
        if MARKS.search(line):
            yield name, number, "an unfinished mark; do it or open an issue"
        if BANNER.search(line) and not python:
            yield name, number, "a banner"
        if ONE_MACHINE.search(line):
            yield name, number, "a path of one machine"
    if EMPTY_NAMES.search(name.stem) or EMPTY_NAMES.search(name.parent.name.replace("common", "")):
        yield name, 0, "a name that says no concern"


def check_bans(name, code):
    place = name.as_posix()
    for pattern, where, allowed, instead in BANS:
        if not re.match(where, place) or re.match(allowed, place):
            continue
        for number, line in enumerate(code.splitlines(), 1):
            found = re.search(pattern, line)
            if found:
                yield name, number, f"{found.group(0).strip()}: {instead}"


ASYNCIO_NAMES = "libs/pyloop/src/ground/asyncio.h"
NAMED = r'(?:"|\bXX\()(_?\w+)[")]'


def check_asyncio_names(root):
    """Yields each of asyncio's private names that stands in another file of C than the one that lists
    them."""
    listing = root / ASYNCIO_NAMES
    listed = (
        re.findall(r"^#define TDL_.*|XX\(\w+\)", listing.read_text(), re.MULTILINE)
        if listing.exists()
        else []
    )
    names = {name for line in listed for name in re.findall(NAMED, line) if name.startswith("_")}
    for path in sorted((root / "libs/pyloop/src").rglob("*.[ch]")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            # Methods of our own that bear the name are what asyncio's inherited code calls.
            for name in re.findall(NAMED, re.sub(r'^\s*\{"\w+"', "", line)):
                if name in names and path != listing:
                    yield path.relative_to(
                        root
                    ), number, f"{name}: asyncio's private names stand in {ASYNCIO_NAMES}"


def functions(code):
    """Yields (first line, last line) of each function body at file level, by braces in column 0."""
    lines = code.splitlines()
    start = None
    for number, line in enumerate(lines, 1):
        if start is None:
            opens_alone = line.rstrip() == "{" and number > 1 and lines[number - 2].rstrip().endswith(")")
            opens_behind = re.match(r"[A-Za-z_].*\)\s*\{\s*$", line)
            if opens_alone or opens_behind:
                start = number
        elif line.startswith("}"):
            yield start, number
            start = None


def check_lengths(name, code):
    file_lines = LONG_FILES.get(name.as_posix(), FILE_LINES)
    count = len(code.splitlines())
    if count > file_lines:
        yield name, 0, f"{count} lines, at most {file_lines}: perhaps two rooms"
    for first, last in functions(code):
        if last - first - 1 > FUNCTION_LINES:
            yield name, first, f"a function of {last - first - 1} lines, at most {FUNCTION_LINES}"


CONTROL = re.compile(r"(?<![\w#])(?<!# )(if|for|while|else|do)\b(?!\s*[,=)])")


def check_braces(name, code):
    """Every branch and every loop has its braces, in macros too."""
    code = re.sub(r"^[ \t]*#[ \t]*(?!define)\w+.*$", "", code, flags=re.MULTILINE).replace("\\\n", " \n")
    for match in CONTROL.finditer(code):
        at = match.end()
        if match[1] in ("if", "for", "while"):
            at = code.find("(", at)
            depth = 0
            while at < len(code):
                depth += {"(": 1, ")": -1}.get(code[at], 0)
                at += 1
                if depth == 0:
                    break
        rest = code[at:].lstrip()
        alone = code[at:].split("\n", 1)[0].strip() in ("", ";")
        closes_a_do = match[1] == "while" and alone and code[:match.start()].rstrip(" ").endswith("}")
        if not (rest.startswith("{") or closes_a_do or (match[1] == "else" and re.match(r"if\b", rest))):
            yield name, code.count("\n", 0, match.start()) + 1, f"{match[1]} without braces"


STATIC = re.compile(r"^static (?!inline)(?:[\w*]+\s+)*\**(tdl__?\w+)\s*[\[(=;]", re.MULTILINE)


def check_statics(name, code):
    """What only its file sees needs no prefix against other libraries' names."""
    for match in STATIC.finditer(code):
        yield name, code.count("\n", 0, match.start()) + 1, f"{match[1]} is static: no prefix"


DECLARATION = re.compile(
    r"(?P<comment>/\*(?:(?!\*/).)*\*/\n)?"
    r"(?P<code>(?:__attribute__\(\([^\n]*\)\)[ \n])?(?:static inline |TDL_INLINE |extern )?"
    r"(?:const |struct |enum |unsigned |_Noreturn )*\w+[ *\n]+\**(?P<name>tdl_\w+)\([^;{]*?\)"
    r"\s*(?:__attribute__[^;{]*)?[;{\n])",
    re.DOTALL | re.MULTILINE)


def check_contracts(name, text):
    """Every function of a public header stands under a comment with the four lines, in order."""
    text = re.sub(r"^#define(?:.*\\\n)*.*\n", "", text, flags=re.MULTILINE)
    for match in DECLARATION.finditer(text):
        if match.start() > 0 and text[match.start() - 1] != "\n":
            continue
        comment = match.group("comment") or ""
        number = text.count("\n", 0, match.start("code")) + 1
        found = re.findall(r"^ \* (Thread|Owns|Errors|Cost): +\S", comment, re.MULTILINE)
        if [word + ":" for word in found] != list(CONTRACT):
            lines = ", ".join(CONTRACT)
            yield name, number, f"{match.group('name')}: its comment needs {lines} in this order"


def check_listed(root, name):
    """A source that its library does not build is dead."""
    lib = root.joinpath(*name.parts[:2]) / "CMakeLists.txt"
    inside = name.as_posix().split("/src/", 1)[1]
    if lib.exists() and not re.search(rf"(?<![\w-]){re.escape(inside)}(?![\w-])", lib.read_text()):
        yield name, 0, f"no line of {lib.relative_to(root)} names it"


def check(root):
    problems, seen = [], 0
    for name, text in text_files(root):
        seen += 1
        problems += check_text(name, text)
        if name.suffix == ".py":
            problems += check_bans(name, re.sub(r"#.*", "", text))
        if name.suffix in (".c", ".h"):
            code = strip_comments(text)
            problems += check_bans(name, code)
            problems += check_lengths(name, code)
            problems += check_braces(name, code)
        if name.suffix == ".c":
            problems += check_statics(name, code)
        if re.match(r"libs/\w+/include/treadle/\w+\.h$", name.as_posix()):
            problems += check_contracts(name, text)
        if re.match(r"libs/\w+/src/.*\.c$", name.as_posix()):
            problems += check_listed(root, name)
    problems += check_asyncio_names(root)
    problems += check_pages(root)
    if not seen:
        problems.append((root, 0, "no files"))
    return [f"{name}:{number}: {what}" for name, number, what in problems]


def main(root="."):
    problems = check(pathlib.Path(root).resolve())
    print("\n".join(problems) if problems else "tidy: no violation")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
