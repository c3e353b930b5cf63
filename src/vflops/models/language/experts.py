"""A mixture of experts with top-k routing and a static capacity: all shapes are fixed."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.models.language.activations import activated
from vflops.models.language.token_losses import wide
from vflops.models.language.transformer_design import TransformerDesign

BALANCE = 0.01
"""The weight of the balancing loss (Shazeer et al. 2017; Fedus et al. 2021)."""


class ExpertLinear(nn.Module):
    """A linear layer without bias for each expert; all experts have the same number of rows."""

    input_dimension, output_dimension = 1, 2
    """The dimensions of the weights that ranks divide if they share the columns."""

    def __init__(self, experts: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, inputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (experts, rows, outputs)."""
        return torch.bmm(x, self.weight)


class Experts(nn.Module):
    """Sends each token to its best experts; those beyond an expert's capacity skip it."""

    traced_whole = True  # shapes depend on the number of tokens
    channel_pairs = (("up", "gate", "down"),)

    def __init__(self, design: TransformerDesign) -> None:
        super().__init__()
        self.design = design
        self.count, self.active = design.experts, design.experts_per_token
        self.router = nn.Linear(design.width, design.experts, bias=False)
        self.up = ExpertLinear(design.experts, design.width, design.mlp_width)
        self.gate = (
            ExpertLinear(design.experts, design.width, design.mlp_width)
            if design.is_gated
            else None
        )
        self.down = ExpertLinear(design.experts, design.mlp_width, design.width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weighted sum of the experts' outputs, and the balancing loss.

        The sum is 0 for tokens without a place. The loss is 1 if all experts have equally many
        tokens.
        """
        rows = x.flatten(0, -2)
        tokens, width = rows.shape
        shares = wide(self.router(rows)).softmax(-1)
        weights, chosen = shares.topk(self.active, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        capacity = self.design.expert_places(tokens)
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
        gate = None if self.gate is None else self.gate(inputs)
        outputs = self.down(activated(self.up(inputs), gate)).flatten(0, 1)
        outputs = torch.cat([outputs, outputs.new_zeros(1, width)])
        gains = (weights.t().reshape(-1) * has_place).to(outputs.dtype)
        mixed = (outputs[slot] * gains[:, None]).view(self.active, tokens, width).sum(0)
        load = is_chosen[:tokens].to(shares.dtype).mean(0)  # by first choices
        balance = self.count * (load * shares.mean(0)).sum()
        return mixed.view_as(x).to(x.dtype), balance
