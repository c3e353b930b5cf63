"""Layers whose channels can be divided between ranks, as declared by a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd

from torch import Tensor, nn

from vflops.errors import UsageError
from vflops.train.parallel.divided import Division

_PER_CHANNEL = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class Pair:
    """A layer that reads channels, the layers that make them, and those between, such as norms."""

    module: nn.Module
    """The module that declares the pair."""
    name: str
    """The name of ``module`` in the model."""
    children: tuple[str, ...]
    """Names in ``module``: the layers that make channels and those between, then the second."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the layers in the model."""
        return tuple(f"{self.name}.{child}" if self.name else child for child in self.children)

    @property
    def layers(self) -> tuple[nn.Module, ...]:
        """The layers; the last is the second layer of the pair."""
        return tuple(self.module.get_submodule(child) for child in self.children)

    @property
    def first_layers(self) -> list[nn.Module]:
        """The layers that read the input of the pair and make channels."""
        return [layer for layer in self.layers[:-1] if _weight(layer).dim() > 1]

    @property
    def shared_layers(self) -> list[nn.Module]:
        """The layers between that treat all units alike, such as a norm of each head."""
        names = getattr(self.module, "channel_shared", ())
        layers = [getattr(self.module, name) for name in names]
        return [layer for layer in layers if layer is not None]

    @property
    def units(self) -> dict[str, int]:
        """The numbers of units by the attribute of ``module``; empty if channels are separate."""
        names = {name for units in self._units.values() for name in units}
        return {name: int(getattr(self.module, name)) for name in sorted(names)}

    @property
    def counts(self) -> dict[str, int]:
        """What ranks must divide evenly: the numbers of units by name, or the channels."""
        if self.units:
            return self.units
        first = self.layers[0]
        return {"channels": _weight(first).shape[_output_dimension(first)]}

    def divisions(self) -> Iterator[tuple[str, Tensor, Division]]:
        """Yield the divided tensors with their names and how they are divided."""
        *before, second = zip(self.children, self.names, self.layers, strict=True)
        for child, name, layer in before:
            dimension = _output_dimension(layer)
            for key in _PER_CHANNEL:
                tensor = getattr(layer, key, None)
                if tensor is not None:
                    along = dimension if tensor.dim() > 1 else 0
                    sections = self._sections(child, tensor.shape[along])
                    yield f"{name}.{key}", tensor, Division(along, sections)
        _, name, layer = second
        dimension = getattr(layer, "input_dimension", 1)
        weight = _weight(layer)
        yield f"{name}.weight", weight, Division(dimension, (weight.shape[dimension],))

    @property
    def _units(self) -> Mapping[str, tuple[str, ...]]:
        declared: Mapping[str, tuple[str, ...]] = getattr(self.module, "channel_sections", {})
        return {child: units for child, units in declared.items() if child in self.children}

    def _sections(self, child: str, channels: int) -> tuple[int, ...]:
        """Return the sizes of the sections of a layer's channels; by default there is one."""
        if child not in self._units:
            return (channels,)
        units = [int(getattr(self.module, name)) for name in self._units[child]]
        return tuple(channels // sum(units) * count for count in units)


def pairs(model: nn.Module) -> Iterator[Pair]:
    """Yield the pairs of all modules with an attribute ``channel_pairs``.

    The attribute lists tuples of names of the module's children, of which some may be None:
    convolutions or linear layers that read the same input, any batch norms, and the convolution or
    linear layer that they feed. All other operations between these must work on each channel
    separately.

    If they work on units of several channels, such as heads, ``channel_sections`` names for a layer
    the attributes of the module that count the units in consecutive sections of its channels. Each
    section is divided, and the attributes are set to the numbers of a rank. ``channel_shared``
    names layers between whose weights are the same for all units.
    """
    for name, module in model.named_modules():
        for declared in getattr(module, "channel_pairs", ()):
            children = tuple(child for child in declared if getattr(module, child, 0) is not None)
            yield Pair(module, name, children)


def row_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the names and layers whose rows can be divided: they have an attribute ``row_ranks``.

    It is None; ranks that divide the rows of the layer's weight set it to ``channels.RowRanks``.
    """
    for name, module in model.named_modules():
        if getattr(module, "row_ranks", 0) is None:
            yield name, module


def check_pairs(model: nn.Module, ranks: int, workload: str) -> None:
    """Raise if ``ranks`` ranks cannot divide the model; the hint lists the numbers that can."""
    model_pairs = list(pairs(model))
    if not model_pairs:
        raise UsageError(
            f"nothing in the model of {workload} can be divided between ranks: "
            "it declares no channel_pairs",
            hint="use --set train.parallel.split=layers",
        )
    counts = [
        (count, unit, pair.names[0]) for pair in model_pairs for unit, count in pair.counts.items()
    ]
    common = gcd(*(count for count, _, _ in counts))
    uneven = next((item for item in counts if item[0] % ranks), None)
    if uneven is not None:
        count, unit, name = uneven
        fitting = [str(n) for n in range(2, common + 1) if common % n == 0]
        raise UsageError(
            f"{ranks} ranks cannot share the {count} {unit} of {name} of {workload} evenly",
            hint=f"use {', '.join(fitting)} ranks per copy of the model"
            if fitting
            else "use --set train.parallel.split=layers",
        )


def _weight(layer: nn.Module) -> Tensor:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    return weight


def _output_dimension(layer: nn.Module) -> int:
    return int(getattr(layer, "output_dimension", 0))
