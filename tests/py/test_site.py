"""The site builds strictly, its links and anchors lead somewhere, and its reference tells of every public
name."""
import html
import importlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/site"))
import c_reference  # noqa: E402
import python_reference  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder


def page(site, name):
    return (site / name).read_text()


@pytest.mark.timeout(120)
def test_the_site_builds_strictly_with_every_page_in_its_menu(site):
    home = page(site, "index.html")
    names = [path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")]
    missing = [name for name in names if f'href="{name}.html"' not in home and not name.startswith("source/")]
    assert missing == ["404"]
    assert len(names) > 30


def test_no_link_leaves_the_site_for_a_file_or_anchor_that_is_not_there(site):
    anchors = {}
    for path in site.rglob("*.html"):
        anchors[path] = set(re.findall(r'\bid="?([^"\s>]+)', path.read_text()))
    bad = []
    for path in anchors:
        text = re.sub(r"<pre.*?</pre>", "", path.read_text(), flags=re.DOTALL)
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            name, _, anchor = html.unescape(link).partition("#")
            if re.match(r"(https?|data|mailto):", link) or path.name == "404.html":
                continue
            target = (path.parent / name).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (anchor and target in anchors and anchor not in anchors[target]):
                bad.append(f"{path.relative_to(site)}: {link}")
    assert bad == []


def test_nothing_of_the_site_is_fetched_from_another_host(site):
    text = page(site, "index.html")
    assert re.findall(r'<(?:script|img)[^>]*src="(http[^"]*)', text) == []
    assert re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="(http[^"]*)', text) == []


@pytest.mark.parametrize("library", c_reference.libraries(ROOT))
def test_the_c_reference_has_every_function_with_its_contract(site, library):
    text = page(site, f"c/{library}.html")
    for path in c_reference.headers(ROOT, library):
        for name in re.findall(
            r"^(?:TDL_INLINE |static inline )?[a-z][\w *]*?\b(tdl_\w+)\(", path.read_text(), re.MULTILINE
        ):
            if not name.startswith("tdl__"):
                assert f'id="{name}"' in text, f"{path.name}: {name}"
    assert text.count("<strong>Thread</strong>") == text.count("<strong>Cost</strong>")


@pytest.mark.parametrize("name", python_reference.MODULES)
def test_the_python_reference_has_every_public_name(site, name):
    text = page(site, f"python/{name}.html")
    module = importlib.import_module(name)
    for public in python_reference.public_names(module):
        assert f'id="{public.lower()}"' in text, public


@pytest.mark.parametrize("name", python_reference.MODULES)
def test_every_public_name_has_a_docstring(name):
    module = importlib.import_module(name)
    assert module.__doc__
    bare = []
    for public, value in python_reference.members(module, python_reference.MODULES[name][1]):
        if not python_reference.docstring(value).strip():
            bare.append(public)
        if isinstance(value, type):
            bare += [f"{public}.{member}" for member in set(python_reference.public_members(value))
                     if not python_reference.docstring(getattr(value, member), value, member).strip()]
    assert bare == []
