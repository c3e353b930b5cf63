"""Matrix products of 8 bits in training: linear layers and 1×1 convolutions, forward and backward.

Operands are rounded to fp8 or int8 with a scale each time they are used; sums, weights and all else
keep their precision. A layer stays as it is where its sizes are not what the hardware takes.

- *fp8*: activations and weights e4m3, gradients e5m2 (Micikevicius et al. 2022); the sums of
  outputs are as short as tensor cores like them, those of gradients are not.
- *int8*: 255 steps, sums of 32 bits.

Both have a scale a row of the left operand and a column of the right: a row's largest number is
found where the row is made, a tensor's only after another pass over it.

Output and input gradient are of 8 bits. The weights' gradient is not: it sums over the batch, where
rounding adds up, and both its operands would have to be turned round in memory first.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from vflops.errors import UsageError

Kind = Literal["fp8", "int8"]

_MULTIPLE = 16
"""Of channels in and out: what tensor cores take of 8 bits."""
_LEAST = torch.finfo(torch.float32).tiny


def convert(model: nn.Module, kind: Kind, dtype: torch.dtype | None = None) -> int:
    """Give ``model``'s layers products of ``kind``, in place; how many layers took them.

    ``dtype`` is what goes in and comes out, where that is not the input's own.
    """
    found = [layer for layer in model.modules() if _fits(layer)]
    for layer in found:
        # The parameters, their names and all hooks stay: only what forward does is another.
        layer.__class__ = _Linear if isinstance(layer, nn.Linear) else _Pointwise
        own = cast(_Eight, layer)
        own.kind, own.dtype = kind, dtype
    return len(found)


def converted(model: nn.Module) -> int:
    """How many layers of ``model`` have products of 8 bits."""
    return sum(isinstance(layer, _Eight) for layer in model.modules())


def check_products(model: nn.Module, precision: str) -> None:
    """Refuse a precision of 8 bits that no layer of ``model`` would have."""
    if not any(_fits(layer) for layer in model.modules()):
        raise UsageError(
            f"precision {precision}: this model has no linear layer or 1×1 convolution whose "
            "channels are multiples of 16, so nothing of it would be computed so",
            hint="take precision mixed-bf16, or a wider network",
        )


def _fits(layer: nn.Module) -> bool:
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


class _Eight(nn.Module):
    """A layer whose product is of 8 bits."""

    kind: Kind
    dtype: torch.dtype | None

    def multiply(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Rows times the transposed weights."""
        dtype = self.dtype or rows.dtype
        result: Tensor = _Product.apply(rows.to(dtype), weight.to(dtype), self.kind)  # type: ignore[no-untyped-call]
        return result


class _Linear(_Eight, nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        rows = input.flatten(0, -2)
        if len(rows) % _MULTIPLE:
            return super().forward(input)
        result: Tensor = self.multiply(rows, self.weight).unflatten(0, input.shape[:-1])
        return result if self.bias is None else result + self.bias.to(result.dtype)


class _Pointwise(_Eight, nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        down, right = self.stride
        x = input[:, :, ::down, ::right].permute(0, 2, 3, 1)  # a view if channels are last
        rows = x.flatten(0, 2)
        if len(rows) % _MULTIPLE:
            return super().forward(input)
        result: Tensor = self.multiply(rows, self.weight.flatten(1)).unflatten(0, x.shape[:3])
        result = result.permute(0, 3, 1, 2)
        return result if self.bias is None else result + self.bias.to(result.dtype).view(-1, 1, 1)


class _Product(torch.autograd.Function):
    """x · weightᵀ."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, kind: Kind) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.kind = kind
        return _int8(x, weight.t()) if kind == "int8" else _fp8(x, weight.t(), torch.float8_e4m3fn)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        if ctx.kind == "int8":
            of_x = _int8(gradient, weight)
        else:
            of_x = _fp8(gradient, weight, torch.float8_e5m2)
        return of_x, gradient.t() @ x, None


def _fp8(a: Tensor, b: Tensor, left: torch.dtype) -> Tensor:
    """a · b with ``a`` rounded to ``left`` and ``b`` to e4m3."""
    a8, a_scale = _to_fp8(a, left, 1)
    b8, b_scale = _to_fp8(b, torch.float8_e4m3fn, 0)
    return torch._scaled_mm(
        a8.contiguous(),
        _by_columns(b8),
        scale_a=a_scale,
        scale_b=b_scale,
        out_dtype=a.dtype,
        use_fast_accum=left == torch.float8_e4m3fn,
    )


def _to_fp8(x: Tensor, dtype: torch.dtype, axis: int) -> tuple[Tensor, Tensor]:
    """``x`` in fp8, and what its numbers are multiples of."""
    most = torch.finfo(dtype).max
    scale = x.abs().amax(axis, keepdim=True).float().clamp(min=_LEAST) / most
    return (x.float() / scale).clamp(-most, most).to(dtype), scale


def _int8(a: Tensor, b: Tensor) -> Tensor:
    """a · b with each row of ``a`` and each column of ``b`` rounded to 255 steps."""
    a8, a_scale = _to_int8(a, 1)
    b8, b_scale = _to_int8(b, 0)
    result = torch._int_mm(a8.contiguous(), _by_columns(b8))
    return (result.float() * a_scale * b_scale).to(a.dtype)


def _to_int8(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(axis, keepdim=True).float().clamp(min=_LEAST) / 127
    return (x.float() / scale).round().to(torch.int8), scale


def _by_columns(x: Tensor) -> Tensor:
    """The layout that tensor cores take of a right operand."""
    return x.t().contiguous().t()
