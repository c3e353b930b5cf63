"""Pairs of layers whose channels can be divided between ranks, as declared by a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from torch import Tensor, nn

from vflops.errors import UsageError


@dataclass(frozen=True)
class Pair:
    """Two layers with the per-channel layers between them, such as norms."""

    names: tuple[str, ...]
    """Names in the model of the first layer, the layers between, and the second layer."""
    layers: tuple[nn.Module, ...]

    @property
    def channels(self) -> int:
        """Number of channels between the two layers."""
        weight = self.layers[0].weight
        assert isinstance(weight, Tensor)
        return len(weight)


def pairs(model: nn.Module) -> Iterator[Pair]:
    """Yield the pairs of all modules with an attribute ``channel_pairs``.

    The attribute lists tuples of names of the module's children: a convolution or linear layer, any
    batch norms, and the convolution or linear layer that they feed. All other operations between
    these must be element-wise.
    """
    for name, module in model.named_modules():
        for names in getattr(module, "channel_pairs", ()):
            layers = tuple(module.get_submodule(child) for child in names)
            yield Pair(tuple(f"{name}.{child}" if name else child for child in names), layers)


def check_pairs(model: nn.Module, ranks: int, workload: str) -> None:
    """Raise if ``ranks`` ranks cannot divide the model; the hint lists the numbers that can."""
    model_pairs = list(pairs(model))
    if not model_pairs:
        raise UsageError(
            f"nothing in the model of {workload} can be divided between ranks: "
            "it declares no channel_pairs",
            hint="use --set train.parallel.split=layers",
        )
    common = gcd(*(pair.channels for pair in model_pairs))
    uneven = next((pair for pair in model_pairs if pair.channels % ranks), None)
    if uneven is not None:
        fitting = [str(n) for n in range(2, common + 1) if common % n == 0]
        raise UsageError(
            f"{ranks} ranks cannot share the {uneven.channels} channels of {uneven.names[0]} of "
            f"{workload} evenly",
            hint=f"use {', '.join(fitting)} ranks per copy of the model"
            if fitting
            else "use --set train.parallel.split=layers",
        )
