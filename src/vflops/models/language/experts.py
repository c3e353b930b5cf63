"""A mixture of experts with top-k routing and a static capacity: all shapes are fixed."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.models.language.token_losses import wide
from vflops.models.language.transformer_design import TransformerDesign

BALANCE = 0.01
"""The weight of the balancing loss (Shazeer et al. 2017; Fedus et al. 2021)."""


class Experts(nn.Module):
    """Sends each token to its best experts; those beyond an expert's capacity skip it."""

    def __init__(self, design: TransformerDesign) -> None:
        super().__init__()
        self.count, self.active = design.experts, design.experts_per_token
        self.capacity_factor = design.capacity
        self.gated = design.style == "llama"
        columns = design.mlp_width * (2 if self.gated else 1)
        self.router = nn.Linear(design.width, design.experts, bias=False)
        self.up = nn.Parameter(torch.empty(design.experts, design.width, columns))
        self.down = nn.Parameter(torch.empty(design.experts, design.mlp_width, design.width))
        self.balance: Tensor | None = None
        """The balancing loss of the last batch, 1 if all experts have equally many tokens."""

    def capacity(self, tokens: int) -> int:
        """Return the number of places of an expert for a batch of ``tokens``."""
        return max(math.ceil(tokens * self.active * self.capacity_factor / self.count), 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted sum of the experts' outputs, 0 for tokens without a place."""
        rows = x.flatten(0, -2)
        tokens, width = rows.shape
        shares = wide(self.router(rows)).softmax(-1)
        weights, chosen = shares.topk(self.active, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        capacity = self.capacity(tokens)
        # First choices of all tokens come before second choices, so that they get places first.
        experts = chosen.t().reshape(-1)
        is_chosen = functional.one_hot(experts, self.count)
        place = (is_chosen.cumsum(0) * is_chosen).sum(-1) - 1
        has_place = place < capacity
        # Tokens without a place share one last row that nobody reads.
        slot = torch.where(has_place, experts * capacity + place, self.count * capacity)
        token = torch.arange(tokens, device=x.device).repeat(self.active)
        places = rows.new_zeros(self.count * capacity + 1, width)
        places = places.index_copy(0, slot, rows[token])
        inputs = places[:-1].view(self.count, capacity, width)
        outputs = torch.bmm(self._activate(torch.bmm(inputs, self.up)), self.down).flatten(0, 1)
        outputs = torch.cat([outputs, outputs.new_zeros(1, width)])
        gains = (weights.t().reshape(-1) * has_place).to(outputs.dtype)
        mixed = (outputs[slot] * gains[:, None]).view(self.active, tokens, width).sum(0)
        if self.training:
            load = is_chosen[:tokens].float().mean(0)  # by first choices
            self.balance = self.count * (load * shares.mean(0)).sum()
        return mixed.view_as(x).to(x.dtype)

    def _activate(self, x: Tensor) -> Tensor:
        if not self.gated:
            return functional.gelu(x, approximate="tanh")
        gate, up = x.chunk(2, -1)
        return functional.silu(gate) * up
