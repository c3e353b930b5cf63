"""The meter with which the controller evaluates an ensemble of scripts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflops.workloads.command.combined_metric import CombinedMetric
from vflops.workloads.command.combined_quality import QualityMeter
from vflops.workloads.contract.workload import Inputs, Meter, Summary


class ScriptEnsemble:
    """Evaluates combined predictions of scripts, as a ``Workload`` does for those of models."""

    def __init__(self, metric: CombinedMetric, unit: float) -> None:
        self._metric, self._unit = metric, unit

    def meter(self, device: torch.device) -> Meter:
        """Return a new meter of the quality."""
        return _ScriptMeter(QualityMeter(self._metric, self._unit))

    def quality(self, summaries: Sequence[Summary]) -> float:
        """Return the quality; predictions are combined in one place, so there is one summary."""
        (summary,) = summaries
        return float(summary["quality"])


class _ScriptMeter(Meter):
    def __init__(self, meter: QualityMeter) -> None:
        self._meter = meter

    def update(self, predictions: Tensor, inputs: Inputs, valid: Tensor) -> None:
        """Add a piece without padding; what follows the first input is the truth."""
        self._meter.update(predictions.numpy(), [truth.numpy() for truth in inputs[1:]])

    def summary(self) -> Summary:
        """Return the quality."""
        return {"quality": self._meter.result()}
