"""LAMB: You et al., Large Batch Optimization for Deep Learning (2019; ICLR 2020)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from vflops.train.layerwise import (
    LayerwiseOptimizer,
    Tensors,
    adaptive_steps,
    norms,
    require_moments,
    safe_ratios,
    scaled,
)


class LAMB(LayerwiseOptimizer):
    """Adam whose step is proportional to the norm of each layer's weights.

    With γ the learning rate, λ the weight decay and t the number of the step (algorithm 2 of the
    paper with φ the identity, so that no norm is clamped):

        m = β₁ · m + (1 − β₁) · g          m̂ = m / (1 − β₁ᵗ)
        v = β₂ · v + (1 − β₂) · g²         v̂ = v / (1 − β₂ᵗ)
        u = m̂ / (√v̂ + ε) + λ · w
        w = w − γ · ‖w‖ / ‖u‖ · u

    The ratio of norms is 1 if one of them is zero, and in groups with ``adapt`` false.
    """

    state_names = ("first_moment", "second_moment")

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float | Tensor,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        require_moments(betas, epsilon, weight_decay)
        super().__init__(
            params, lr, {"betas": betas, "epsilon": epsilon, "weight_decay": weight_decay}
        )

    def _update(
        self,
        group: dict[str, Any],
        parameters: list[Tensor],
        gradients: Tensors,
        state: dict[str, list[Tensor]],
    ) -> None:
        updates = adaptive_steps(group, parameters, gradients, state)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        rates: Tensor | float = group["lr"]
        if group["adapt"]:
            rates = safe_ratios(norms(parameters, parameters), norms(updates, parameters)) * rates
        torch._foreach_sub_(parameters, scaled(updates, rates))
