"""Next-token probability exp(−loss), accumulated on the device.

It is the geometric mean of the probabilities of the true tokens, 1 / perplexity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from vflops.workloads.contract.workload import Inputs, Meter, Summary

_LEAST_PROBABILITY = torch.finfo(torch.float32).tiny
"""Smaller probabilities count as this one, so that the loss of a token is at most 87.3."""


class TokenMeter(Meter):
    """Sums up the losses of tokens, and counts them."""

    def __init__(self, device: torch.device) -> None:
        self._seen = torch.zeros((), dtype=torch.int64, device=device)
        self._losses: list[Tensor] = []
        """The sum of each batch, still on the device."""

    def update(self, predictions: Tensor, inputs: Inputs, valid: Tensor) -> None:
        """Add a batch of probabilities of true tokens (samples, tokens, 1)."""
        losses = -predictions.clamp_min(_LEAST_PROBABILITY).double().log()
        self._losses.append(torch.where(valid[:, None, None], losses, 0.0).sum())
        self._seen += valid.sum() * predictions[0].numel()

    def summary(self) -> Summary:
        """Return the number of tokens and the sum of their losses."""
        losses = torch.stack(self._losses).cpu() if self._losses else torch.zeros(1)
        return {"seen": float(self._seen), "loss": float(losses.sum())}


def token_loss(summaries: Sequence[Summary]) -> float:
    """Return the mean loss of a token over all ranks, in nats."""
    seen = sum(float(summary["seen"]) for summary in summaries)
    return sum(float(summary["loss"]) for summary in summaries) / seen


def next_token_probability(summaries: Sequence[Summary]) -> float:
    """Return exp(−loss), the geometric mean of the probabilities of the true tokens."""
    return math.exp(-token_loss(summaries))
