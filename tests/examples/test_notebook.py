"""The notebook runs from its first cell to its last, on two stored runs."""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest

import vflops
from tests.support.golden_runs import GOLDEN, extracted, name_of
from tests.support.notebooks import values
from tests.support.paths import ROOT

NOTEBOOK = ROOT / "examples" / "runs.ipynb"
RUNS = ("ensemble", "repeats-on-two-ranks")


def test_every_cell_runs_and_shows_what_its_text_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_name = {name_of(archive): archive for archive in GOLDEN}
    before, after = (extracted(by_name[name], tmp_path / "runs") for name in RUNS)
    monkeypatch.chdir(tmp_path)
    shown, names = values(NOTEBOOK)
    assert shown[0] == vflops.__version__
    layers = shown[2].set_index("name")["forward"]
    assert layers["0"] == 2 * 64 * 32 * 32 * 32 * 27
    assert layers["5"] == 2 * 64 * 32 * 10
    assert (names["before"].id, names["after"].id) == (before.name, after.name)
    score = next(table for table in shown if _has(table, "time_to_quality"))
    assert score["quality"].tolist() == [0.52734375, 0.5859375]
    (chart,) = (value for value in shown if hasattr(value, "to_dict") and hasattr(value, "mark"))
    (drawn,) = chart.to_dict()["datasets"].values()
    assert max(point["quality"] for point in drawn if point["job"] == 2) == 0.5859375
    compared = next(table for table in shown if _has(table, "difference"))
    assert {"open VFLOPS", "FLOPS"} <= set(compared["name"])  # the targets of 0.1.0
    assert any("breaks its rules" in warning for warning in names["found"].warnings)


def _has(table: object, column: str) -> bool:
    return isinstance(table, pandas.DataFrame) and column in table.columns


def test_the_notebook_is_stored_without_outputs() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    for cell in notebook["cells"]:
        assert cell["id"]
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
