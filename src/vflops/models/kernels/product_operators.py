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
    tuned = tuned_product.find(left, right, turned=turned, epilogue="none")
    if tuned is None:
        return left @ (right.t() if turned else right)
    return tuned.compute(left, right)


@multiply.register_fake
def _(left: Tensor, right: Tensor, turned: bool) -> Tensor:
    return left.new_empty(len(left), len(right) if turned else right.shape[1])


@torch.library.custom_op("vflops::product_gelu", mutates_args=())
def multiply_gelu(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return GELU(left · rightᵀ) and left · rightᵀ."""
    tuned = tuned_product.find(left, right, turned=True, epilogue="gelu")
    if tuned is None:
        before = left @ right.t()
        return functional.gelu(before, approximate="tanh"), before
    before = left.new_empty(len(left), len(right))
    return tuned.compute(left, right, before), before


@multiply_gelu.register_fake
def _(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    result = left.new_empty(len(left), len(right))
    return result, torch.empty_like(result)


@torch.library.custom_op("vflops::product_gelu_gradient", mutates_args=())
def multiply_gelu_gradient(left: Tensor, right: Tensor, before: Tensor) -> Tensor:
    """Return left · right, times the gradient of GELU at ``before``."""
    tuned = tuned_product.find(left, right, turned=False, epilogue="gelu gradient")
    if tuned is None:
        slope = left @ right
        return torch.ops.aten.gelu_backward(slope, before, approximate="tanh")  # type: ignore[no-any-return]
    return tuned.compute(left, right, before)


@multiply_gelu_gradient.register_fake
def _(left: Tensor, right: Tensor, before: Tensor) -> Tensor:
    return torch.empty_like(before)
