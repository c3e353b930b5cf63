"""Run folders of vflops 0.1.0: their scores stay as they are, but for what the changelog says.

The archives in tests/golden hold what a score is made of, and the score that was made then; pages,
predictions and weights are left out.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score

GOLDEN = sorted((ROOT / "tests" / "golden").glob("*.tar.xz"))
NEW_FIELDS = {"work": {"ops_executed", "uncounted"}, "mfu": {"flops"}}
"""What scores of 0.1.0 did not have, by the object that has it now."""


@pytest.fixture(params=GOLDEN, ids=lambda path: path.name.partition(".")[0])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    return unpacked


def test_an_old_run_folder_has_the_same_score(folder: Path) -> None:
    recorded = json.loads((folder / "score.json").read_text(encoding="utf-8"))
    computed = json.loads(score(Contents(RunFolder.open(folder))).to_json())
    _count_mfu_by_what_is_executed(recorded)
    mfu = [training["mfu"].pop("value") for training in computed["trainings"]]
    assert mfu == [
        pytest.approx(training["mfu"].pop("value"), rel=1e-12) for training in recorded["trainings"]
    ]
    assert _without_new_fields(computed) == recorded


def test_an_old_score_can_be_read(folder: Path) -> None:
    recorded = Score.read(folder / "score.json")
    assert recorded.trainings or recorded.searches


def test_there_are_golden_folders() -> None:
    assert len(GOLDEN) == 4


def _count_mfu_by_what_is_executed(recorded: dict[str, Any]) -> None:
    """Version 0.1.0 divided the operations of the score, not the executed ones, by the ceiling."""
    counts = {model["model"]: model["counts"] for model in recorded["models"]}
    for training in recorded["trainings"]:
        (executed,) = (c for c in counts[training["workload"]] if c["rules"] == "executed")
        training["mfu"]["value"] *= executed["ops_total"] / training["work"]["ops_total"]


def _without_new_fields(value: Any, name: str = "") -> Any:
    if isinstance(value, list):
        return [_without_new_fields(item, name) for item in value]
    if not isinstance(value, dict):
        return value
    new = NEW_FIELDS.get(name, set())
    return {key: _without_new_fields(item, key) for key, item in value.items() if key not in new}
