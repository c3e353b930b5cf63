"""Linear layers in bf16 on NVIDIA GPUs, with the fastest algorithms for their products.

The outputs and the gradients of inputs are tuned products (``product_operators``); gradients of
weights are not, because torch's choice is as fast there.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from vflops.models.kernels.product_operators import (
    multiply,
    multiply_gelu,
    multiply_gelu_gradient,
)
from vflops.models.language.transformer import Mlp
from vflops.train.gelu_mlps import gelu_mlps

_MULTIPLE = 8
"""Rows of 16 bytes."""


def convert(model: nn.Module, dtype: torch.dtype) -> None:
    """Make the linear layers without bias of ``model`` use tuned products, in place."""
    for module in model.modules():
        if _is_convertible(module):
            module.__class__ = _Linear  # this keeps parameters, their names and all hooks
            module.operand_dtype = dtype  # type: ignore[assignment]
    for mlp in gelu_mlps(model, _Linear):
        mlp.__class__ = _GeluMlp


def _is_convertible(module: nn.Module) -> bool:
    return (
        type(module) is nn.Linear
        and module.bias is None
        and module.in_features % _MULTIPLE == 0
        and module.out_features % _MULTIPLE == 0
    )


class _Linear(nn.Linear):
    operand_dtype: torch.dtype

    def forward(self, input: Tensor) -> Tensor:
        rows = input.flatten(0, -2).to(self.operand_dtype)
        result = product(rows, self.weight.to(self.operand_dtype))
        whole: Tensor = result.unflatten(0, input.shape[:-1])
        return whole


class _GeluMlp(Mlp):
    """An MLP whose GELU is a part of the products before it."""

    def forward(self, x: Tensor) -> Tensor:
        dtype = cast(_Linear, self.up).operand_dtype
        rows, up, down = (y.to(dtype) for y in (x.flatten(0, -2), self.up.weight, self.down.weight))
        result: Tensor = gelu_mlp(rows, up, down).unflatten(0, x.shape[:-1])
        return result


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x · weightᵀ, with gradients."""
    result: Tensor = _Product.apply(x, weight)  # type: ignore[no-untyped-call]
    return result


def gelu_mlp(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Return GELU(x · upᵀ) · downᵀ, with gradients."""
    result: Tensor = _GeluProducts.apply(x, up, down)  # type: ignore[no-untyped-call]
    return result


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        result: Tensor = multiply(x.contiguous(), weight.contiguous(), True)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous()
        return multiply(gradient, weight.contiguous(), False), gradient.t() @ x


class _GeluProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, up: Tensor, down: Tensor) -> Tensor:
        inner, before = multiply_gelu(x.contiguous(), up.contiguous())
        ctx.save_for_backward(x, up, down, before, inner)
        result: Tensor = multiply(inner, down.contiguous(), True)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, up, down, before, inner = ctx.saved_tensors
        gradient = gradient.contiguous()
        inner_gradient = multiply_gelu_gradient(gradient, down.contiguous(), before)
        return (
            multiply(inner_gradient, up.contiguous(), False),
            inner_gradient.t() @ x,
            gradient.t() @ inner,
        )
