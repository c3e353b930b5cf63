"""Computes operations and memory of a network from its architecture, without torch."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.counting.conventions import Ops, convention
from vflops.counting.count import count
from vflops.counting.graph_builder import GraphBuilder
from vflops.record.formats.graph import Graph
from vflops.workloads.automl.architecture.layer_graph import IMAGE, Architecture, Layer

_BYTES_PER_INDEX = 8
_BYTES_PER_PARAMETER = 12
"""A weight, its gradient and its momentum, always in single precision."""
_NEEDS_INPUT = ("conv", "norm", "max-pool", "dense")
"""Kinds of layers whose backward pass needs their input."""


def graph(
    architecture: Architecture,
    batch: int = 1,
    *,
    name: str = "architecture",
    label_smoothing: float = 0.0,
) -> Graph:
    """Return the operation graph of one batch, with cross entropy as the loss.

    It has the same nodes as a graph captured from the built module, but is made a hundred times
    faster.
    """
    builder = GraphBuilder()
    image = builder.value((batch, *architecture.input_shape), grad=False)
    *layers, dense = architecture.layers
    features = add_layers(builder, layers, image)[dense.inputs[0]]
    scope, rows = f"layers.{dense.id}", builder.shape(features)[:2]
    flat = builder.simple("layout", "view.default", scope, [features], rows)
    scores = builder.dense(f"{scope}.linear", flat, architecture.classes)
    return builder.graph(name, batch, [image], [builder.cross_entropy(scores, label_smoothing)])


def add_layers(builder: GraphBuilder, layers: Sequence[Layer], image: int) -> dict[int, int]:
    """Add the operators that torch executes for all layers but the last, which is dense.

    Return the result of each layer by its id.
    """
    results = {IMAGE: image}
    for layer in layers:
        results[layer.id] = _add_layer(builder, layer, [results[id] for id in layer.inputs])
    return results


def ops(architecture: Architecture, rules: str = "aiperf", batch: int = 1) -> Ops:
    """Return the operations of one training step by a counting convention."""
    return count(graph(architecture, batch), convention(rules)).total


def memory_bytes(architecture: Architecture, batch: int, bytes_per_value: int = 4) -> int:
    """Estimate the memory of training: parameters, and activations for the backward pass.

    Kernel workspace and fragmentation depend on the device and are not included.
    """
    activations = activation_bytes(architecture, batch, bytes_per_value)
    return activations + parameter_bytes(architecture)


def parameter_bytes(architecture: Architecture) -> int:
    """Return the memory of weights, gradients and momentum."""
    return architecture.parameters * _BYTES_PER_PARAMETER


def activation_bytes(architecture: Architecture, batch: int, bytes_per_value: int = 4) -> int:
    """Return the memory of what the backward pass needs of the forward pass."""
    values, indices = _elements(architecture.input_shape), 0
    for layer in architecture.layers:
        result = _elements(architecture.shapes[layer.id])
        consumers = architecture.consumers[layer.id]
        if layer.kind == "conv":
            values += result  # the input of its batch norm
        if layer.relu or any(consumer.kind in _NEEDS_INPUT for consumer in consumers):
            values += result
        if layer.kind == "max-pool":
            indices += result
    return batch * (values * bytes_per_value + indices * _BYTES_PER_INDEX)


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _add_layer(builder: GraphBuilder, layer: Layer, inputs: list[int]) -> int:
    scope, x = f"layers.{layer.id}", inputs[0]
    shape = builder.shape(x)
    match layer.kind:
        case "conv":
            x = builder.convolution(f"{scope}.conv", x, layer.filters, layer.kernel, layer.stride)
            x = builder.batch_norm(f"{scope}.norm", x)
        case "norm":
            x = builder.batch_norm(scope, x)
        case "max-pool":
            x = builder.max_pool(scope, x, layer.kernel, layer.stride)
        case "global-pool":
            x = builder.simple("global-pool", "mean.dim", scope, inputs, (*shape[:2], 1, 1))
        case "add":
            for other in inputs[1:]:
                x = builder.simple("elementwise", "add.Tensor", scope, [x, other], shape, "add")
        case "concat":
            channels = sum(builder.shape(source)[1] for source in inputs)
            joined = (shape[0], channels, *shape[2:])
            x = builder.simple("copy", "cat.default", scope, inputs, joined)
    return builder.relu(scope, x) if layer.relu else x
