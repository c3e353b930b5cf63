"""Pairs of layers whose channels between them can be divided, as a model names them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from torch import Tensor, nn

from vflops.errors import UsageError


@dataclass(frozen=True)
class Pair:
    """A layer, what works on each of its output channels alone, and the layer that takes them."""

    names: tuple[str, ...]
    """In the model; of the first layer, the norms, the second layer."""
    layers: tuple[nn.Module, ...]

    @property
    def channels(self) -> int:
        """Between the two layers."""
        weight = self.layers[0].weight
        assert isinstance(weight, Tensor)
        return len(weight)


def pairs(model: nn.Module) -> Iterator[Pair]:
    """The pairs of all modules with an attribute ``channel_pairs``.

    It holds names of the module's children: a convolution or linear layer, any batch norms, and the
    convolution or linear layer that they feed; between them only what is done to each number alone.
    """
    for name, module in model.named_modules():
        for names in getattr(module, "channel_pairs", ()):
            layers = tuple(module.get_submodule(each) for each in names)
            yield Pair(tuple(f"{name}.{each}" if name else each for each in names), layers)


def check_pairs(model: nn.Module, ranks: int, workload: str) -> None:
    """Refuse a model that ``ranks`` ranks cannot divide, with the numbers that could."""
    found = list(pairs(model))
    if not found:
        raise UsageError(
            f"nothing in the model of {workload} can be divided between ranks: "
            "it names no channel_pairs",
            hint="take --set train.parallel.split=layers",
        )
    common = gcd(*(pair.channels for pair in found))
    bad = next((pair for pair in found if pair.channels % ranks), None)
    if bad is not None:
        fitting = [str(n) for n in range(2, common + 1) if common % n == 0]
        raise UsageError(
            f"{ranks} ranks cannot share the {bad.channels} channels of {bad.names[0]} of "
            f"{workload} evenly",
            hint=f"let a copy of the model have {', '.join(fitting)} ranks"
            if fitting
            else "take --set train.parallel.split=layers",
        )
