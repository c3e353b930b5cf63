"""Conventions and models of other packages: loaded by entry points, listed with their origin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.sample_parts import Vflops

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


@pytest.fixture(autouse=True)
def installed(tmp_path: Path) -> None:
    """Install a third party's package in the folder in which commands run."""
    (tmp_path / "theirs.py").write_text(CODE)
    metadata = tmp_path / "theirs-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)


def run(vflops_alone: Vflops, *arguments: str) -> str:
    result = vflops_alone(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_they_are_listed_with_their_origin(vflops_alone: Vflops) -> None:
    lines = [" ".join(line.split()) for line in run(vflops_alone, "list").splitlines()]
    assert "tiny-net a linear layer (from theirs)" in lines
    assert "one-each/3 one an operator: our own (from theirs)" in lines


def test_their_models_are_counted_by_what_is_executed(vflops_alone: Vflops) -> None:
    data = json.loads(run(vflops_alone, "count", "tiny-net", "--json"))
    assert data["rules"]["id"] == "executed"


def test_they_count(vflops_alone: Vflops) -> None:
    data = json.loads(run(vflops_alone, "count", "tiny-net", "--rules", "one-each", "--json"))
    assert data["rules"] == {"id": "one-each", "version": 3}
    assert data["forward"] == 1
    assert data["parameters"] == 18
