"""Conventions and models of other packages: loaded by entry points, listed with their origin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
from torch import nn
from vflops.counting.conventions import Convention, Ops
from vflops.models.model_registry import ModelSpec

RULES = Convention("one-each", 3, "one an operator", "our own", lambda graph, index: Ops(forward=1))
MODEL = ModelSpec("tiny-net", "a linear layer", "theirs:net", (8,), None)

def net():
    return nn.Linear(8, 2)
"""
ENTRY_POINTS = """
[vflops.rules]
one-each = theirs:RULES

[vflops.models]
tiny-net = theirs:MODEL
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which a third party's package is installed."""
    (tmp_path / "theirs.py").write_text(CODE)
    metadata = tmp_path / "theirs-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "vflops", *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_they_are_listed_with_their_origin(installed: dict[str, str]) -> None:
    lines = [" ".join(line.split()) for line in run(installed, "list").splitlines()]
    assert "tiny-net a linear layer (from theirs)" in lines
    assert "one-each/3 one an operator: our own (from theirs)" in lines


def test_their_models_are_counted_by_what_is_executed(installed: dict[str, str]) -> None:
    data = json.loads(run(installed, "count", "tiny-net", "--json"))
    assert data["rules"]["id"] == "executed"


def test_they_count(installed: dict[str, str]) -> None:
    data = json.loads(run(installed, "count", "tiny-net", "--rules", "one-each", "--json"))
    assert data["rules"] == {"id": "one-each", "version": 3}
    assert data["forward"] == 1
    assert data["parameters"] == 18
