"""The product of a linear layer with all three of its matrix products in fp8.

Activations and weights are e4m3, gradients e5m2 (Micikevicius et al. 2022). Every row has its own
scale, a power of two: floating-point numbers lose nothing by it, and a row that has been rounded
can be scaled again without a second rounding.

The gradient of the weights is a sum over the rows of the batch, from which the scales of rows
cannot be taken out. So the rows of the gradient are multiplied by both scales, relative to the
largest product of both, and transposed. e5m2 has 32 binary orders of magnitude for that.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_E4M3, _E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
_MIN_PEAK = 2.0**-40
"""Smallest maximum of a row, so that no scale and no product of two is 0."""


def fp8_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x · weightᵀ, with gradients."""
    result: Tensor = _Fp8Product.apply(x, weight)  # type: ignore[no-untyped-call]
    return result


class _Fp8Product(torch.autograd.Function):
    """x (rows, inputs) times the transposed weight (outputs, inputs)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x8, x_scale = rounded_rows(x, _E4M3)
        weight8, weight_scale = rounded_rows(weight, _E4M3)
        ctx.save_for_backward(x8, x_scale, weight)
        return _product(x8, weight8.t(), x_scale, weight_scale.t(), x.dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x8, x_scale, weight = ctx.saved_tensors
        gradient8, gradient_scale = rounded_rows(gradient, _E5M2)
        turned8, turned_scale = rounded_rows(weight.t(), _E4M3)
        dtype = gradient.dtype
        x_gradient = _product(
            gradient8, turned8.t(), gradient_scale, turned_scale.t(), dtype, fast=True
        )
        scales = gradient_scale * x_scale
        largest = scales.amax()
        left = transposed(gradient8, (scales / largest).flatten())
        right = transposed(x8, None)
        # Sums over the batch are long: they are added up in full fp32.
        one = torch.ones_like(largest)
        return x_gradient, _product(left, right.t(), largest, one, dtype, fast=False)


def rounded_rows(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return ``x`` in fp8, and the scale of each row (rows, 1), a power of two."""
    largest = torch.finfo(dtype).max
    peak = x.abs().amax(1, keepdim=True).float().clamp(min=_MIN_PEAK)
    scale = torch.exp2(torch.ceil(torch.log2(peak / largest)))
    return (x.float() / scale).clamp(-largest, largest).to(dtype).contiguous(), scale


def _product(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, dtype: torch.dtype, *, fast: bool
) -> Tensor:
    """Return a · b; ``fast`` adds up with fewer bits, as the tensor cores do it by themselves."""
    return torch._scaled_mm(
        a, b, scale_a=a_scale, scale_b=b_scale, out_dtype=dtype, use_fast_accum=fast
    )


@torch.library.custom_op("vflops::fp8_transposed", mutates_args=())
def transposed(x: Tensor, factors: Tensor | None) -> Tensor:
    """Return a matrix in fp8 transposed, each row times its factor if there are any."""
    if x.is_cuda:
        from vflops.models.kernels.fp8_transpose_kernel import transposed_rows

        return transposed_rows(x, factors)
    if factors is not None:
        x = (x.float() * factors[:, None]).to(x.dtype)
    return x.t().contiguous()


@transposed.register_fake
def _(x: Tensor, factors: Tensor | None) -> Tensor:
    return x.new_empty(x.shape[1], x.shape[0])
