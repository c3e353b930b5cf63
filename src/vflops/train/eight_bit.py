"""8-bit matrix products in training: linear layers and 1×1 convolutions, forward and backward.

Operands are scaled and rounded to fp8 or int8 each time they are used; sums, weights and everything
else keep their precision. Layers whose sizes the hardware does not support are left unchanged.

- *fp8*: activations and weights e4m3, gradients e5m2 (Micikevicius et al. 2022); outputs use the
  tensor cores' fast accumulation, gradients do not.
- *int8*: integers from -127 to 127 and 32-bit sums.

Both use one scale per row of the left operand and per column of the right one: the maximum of a row
is known as soon as the row is computed, but the maximum of a tensor needs another pass over it.

A linear layer in fp8 computes all three of its products so (``fp8_product``). Otherwise the output
and the gradient of the input are 8-bit products; the gradient of the weights is not, because both
operands would have to be transposed in memory first.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from vflops.errors import UsageError
from vflops.models.language.transformer import Mlp
from vflops.train.fp8_product import fp8_gelu_mlp, fp8_product
from vflops.train.gelu_mlps import gelu_mlps

Kind = Literal["fp8", "int8"]

_MULTIPLE = 16
"""Tensor cores need 8-bit operands whose sizes are multiples of this."""
_MIN_MAXIMUM = torch.finfo(torch.float32).tiny
"""Smallest maximum of a row, so that no scale is 0."""


def convert(model: nn.Module, kind: Kind, dtype: torch.dtype | None = None) -> int:
    """Make the layers of ``model`` compute products of ``kind``, in place; return their number.

    ``dtype`` is the type of inputs and outputs; None for the type of the input.
    """
    layers = [layer for layer in model.modules() if _is_convertible(layer)]
    for layer in layers:
        # This keeps parameters, their names and all hooks: only forward changes.
        layer.__class__ = _Linear if isinstance(layer, nn.Linear) else _Pointwise
        converted = cast(_EightBitLayer, layer)
        converted.kind, converted.dtype = kind, dtype
    if kind == "fp8":
        for mlp in gelu_mlps(model, _EightBitLayer):
            mlp.__class__ = _GeluMlp
    return len(layers)


def converted_layers(model: nn.Module) -> int:
    """Return how many layers of ``model`` compute 8-bit products."""
    return sum(isinstance(layer, _EightBitLayer) for layer in model.modules())


def check_convertible(model: nn.Module, precision: str) -> None:
    """Raise if no layer of ``model`` could use the 8-bit ``precision``."""
    if not any(_is_convertible(layer) for layer in model.modules()):
        raise UsageError(
            f"precision {precision} would have no effect: this model has no linear layer or 1×1 "
            "convolution whose channels are multiples of 16",
            hint="use precision mixed-bf16, or a wider network",
        )


def _is_convertible(layer: nn.Module) -> bool:
    if type(layer) is nn.Linear:
        return layer.in_features % _MULTIPLE == 0 and layer.out_features % _MULTIPLE == 0
    return (
        type(layer) is nn.Conv2d
        and layer.kernel_size == (1, 1)
        and layer.groups == 1
        and layer.padding in ((0, 0), 0)
        and layer.in_channels % _MULTIPLE == 0
        and layer.out_channels % _MULTIPLE == 0
    )


class _EightBitLayer(nn.Module):
    """A layer that computes an 8-bit product."""

    kind: Kind
    dtype: torch.dtype | None

    def multiply(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Return ``rows`` times the transposed ``weight``."""
        dtype = self.dtype or rows.dtype
        if self.kind == "fp8" and isinstance(self, nn.Linear):
            return fp8_product(rows.to(dtype), weight.to(dtype))
        result: Tensor = _Product.apply(rows.to(dtype), weight.to(dtype), self.kind)  # type: ignore[no-untyped-call]
        return result


class _Linear(_EightBitLayer, nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        rows = input.flatten(0, -2)
        if len(rows) % _MULTIPLE:
            return super().forward(input)
        result: Tensor = self.multiply(rows, self.weight).unflatten(0, input.shape[:-1])
        return result if self.bias is None else result + self.bias.to(result.dtype)


class _GeluMlp(Mlp):
    """An MLP whose two layers compute in fp8; GELU and the rounding after it are one kernel."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        if len(rows) % _MULTIPLE:
            return super().forward(x)
        dtype = cast(_EightBitLayer, self.up).dtype or x.dtype
        weights = self.up.weight.to(dtype), self.down.weight.to(dtype)
        result: Tensor = fp8_gelu_mlp(rows.to(dtype), *weights).unflatten(0, x.shape[:-1])
        return result


class _Pointwise(_EightBitLayer, nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        down, right = self.stride
        x = input[:, :, ::down, ::right].permute(0, 2, 3, 1)  # a view in channels-last layout
        rows = x.flatten(0, 2)
        if len(rows) % _MULTIPLE:
            return super().forward(input)
        result: Tensor = self.multiply(rows, self.weight.flatten(1)).unflatten(0, x.shape[:3])
        result = result.permute(0, 3, 1, 2)
        return result if self.bias is None else result + self.bias.to(result.dtype).view(-1, 1, 1)


class _Product(torch.autograd.Function):
    """The product x · weightᵀ."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, kind: Kind) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.kind = kind
        return _int8(x, weight.t()) if kind == "int8" else _fp8(x, weight.t(), torch.float8_e4m3fn)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        if ctx.kind == "int8":
            input_gradient = _int8(gradient, weight)
        else:
            input_gradient = _fp8(gradient, weight, torch.float8_e5m2)
        return input_gradient, gradient.t() @ x, None


def _fp8(a: Tensor, b: Tensor, left: torch.dtype) -> Tensor:
    """Return a · b with ``a`` rounded to ``left`` and ``b`` to e4m3."""
    a8, a_scale = _to_fp8(a, left, 1)
    b8, b_scale = _to_fp8(b, torch.float8_e4m3fn, 0)
    return torch._scaled_mm(
        a8.contiguous(),
        _column_major(b8),
        scale_a=a_scale,
        scale_b=b_scale,
        out_dtype=a.dtype,
        use_fast_accum=left == torch.float8_e4m3fn,
    )


def _to_fp8(x: Tensor, dtype: torch.dtype, axis: int) -> tuple[Tensor, Tensor]:
    """Return ``x`` in fp8, and its scales along ``axis``."""
    largest = torch.finfo(dtype).max
    scale = x.abs().amax(axis, keepdim=True).float().clamp(min=_MIN_MAXIMUM) / largest
    return (x.float() / scale).clamp(-largest, largest).to(dtype), scale


def _int8(a: Tensor, b: Tensor) -> Tensor:
    """Return a · b with each row of ``a`` and each column of ``b`` rounded to int8."""
    a8, a_scale = _to_int8(a, 1)
    b8, b_scale = _to_int8(b, 0)
    result = torch._int_mm(a8.contiguous(), _column_major(b8))
    return (result.float() * a_scale * b_scale).to(a.dtype)


def _to_int8(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(axis, keepdim=True).float().clamp(min=_MIN_MAXIMUM) / 127
    return (x.float() / scale).round().to(torch.int8), scale


def _column_major(x: Tensor) -> Tensor:
    """Return ``x`` in the layout that tensor cores need for the right operand."""
    return x.t().contiguous().t()
