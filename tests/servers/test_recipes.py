"""Every recipe of docs/servers.md does what it says: run as printed, with another port, its code runs on treadle."""
import dataclasses
import os
import pathlib
import re
import signal
import sys

import harness
import pytest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "servers.md"
SAYS = "treadle: True"


@dataclasses.dataclass
class Recipe:
    name: str
    files: dict
    commands: str


def recipes():
    """Each block of commands with the files that stand before it in its section, and the page's own app.py."""
    text = PAGE.read_text()
    shared, *sections = re.split(r"^## (.*)$", text[text.index("# Recipes"):], flags=re.M)
    found, files = [], dict(files_of(shared))
    for title, body in zip(sections[::2], sections[1::2]):
        own, count = dict(files), 0
        for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", body, flags=re.M | re.S):
            if language == "python":
                own.update([named(block)])
            elif language == "sh":
                count += 1
                found.append(pytest.param(Recipe(title, dict(own), block), id=f"{title}-{count}".replace(" ", "_")))
    return found


def named(block):
    return re.match(r"# (\S+)\n", block).group(1), block


def files_of(text):
    return [named(block) for block in re.findall(r"^```python\n(.*?)^```$", text, flags=re.M | re.S)]


RECIPES = recipes()


def test_the_page_has_a_recipe_for_each_program_of_its_list():
    assert len({recipe.values[0].name for recipe in RECIPES}) == 26


@pytest.mark.parametrize("recipe", RECIPES)
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
    # Commands as in an activated environment, and a home for what they install; nothing beyond this machine is asked.
    env = {"PATH": os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]), "HOME": str(tmp_path),
           "PYTHONPATH": os.pathsep.join([harness.OFFLINE, str(tmp_path)]), "BOT_TOKEN": "1:" + "a" * 35, "TREADLE": ""}
    if ports["8000"] in commands or any(ports["8000"] in text for text in texts.values()):
        with harness.running("bash", "-c", "exec " + commands, env=env, cwd=tmp_path, stop=signal.SIGKILL) as process:
            harness.wait_for_port(process, int(ports["8000"]))
            assert SAYS in harness.get(f"http://127.0.0.1:{ports['8000']}/"), process.output.text
        return
    with harness.running("bash", "-e", "-c", commands, env=env, cwd=tmp_path, stop=signal.SIGKILL) as process:
        if "pytest" in commands or "unittest" in commands:
            assert process.wait(harness.DEADLINE_S) == 0, process.output.text
        else:
            process.output.wait_for(SAYS)
