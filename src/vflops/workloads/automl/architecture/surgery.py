"""Graph edits that implement morphs; each returns a new architecture and keeps existing ids."""

from __future__ import annotations

from collections.abc import Iterable

from vflops.workloads.automl.architecture.layer_graph import Architecture, Layer
from vflops.workloads.automl.architecture.widths import WidthGroups

_DEEPEN_KERNEL = 3


def deepen(architecture: Architecture, after: int) -> Architecture:
    """Insert a convolution of the same width after an activation."""
    new = Layer(
        id=_new_id(architecture),
        kind="conv",
        inputs=(after,),
        filters=architecture.shapes[after][0],
        kernel=_DEEPEN_KERNEL,
        relu=True,
    )
    return _insert_after(architecture, after, [new], architecture.consumers[after])


def widen(architecture: Architecture, layer: int, filters: int) -> Architecture:
    """Set the filters of a convolution and of all convolutions added to its output."""
    return _with_fields(architecture, WidthGroups(architecture).group(layer), filters=filters)


def enlarge(architecture: Architecture, layer: int, kernel: int) -> Architecture:
    """Set the kernel size of one convolution."""
    return _with_fields(architecture, [layer], kernel=kernel)


def add(architecture: Architecture, start: int, end: int) -> Architecture:
    """Insert the sum of two activations and a ReLU after the later one.

    The added branch has a batch norm, so that it can start at zero, and a projection before it if
    the shapes differ.
    """
    id = _new_id(architecture)
    if architecture.shapes[start] == architecture.shapes[end]:
        branch = Layer(id=id, kind="norm", inputs=(start,))
    else:
        branch = Layer(
            id=id,
            kind="conv",
            inputs=(start,),
            filters=architecture.shapes[end][0],
            kernel=1,
            stride=stride_between(architecture, start, end) or 1,
        )
    total = Layer(id=id + 1, kind="add", inputs=(end, id), relu=True)
    return _insert_after(architecture, end, [branch, total], architecture.consumers[end])


def concat(architecture: Architecture, start: int, end: int) -> Architecture:
    """Concatenate two activations for the later one's consumers that can take more channels."""
    merged = Layer(id=_new_id(architecture), kind="concat", inputs=(end, start))
    return _insert_after(architecture, end, [merged], flexible_consumers(architecture, end))


def stride_between(architecture: Architecture, start: int, end: int) -> int | None:
    """Return the stride that maps one layer's height and width to another's, if there is one."""
    before, after = architecture.shapes[start][1:], architecture.shapes[end][1:]
    stride = -(-before[0] // after[0])
    return stride if tuple(-(-size // stride) for size in before) == after else None


def flexible_consumers(architecture: Architecture, id: int) -> list[Layer]:
    """Return the consumers of a layer that could take more channels with larger weights."""

    def is_flexible(layer: Layer) -> bool:
        if layer.kind == "global-pool":
            return all(consumer.kind == "dense" for consumer in architecture.consumers[layer.id])
        return layer.kind == "conv"

    return [layer for layer in architecture.consumers[id] if is_flexible(layer)]


def _new_id(architecture: Architecture) -> int:
    return max(layer.id for layer in architecture.layers) + 1


def _with_fields(architecture: Architecture, ids: Iterable[int], **fields: int) -> Architecture:
    chosen = set(ids)
    return _with_layers(
        architecture,
        [
            Layer(**{**dict(layer), **fields}) if layer.id in chosen else layer
            for layer in architecture.layers
        ],
    )


def _insert_after(
    architecture: Architecture, after: int, new: list[Layer], consumers: Iterable[Layer]
) -> Architecture:
    """Insert ``new`` after a layer; ``consumers`` then use the last new layer instead of it."""
    rewired = {layer.id for layer in consumers}
    layers: list[Layer] = []
    for layer in architecture.layers:
        if layer.id in rewired:
            inputs = tuple(new[-1].id if source == after else source for source in layer.inputs)
            layer = Layer(**{**dict(layer), "inputs": inputs})
        layers.append(layer)
        if layer.id == after:
            layers.extend(new)
    return _with_layers(architecture, layers)


def _with_layers(architecture: Architecture, layers: list[Layer]) -> Architecture:
    return Architecture(
        input_shape=architecture.input_shape, classes=architecture.classes, layers=tuple(layers)
    )
