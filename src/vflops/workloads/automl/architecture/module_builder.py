"""Builds the torch module of an architecture."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional, init

from vflops.workloads.automl.architecture.layer_graph import IMAGE, Architecture, Layer


class _Conv2d(nn.Conv2d):
    """A convolution that leaves its initialisation to ``Network.initialise``."""

    def reset_parameters(self) -> None:
        """Do nothing."""


class _Linear(nn.Linear):
    """A dense layer that leaves its initialisation to ``Network.initialise``."""

    def reset_parameters(self) -> None:
        """Do nothing."""


class Conv(nn.Module):
    """Convolution, batch norm and an optional ReLU: the unit that a search changes."""

    def __init__(self, channels: int, layer: Layer) -> None:
        super().__init__()
        self.conv = _Conv2d(
            channels,
            layer.filters,
            layer.kernel,
            stride=layer.stride,
            padding=layer.kernel // 2,
            bias=False,
        )
        self.norm = nn.BatchNorm2d(layer.filters)
        self._relu = layer.relu

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        x = self.norm(self.conv(x))
        return functional.relu_(x) if self._relu else x


class Add(nn.Module):
    """The sum of its inputs and an optional ReLU."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self._relu = layer.relu

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        """Return the layer's output."""
        for other in others:
            x = x + other  # not in place: another layer may read x
        return functional.relu_(x) if self._relu else x


class Concat(nn.Module):
    """The concatenated channels of its inputs."""

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the layer's output."""
        return torch.cat(inputs, 1)


class Dense(nn.Module):
    """Class scores (logits)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.linear = _Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return one row per sample."""
        logits: Tensor = self.linear(x.flatten(1))
        return logits


class Network(nn.Module):
    """The layers of an architecture by id, called in order."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(
            {str(layer.id): _module(architecture, layer) for layer in architecture.layers}
        )
        layers = architecture.layers
        last_use = {source: index for index, layer in enumerate(layers) for source in layer.inputs}
        self._plan = tuple(
            (
                layer.id,
                layer.inputs,
                tuple(source for source in set(layer.inputs) if last_use[source] == index),
            )
            for index, layer in enumerate(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores (logits), one row per sample."""
        results = {IMAGE: x}
        for module, (id, inputs, no_longer_needed) in zip(
            self.layers.values(), self._plan, strict=True
        ):
            x = module(*[results[source] for source in inputs])
            for source in no_longer_needed:
                del results[source]  # free the memory in evaluation
            results[id] = x
        return x

    def initialise(self, generator: torch.Generator | None = None) -> None:
        """Initialise convolutions as He et al. do, and the dense layer with torch's default."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                init.kaiming_normal_(
                    module.weight, mode="fan_out", nonlinearity="relu", generator=generator
                )
            elif isinstance(module, nn.Linear):
                bound = 1 / math.sqrt(module.in_features)
                init.uniform_(module.weight, -bound, bound, generator=generator)
                init.uniform_(module.bias, -bound, bound, generator=generator)


def build(architecture: Architecture, generator: torch.Generator | None = None) -> Network:
    """Return a new network on torch's default device, initialised with ``generator``."""
    network = Network(architecture)
    network.initialise(generator)
    return network


def _module(architecture: Architecture, layer: Layer) -> nn.Module:
    channels = architecture.shapes[layer.inputs[0]][0]
    match layer.kind:
        case "conv":
            return Conv(channels, layer)
        case "norm":
            return nn.BatchNorm2d(channels)
        case "max-pool":
            return nn.MaxPool2d(layer.kernel, stride=layer.stride, padding=layer.kernel // 2)
        case "global-pool":
            return nn.AdaptiveAvgPool2d(1)
        case "add":
            return Add(layer)
        case "concat":
            return Concat()
        case "dense":
            return Dense(channels, architecture.classes)
