"""Communication before and after a pair of layers whose channels are divided between ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.train.communication import Tally


def sum_input_gradient(layers: Sequence[nn.Module], tally: Tally) -> None:
    """Make the backward pass sum the gradient of the layers' input over the ranks.

    If all layers read the same tensor, its gradient is summed once.
    """
    hook = _InputGradient(len(layers), tally)
    for layer in layers:
        layer.register_forward_pre_hook(hook)


class _InputGradient:
    def __init__(self, layers: int, tally: Tally) -> None:
        self._layers, self._tally = layers, tally
        self._reads = 0
        self._last: tuple[Tensor, Tensor] | None = None

    def __call__(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = inputs[0]
        if self._last is None or self._last[0] is not x:
            self._last = x, _SumGradient.apply(x, self._tally)  # type: ignore[no-untyped-call]
        same = self._last[1]
        self._reads = (self._reads + 1) % self._layers
        if self._reads == 0:
            self._last = None  # it would keep the memory
        return (same, *inputs[1:])


def sum_output(layer: nn.Module, tally: Tally) -> None:
    """Make ``layer``, whose input is this rank's channels, return the sum over the ranks."""
    if getattr(layer, "bias", None) is None:
        layer.register_forward_hook(partial(_sum_plain_output, tally))
        return
    kind = next((kind for kind in _SUMMED if type(layer) is kind), None)
    if kind is None:
        known = ", ".join(layer_type.__name__ for layer_type in _SUMMED)
        raise TypeError(
            f"{type(layer).__name__} with a bias cannot be the second layer of a pair: expected "
            f"{known}, or a layer without bias"
        )
    # This keeps parameters, their names and all hooks: only forward changes.
    layer.__class__ = _SUMMED[kind]
    cast(_Summed, layer).tally = tally


def _sum_plain_output(
    tally: Tally, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor
) -> Tensor:
    summed: Tensor = _SumOutput.apply(output, tally)  # type: ignore[no-untyped-call]
    return summed


class _SumGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, tally: Tally) -> Tensor:
        ctx.tally = tally
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.clone()
        ctx.tally.all_reduce(total)
        return total, None


class _SumOutput(torch.autograd.Function):
    """Sums over the ranks; the gradient passes unchanged, since it is the same on every rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tally: Tally) -> Tensor:
        ctx.mark_dirty(x)
        tally.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


@dataclass(frozen=True)
class RowRanks:
    """What a layer needs whose rows ranks divide; all ranks compute the same."""

    first: int
    """The number of this rank's first row."""
    tally: Tally

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum over the ranks, in the memory of ``x``; its gradient passes unchanged."""
        total: Tensor = _SumOutput.apply(x, self.tally)  # type: ignore[no-untyped-call]
        return total

    def sum_gradient(self, x: Tensor) -> Tensor:
        """Return ``x``; the backward pass sums its gradient over the ranks."""
        same: Tensor = _SumGradient.apply(x, self.tally)  # type: ignore[no-untyped-call]
        return same

    def maximum(self, x: Tensor) -> Tensor:
        """Return the largest values of the ranks, without gradient."""
        largest = x.detach().clone()
        self.tally.maximum(largest)
        return largest


class _Summed:
    """A layer whose output is the sum of the ranks' products plus the bias."""

    tally: Tally

    def total(self, product: Tensor) -> Tensor:
        summed: Tensor = _SumOutput.apply(product, self.tally)  # type: ignore[no-untyped-call]
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
