"""How long training waits for a better quality: evaluations since the best, each step once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from vflops.metrics.quality import Better
from vflops.train.checkpoint import Checkpoints
from vflops.train.parallel.factory import SingleRank
from vflops.train.state import TrainState
from vflops.train.step import Step


def state(directory: Path) -> TrainState:
    model = nn.Linear(2, 1)
    plan = SingleRank()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = Step(model, optimizer, torch.amp.GradScaler(enabled=False), plan)
    return TrainState(model, step, model, Checkpoints(directory))


@pytest.mark.parametrize(
    ("better", "qualities", "since"),
    [
        ("higher", [0.1, 0.2, 0.2, 0.1, 0.3, 0.3], [0, 0, 1, 2, 0, 1]),
        ("lower", [0.3, 0.2, 0.2, 0.4, 0.1], [0, 0, 1, 2, 0]),
    ],
)
def test_an_equal_quality_is_not_better(
    tmp_path: Path, better: Better, qualities: list[float], since: list[int]
) -> None:
    training, counts = state(tmp_path), []
    for quality in qualities:
        training.step += 1
        counts.append(training.since_best(quality, better))
    assert counts == since


def test_an_evaluation_that_a_resume_repeats_counts_once(tmp_path: Path) -> None:
    plan = SingleRank()
    training = state(tmp_path)
    for quality in (0.5, 0.4):
        training.step += 1
        training.since_best(quality, "higher")
    training.save(plan)
    resumed = state(tmp_path)
    resumed.restore(plan, lambda file, reason: None)
    assert (resumed.best, resumed.worse) == (0.5, 1)
    assert resumed.since_best(0.4, "higher") == 1
    resumed.step += 1
    assert resumed.since_best(0.4, "higher") == 2
