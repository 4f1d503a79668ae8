"""Every recipe of docs/servers.md and of other pages does what it says: run as printed but for the port, on
treadle."""
import dataclasses
import os
import pathlib
import signal
import sys

import harness
import pytest
import snippets

PAGE = "docs/servers.md"
#: Blocks of other pages that ask for this test.
NOTE = "run by tests/servers"
SAYS = "treadle: True"


@dataclasses.dataclass
class Recipe:
    name: str
    files: dict
    commands: str


def recipes(page, blocks):
    """Each block of commands with the files that stand before it in its section, and those before the first
    section."""
    lines = (snippets.ROOT / page).read_text().splitlines()
    shared, files, title = {}, {}, ""
    for block in blocks:
        section = next((line[3:] for line in lines[block.line::-1] if line.startswith("## ")), "")
        if section != title:
            title, files = section, dict(shared)
        if block.file:
            files[block.file] = block.text
            if not section:
                shared[block.file] = block.text
        else:
            yield pytest.param(
                Recipe(title, dict(files), block.text), id=f"{title}-{block.line}".replace(" ", "_")
            )


def blocks_of(page, note):
    return [
        block
        for block in snippets.blocks(page)
        if block.language not in snippets.PLAIN and block.note == note
    ]


RECIPES = list(recipes(PAGE, blocks_of(PAGE, "")))
OTHERS = [each for page in snippets.pages() if page != PAGE for each in recipes(page, blocks_of(page, NOTE))]


def test_the_page_has_a_recipe_for_each_program_of_its_list():
    assert len({recipe.values[0].name for recipe in RECIPES}) == 26


def test_other_pages_have_recipes_too():
    assert OTHERS


@pytest.mark.parametrize("recipe", RECIPES + OTHERS)
def test_recipe(recipe, tmp_path, request):
    texts = {**recipe.files, "": recipe.commands}
    ports = {"8000": str(harness.free_port())}
    if any("6379" in text for text in texts.values()):
        ports["6379"] = request.getfixturevalue("redis_url").rpartition(":")[2].partition("/")[0]
    for name, text in texts.items():
        for printed, port in ports.items():
            texts[name] = text = text.replace(printed, port)
        if name:
            (tmp_path / name).write_text(text)
    commands = texts.pop("")
    # Commands as in an activated environment, and a home for what they install; nothing beyond this machine
    # is asked.
    env = {
        "PATH": os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([harness.OFFLINE, str(tmp_path)]),
        "BOT_TOKEN": "1:" + "a" * 35,
        "TREADLE": "",
    }
    if ports["8000"] in commands or any(ports["8000"] in text for text in texts.values()):
        with harness.running(
            "bash", "-c", "exec " + commands, env=env, cwd=tmp_path, stop=signal.SIGKILL
        ) as process:
            harness.wait_for_port(process, int(ports["8000"]))
            assert SAYS in harness.get(f"http://127.0.0.1:{ports['8000']}/"), process.output.text
        return
    with harness.running("bash", "-e", "-c", commands, env=env, cwd=tmp_path, stop=signal.SIGKILL) as process:
        if "pytest" in commands or "unittest" in commands:
            assert process.wait(harness.DEADLINE_S) == 0, process.output.text
        else:
            process.output.wait_for(SAYS)
