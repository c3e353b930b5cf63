"""The architecture of a network: its layers as validated plain data.

A layer takes the outputs of earlier layers; id 0 is the image. There are few kinds of layers:

    conv          k×k convolution without bias, batch norm, and a ReLU if ``relu`` is set
    norm          only a batch norm
    max-pool      k×k
    global-pool   the mean of each channel
    add           the sum of its inputs, and a ReLU if ``relu`` is set
    concat        the concatenated channels of its inputs
    dense         class scores; the only output

A window has an odd size k and is padded by k // 2, so a stride of s turns n pixels into ⌈n / s⌉ for
any k. The *plane* of a shape is its height and width.
The first input of ``add`` and ``concat`` belongs to the *main chain*, the others are skips.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from vflops.record.files.document import Data, Document

Kind = Literal["conv", "norm", "max-pool", "global-pool", "add", "concat", "dense"]
Shape = tuple[int, ...]
Size = Annotated[int, Field(ge=1, le=2**20)]

IMAGE = 0
"""The id of the image as an input of layers."""

MERGES = ("add", "concat")

_FIELDS: dict[Kind, tuple[str, ...]] = {
    "conv": ("filters", "kernel", "stride", "relu"),
    "norm": (),
    "max-pool": ("kernel", "stride"),
    "global-pool": (),
    "add": ("relu",),
    "concat": (),
    "dense": (),
}


class Layer(Data):
    """One layer; fields that do not apply to its kind keep their defaults."""

    id: int = Field(ge=1)
    kind: Kind
    inputs: tuple[int, ...] = Field(min_length=1, max_length=64)
    filters: int = Field(default=0, ge=0, le=2**20)
    kernel: int = Field(default=0, ge=0, le=31)
    stride: int = Field(default=1, ge=1, le=32)
    relu: bool = False

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        allowed = _FIELDS[self.kind]
        for name in _FIELDS["conv"]:
            if name not in allowed and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"layer {self.id}: {self.kind} has no {name}")
        if "filters" in allowed and not self.filters:
            raise ValueError(f"layer {self.id}: {self.kind} needs at least 1 filter")
        if "kernel" in allowed and self.kernel % 2 == 0:
            raise ValueError(f"layer {self.id}: kernel {self.kernel} is not odd")
        if (len(self.inputs) > 1) != (self.kind in MERGES):
            expected = "two inputs or more" if self.kind in MERGES else "one input"
            raise ValueError(
                f"layer {self.id}: {self.kind} takes {expected}, not {len(self.inputs)}"
            )
        return self


class Architecture(Document):
    """A classifier for images of ``input_shape`` (channels, height, width)."""

    schema_name: ClassVar[str] = "vflops.architecture"

    input_shape: tuple[Size, Size, Size]
    classes: Size
    layers: tuple[Layer, ...] = Field(min_length=1, max_length=10_000)
    """Every layer comes after its inputs; the last one is the output."""

    @model_validator(mode="after")
    def _check_graph(self) -> Self:
        known, used = {IMAGE}, set[int]()
        for layer in self.layers:
            if layer.id in known:
                raise ValueError(f"two layers have the id {layer.id}")
            for source in layer.inputs:
                if source not in known:
                    raise ValueError(
                        f"layer {layer.id} has input {source}, which is not an earlier layer"
                    )
            known.add(layer.id)
            used.update(layer.inputs)
        unused = [layer.id for layer in self.layers[:-1] if layer.id not in used]
        if unused:
            raise ValueError(
                f"no layer uses the output of layer {unused[0]}: only the last may be unused"
            )
        kinds = [layer.kind for layer in self.layers]
        if kinds[-1] != "dense" or "dense" in kinds[:-1]:
            raise ValueError("the last layer must be dense, and no other layer may be")
        _ = self.shapes
        return self

    @cached_property
    def layer(self) -> dict[int, Layer]:
        """Layers by id."""
        return {layer.id: layer for layer in self.layers}

    @cached_property
    def consumers(self) -> dict[int, tuple[Layer, ...]]:
        """The layers that use the output of each layer, and those that use the image."""
        consumers: dict[int, list[Layer]] = {IMAGE: [], **{layer.id: [] for layer in self.layers}}
        for layer in self.layers:
            for source in dict.fromkeys(layer.inputs):
                consumers[source].append(layer)
        return {source: tuple(layers) for source, layers in consumers.items()}

    @cached_property
    def shapes(self) -> dict[int, Shape]:
        """The output shape of every layer for one image, and the shape of the image."""
        shapes: dict[int, Shape] = {IMAGE: self.input_shape}
        for layer in self.layers:
            input_shapes = [shapes[source] for source in layer.inputs]
            shapes[layer.id] = _output_shape(layer, input_shapes, self.classes)
        return shapes

    @cached_property
    def parameters(self) -> int:
        """The number of trainable parameters."""
        return sum(self.parameters_of(layer) for layer in self.layers)

    def parameters_of(self, layer: Layer) -> int:
        """Return the number of parameters of one layer."""
        channels = self.shapes[layer.inputs[0]][0]
        if layer.kind == "conv":
            return layer.filters * (channels * layer.kernel**2 + 2)
        if layer.kind == "dense":
            return self.classes * (channels + 1)
        return 2 * channels if layer.kind == "norm" else 0

    @cached_property
    def depth(self) -> int:
        """The number of convolutions and dense layers on the longest path."""
        depths = {IMAGE: 0}
        for layer in self.layers:
            before = max(depths[source] for source in layer.inputs)
            depths[layer.id] = before + (layer.kind in ("conv", "dense"))
        return depths[self.layers[-1].id]

    @cached_property
    def digest(self) -> str:  # type: ignore[override]
        """A hash that does not depend on the ids and the order of layers.

        Layers are numbered by a walk from the output along the inputs, which visits the layers of
        equal networks in the same order.
        """
        number = {IMAGE: 0}
        rows: list[tuple[object, ...]] = []
        stack = [self.layers[-1].id]
        while stack:
            layer = self.layer[stack[-1]]
            unvisited = [source for source in layer.inputs if source not in number]
            if unvisited:
                stack.extend(reversed(unvisited))
                continue
            stack.pop()
            if layer.id not in number:
                number[layer.id] = len(number)
                inputs = [number[source] for source in layer.inputs]
                rows.append((layer.kind, inputs, *(getattr(layer, f) for f in _FIELDS["conv"])))
        text = json.dumps([self.input_shape, self.classes, rows])
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def chain(self) -> tuple[int, ...]:
        """The ids of the layers on the main chain, from the first layer to the output."""
        backwards = [self.layers[-1].id]
        while (source := self.layer[backwards[-1]].inputs[0]) != IMAGE:
            backwards.append(source)
        return tuple(reversed(backwards))

    @cached_property
    def positions(self) -> dict[int, int]:
        """For every layer on the main chain, the number of convolutions on the chain up to it."""
        positions, count = {IMAGE: 0}, 0
        for id in self.chain:
            count += self.layer[id].kind == "conv"
            positions[id] = count
        return positions

    def signature_layers(self) -> tuple[tuple[str, int, int, int], ...]:
        """Return kind, filters, kernel and stride of the main chain's convolutions, in order."""
        layers = (self.layer[id] for id in self.chain)
        return tuple(
            (layer.kind, layer.filters, layer.kernel, layer.stride)
            for layer in layers
            if layer.kind == "conv"
        )

    def skips(self) -> tuple[tuple[int, int, str], ...]:
        """Return where each skip connection leaves the main chain, where it joins, and its kind.

        A position is the number of convolutions on the main chain up to there.
        """
        return self._skips

    @cached_property
    def _skips(self) -> tuple[tuple[int, int, str], ...]:
        merges = [self.layer[id] for id in self.chain if self.layer[id].kind in MERGES]
        return tuple(
            (self.positions[self._chain_ancestor(source)], self.positions[merge.id], merge.kind)
            for merge in merges
            for source in merge.inputs[1:]
        )

    def _chain_ancestor(self, id: int) -> int:
        while id not in self.positions:
            id = self.layer[id].inputs[0]
        return id


def _output_shape(layer: Layer, input_shapes: list[Shape], classes: int) -> Shape:
    channels, *plane = input_shapes[0]
    match layer.kind:
        case "conv" | "max-pool":
            output_plane = (-(-size // layer.stride) for size in plane)
            return (layer.filters or channels, *output_plane)
        case "global-pool":
            return (channels, 1, 1)
        case "dense":
            if plane != [1, 1]:
                raise ValueError(
                    f"layer {layer.id}: dense takes one value per channel, not "
                    f"{_format_shape(input_shapes[0])}: put a global-pool before it"
                )
            return (classes,)
        case "add" if len(set(input_shapes)) > 1:
            shapes_text = " and ".join(_format_shape(shape) for shape in input_shapes)
            raise ValueError(f"layer {layer.id}: shapes {shapes_text} cannot be added")
        case "concat":
            if len({shape[1:] for shape in input_shapes}) > 1:
                shapes_text = " and ".join(_format_shape(shape) for shape in input_shapes)
                raise ValueError(f"layer {layer.id}: the planes of {shapes_text} differ")
            return (sum(shape[0] for shape in input_shapes), *plane)
    return input_shapes[0]


def _format_shape(shape: Shape) -> str:
    return "×".join(str(size) for size in shape)
