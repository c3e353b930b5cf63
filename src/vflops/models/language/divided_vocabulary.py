"""Embedding and losses if ranks divide the vocabulary: each has some rows of the weights."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from vflops.models.language.token_losses import wide


class RowRanks(Protocol):
    """The ranks that divide the rows of a weight; all of them compute the same."""

    first: int
    """The number of this rank's first row."""

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum over the ranks; its gradient is that of each summand."""

    def sum_gradient(self, x: Tensor) -> Tensor:
        """Return ``x``, whose gradient is summed over the ranks."""

    def maximum(self, x: Tensor) -> Tensor:
        """Return the largest values of the ranks, without gradient."""


def divided_lookup(tokens: Tensor, weight: Tensor, ranks: RowRanks) -> Tensor:
    """Return the rows of the tokens, of which ``weight`` has some."""
    row, is_own = _own_rows(tokens, weight, ranks)
    rows = functional.embedding(row, weight)
    return ranks.sum(torch.where(is_own[..., None], rows, torch.zeros_like(rows)))


def divided_losses(hidden: Tensor, weight: Tensor, targets: Tensor, ranks: RowRanks) -> Tensor:
    """Return −ln p(target) of each token at least in fp32, from hidden states (tokens, width).

    Ranks exchange three numbers of each token: the largest of its logits, the sum of their
    exponentials, and the logit of its target (Shoeybi et al. 2019).
    """
    logits = wide(functional.linear(ranks.sum_gradient(hidden), weight))
    largest = ranks.maximum(logits.detach().amax(-1))
    total = (logits - largest[:, None]).exp().sum(-1)
    row, is_own = _own_rows(targets, weight, ranks)
    chosen = logits.gather(-1, row[:, None])[:, 0]
    at_target = torch.where(is_own, chosen, torch.zeros_like(chosen))
    total, at_target = ranks.sum(torch.stack([total, at_target])).unbind()
    return total.log() + largest - at_target


def _own_rows(tokens: Tensor, weight: Tensor, ranks: RowRanks) -> tuple[Tensor, Tensor]:
    """Return the row of each token in ``weight``, 0 for those of other ranks, and which are own."""
    row = tokens - ranks.first
    is_own = (row >= 0) & (row < len(weight))
    return torch.where(is_own, row, torch.zeros_like(row)), is_own
