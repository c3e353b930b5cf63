"""The speed of a planned search comes from the runs that lie beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sample_parts import write_system
from tests.support.search_runs import HandmadeSearch, one_worker
from vflops.config.training import TrainSettings
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score
from vflops.run.search_speeds import known_speed
from vflops.workloads.automl.settings import PROFILES


def training(ranks: int = 1, precision: str = "fp32") -> TrainSettings:
    return PROFILES["tiny"]().train.model_copy(update={"ranks": ranks, "precision": precision})


def test_ceilings_bound_the_speed_where_no_search_has_run(run_folder: RunFolder) -> None:
    runs = run_folder.path.parent
    found = known_speed("local", training(ranks=2), runs)
    assert found is not None
    assert (found.ops_per_s, found.source, found.is_ceiling) == (4e11, run_folder.path.name, True)
    assert known_speed("slurm", training(), runs) is None
    assert known_speed("local", training(precision="bf16"), runs) is None
    assert known_speed("local", training(), runs / "none") is None


def test_the_newest_search_counts_more_than_ceilings(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = run_folder.path.parent
    run = HandmadeSearch(runs, monkeypatch)
    write_system(run.folder)
    run.worker(0, one_worker(run))
    (runs / "zzz").mkdir()
    Path(runs, "zzz", "run.json").write_text("{}")  # the newest, and no run of this version
    (search,) = score(Contents(RunFolder.open(run.folder.path))).searches
    found = known_speed("local", training(ranks=2), runs)
    assert found is not None and search.ops_per_s
    assert (found.source, found.is_ceiling) == (run.folder.path.name, False)
    assert found.ops_per_s == pytest.approx(2 * search.ops_per_s)
