"""Products of matrices as operators of torch: tuned on NVIDIA GPUs, plain elsewhere.

``tuned_product`` computes bf16 and fp16 on NVIDIA GPUs. All other devices, types and sizes get
torch's own products.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from vflops.models.kernels import tuned_product


@torch.library.custom_op("vflops::product", mutates_args=())
def multiply(left: Tensor, right: Tensor, turned: bool) -> Tensor:
    """Return left · right, or left · rightᵀ if ``turned``."""
    if _is_tuned(left, right):
        return tuned_product.multiply(left, right, turned=turned)
    return left @ (right.t() if turned else right)


@multiply.register_fake
def _(left: Tensor, right: Tensor, turned: bool) -> Tensor:
    return left.new_empty(len(left), len(right) if turned else right.shape[1])


@torch.library.custom_op("vflops::product_gelu", mutates_args=())
def multiply_gelu(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return GELU(left · rightᵀ) and left · rightᵀ."""
    if _is_tuned(left, right):
        return tuned_product.multiply_gelu(left, right)
    before = left @ right.t()
    return functional.gelu(before, approximate="tanh"), before


@multiply_gelu.register_fake
def _(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    result = left.new_empty(len(left), len(right))
    return result, torch.empty_like(result)


@torch.library.custom_op("vflops::product_gelu_gradient", mutates_args=())
def multiply_gelu_gradient(left: Tensor, right: Tensor, before: Tensor) -> Tensor:
    """Return left · right, times the gradient of GELU at ``before``."""
    if _is_tuned(left, right):
        return tuned_product.multiply_gelu_gradient(left, right, before)
    slope = left @ right
    return torch.ops.aten.gelu_backward(slope, before, approximate="tanh")  # type: ignore[no-any-return]


@multiply_gelu_gradient.register_fake
def _(left: Tensor, right: Tensor, before: Tensor) -> Tensor:
    return torch.empty_like(before)


def _is_tuned(left: Tensor, right: Tensor) -> bool:
    return left.is_cuda and tuned_product.fits(left, right) and tuned_product.is_available()
