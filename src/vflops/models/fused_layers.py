"""The layers of a network that the fused training step can compute, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from torch import nn

IMAGE = 0
"""The id of the image as an input of layers."""

_CHANNELS = 8
"""The number of channels must be a multiple of this for the kernels."""
_PIXELS = 32
"""The number of pixels of a batch, at every size, must be a multiple of this."""
_ELEMENTS = 2**31
"""The kernels use 32-bit offsets."""
_PARTS = 8
"""A part of a trunk has at least one in so many of its parameters."""


@dataclass(frozen=True)
class FusedLayer:
    """One layer, with the ids of the layers that it reads.

    A ``conv`` includes its batch normalisation, and a ReLU if ``relu`` is set. A ``norm`` is a
    batch normalisation alone. An ``add`` includes a ReLU.
    """

    id: int
    kind: Literal["conv", "norm", "max-pool", "add", "concat"]
    inputs: tuple[int, ...]
    relu: bool = False
    conv: nn.Conv2d | None = None
    bn: nn.BatchNorm2d | None = None
    kernel: int = 0
    """The size of a max-pooling's window."""
    stride: int = 1
    """The stride of a max-pooling."""

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters of its convolution and its batch normalisation."""
        modules = [module for module in (self.conv, self.bn) if module is not None]
        return [parameter for module in modules for parameter in module.parameters()]

    @property
    def is_normalised(self) -> bool:
        """Whether its result ends with a batch normalisation, which only an ``add`` reads."""
        return self.kind in ("conv", "norm") and not self.relu


@dataclass(frozen=True)
class FusedLayers:
    """The layers of a trunk in order; the mean of the last one's channels are its features."""

    layers: tuple[FusedLayer, ...]

    @cached_property
    def by_id(self) -> dict[int, FusedLayer]:
        """Layers by id."""
        return {layer.id: layer for layer in self.layers}

    @cached_property
    def consumers(self) -> dict[int, list[FusedLayer]]:
        """The layers that read each layer, in order."""
        consumers: dict[int, list[FusedLayer]] = {IMAGE: []}
        for layer in self.layers:
            consumers[layer.id] = []
            for source in dict.fromkeys(layer.inputs):
                consumers[source].append(layer)
        return consumers

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters of all layers."""
        return [parameter for layer in self.layers for parameter in layer.parameters]

    @cached_property
    def parts(self) -> tuple[tuple[FusedLayer, ...], ...]:
        """The layers in consecutive parts, each with a similar number of parameters.

        The backward pass completes the gradients of one part after the other, so that those of the
        last part can be averaged over ranks while the others are computed. The first part may be
        smaller: its average is what the step waits for.
        """
        sizes = [sum(p.numel() for p in layer.parameters) for layer in self.layers]
        parts: list[tuple[FusedLayer, ...]] = []
        end = len(self.layers)
        for start in range(end - 1, -1, -1):
            if start == 0 or sum(sizes[start:end]) >= sum(sizes) / _PARTS:
                parts.append(self.layers[start:end])
                end = start
        return tuple(reversed(parts))

    @property
    def norms(self) -> list[nn.BatchNorm2d]:
        """All batch normalisations."""
        return [layer.bn for layer in self.layers if layer.bn is not None]

    @cached_property
    def pooled_stem(self) -> bool:
        """Whether it starts with ResNet's stem: 7×7/2 on images of 3 channels, then 3×3/2 pooling.

        There are kernels for this pair.
        """
        if len(self.layers) < 2:
            return False
        stem, pool = self.layers[:2]
        conv = stem.conv
        return (
            conv is not None
            and (conv.in_channels, conv.out_channels, conv.kernel_size) == (3, 64, (7, 7))
            and (conv.stride, conv.padding, stem.relu) == ((2, 2), (3, 3), True)
            and (stem.inputs, self.consumers[IMAGE]) == ((IMAGE,), [stem])
            and (pool.kind, pool.kernel, pool.stride) == ("max-pool", 3, 2)
            and self.consumers[stem.id] == [pool]
        )

    def fit(self, shapes: Mapping[int, Sequence[int]], batch: int) -> bool:
        """Whether the kernels apply to a batch of images; ``shapes`` are those of one image."""
        return (
            all(self._fits(layer) for layer in self.layers)
            and not self.by_id[self.layers[-1].id].is_normalised
            and all(_shape_fits(shapes[layer.id], batch) for layer in self.layers)
            and self._stem_fits(shapes[IMAGE])
        )

    def _fits(self, layer: FusedLayer) -> bool:
        """Whether a layer is one of the patterns that the step knows."""
        normalised = [s for s in layer.inputs if s != IMAGE and self.by_id[s].is_normalised]
        if layer.kind == "add":
            return len(layer.inputs) == len(set(layer.inputs)) == 2 and bool(normalised)
        if normalised or (layer.is_normalised and len(self.consumers[layer.id]) != 1):
            return False
        if IMAGE in layer.inputs and layer.kind != "conv":
            return False
        return layer.conv is None or (layer.conv.groups, layer.conv.bias) == (1, None)

    def _stem_fits(self, image: Sequence[int]) -> bool:
        return not self.pooled_stem or all(size % 4 == 0 for size in image[1:])


def _shape_fits(shape: Sequence[int], batch: int) -> bool:
    channels, height, width = shape
    pixels = batch * height * width
    return channels % _CHANNELS == 0 and pixels % _PIXELS == 0 and pixels * channels < _ELEMENTS
