"""A step of AdamW on numbers in bf16 as one Triton kernel, rounded stochastically.

It moves 14 bytes per parameter: the parameter, its gradient and two moments are read, and all but
the gradient are written.
"""

# Triton code is not typed Python, and its constants are in capitals.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator"
# mypy: disable-error-code="no-untyped-call,no-any-return"
# ruff: noqa: N803

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from vflops.models.kernels.launching import launch

_BLOCK = 1024


def update(
    parameter: Tensor,
    gradient: Tensor,
    moments: tuple[Tensor, Tensor],
    rate: Tensor,
    step: Tensor,
    stream: int,
    *,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float,
) -> None:
    """Update a parameter and its moments in place; ``stream`` names its random numbers."""
    launch(
        rounded_adam_kernel,
        (triton.cdiv(parameter.numel(), _BLOCK),),
        parameter,
        gradient,
        *moments,
        rate,
        step,
        stream,
        parameter.numel(),
        betas[0],
        betas[1],
        math.log(betas[0]),
        math.log(betas[1]),
        epsilon,
        weight_decay,
        BLOCK=_BLOCK,
        num_warps=4,
    )


@triton.jit
def rounded_adam_kernel(
    parameters,
    gradients,
    firsts,
    seconds,
    rates,
    steps,
    stream,
    size,
    beta1,
    beta2,
    log_beta1,
    log_beta2,
    epsilon,
    weight_decay,
    BLOCK: tl.constexpr,
):
    """Update a block of parameters and their moments."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    step = tl.load(steps)
    rate = tl.load(rates).to(tl.float32)
    gradient = tl.load(gradients + place, inside, other=0.0).to(tl.float32)
    first = tl.load(firsts + place, inside, other=0.0).to(tl.float32)
    second = tl.load(seconds + place, inside, other=0.0).to(tl.float32)
    value = tl.load(parameters + place, inside, other=0.0).to(tl.float32)
    first += (1.0 - beta1) * (gradient - first)
    second += (1.0 - beta2) * (gradient * gradient - second)
    correction1 = 1.0 - tl.exp(step * log_beta1)
    correction2 = 1.0 - tl.exp(step * log_beta2)
    direction = first / correction1 / (tl.sqrt(second / correction2) + epsilon)
    value = value * (1.0 - rate * weight_decay) - rate * direction
    noise = mixed(place.to(tl.uint32) ^ mixed(mixed(step.to(tl.uint32)) + stream))
    more = mixed(noise)
    tl.store(parameters + place, rounded(value, noise & 0xFFFF), inside)
    tl.store(firsts + place, rounded(first, noise >> 16), inside)
    tl.store(seconds + place, rounded(second, more & 0xFFFF), inside)


@triton.jit
def mixed(x):
    """Return 32 bits that all depend on all bits of ``x`` (the finaliser of MurmurHash3)."""
    x ^= x >> 16
    x *= 0x85EBCA6B
    x ^= x >> 13
    x *= 0xC2B2AE35
    x ^= x >> 16
    return x


@triton.jit
def rounded(x, noise):
    """Return fp32 as bf16, up with a probability equal to the remainder."""
    bits = x.to(tl.uint32, bitcast=True)
    is_finite = (bits & 0x7F800000) != 0x7F800000
    bits = tl.where(is_finite, bits + noise, bits)
    return (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)
