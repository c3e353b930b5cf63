"""The products of linear layers in fp8, forward and backward, and of an MLP with GELU.

Activations and weights are e4m3, gradients e5m2 (Micikevicius et al. 2022). Every row has its own
scale, a power of two: floating-point numbers lose nothing by it, and a row that has been rounded
can be scaled again without a second rounding.

The gradient of the weights is a sum over the rows of the batch, from which the scales of rows
cannot be taken out. So the rows of the gradient are multiplied by both scales, relative to the
largest product of both, and transposed. e5m2 has 32 binary orders of magnitude for that.

Products along rows use the fast accumulation of the tensor cores, which adds an error of 10⁻⁴ to
one of 0.04 or more by rounding the operands. Sums over the batch are added up in full fp32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vflops.errors import unknown_name

_E4M3, _E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
_TRANSFORMS = ("none", "gelu", "gelu gradient")
_MIN_PEAK = 2.0**-40
"""Smallest maximum of a row, so that no scale and no product of two is 0."""


def fp8_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x · weightᵀ, with gradients."""
    result: Tensor = _Product.apply(x, weight)  # type: ignore[no-untyped-call]
    return result


def fp8_gelu_mlp(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Return GELU(x · upᵀ) · downᵀ, with gradients; GELU's output only exists in fp8."""
    result: Tensor = _GeluMlp.apply(x, up, down)  # type: ignore[no-untyped-call]
    return result


class _Product(torch.autograd.Function):
    """x (rows, inputs) times the transposed weight (outputs, inputs)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x8, x_scale = rounded_rows(x, _E4M3)
        ctx.save_for_backward(x8, x_scale, weight)
        return _outputs(x8, x_scale, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x8, x_scale, weight = ctx.saved_tensors
        gradient8, scale = rounded_rows(gradient, _E5M2)
        return (
            _input_gradient(gradient8, scale, weight),
            _weight_gradient(gradient8, scale, x8, x_scale, weight.dtype),
        )


class _GeluMlp(torch.autograd.Function):
    """Two linear layers without biases, and GELU between them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, up: Tensor, down: Tensor) -> Tensor:
        x8, x_scale = rounded_rows(x, _E4M3)
        before = _outputs(x8, x_scale, up)
        inner8, inner_scale = rounded_rows(before, _E4M3, "gelu")
        ctx.save_for_backward(x8, x_scale, before, inner8, inner_scale, up, down)
        return _outputs(inner8, inner_scale, down)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x8, x_scale, before, inner8, inner_scale, up, down = ctx.saved_tensors
        gradient8, scale = rounded_rows(gradient, _E5M2)
        down_gradient = _weight_gradient(gradient8, scale, inner8, inner_scale, down.dtype)
        inner_gradient = _input_gradient(gradient8, scale, down)
        gradient8, scale = rounded_rows(before, _E5M2, "gelu gradient", inner_gradient)
        return (
            _input_gradient(gradient8, scale, up),
            _weight_gradient(gradient8, scale, x8, x_scale, up.dtype),
            down_gradient,
        )


def _outputs(x8: Tensor, x_scale: Tensor, weight: Tensor) -> Tensor:
    weight8, scale = rounded_rows(weight, _E4M3)
    return _multiply(x8, weight8.t(), x_scale, scale.t(), weight.dtype, fast=True)


def _input_gradient(gradient8: Tensor, scale: Tensor, weight: Tensor) -> Tensor:
    turned8, turned_scale = rounded_rows(weight.t(), _E4M3)
    return _multiply(gradient8, turned8.t(), scale, turned_scale.t(), weight.dtype, fast=True)


def _weight_gradient(
    gradient8: Tensor, scale: Tensor, x8: Tensor, x_scale: Tensor, dtype: torch.dtype
) -> Tensor:
    scales = scale * x_scale
    largest = scales.amax()
    left = transposed(gradient8, (scales / largest).flatten())
    right = transposed(x8, None)
    return _multiply(left, right.t(), largest, torch.ones_like(largest), dtype, fast=False)


def _multiply(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, dtype: torch.dtype, *, fast: bool
) -> Tensor:
    return torch._scaled_mm(
        a, b, scale_a=a_scale, scale_b=b_scale, out_dtype=dtype, use_fast_accum=fast
    )


def rounded_rows(
    x: Tensor, dtype: torch.dtype, transform: str = "none", slope: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return f(x) in fp8, and the scale of each row (rows, 1), a power of two.

    f is the identity, ``gelu``, or ``gelu gradient``, the gradient of GELU at x times ``slope``.
    """
    if transform not in _TRANSFORMS:
        raise unknown_name("transform", transform, _TRANSFORMS)
    x = x.contiguous()
    result: tuple[Tensor, Tensor] = _rounded_rows(x, dtype, transform, slope)
    return result


@torch.library.custom_op("vflops::fp8_rows", mutates_args=())
def _rounded_rows(
    x: Tensor, dtype: torch.dtype, transform: str, slope: Tensor | None
) -> tuple[Tensor, Tensor]:
    if x.is_cuda:
        from vflops.models.kernels import fp8_kernels

        if x.shape[1] <= fp8_kernels.MAX_COLUMNS:
            return fp8_kernels.rounded_rows(x, dtype, _MIN_PEAK, transform, slope)  # type: ignore[arg-type]
    return _rounded(_transformed(x.float(), transform, slope), dtype)


@_rounded_rows.register_fake
def _(x: Tensor, dtype: torch.dtype, transform: str, slope: Tensor | None) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape, dtype=dtype), x.new_empty((len(x), 1), dtype=torch.float32)


def _transformed(x: Tensor, transform: str, slope: Tensor | None) -> Tensor:
    if transform == "gelu":
        return functional.gelu(x, approximate="tanh")
    if slope is not None:
        return torch.ops.aten.gelu_backward(slope.float(), x, approximate="tanh")  # type: ignore[no-any-return]
    return x


def _rounded(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    largest = torch.finfo(dtype).max
    peak = x.abs().amax(1, keepdim=True).clamp(min=_MIN_PEAK)
    scale = torch.exp2(torch.ceil(torch.log2(peak / largest)))
    return (x / scale).clamp(-largest, largest).to(dtype), scale


@torch.library.custom_op("vflops::fp8_transposed", mutates_args=())
def transposed(x: Tensor, factors: Tensor | None) -> Tensor:
    """Return a matrix in fp8 transposed, each row times its factor if there are any."""
    if x.is_cuda:
        from vflops.models.kernels.fp8_kernels import transposed_rows

        return transposed_rows(x, factors)
    if factors is not None:
        x = (x.float() * factors[:, None]).to(x.dtype)
    return x.t().contiguous()


@transposed.register_fake
def _(x: Tensor, factors: Tensor | None) -> Tensor:
    return x.new_empty(x.shape[1], x.shape[0])
