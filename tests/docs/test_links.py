"""Links, anchors, paths, imports and line lengths of the documentation."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.support.markdown import anchors, fences, inline_code, links, name_of, pages, prose
from tests.support.paths import DOCS, ROOT

WIDTH = 100
_SOURCES = (".py", ".html", ".toml", ".md")
_PATH = re.compile(r"(?:src|tests|docs|benchmarks|examples)/[\w./-]*\w/?")
_MODULE = re.compile(r"vflops(?:\.[a-z_]\w*)+(?:\.[A-Z]\w*)?")
_NAMES = {
    "vflops.prom",
    "vflops.rules",
    "vflops.models",
    "vflops.bootstraps",
    "vflops.workloads",
    "vflops.launchers",
}
"""That look like modules: entry point groups and files."""


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in links(page):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        path = page.parent / target if target else page
        assert path.exists(), f"{link}: no such file"
        if anchor:
            assert anchor in anchors(path), f"{link}: no such heading"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_paths_in_the_text_exist(page: Path) -> None:
    for code in inline_code(page):
        for path in _PATH.findall(code if re.match(_PATH, code) else ""):
            assert any((folder / path).exists() for folder in (ROOT, page.parent)), path


def test_contributing_says_where_a_change_goes_with_paths_that_exist() -> None:
    page = ROOT / "CONTRIBUTING.md"
    section = prose(page).split("## Where a change goes")[1].split("\n## ")[0]
    paths = _PATH.findall(section)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_pages_that_messages_and_comments_name_exist() -> None:
    folders = [ROOT / name for name in ("src", "benchmarks", "examples")]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in _SOURCES]
    for file in (*files, ROOT / "Containerfile", ROOT / "apptainer.def", ROOT / "Makefile"):
        for path in re.findall(r"docs/[\w/-]+\.md", file.read_text(encoding="utf-8")):
            assert (ROOT / path).exists(), f"{name_of(file)} names {path}"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_modules_and_names_in_the_text_exist(page: Path) -> None:
    for code in inline_code(page):
        if _MODULE.fullmatch(code.split("(")[0]) and code not in _NAMES | _schema_names():
            _resolve(code.split("(")[0])


def test_the_site_has_every_page_and_documents_names_that_exist() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    paths = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert [path for path in paths if path not in navigation] == []
    names = re.findall(r"^::: ([\w.]+)$", (DOCS / "reference" / "api.md").read_text(), re.M)
    assert len(names) > 15
    for name in names:
        _resolve(name)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_python_examples_import_names_that_exist(page: Path) -> None:
    for fence in fences(page):
        if fence.language != "python":
            continue
        for node in ast.walk(ast.parse(fence.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vflops."):
                for name in node.names:
                    _resolve(f"{node.module}.{name.name}")


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_lines_are_wrapped(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    long = [
        (number, line)
        for number, line in enumerate(lines, 1)
        if len(line) > WIDTH and not line.lstrip().startswith(("|", "!["))
    ]
    assert long == []


def _schema_names() -> set[str]:
    return {path.stem for path in (ROOT / "docs" / "schemas").glob("*.json")}


def _resolve(dotted: str) -> object:
    """Import the module or name; an ImportError or AttributeError says what does not exist."""
    module, _, name = dotted.rpartition(".")
    try:
        return importlib.import_module(dotted)
    except ImportError:
        parent = _resolve(module)
        assert hasattr(parent, name), f"{dotted}: no such name"
        return getattr(parent, name)
