"""Every fenced block of README and docs runs, or says who runs it or why nobody does. C blocks are built by
tests/docs."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

import snippets

EVERY = snippets.every_block()
#: Pages whose blocks another test takes as a whole, and holds that it misses none.
ELSEWHERE = {"docs/servers.md": "tests/servers/test_recipes.py"}


def runnable(language):
    """A file that is shown before a block, on its page, is there when the block runs."""
    return [
        pytest.param(block, id=block.name)
        for block in EVERY
        if block.language == language and not block.note and block.page not in ELSEWHERE and not block.file
    ]


def is_answered_for(block):
    if block.language in snippets.PLAIN:
        return True
    if block.note.startswith("not run: "):
        return len(block.note) > len("not run: ") + 10
    if block.note.startswith("run by "):
        return (snippets.ROOT / block.note.removeprefix("run by ")).exists()
    return not block.note and (block.language in ("python", "sh", "c") or block.page in ELSEWHERE)


@pytest.mark.parametrize("page", snippets.pages())
def test_each_block_of_the_page_runs_or_says_why_not(page):
    found = [block for block in EVERY if block.page == page]
    assert [block.name for block in found if not is_answered_for(block)] == []
    fences = len(re.findall(r"^```", (snippets.ROOT / page).read_text(), re.MULTILINE))
    assert fences == 2 * len(found), "a block without a language, an end, or a place at the start of its line"


@pytest.mark.parametrize("page", snippets.pages())
def test_the_page_has_no_block_that_is_only_indented(page):
    text = re.sub(r"^```.*?^```$", "", (snippets.ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    paragraphs = re.split(r"\n\n+", text)
    behind = zip(paragraphs, paragraphs[1:])
    assert [
        each
        for before, each in behind
        if each.startswith("    ") and not re.match(r"\s*(-|\d+\.|\[\^)", before)
    ] == []


def test_a_page_that_is_taken_elsewhere_is_named_there():
    for page, test in ELSEWHERE.items():
        assert pathlib.Path(page).name in (snippets.ROOT / test).read_text()


def run(block, folder, *command):
    for shown in snippets.blocks(block.page):
        if shown.line < block.line and shown.file and not shown.note:
            (folder / shown.file).write_text(shown.text)
    env = {name: value for name, value in os.environ.items() if not name.startswith("TREADLE")}
    env |= {
        "PATH": os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(folder),
    }
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    if block.output is not None:
        assert done.stdout == block.output


@pytest.mark.parametrize("block", runnable("python"))
def test_the_program_of_the_page_runs_and_prints_what_it_says(block, tmp_path):
    (tmp_path / "snippet.py").write_text("\n" * block.line + block.text)
    run(block, tmp_path, sys.executable, "-X", "dev", "snippet.py")


@pytest.mark.parametrize("block", runnable("sh"))
def test_the_commands_of_the_page_run_and_print_what_it_says(block, tmp_path):
    run(block, tmp_path, "bash", "-e", "-c", block.text)


def test_each_file_that_a_page_shows_is_used_by_a_block_behind_it():
    for block in EVERY:
        if block.file and block.page not in ELSEWHERE and not block.note and block.language != "c":
            behind = [other.text for other in EVERY if other.page == block.page and other.line > block.line]
            assert any(pathlib.Path(block.file).stem in text for text in behind), block.name
