"""What a run with a stage of the model on each rank writes down, and what it refuses.

That all ways to share layers train as one rank does: test_train_modes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from divided_runs import all_losses, trained
from train_runs import planned

from vflops.errors import UsageError
from vflops.record.training import StagesRun
from vflops.train import placement


def test_a_pipeline_of_two_says_how_it_was_cut_and_how_long_ranks_waited(tmp_path: Path) -> None:
    halves = "train.accumulate=2"
    piped = trained(tmp_path / "two", "train.parallel.mode=pipeline", halves, ranks=2)
    alone = trained(tmp_path / "one", halves)
    assert all_losses(piped) == pytest.approx(all_losses(alone), rel=5e-4)
    (event,) = piped.history().events("stages", job=1)
    run = event.payload(StagesRun)
    assert len(run.operations) == run.ranks == run.micro_batches == 2
    assert run.schedule == "1f1b" and run.bubble_theory == pytest.approx(1 / 3)
    # Messages and unequal stages add to what theory has, and nothing takes from it.
    assert run.bubble is not None and 0.95 * run.bubble_theory < run.bubble < 1
    assert max(run.operations) < 0.6 * sum(run.operations)


def test_stages_that_a_model_does_not_have_are_refused_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "usable_cores", lambda: list(range(64)))
    with pytest.raises(UsageError, match="image-classification cannot be cut into 64 stages"):
        planned(tmp_path, "train.ranks=64", "train.parallel.mode=model")
