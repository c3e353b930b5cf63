"""AdamW with parameters, gradients and moments in bf16: 8 bytes per parameter instead of 16.

A bf16 number has 8 bits: a step smaller than 1/256 of a weight would be rounded away. So all three
are rounded up or down at random, with probabilities such that the expected value is exact. The
random bits are a function of the step and the place of the number, so that a resumed training
rounds in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from vflops.train.layerwise import (
    LayerwiseOptimizer,
    Tensors,
    bias_correction,
    require_moments,
    wide_dtype,
)

_MASK = 0xFFFFFFFF


class RoundedAdamW(LayerwiseOptimizer):
    """AdamW (Loshchilov and Hutter 2019) whose numbers in bf16 are rounded stochastically."""

    state_names = ("first_moment", "second_moment")

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float | Tensor,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        require_moments(betas, epsilon, weight_decay)
        defaults = {"betas": betas, "epsilon": epsilon, "weight_decay": weight_decay}
        super().__init__(params, lr, defaults)
        numbered = enumerate(p for group in self.param_groups for p in group["params"])
        self._streams = {id(parameter): number for number, parameter in numbered}

    def _gradients(self, parameters: Any) -> Tensors:
        """Return the gradients as they are: copies in fp32 would take more memory than all else."""
        return [p.grad for p in parameters if p.grad is not None]

    def _update(
        self,
        group: dict[str, Any],
        parameters: list[Tensor],
        gradients: Tensors,
        state: dict[str, list[Tensor]],
    ) -> None:
        states = zip(state["first_moment"], state["second_moment"], state["step"], strict=True)
        for parameter, gradient, (first, second, step) in zip(
            parameters, gradients, states, strict=True
        ):
            stream = self._streams[id(parameter)]
            if parameter.is_cuda and parameter.dtype is torch.bfloat16:
                from vflops.models.kernels.rounded_adam_kernel import update

                update(
                    parameter,
                    gradient,
                    (first, second),
                    group["lr"],
                    step,
                    stream,
                    betas=group["betas"],
                    epsilon=group["epsilon"],
                    weight_decay=group["weight_decay"],
                )
            else:
                _update(group, parameter, gradient, first, second, step, stream)


def _update(
    group: dict[str, Any],
    parameter: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    step: Tensor,
    stream: int,
) -> None:
    wide = wide_dtype([parameter])
    beta1, beta2 = group["betas"]
    rate: Tensor | float = group["lr"]
    gradient, value = gradient.to(wide), parameter.to(wide)
    new_first = torch.lerp(first.to(wide), gradient, 1.0 - beta1)
    new_second = torch.lerp(second.to(wide), gradient.square(), 1.0 - beta2)
    steps = step.to(wide)
    deviation = (new_second * bias_correction(beta2, steps)).sqrt() + group["epsilon"]
    direction = new_first * bias_correction(beta1, steps) / deviation
    value = value * (1.0 - rate * group["weight_decay"]) - rate * direction
    noise = random_bits(parameter, step, stream)
    store_rounded(parameter, value, noise & 0xFFFF)
    store_rounded(first, new_first, noise >> 16)
    store_rounded(second, new_second, mixed(noise) & 0xFFFF)


def random_bits(like: Tensor, step: Tensor, stream: int) -> Tensor:
    """Return 32 random bits for each element of ``like``, as int64."""
    place = torch.arange(like.numel(), device=like.device).view(like.shape)
    return mixed(place ^ mixed((mixed(step.to(torch.int64)) + stream) & _MASK))


def mixed(x: Tensor) -> Tensor:
    """Return 32 bits that all depend on all bits of ``x`` (the finaliser of MurmurHash3)."""
    x = x ^ (x >> 16)
    x = (x * 0x85EBCA6B) & _MASK
    x = x ^ (x >> 13)
    x = (x * 0xC2B2AE35) & _MASK
    return x ^ (x >> 16)


def store_rounded(target: Tensor, value: Tensor, noise: Tensor) -> None:
    """Copy ``value`` to ``target``; if that is bf16, round up with the remainder's probability."""
    if target.dtype is not torch.bfloat16:
        target.copy_(value)
        return
    bits = value.float().view(torch.int32)
    # Infinities and NaN stay what they are.
    bits = torch.where(value.isfinite(), bits + noise.to(torch.int32), bits)
    target.copy_((bits & -65536).view(torch.float32))
