"""Run folders of released versions: their scores stay as they are.

The archives in tests/golden hold what a score is made of, and the score that was made then; pages,
predictions and weights are left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden_runs import GOLDEN, extracted, name_of
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score


@pytest.mark.parametrize("archive", GOLDEN, ids=name_of)
def test_an_old_run_folder_has_the_same_score_to_the_byte(archive: Path, tmp_path: Path) -> None:
    folder = extracted(archive, tmp_path)
    recorded = (folder / "score.json").read_text(encoding="utf-8")
    assert score(Contents(RunFolder.open(folder))).to_json() == recorded


def test_there_are_golden_folders() -> None:
    assert len(GOLDEN) >= 4
