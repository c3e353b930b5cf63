"""Muon: Jordan et al., Muon: an optimizer for hidden layers in neural networks (2024)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from vflops.metrics.arguments import require_between
from vflops.train.layerwise import (
    LayerwiseOptimizer,
    Tensors,
    adaptive_steps,
    require_moments,
    scaled,
)

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic polynomial that takes singular values between 0 and 1 close to 1."""
_ITERATIONS = 5
_MATCHED_RMS = 0.2
"""The root mean square of a step, that of AdamW (Liu et al. 2025), so that both can have the same
learning rate."""


class Muon(LayerwiseOptimizer):
    """Orthogonal steps for the matrices of hidden layers, and AdamW for all other parameters.

    For groups with ``orthogonal``, with γ the learning rate, λ the weight decay and NS the
    iteration of Newton and Schulz, for a matrix of r rows and c columns:

        m = μ · m + g
        w = (1 − γ · λ) · w − γ · 0.2 · √max(r, c) · NS(g + μ · m)

    For the others, with t the number of the step:

        m = β₁ · m + (1 − β₁) · g          m̂ = m / (1 − β₁ᵗ)
        v = β₂ · v + (1 − β₂) · g²         v̂ = v / (1 − β₂ᵗ)
        w = (1 − γ · λ) · w − γ · m̂ / (√v̂ + ε)
    """

    state_names = ("first_moment", "second_moment")

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float | Tensor,
        *,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.95),
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        require_between("momentum", momentum, 0.0, 1.0)
        require_moments(betas, epsilon, weight_decay)
        defaults = {
            "momentum": momentum,
            "betas": betas,
            "epsilon": epsilon,
            "weight_decay": weight_decay,
            "orthogonal": False,
        }
        super().__init__(params, lr, defaults)

    def state_names_of(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Return the names of the state tensors: an orthogonal step needs no second moment."""
        return self.state_names[:1] if group["orthogonal"] else self.state_names

    def _update(
        self,
        group: dict[str, Any],
        parameters: list[Tensor],
        gradients: Tensors,
        state: dict[str, list[Tensor]],
    ) -> None:
        updates: Tensors
        if group["orthogonal"]:
            updates = _orthogonal(parameters, gradients, state["first_moment"], group["momentum"])
        else:
            updates = adaptive_steps(group, parameters, gradients, state)
        rate: Tensor | float = group["lr"]
        if group["weight_decay"]:
            factor = 1.0 - rate * group["weight_decay"]
            torch._foreach_mul_(parameters, factor)
        torch._foreach_sub_(parameters, scaled(updates, rate))


def _orthogonal(
    parameters: list[Tensor], gradients: Tensors, momenta: list[Tensor], momentum: float
) -> list[Tensor]:
    """Return the steps; ranks that divide a matrix gather it, and each computes all of its step."""
    torch._foreach_mul_(momenta, momentum)
    torch._foreach_add_(momenta, gradients)
    divided = [getattr(parameter, "divided", None) for parameter in parameters]
    ahead = [
        direction if part is None else part.whole(direction)
        for part, direction in zip(
            divided, torch._foreach_add(gradients, momenta, alpha=momentum), strict=True
        )
    ]
    updates: list[Tensor | None] = [None] * len(ahead)
    shapes: dict[torch.Size, list[int]] = {}
    for index, direction in enumerate(ahead):
        shapes.setdefault(direction.shape, []).append(index)
    for shape, indices in shapes.items():
        # Matrices of one shape are multiplied together.
        stacked = torch.stack([ahead[index] for index in indices]).flatten(0, -3)
        scale = _MATCHED_RMS * max(shape[-2:]) ** 0.5
        parts = (orthogonalised(stacked) * scale).view(len(indices), *shape).unbind()
        for index, part in zip(indices, parts, strict=True):
            updates[index] = part
    return [
        update if part is None else part.own(update)
        for part, update in zip(divided, updates, strict=True)
        if update is not None
    ]


def orthogonalised(matrices: Tensor) -> Tensor:
    """Return matrices (count, rows, columns) with all singular values near 1.

    Products are computed in bf16 on accelerators: the iteration tolerates their rounding.
    """
    narrow = matrices.dtype is torch.float32 and matrices.device.type != "cpu"
    x = matrices.to(torch.bfloat16) if narrow else matrices
    is_tall = x.shape[-2] > x.shape[-1]
    if is_tall:
        x = x.mT
    # At least the largest singular value, so that none is above 1.
    x = x / (x.float() if narrow else x).norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7).to(
        x.dtype
    )
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        square = x @ x.mT
        x = a * x + (b * square + c * (square @ square)) @ x
    result: Tensor = (x.mT if is_tall else x).to(matrices.dtype)
    return result
