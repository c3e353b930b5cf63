"""Graphs of earlier plans: an entry is used only for exactly the same work."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from vflops.record.formats.graph import Graph
from vflops.record.formats.job import DataFacts
from vflops.run import captured_graphs
from vflops.run.captured_graphs import counted_before
from vflops.testing.conventions import sample_graph
from vflops.workloads.contract.registry import workload

SPEC = workload("image-classification")
SECTION = SPEC.profile("tiny")
DATA = DataFacts(path="/data", synthetic=True, fingerprint="0" * 64, train=10, validation=2)


class Capture:
    """Counts how often a graph is captured."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Graph:
        self.calls += 1
        return sample_graph(batch=4)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in place of vflops, and an empty cache."""
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path / "cache"))
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(captured_graphs, "PACKAGE", package)
    return package


def test_the_same_work_is_captured_once(package: Path) -> None:
    capture = Capture()
    graphs = [counted_before(SPEC, SECTION, DATA, capture) for _ in range(2)]
    assert graphs[0] == graphs[1] == sample_graph(batch=4)
    assert capture.calls == 1


def test_other_settings_data_or_code_are_captured_anew(package: Path) -> None:
    capture = Capture()
    counted_before(SPEC, SECTION, DATA, capture)
    train = SECTION.train.model_copy(update={"batch": 64})
    counted_before(SPEC, SECTION.model_copy(update={"train": train}), DATA, capture)
    counted_before(SPEC, SECTION, DATA.model_copy(update={"facts": {"classes": 7}}), capture)
    assert capture.calls == 3
    file = package / "__init__.py"
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    counted_before(SPEC, SECTION, DATA, capture)
    assert capture.calls == 4


def test_workloads_of_other_packages_are_not_cached(package: Path) -> None:
    capture = Capture()
    other = replace(SPEC, origin="another")
    for _ in range(2):
        counted_before(other, SECTION, DATA, capture)
    assert capture.calls == 2


def test_a_damaged_entry_is_replaced_and_a_missing_cache_is_no_error(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = Capture()
    counted_before(SPEC, SECTION, DATA, capture)
    (entry,) = (tmp_path / "cache").rglob("*.json")
    entry.write_text("{")
    for _ in range(2):
        assert counted_before(SPEC, SECTION, DATA, capture) == sample_graph(batch=4)
    assert capture.calls == 2
    (tmp_path / "file").touch()
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path / "file" / "cache"))
    assert counted_before(SPEC, SECTION, DATA, capture) == sample_graph(batch=4)
