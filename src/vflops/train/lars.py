"""LARS: You, Gitman, Ginsburg, Large Batch Training of Convolutional Networks (2017)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from vflops.metrics.arguments import require_non_negative, require_positive
from vflops.train.layerwise import LayerwiseOptimizer, Tensors, norms, scaled


class LARS(LayerwiseOptimizer):
    """SGD with momentum whose step is proportional to the norm of each layer's weights.

    With the paper's λ the local rate, γ the learning rate, η the trust coefficient, m the momentum
    and β the weight decay (algorithm 1 of the paper):

        λ = η · ‖w‖ / (‖g‖ + β · ‖w‖)
        v = m · v + γ · λ · (g + β · w)
        w = w − v

    The velocity includes the learning rate: unlike in torch's SGD, changing the rate does not
    rescale earlier steps. λ is 1 if ‖w‖ or ‖g‖ is zero, and in groups with ``adapt`` false.
    """

    state_names = ("velocity",)

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float | Tensor,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
    ) -> None:
        require_non_negative("momentum", momentum)
        require_non_negative("weight_decay", weight_decay)
        require_positive("trust_coefficient", trust_coefficient)
        super().__init__(
            params,
            lr,
            {
                "momentum": momentum,
                "weight_decay": weight_decay,
                "trust_coefficient": trust_coefficient,
            },
        )

    def _update(
        self,
        group: dict[str, Any],
        parameters: list[Tensor],
        gradients: Tensors,
        state: dict[str, list[Tensor]],
    ) -> None:
        rates: Tensor | float = group["lr"]
        decay: float = group["weight_decay"]
        if group["adapt"]:
            rates = _local_rates(parameters, gradients, decay, group["trust_coefficient"]) * rates
        if decay:
            gradients = torch._foreach_add(gradients, parameters, alpha=decay)
        velocities = state["velocity"]
        torch._foreach_mul_(velocities, group["momentum"])
        torch._foreach_add_(velocities, scaled(gradients, rates))
        torch._foreach_sub_(parameters, velocities)


def _local_rates(weights: Tensors, gradients: Tensors, decay: float, trust: float) -> Tensor:
    weight_norms, gradient_norms = norms(weights, weights), norms(gradients, weights)
    ratios = trust * weight_norms / (gradient_norms + decay * weight_norms)
    return torch.where((weight_norms > 0) & (gradient_norms > 0), ratios, 1.0)
