"""How a batch enters and leaves a pair of layers whose channels are divided between ranks."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.train.communication import Tally


def enter(x: Tensor, tally: Tally) -> Tensor:
    """Return ``x``; its gradient is summed over the ranks."""
    entered: Tensor = _Enter.apply(x, tally)  # type: ignore[no-untyped-call]
    return entered


def sum_up(layer: nn.Module, tally: Tally) -> None:
    """Make ``layer``, which takes this rank's channels, return the sum over the ranks."""
    kind = next((kind for kind in _SUMMED if type(layer) is kind), None)
    if kind is None:
        known = ", ".join(layer_type.__name__ for layer_type in _SUMMED)
        raise TypeError(
            f"{type(layer).__name__} cannot be the second layer of a pair: expected {known}"
        )
    # Parameters, their names and all hooks stay: only forward changes.
    layer.__class__ = _SUMMED[kind]
    cast(_Summed, layer).tally = tally


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, tally: Tally) -> Tensor:
        ctx.tally = tally
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.clone()
        ctx.tally.all_reduce(total)
        return total, None


class _Sum(torch.autograd.Function):
    """The sum over the ranks; its gradient is the same on each of them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tally: Tally) -> Tensor:
        ctx.mark_dirty(x)
        tally.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Summed:
    """A layer whose output is the sum of the ranks' products, plus the bias once."""

    tally: Tally

    def total(self, product: Tensor) -> Tensor:
        summed: Tensor = _Sum.apply(product, self.tally)  # type: ignore[no-untyped-call]
        return summed


class _SummedLinear(_Summed, nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        summed = self.total(functional.linear(input, self.weight))
        return summed if self.bias is None else summed + self.bias


class _SummedConv2d(_Summed, nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        summed = self.total(self._conv_forward(input, self.weight, None))
        return summed if self.bias is None else summed + self.bias[:, None, None]


_SUMMED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: _SummedLinear,
    nn.Conv2d: _SummedConv2d,
}
