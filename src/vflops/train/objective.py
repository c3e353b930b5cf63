"""The model with its loss as one module, so that both are compiled together."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor, nn

from vflops.workloads.contract.workload import Workload


class Casting(Protocol):
    """The part of a training precision that the objective needs."""

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context in which operators run in this precision."""


class Objective(nn.Module):
    """Maps a batch to its loss in training and to predictions in evaluation."""

    def __init__(self, model: nn.Module, workload: Workload, precision: Casting) -> None:
        super().__init__()
        self.model = model
        self.workload = workload
        self.precision = precision
        self._input_count = workload.model_inputs

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the training loss of a batch."""
        with self.precision.autocast():
            outputs = self.model(*inputs[: self._input_count])
            return self.workload.loss(outputs, inputs)

    def evaluate(self, *inputs: Tensor) -> Tensor:
        """Return the predictions for a batch."""
        with self.precision.autocast():
            outputs = self.model(*inputs[: self._input_count])
        return self.workload.predict(outputs)
