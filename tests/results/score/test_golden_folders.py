"""Run folders of vflops 0.1.0, from before the packages were moved: their scores stay as they are.

The archives in tests/golden hold what a score is made of, and the score that was made then; pages,
predictions and weights are left out. Later versions add fields, which ``ADDED`` lists, and base
MFU on executed operations. Since 0.3.0, figures are based on exact times and operations, so those
that ``REFINED`` lists differ by what was rounded. No other value changes.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score

GOLDEN = sorted((ROOT / "tests" / "golden").glob("*.tar.xz"))
ADDED = {
    "tasks",
    "task",
    "penalty_capped",
    "vflops_capped",
    "vflops_capped_per_watt",
    "time_to_quality_s",
    "ops_executed",
    "uncounted",
    "flops",  # of MFU
    "scale",
    "models",  # of repeats
    "moments",
    "epochs_to_quality",
    "batch_ops",
    "batch_ops_executed",
    "samples_timed",
    "ops_timed",
    "ops_epoch",
    "epoch_s",
    "samples",  # of candidates
    "evaluated",
    "variation",
    "ending",
    "loss",
    "unit",
    "units_per_s",
    "vendor",
    "vendor_reason",
    "conventions",
    "framework",
    "best_quality",
    "beats",
    "mean_loss",
}
"""Fields that scores have had since 0.2.0, and from ``scale`` on since 0.3.0."""
REFINED = re.compile(
    r"\.(\w+_s|phases\.[\w-]+|ops_training|ops_evaluation"
    r"|(v?flops\w*|vflops_(capped_)?per_watt)(\.mean|\.variation)?)$"
)
"""Paths of times, and of figures of operations per second."""
ROUNDING = 4e-7
"""The networks of these runs have more than 2,500,000 operations per sample."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value with its path, in order."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, f"{path}[]")
    else:
        yield path, value


def without_added(new: Any, recorded: Any) -> Any:
    """Return ``new`` without the added fields that ``recorded`` lacks."""
    if isinstance(new, dict) and isinstance(recorded, dict):
        kept = {key: value for key, value in new.items() if key in recorded or key not in ADDED}
        return {key: without_added(value, recorded.get(key)) for key, value in kept.items()}
    if isinstance(new, list) and isinstance(recorded, list) and len(new) == len(recorded):
        return [without_added(*pair) for pair in zip(new, recorded, strict=True)]
    return new


def golden_folder(archive: Path, tmp_path: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    return folder


def executed_mfu(recorded: dict[str, Any]) -> list[float]:
    """Return the MFU of each training by the executed operations that its old score has too."""
    counts = {model["model"]: model["counts"] for model in recorded["models"]}
    values = []
    for training in recorded["trainings"]:
        (executed,) = (c for c in counts[training["workload"]] if c["rules"] == "executed")
        share = executed["ops_total"] / training["work"]["ops_total"]
        values.append(training["mfu"]["value"] * share)
    return values


@pytest.mark.parametrize("archive", GOLDEN, ids=lambda path: path.name.partition(".")[0])
def test_an_old_run_folder_has_the_same_score(archive: Path, tmp_path: Path) -> None:
    folder = golden_folder(archive, tmp_path)
    recorded = json.loads((folder / "score.json").read_text(encoding="utf-8"))
    new = json.loads(score(Contents(RunFolder.open(folder))).to_json())
    expected = [pytest.approx(value, rel=ROUNDING) for value in executed_mfu(recorded)]
    assert [training["mfu"].pop("value") for training in new["trainings"]] == expected
    for training in recorded["trainings"]:
        del training["mfu"]["value"]
    for search in (*new["searches"], *recorded["searches"]):  # other words, and more of them
        assert search["aiperf"].pop("deviations")
    old, now = list(leaves(recorded)), list(leaves(without_added(new, recorded)))
    assert [path for path, _ in now] == [path for path, _ in old]
    for (path, was), (_, value) in zip(old, now, strict=True):
        if REFINED.search(path) and was is not None:
            assert value == pytest.approx(was, rel=ROUNDING, abs=5.1e-7), path
        else:
            assert repr(value) == repr(was), path


@pytest.mark.parametrize("archive", GOLDEN, ids=lambda path: path.name.partition(".")[0])
def test_an_old_score_is_read(archive: Path, tmp_path: Path) -> None:
    old = Score.read(golden_folder(archive, tmp_path) / "score.json")
    assert old.trainings or old.searches


def test_there_are_golden_folders() -> None:
    assert len(GOLDEN) == 4
