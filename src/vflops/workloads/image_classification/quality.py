"""Top-1 accuracy and cross entropy, accumulated on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflops.workloads.contract.workload import Inputs, Meter, Summary

_LEAST_PROBABILITY = torch.finfo(torch.float32).tiny
"""Smaller probabilities count as this one, so that the loss of a sample is at most 87.3."""


class Top1Meter(Meter):
    """Counts correct predictions and sums up the cross entropy; in a tie the first class wins."""

    def __init__(self, device: torch.device) -> None:
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._seen = torch.zeros((), dtype=torch.int64, device=device)
        self._losses: list[Tensor] = []
        """The sum of each batch, still on the device."""

    def update(self, predictions: Tensor, inputs: Inputs, valid: Tensor) -> None:
        """Add a batch of probabilities; the labels are the second input."""
        labels = inputs[1]
        self._correct += ((predictions.argmax(1) == labels) & valid).sum()
        self._seen += valid.sum()
        probabilities = predictions.gather(1, labels[:, None])[:, 0].clamp_min(_LEAST_PROBABILITY)
        self._losses.append(-torch.where(valid, probabilities.log(), 0.0).sum())

    def summary(self) -> Summary:
        """Return the number of correct samples and of all samples, and the sum of their losses."""
        losses = torch.stack(self._losses).cpu().double() if self._losses else torch.zeros(1)
        return {
            "right": float(self._correct),
            "seen": float(self._seen),
            "loss": float(losses.sum()),
        }


def accuracy(summaries: Sequence[Summary]) -> float:
    """Return the top-1 accuracy over all ranks."""
    return _mean("right", summaries)


def cross_entropy(summaries: Sequence[Summary]) -> float:
    """Return the mean cross entropy over all ranks, without label smoothing."""
    return _mean("loss", summaries)


def _mean(name: str, summaries: Sequence[Summary]) -> float:
    seen = sum(float(summary["seen"]) for summary in summaries)
    return sum(float(summary[name]) for summary in summaries) / seen
