"""How long training waits for a better quality: evaluations since the best, each step once."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from vflops.config.training import TrainSettings
from vflops.errors import RunFailed, UsageError
from vflops.metrics.quality import Better
from vflops.record.formats.job import Goal
from vflops.record.formats.job_events import Checkpointed
from vflops.run.validate import check_all
from vflops.train.backends.torch_backend import TorchBackend
from vflops.train.checkpoint import Checkpoints
from vflops.train.committing import Committer
from vflops.train.evaluation import Outcome
from vflops.train.loop import Loop
from vflops.train.parallel.factory import SingleRank
from vflops.train.precision import Precision
from vflops.train.state import TrainState
from vflops.workloads.contract.run_settings import load, profile


def state(directory: Path) -> TrainState:
    workload: Any = SimpleNamespace(
        model=lambda: nn.Linear(2, 1), model_inputs=1, initial_weights=lambda seed: None
    )
    cpu = torch.device("cpu")
    precision = Precision.named("fp32", cpu)
    backend = TorchBackend(TrainSettings(), workload, SingleRank(), precision, cpu, seed=1)
    return TrainState(backend, Checkpoints(directory))


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


def loop(directory: Path, stop_by: str) -> Loop:
    """Return what a loop needs to decide whether training has improved."""
    made = object.__new__(Loop)
    made.state = state(directory)
    made.settings = TrainSettings.model_validate({"stop_by": stop_by})
    made.goal = Goal(quality="accuracy", better="higher", exponent=1, target=0.5)
    made.context = SimpleNamespace(record=SimpleNamespace(workload="mine"))  # type: ignore[assignment]
    return made


@pytest.mark.parametrize(
    ("stop_by", "since"), [("quality", [0, 0, 0, 1, 2]), ("loss", [0, 1, 0, 1, 2])]
)
def test_training_waits_for_the_quality_or_for_the_loss(
    tmp_path: Path, stop_by: str, since: list[int]
) -> None:
    training, counts = loop(tmp_path, stop_by), []
    losses = [math.nan, math.inf, 1.5, 2.0, 1.5]  # losses that are not finite are the worst
    for quality, loss in zip([0.1, 0.2, 0.3, 0.3, 0.2], losses, strict=True):
        training.state.step += 1
        counts.append(training._evaluations_since_best(Outcome(quality, 1, [], loss)))
    assert counts == since


def test_a_workload_without_a_loss_cannot_stop_by_it(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="mine measures no loss") as caught:
        loop(tmp_path, "loss")._evaluations_since_best(Outcome(0.5, 1, []))
    assert caught.value.hint == "--set train.stop_by=quality"


def test_an_evaluation_that_a_resume_repeats_counts_once(tmp_path: Path) -> None:
    training = state(tmp_path)
    for quality in (0.5, 0.4):
        training.step += 1
        training.since_best(quality, "higher")
    committer = Committer(training.checkpoints)
    contents = training.contents()
    assert contents is not None
    committer.begin(training.step, contents, checkpoint=True)
    hashed = committer.take(wait=True)
    assert hashed is not None
    checkpoint = hashed.event(None)
    assert isinstance(checkpoint, Checkpointed)
    training.checkpoints.complete(checkpoint)
    resumed = state(tmp_path)
    resumed.restore(lambda file, reason: None)
    assert (resumed.best, resumed.worse) == (0.5, 0)  # as before the evaluation of that step
    assert resumed.since_best(0.4, "higher") == 1
    resumed.step += 1
    assert resumed.since_best(0.4, "higher") == 2


def test_a_run_that_would_stop_by_a_loss_that_is_not_measured_is_refused() -> None:
    stop_by_loss = ["train.stop_by=loss"]
    check_all(load(profile("tiny", ["image-classification"]), None, stop_by_loss), here=False)
    weather = load(profile("tiny", ["extreme-weather"]), None, stop_by_loss)
    with pytest.raises(UsageError, match="extreme-weather measure no loss") as caught:
        check_all(weather, here=False)
    assert caught.value.hint == "stop by the quality: --set train.stop_by=quality"
