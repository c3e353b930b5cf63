"""The model with its loss as one module, so that one compilation takes both."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor, nn

from vflops.workloads.contract.workload import Workload


class Casting(Protocol):
    """What the objective needs of a precision."""

    def autocast(self) -> AbstractContextManager[Any]:
        """A context in which operators run in the precision."""


class Objective(nn.Module):
    """From a batch to its loss in training, to predictions and loss in evaluation."""

    def __init__(self, model: nn.Module, workload: Workload, precision: Casting) -> None:
        super().__init__()
        self.model = model
        self.workload = workload
        self.precision = precision
        self._taken = workload.model_inputs

    def forward(self, *inputs: Tensor) -> Tensor:
        """The training loss of a batch."""
        with self.precision.autocast():
            outputs = self.model(*inputs[: self._taken])
            return self.workload.loss(outputs, inputs)

    def evaluate(self, *inputs: Tensor) -> Tensor:
        """Predictions for a batch."""
        with self.precision.autocast():
            outputs = self.model(*inputs[: self._taken])
        return self.workload.predict(outputs)
