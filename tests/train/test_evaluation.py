"""An evaluation reports its progress, so that a long one is not taken for a hang."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from vflops.train.evaluation import CollectedPredictions, Evaluation
from vflops.train.parallel.parallel_plan import SingleRank
from vflops.workloads.contract.workload import Workload


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


@pytest.mark.parametrize("has_output", [True, False])
def test_every_batch_is_progress_before_it_is_predicted_and_so_is_the_quality(
    has_output: bool,
) -> None:
    said: list[str] = []
    workload = SimpleNamespace(
        samples=lambda split: Samples(), meter=lambda device: Total(), quality=sum
    )

    def predict(numbers: Tensor) -> Tensor | None:
        said.append("batch")
        return numbers.float() if has_output else None

    evaluation = Evaluation(
        cast(Workload, workload),
        SingleRank(),
        torch.device("cpu"),
        lambda batch: batch,
        4,
        tick=lambda: said.append("tick"),
    )
    collected = CollectedPredictions()
    outcome = evaluation(predict, collected)
    assert said == ["tick", "batch"] * 3 + ["tick"] * 2
    assert outcome.quality == (45 if has_output else 0)
    assert collected.samples == (10 if has_output else 0)
