"""Run folders of vflops 0.1.0, from before the packages were moved: their scores stay as they are.

The archives in tests/golden hold what a score is made of, and the score that was made then; pages,
predictions and weights are left out.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score

GOLDEN = sorted((ROOT / "tests" / "golden").glob("*.tar.xz"))


@pytest.mark.parametrize("archive", GOLDEN, ids=lambda path: path.name.partition(".")[0])
def test_an_old_run_folder_has_the_same_score_to_the_byte(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    recorded = (folder / "score.json").read_text(encoding="utf-8")
    assert score(Contents(RunFolder.open(folder))).to_json() == recorded


def test_there_are_golden_folders() -> None:
    assert len(GOLDEN) == 4
