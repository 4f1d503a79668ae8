"""Steps of the scripts that build wheels: commands that end, and files that are there whole or not at all."""
import os
import pathlib
import shutil
import subprocess

STEP_S = 1800


class Failed(Exception):
    """A wheel that may not be given to anyone, or a step that did not go through."""


def run(*command, env=None, timeout=STEP_S, **options):
    """Run a step with what it adds to the environment and return its output, which is shown if it fails or
    does not end."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            env=os.environ | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            **{"stdin": subprocess.DEVNULL} | options,
        )
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"").decode(errors="replace")
        raise Failed(f"{' '.join(words)}\n{said[-6000:]}\ndid not end in {timeout} seconds") from None
    except OSError as error:
        raise Failed(f"{words[0]}: {error}") from None
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}\n{done.stdout[-6000:]}")
    return done.stdout


def made(folder, make):
    """Return a folder that make(part) fills where it is not there yet; one that was broken off is begun
    anew."""
    folder = pathlib.Path(folder)
    if not folder.exists():
        part = folder.with_name(folder.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        make(part)
        part.rename(folder)
    return folder
