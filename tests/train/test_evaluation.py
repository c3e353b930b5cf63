"""An evaluation reports its progress, so that a long one is not taken for a hang."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from vflops.train.engine import Engine
from vflops.train.ensemble_member import _write_files
from vflops.train.evaluation import CollectedPredictions
from vflops.train.parallel.parallel_plan import SingleRank
from vflops.train.phase_clock import Clock


class Samples:
    """Ten samples, which are their own indices."""

    def __len__(self) -> int:
        return 10

    def read(self, indices: Any, memory: object) -> tuple[Tensor, ...]:
        return (torch.from_numpy(np.asarray(indices)),)


class Total:
    """Adds the predictions up."""

    def __init__(self) -> None:
        self.value = 0.0

    def update(self, predictions: Tensor, inputs: object, valid: Tensor) -> None:
        self.value += float(predictions[valid].sum())

    def summary(self) -> float:
        return self.value


def engine_of(said: list[str]) -> Engine:
    """Return what an evaluation needs of an engine; heartbeats add to ``said``."""
    workload = SimpleNamespace(
        samples=lambda split: Samples(),
        meter=lambda device: Total(),
        quality=sum,
        validation_loss=lambda summaries: None,
        inputs=lambda batch, draws, dtype: (batch[0], batch[0]),
    )
    parts = SimpleNamespace(
        workload=workload,
        group=SingleRank(),
        device=torch.device("cpu"),
        precision=SimpleNamespace(input_dtype=torch.float32),
        settings=SimpleNamespace(rank_batch=4),
        context=SimpleNamespace(clock=Clock(lambda phase, completed=None: said.append(phase))),
    )
    return cast(Engine, parts)


@pytest.mark.parametrize("has_output", [True, False])
def test_every_batch_is_progress_and_so_are_the_quality_and_the_stored_predictions(
    has_output: bool, tmp_path: Path
) -> None:
    said: list[str] = []
    engine = engine_of(said)

    def predict(numbers: Tensor, labels: Tensor) -> Tensor | None:
        said.append("batch")
        return numbers.float() if has_output else None

    collected = CollectedPredictions()
    with engine.context.clock.phase("evaluation"):
        outcome = Engine.evaluation(engine, "validation")(predict, collected)
        assert said == ["evaluation", *["evaluation", "batch"] * 3, *["evaluation"] * 2]
        assert outcome.quality == (45 if has_output else 0)
        said.clear()
        assert bool(_write_files(engine, collected, tmp_path)) == has_output
        assert said == ["evaluation"] * 2
