"""Modules in the current folder do not run in the Pythons that vflops starts."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vflops.machine.ceilings import allreduce
from vflops.python_start import SAFE_PATH, safe_spawning

SOURCE = ROOT / "src" / "vflops"
FILES = sorted(SOURCE.rglob("*.py"))
NAMES_AN_INTERPRETER = {"python_start.py", "launch/site.py", "workloads/command/workload.py"}
"""Where Python's path is used other than to start a program of vflops: the one place that writes
its options, the interpreter of a site, and ``{python}`` in a user's own command."""
SPAWNING = ("ProcessPoolExecutor(", 'get_context("')

POOL = """
import os, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from vflops.python_start import safe_spawning
from contextlib import nullcontext

if __name__ == "__main__":
    with (safe_spawning() if sys.argv[2] == "safe" else nullcontext()):
        with ProcessPoolExecutor(1, get_context(sys.argv[1])) as pool:
            print(pool.submit(abs, -1).result())
"""


def name_of(file: Path) -> str:
    return file.relative_to(SOURCE).as_posix()


def is_interpreter(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "executable"
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
    )


def unsafe_starts(file: Path) -> Iterator[str]:
    """Yield the uses of ``sys.executable`` that are not followed by the safe option."""
    text = file.read_text(encoding="utf-8")
    if "executable" not in text:
        return
    tree, safe = ast.parse(text), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) > 1:
            first, second = node.elts[:2]
            if is_interpreter(first) and first_word(file, second) == SAFE_PATH:
                safe.add(first)
    for node in ast.walk(tree):
        if is_interpreter(node) and node not in safe:
            yield f"{name_of(file)}:{getattr(node, 'lineno', 0)}"


def first_word(file: Path, node: ast.expr) -> object:
    """Return the value of a word of a command, or of the first of several (``*AGENT``)."""
    if isinstance(node, ast.Constant):
        return node.value
    name = node.value if isinstance(node, ast.Starred) else node
    if not isinstance(name, ast.Name):
        return None
    module = ".".join(("vflops", *file.relative_to(SOURCE).with_suffix("").parts))
    value = getattr(importlib.import_module(module), name.id, None)
    return value[0] if isinstance(node, ast.Starred) and value else value


def test_every_start_of_python_leaves_the_current_folder_out() -> None:
    others = [file for file in FILES if name_of(file) not in NAMES_AN_INTERPRETER]
    assert [start for file in others for start in unsafe_starts(file)] == []


def test_the_walk_finds_unsafe_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SOURCE / "launch" / "never-written.py"
    sample = tmp_path / "sample.py"
    sample.write_text(
        'import sys\na = [sys.executable, "-m", "json"]\nb = [sys.executable, "-P"]\n'
    )
    tree = ast.parse(sample.read_text())
    assert sum(is_interpreter(node) for node in ast.walk(tree)) == 2
    starts = [node for node in ast.walk(tree) if isinstance(node, ast.List)]
    assert [first_word(file, start.elts[1]) for start in starts] == ["-m", "-P"]


def test_every_pool_of_processes_is_started_safely() -> None:
    texts = {name_of(file): file.read_text(encoding="utf-8") for file in FILES}
    spawning = [name for name, text in texts.items() if any(call in text for call in SPAWNING)]
    assert len(spawning) >= 3
    assert [name for name in spawning if "safe_spawning()" not in texts[name]] == []


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with modules that have the names of the standard library's."""
    for name in ("json", "pickle", "struct"):
        trace = f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})"
        (tmp_path / f"{name}.py").write_text(f"{trace}\nraise SystemExit('hostile')\n")
    return tmp_path


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, env={**os.environ}, capture_output=True, text=True, check=False
    )


def test_a_hostile_json_in_the_current_folder_does_not_run(hostile: Path) -> None:
    """The command of the all-reduce ceiling without its last argument, which it reads first."""
    command = allreduce.command("gloo", 2, hostile, 1.0, 1)[:-1]
    done = run_in(hostile, *command)
    assert "not enough values" in done.stderr
    assert not (hostile / "executed").exists()
    run_in(hostile, *(word for word in command if word != SAFE_PATH))
    assert (hostile / "executed").exists(), "the modules are not hostile"


def test_spawned_processes_do_not_import_from_the_current_folder(
    hostile: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = tmp_path_factory.mktemp("script") / "pool.py"
    script.write_text(POOL)
    done = run_in(hostile, sys.executable, str(script), "spawn", "safe")
    assert done.stdout == "1\n", done.stderr
    assert not (hostile / "executed").exists()
    run_in(hostile, sys.executable, str(script), "spawn", "plain")
    assert (hostile / "executed").exists(), "the modules are not hostile"


def test_the_variable_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with safe_spawning():
        assert os.environ["PYTHONSAFEPATH"] == "1"
    assert "PYTHONSAFEPATH" not in os.environ
    monkeypatch.setenv("PYTHONSAFEPATH", "yes")
    with safe_spawning():
        pass
    assert os.environ["PYTHONSAFEPATH"] == "yes"
