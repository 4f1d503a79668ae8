"""mkdocs' hook: puts pages on the site that stand beside docs/ or are generated, and turns links of the tree
into links of the site.

A link in a page is one of the tree, so that it works where the files are read; a link to a file or folder
that is no page leads to a page with its text. One that leads nowhere is a warning, which ends a strict build.
"""
import logging
import pathlib
import posixpath
import re
import sys

from mkdocs.structure.files import File

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import c_reference  # noqa: E402
import python_reference  # noqa: E402

log = logging.getLogger("mkdocs.hooks.pages")
LINK = re.compile(r"(\]\()([^)\s#]*)(#[^)\s]*)?(\))")
LANGUAGES = {
    ".py": "python",
    ".c": "c",
    ".h": "c",
    ".cpp": "cpp",
    ".rs": "rust",
    ".toml": "toml",
    ".sh": "sh",
}

#: Files of the tree that are pages, and what they are called on the site.
BESIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "HACKING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "perf/ANALYSIS.md": "measured.md",
    "perf/ANALYSIS-details.md": "measured-details.md",
}
FOLDERS = {"docs": "index.md", "examples": "examples.md", "perf": "measured.md"}


def on_config(config):
    """Puts a page for each C library into the section for reference."""
    root = pathlib.Path(config.config_file_path).parent
    section = next(pages for entry in config.nav for title, pages in entry.items() if title == "Reference")
    section += [{f"C: {library}": f"c/{library}.md"} for library in c_reference.libraries(root)]
    return config


def on_files(files, config):
    root = pathlib.Path(config.config_file_path).parent
    pages = {f"docs/{file.src_uri}": file.src_uri for file in files.documentation_pages()} | BESIDE
    texts = {uri: (root / source).read_text() for source, uri in pages.items()}
    texts["examples.md"] = examples(root)
    pages["examples"] = "examples.md"
    targets = dict(pages) | FOLDERS | references(root)
    for source, uri in list(pages.items()):
        for target in sorted(linked(source, texts[uri])):
            add_target(root, source, target, targets, texts, files, config)
    for source, uri in pages.items():
        texts[uri] = rewritten(source, uri, texts[uri], targets)
    for library in c_reference.libraries(root):
        texts[f"c/{library}.md"] = c_reference.page(root, library)
    for name in python_reference.MODULES:
        texts[f"python/{name}.md"] = python_reference.page(root, name)
    for uri, text in texts.items():
        if uri in files.src_uris:
            files.remove(files.src_uris[uri])
        files.append(File.generated(config, uri, content=text))
    return files


def references(root):
    """What a link to a header or to a package leads to: its page in the reference."""
    found = {"libs/pyloop/treadle/__init__.py": "python/treadle.md",
             "libs/pyloop/treadle/fileio/__init__.py": "python/treadle.fileio.md"}
    for library in c_reference.libraries(root):
        for path in c_reference.headers(root, library):
            found[path.relative_to(root).as_posix()] = f"c/{library}.md"
    return found


def linked(source, text):
    """Paths of the tree that a page's links name."""
    for match in LINK.finditer(without_code(text)):
        path = match.group(2)
        if path and not re.match(r"[a-z]+:", path):
            yield posixpath.normpath(posixpath.join(posixpath.dirname(source), path))


def without_code(text):
    """Code keeps its length and loses its brackets, so that nothing in it is taken for a link."""
    def blank(match):
        return match.group(0).replace("[", " ").replace("]", " ")
    return re.sub(r"^```.*?^```$|`[^`\n]+`", blank, text, flags=re.MULTILINE | re.DOTALL)


def add_target(root, source, target, targets, texts, files, config):
    path = root / target
    if target in targets:
        return
    if path.is_file() and path.suffix in (".png", ".svg"):
        targets[target] = f"images/{path.name}"
        files.append(File.generated(config, targets[target], abs_src_path=str(path)))
    elif path.is_file():
        targets[target] = f"source/{target}.md"
        fence = "````"
        texts[targets[target]] = (
            f"# {target}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text().rstrip()}\n{fence}\n"
        )
    else:
        log.warning("%s: the link to %s leads nowhere", source, target)


def rewritten(source, uri, text, targets):
    bare = without_code(text)
    pieces, last = [], 0
    for match in LINK.finditer(bare):
        path = match.group(2)
        if not path or re.match(r"[a-z]+:", path):
            continue
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if target in targets:
            relative = posixpath.relpath(targets[target], posixpath.dirname(uri) or ".")
            pieces += [text[last: match.start(2)], relative]
            last = match.end(2)
    return "".join(pieces) + text[last:]


def examples(root):
    """One page with the programs of examples/, each under its path."""
    parts = ["# Examples\n", "Each is built and run by the tests as it stands here.\n"]
    for path in sorted((root / "examples").rglob("*")):
        if path.suffix not in LANGUAGES:
            continue
        name = path.relative_to(root / "examples")
        parts += [f"## {name}\n", f"```{LANGUAGES[path.suffix]}\n{path.read_text().rstrip()}\n```\n"]
    return "\n".join(parts)
