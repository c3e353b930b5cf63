"""Top-1 accuracy, accumulated on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflops.workloads.contract.workload import Inputs, Meter, Summary


class Top1Meter(Meter):
    """Counts correct predictions; in a tie the first class wins."""

    def __init__(self, device: torch.device) -> None:
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._seen = torch.zeros((), dtype=torch.int64, device=device)

    def update(self, predictions: Tensor, inputs: Inputs, valid: Tensor) -> None:
        """Add a batch of probabilities; the labels are the second input."""
        labels = inputs[1]
        self._correct += ((predictions.argmax(1) == labels) & valid).sum()
        self._seen += valid.sum()

    def summary(self) -> Summary:
        """Return the number of correct samples and of all samples."""
        return {"right": float(self._correct), "seen": float(self._seen)}


def accuracy(summaries: Sequence[Summary]) -> float:
    """Return the top-1 accuracy over all ranks."""
    seen = sum(float(summary["seen"]) for summary in summaries)
    return sum(float(summary["right"]) for summary in summaries) / seen
