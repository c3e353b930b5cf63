"""What a run with a stage of the model on each rank writes down, and what it refuses.

That all ways to share layers train as one rank does: test_modes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.divided_runs import all_losses, trained
from tests.support.train_runs import planned
from vflops.errors import UsageError
from vflops.machine.system import cpu_share
from vflops.record.formats.job_events import StagesRun


def test_a_pipeline_of_two_says_how_it_was_cut_and_how_long_ranks_waited(tmp_path: Path) -> None:
    halves = "train.accumulate=2"
    pipeline = "train.parallel.mode=pipeline"
    piped = trained(tmp_path / "two", pipeline, halves, ranks=2, DOUBLE="1")
    alone = trained(tmp_path / "one", halves, DOUBLE="1")
    # A pipeline records its losses in single precision.
    assert all_losses(piped) == pytest.approx(all_losses(alone), rel=1e-6)
    (event,) = piped.history().events("stages", job=1)
    run = event.payload(StagesRun)
    assert len(run.operations) == run.ranks == run.micro_batches == 2
    assert run.schedule == "1f1b" and run.bubble_theory == pytest.approx(1 / 3)
    assert run.bubble is not None and 0 < run.bubble < 1
    assert max(run.operations) < 0.6 * sum(run.operations)


def test_stages_that_a_model_does_not_have_are_refused_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_share, "usable_cores", lambda: list(range(64)))
    with pytest.raises(UsageError, match="image-classification cannot be cut into 64 stages"):
        planned(tmp_path, "train.ranks=64", "train.parallel.mode=model")
