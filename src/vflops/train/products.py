"""Matrix products of 8 bits in training: linear layers and 1×1 convolutions, forward and backward.

Operands are rounded to fp8 or int8 with a scale each time they are used; sums, weights and all else
keep their precision. A layer stays as it is where its sizes are not what the hardware takes.

- *fp8*: activations and weights e4m3, gradients e5m2 (Micikevicius et al. 2022), one scale a
  tensor; all three products of a layer.
- *int8*: a scale a row of the left operand and a column of the right; output and input gradient.
  The weights' gradient sums over the batch, where rounding would add up: it is not rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

Kind = Literal["fp8", "int8"]

_MULTIPLE = 16
"""Of channels in and out: what tensor cores take of 8 bits."""
_LEAST = torch.finfo(torch.float32).tiny


def convert(model: nn.Module, kind: Kind) -> int:
    """Give ``model``'s layers products of ``kind``, in place; how many layers took them."""
    found = [layer for layer in model.modules() if _fits(layer)]
    for layer in found:
        # The parameters, their names and all hooks stay: only what forward does is another.
        layer.__class__ = _Linear if isinstance(layer, nn.Linear) else _Pointwise
        cast(_Eight, layer).multiply = _MULTIPLY[kind]
    return len(found)


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


class _Eight:
    """A layer whose product is of 8 bits."""

    multiply: Callable[[Tensor, Tensor], Tensor]
    """Rows times the transposed weights."""


class _Linear(_Eight, nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        rows = _cast(input).flatten(0, -2)
        if len(rows) % _MULTIPLE:
            return super().forward(input)
        result = self.multiply(rows, _cast(self.weight)).unflatten(0, input.shape[:-1])
        if self.bias is not None:
            result = result + self.bias.to(result.dtype)
        return cast(Tensor, result)


class _Pointwise(_Eight, nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        down, right = self.stride
        x = _cast(input[:, :, ::down, ::right]).permute(0, 2, 3, 1)  # a view if channels are last
        rows = x.flatten(0, 2)
        if len(rows) % _MULTIPLE:
            return super().forward(input)
        result = self.multiply(rows, _cast(self.weight).flatten(1)).unflatten(0, x.shape[:3])
        result = result.permute(0, 3, 1, 2)
        if self.bias is not None:
            result = result + self.bias.to(result.dtype).view(-1, 1, 1)
        return cast(Tensor, result)


def _cast(x: Tensor) -> Tensor:
    """As autocast would give it to the product; it does not know these."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


class _Fp8(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x8, x_scale = _to_fp8(x, torch.float8_e4m3fn)
        w8, w_scale = _to_fp8(weight, torch.float8_e4m3fn)
        ctx.save_for_backward(x8, x_scale, w8, w_scale)
        return _scaled(x8, w8.t(), x_scale, w_scale, x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x8, x_scale, w8, w_scale = ctx.saved_tensors
        g8, g_scale = _to_fp8(gradient.contiguous(), torch.float8_e5m2)
        of_x = _scaled(g8, _by_columns(w8), g_scale, w_scale, gradient.dtype)
        of_weight = _scaled(g8.t().contiguous(), _by_columns(x8), g_scale, x_scale, gradient.dtype)
        return of_x, of_weight


def _to_fp8(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``x`` in fp8 by rows, and what each number is worth."""
    most = torch.finfo(dtype).max
    scale = x.abs().amax().float().clamp(min=_LEAST) / most
    # A product with a float keeps x's type, so the largest may round to above the most there is.
    return (x.float() / scale).clamp(-most, most).to(dtype).contiguous(), scale


def _scaled(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, dtype: torch.dtype) -> Tensor:
    """a · b; ``a`` by rows, ``b`` by columns."""
    return torch._scaled_mm(a, b, scale_a=a_scale, scale_b=b_scale, out_dtype=dtype)


def _by_columns(x: Tensor) -> Tensor:
    return x.t().contiguous().t()


class _Int8(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _int8_product(x, weight.t())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return _int8_product(gradient, weight), gradient.t() @ x


def _int8_product(a: Tensor, b: Tensor) -> Tensor:
    """a · b with each row of ``a`` and each column of ``b`` rounded to 255 steps."""
    a8, a_scale = _to_int8(a, 1)
    b8, b_scale = _to_int8(b, 0)
    # By rows and by columns: the layout that tensor cores take.
    result = torch._int_mm(a8.contiguous(), _by_columns(b8))
    return (result.float() * a_scale * b_scale).to(a.dtype)


def _to_int8(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(axis, keepdim=True).float().clamp(min=_LEAST) / 127
    return (x.float() / scale).round().to(torch.int8), scale


_MULTIPLY: dict[Kind, Callable[[Tensor, Tensor], Tensor]] = {
    "fp8": _Fp8.apply,
    "int8": _Int8.apply,
}
