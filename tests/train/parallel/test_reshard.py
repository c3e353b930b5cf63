"""A training that is resumed in other modes and with other numbers of ranks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.divided_runs import SHORT, all_losses
from tests.support.team_runs import SMALL, Team
from tests.support.train_runs import losses, planned, run_ranks, start_ranks
from vflops.errors import UsageError
from vflops.machine.system import cpu_share
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.consistency import check_settings
from vflops.run.resume_changes import changed_jobs

WAYS: tuple[dict[str, Any], ...] = (
    {"ghosts": 2},
    {"ranks": 2},
    {"ranks": 2, "parallel": {"mode": "pipeline"}, "accumulate": 2},
    {"ranks": 4, "parallel": {"mode": "sharded"}},
    {"ranks": 2, "parallel": {"mode": "model", "split": "tensor"}, "ghosts": 2},
    {"ranks": 4, "parallel": {"mode": "mixed", "mesh": (2, 2)}, "accumulate": 2},
    {"ranks": 3, "parallel": {"mode": "model"}},
    {"ranks": 2, "parallel": {"mode": "pipeline", "schedule": "interleaved"}, "accumulate": 2},
    {
        "ranks": 4,
        "parallel": {"mode": "mixed", "mesh": (2, 2), "within": "model", "split": "tensor"},
    },
    {},
)
"""Ranks and modes, one after the other, two steps each; at the end 2, 4 and 1 rank."""


def test_a_checkpoint_of_any_mode_is_one_for_all(tmp_path: Path) -> None:
    """One rank trains on the same parts of each batch, however they are shared."""
    team = Team(tmp_path, *SMALL)
    ways = [team.way(**way, end_epoch=number) for number, way in enumerate(WAYS, start=1)]
    ((mine, alone),) = team.train({"chain": ways}).values()
    assert len(mine.losses) == 20
    assert [item["step"] for item in mine.all("resumed")] == list(range(2, 20, 2))
    assert mine.starts_as(alone)
    assert mine.losses_far(alone) < 1e-6  # a pipeline records them in single precision
    assert mine.far(alone) < 1e-10


def test_a_killed_run_resumes_with_changed_settings_and_says_so(tmp_path: Path) -> None:
    """Another P and another mode from the next attempt on; the result is not valid any more."""
    whole = planned(tmp_path / "whole", *SHORT, "train.epochs=2", "train.ghosts=2")
    run_ranks(whole, DOUBLE="1")
    folder = planned(tmp_path / "killed", *SHORT, "train.epochs=2", "train.ghosts=2")
    processes = start_ranks(folder, 1, KILL_AFTER="11", DOUBLE="1")
    while processes.running():
        time.sleep(0.02)
    (new,) = changed_jobs(folder, ["train.ranks=2", "train.ghosts=1", "parallel.mode=sharded"])
    assert "train.ranks 1 → 2" in new.changes
    with folder.start_attempt(0) as events:
        events.write("job-rearranged", **new.model_dump(mode="json"))
    folder.pass_on_changes()
    log = run_ranks(folder, 2, DOUBLE="1")
    assert [event.data["ranks"] for event in log.events if event.kind == "job"] == [2]
    assert losses(log) == pytest.approx(all_losses(whole)[8:], rel=1e-10)
    assert check_settings(Contents(folder)).verdict == "fail"
    assert "parallel.mode data → sharded" in check_settings(Contents(folder)).evidence
    back = changed_jobs(folder, ["parallel.mode=data"])
    assert back == []  # the job is over
    assert JobRecord.read(folder.job_file(1)).ranks == 1


def test_settings_of_a_different_training_are_refused(tmp_path: Path) -> None:
    folder = planned(tmp_path)
    with pytest.raises(UsageError, match=r"train\.learning_rate cannot change from 0\.1 to 1\.0"):
        changed_jobs(folder, ["train.learning_rate=1.0"])
    with pytest.raises(UsageError, match="cannot be divided evenly by 3 ranks"):
        changed_jobs(folder, ["train.ranks=3"])


def test_what_belongs_to_the_mode_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_share, "usable_cores", lambda: [0, 1, 2, 3])
    sharing = (
        "train.ranks=4",
        "parallel.mode=mixed",
        "parallel.mesh=[2,2]",
        "parallel.within=model",
    )
    folder = planned(tmp_path, *sharing)
    (new,) = changed_jobs(folder, ["parallel.mode=data"])
    assert "parallel.mesh [2, 2] → None" in "; ".join(new.changes)
    assert new.settings["train"]["parallel"]["within"] == "pipeline"
