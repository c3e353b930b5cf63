"""A training that goes on in other modes and with other numbers of ranks, as if in one."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from divided_runs import SHORT, all_losses, differs
from train_runs import losses, planned, run_ranks, start_ranks

from vflops.arrangement import rearranged
from vflops.check.told import as_told
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.record.training import JobRecord
from vflops.score.contents import Contents
from vflops.train import placement

MODEL = ("train.parallel.mode=model", "train.parallel.split=tensor", "train.ghosts=2")
MIXED = (
    "train.parallel.mode=mixed",
    "train.parallel.mesh=[2,2]",
    "train.parallel.within=model",
    "train.parallel.split=tensor",
)
WAYS = (
    (1, ("train.ghosts=2",)),
    (2, ()),
    (2, MODEL),
    (2, ("train.parallel.mode=sharded",)),
    (2, ()),
    (4, MIXED),
    (1, ("train.ghosts=2",)),
)
"""Ranks and modes, one after the other; batch norm always sees halves of a batch."""
LENGTH = ("synthetic.train=64", f"train.epochs={len(WAYS)}", "train.evaluate_every=100")
"""Two steps for each way."""


def checkpoints(folder: RunFolder) -> Path:
    return folder.path / "jobs" / "1" / "checkpoint"


def test_a_checkpoint_of_any_mode_is_one_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "usable_cores", lambda: [0, 1, 2, 3])
    whole = planned(tmp_path / "whole", *SHORT, *LENGTH, "train.ghosts=2")
    run_ranks(whole)
    before: list[float] = []
    folder: RunFolder | None = None
    for number, (ranks, way) in enumerate(WAYS, start=1):
        told = (*SHORT, *LENGTH, *way, f"train.ranks={ranks}", f"train.end_epoch={number}")
        following = planned(tmp_path / str(number), *told)
        if folder is not None:
            before += all_losses(folder)
            shutil.copytree(checkpoints(folder), checkpoints(following))
        folder = following
        run_ranks(folder, ranks)
        assert len(all_losses(folder)) == 2
    assert folder is not None
    assert differs(folder, whole, steps=2 * len(WAYS), before=before) is None


def test_a_killed_run_goes_on_as_its_user_wants_and_says_so(tmp_path: Path) -> None:
    """Another P and another mode from the next attempt on; the result is not valid any more."""
    whole = planned(tmp_path / "whole", *SHORT, "train.epochs=2", "train.ghosts=2")
    run_ranks(whole)
    folder = planned(tmp_path / "killed", *SHORT, "train.epochs=2", "train.ghosts=2")
    processes = start_ranks(folder, 1, KILL_AFTER="11")
    while processes.running():
        time.sleep(0.02)
    (new,) = rearranged(folder, ["train.ranks=2", "train.ghosts=1", "parallel.mode=sharded"])
    assert "train.ranks 1 → 2" in new.changes
    with folder.start_attempt(0) as events:
        events.write("job-rearranged", **new.model_dump(mode="json"))
    log = run_ranks(folder, 2)
    assert [event.data["ranks"] for event in log.events if event.kind == "job"] == [2]
    assert losses(log) == pytest.approx(all_losses(whole)[8:], rel=5e-4)
    assert as_told(Contents(folder)).verdict == "fail"
    assert "parallel.mode data → sharded" in as_told(Contents(folder)).evidence
    back = rearranged(folder, ["parallel.mode=data"])
    assert back == []  # the job is over
    assert JobRecord.read(folder.job_file(1)).ranks == 1


def test_what_would_be_another_training_is_not_gone_on_with(tmp_path: Path) -> None:
    folder = planned(tmp_path)
    with pytest.raises(UsageError, match=r"train.learning_rate = 1.0: it is .* same training"):
        rearranged(folder, ["train.learning_rate=1.0"])
    with pytest.raises(UsageError, match="cannot be shared evenly by 3 ranks"):
        rearranged(folder, ["train.ranks=3"])
