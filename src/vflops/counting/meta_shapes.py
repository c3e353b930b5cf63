"""Computes the results of some operators on the meta device faster than torch does.

Torch infers these shapes through Python decompositions: batch normalization takes four fifths of
a ResNet's forward pass on the meta device, and the first such operator of a process imports the
compiler (1.5 s). Each entry gives the same result as torch, which the tests check; torch
infers the shapes of all other operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Shortcut = Callable[..., Any]


def _batch_norm(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    channels = x.shape[1]
    return torch.empty_like(x), x.new_empty(channels), x.new_empty(channels)


def _like(x: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _nll_loss(x: Tensor, target: Tensor, weight: Any, reduction: int, *rest: Any) -> Any:
    return x.new_empty(target.shape if reduction == 0 else ()), x.new_empty(())


def _mm(left: Tensor, right: Tensor) -> Tensor:
    if left.dim() != 2 or right.dim() != 2 or left.shape[1] != right.shape[0]:
        raise RuntimeError(
            "mat1 and mat2 shapes cannot be multiplied "
            f"({_format_shape(left.shape)} and {_format_shape(right.shape)})"
        )
    return left.new_empty(left.shape[0], right.shape[1])


def _addmm(addend: Tensor, left: Tensor, right: Tensor) -> Tensor:
    return _mm(left, right)


def _mean(x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    reduced = {dim % x.dim() for dim in dims} or set(range(x.dim()))
    if keepdim:
        return x.new_empty([1 if dim in reduced else n for dim, n in enumerate(x.shape)])
    return x.new_empty([n for dim, n in enumerate(x.shape) if dim not in reduced])


def _format_shape(shape: Sequence[int]) -> str:
    return "x".join(str(size) for size in shape)


SHORTCUTS: Mapping[str, Shortcut] = {
    "aten.native_batch_norm.default": _batch_norm,
    "aten.mm.default": _mm,
    "aten.addmm.default": _addmm,
    "aten.mean.dim": _mean,
    "aten._softmax.default": _like,
    "aten._log_softmax.default": _like,
    "aten.nll_loss_forward.default": _nll_loss,
}

INITIALISATIONS = frozenset(
    {"aten.normal_.default", "aten.uniform_.default", "aten.fill_.Scalar", "aten.zero_.default"}
)
"""In-place initialisations, which have no effect on the meta device."""
