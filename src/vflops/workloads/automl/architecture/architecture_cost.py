"""Computes operations and memory of a network from its architecture, without torch."""

from __future__ import annotations

from typing import Any

from vflops.counting.conventions import Ops, convention
from vflops.counting.count import count
from vflops.record.formats.graph import Graph, Kind, Node, Value
from vflops.workloads.automl.architecture.layer_graph import IMAGE, Architecture, Layer

_BYTES_PER_INDEX = 8
_BYTES_PER_PARAMETER = 12
"""A weight, its gradient and its momentum, always in single precision."""
_NEEDS_INPUT = ("conv", "norm", "max-pool", "dense")
"""Kinds of layers whose backward pass needs their input."""


def graph(architecture: Architecture, batch: int = 1, *, name: str = "architecture") -> Graph:
    """Return the operation graph of one batch, with cross entropy as the loss.

    It has the same nodes as a graph captured from the built module, but is made a hundred times
    faster.
    """
    return _GraphBuilder(architecture, batch).graph(name)


def ops(architecture: Architecture, rules: str = "aiperf", batch: int = 1) -> Ops:
    """Return the operations of one training step by a counting convention."""
    return count(graph(architecture, batch), convention(rules)).total


def memory_bytes(architecture: Architecture, batch: int, bytes_per_value: int = 4) -> int:
    """Estimate the memory of training: parameters, and activations for the backward pass.

    Kernel workspace and fragmentation depend on the device and are not included.
    """
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
    activations = batch * (values * bytes_per_value + indices * _BYTES_PER_INDEX)
    return activations + architecture.parameters * _BYTES_PER_PARAMETER


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


class _GraphBuilder:
    """Builds a graph of the operations that torch would execute for each layer."""

    def __init__(self, architecture: Architecture, batch: int) -> None:
        self._architecture = architecture
        self._batch = batch
        self._values: list[Value] = []
        self._nodes: list[Node] = []
        self._value_cache: dict[tuple[tuple[int, ...], bool, str], Value] = {}
        self._parameters: dict[str, int] = {}
        self._results = {IMAGE: self._value((batch, *architecture.input_shape), grad=False)}

    def graph(self, name: str) -> Graph:
        for layer in self._architecture.layers:
            self._layer(layer)
        logits = self._results[self._architecture.layers[-1].id]
        classes = self._architecture.classes
        labels = self._value((self._batch,), grad=False, dtype="int64")
        softmax = self._value((self._batch, classes))
        attributes = {"function": "_log_softmax", "dim": 1}
        self._node("softmax", "_log_softmax.default", "", [logits], [softmax], attributes)
        loss = self._value(())
        attributes = {"function": "nll_loss_forward"}
        results = [loss, self._value((), grad=False)]
        self._node("loss", "nll_loss_forward.default", "", [softmax, labels], results, attributes)
        return Graph.model_construct(  # valid by construction; validation is slow
            model=name,
            framework="architecture",
            batch=self._batch,
            inputs=(self._results[IMAGE],),
            outputs=(loss,),
            parameters=self._parameters,
            values=tuple(self._values),
            nodes=tuple(self._nodes),
        )

    def _layer(self, layer: Layer) -> None:
        scope = f"layers.{layer.id}"
        inputs = [self._results[source] for source in layer.inputs]
        channels = self._architecture.shapes[layer.inputs[0]][0]
        shape = (self._batch, *self._architecture.shapes[layer.id])
        match layer.kind:
            case "conv":
                result = self._convolution(layer, f"{scope}.conv", inputs[0], channels, shape)
                result = self._norm(f"{scope}.norm", result, shape)
            case "norm":
                result = self._norm(scope, inputs[0], shape)
            case "max-pool":
                result = self._value(shape)
                indices = self._value(shape, grad=False, dtype="int64")
                attributes = {"kernel": (layer.kernel, layer.kernel)}
                op = "max_pool2d_with_indices.default"
                self._node("max-pool", op, scope, inputs, [result, indices], attributes)
            case "global-pool":
                result = self._simple("global-pool", "mean.dim", scope, inputs, shape)
            case "add":
                result = inputs[0]
                for other in inputs[1:]:
                    pair = [result, other]
                    result = self._simple("elementwise", "add.Tensor", scope, pair, shape, "add")
            case "concat":
                result = self._simple("copy", "cat.default", scope, inputs, shape)
            case "dense":
                result = self._dense(scope, inputs[0], channels)
        if layer.relu:
            result = self._simple("activation", "relu_.default", scope, [result], shape, "relu")
        self._results[layer.id] = result

    def _convolution(
        self, layer: Layer, scope: str, x: int, channels: int, shape: tuple[int, ...]
    ) -> int:
        kernel = (layer.kernel, layer.kernel)
        weight = self._parameter(f"{scope}.weight", (layer.filters, channels, *kernel))
        result = self._value(shape)
        attributes = {
            "kernel": kernel,
            "groups": 1,
            "transposed": False,
            "stride": (layer.stride, layer.stride),
            "padding": (layer.kernel // 2, layer.kernel // 2),
            "dilation": (1, 1),
        }
        op = "convolution.default"
        self._node("convolution", op, scope, [x, weight], [result], attributes)
        return result

    def _norm(self, scope: str, x: int, shape: tuple[int, ...]) -> int:
        channels = (shape[1],)
        scale = [self._parameter(f"{scope}.{name}", channels) for name in ("weight", "bias")]
        running = [self._value(channels, grad=False) for _ in range(2)]
        result = self._value(shape)
        saved = [self._value(channels, grad=False) for _ in range(2)]
        attributes = {"function": "native_batch_norm"}
        inputs, results = [x, *scale, *running], [result, *saved]
        op = "native_batch_norm.default"
        self._node("normalization", op, scope, inputs, results, attributes)
        return result

    def _dense(self, scope: str, x: int, channels: int) -> int:
        classes, linear = self._architecture.classes, f"{scope}.linear"
        flat = self._simple("layout", "view.default", scope, [x], (self._batch, channels))
        weight = self._parameter(f"{linear}.weight", (classes, channels))
        transposed = self._parameter(f"{linear}.weight", (channels, classes))
        self._node("layout", "t.default", linear, [weight], [transposed])
        bias = self._parameter(f"{linear}.bias", (classes,))
        shape = (self._batch, classes)
        return self._simple("dense", "addmm.default", linear, [flat, transposed, bias], shape)

    def _simple(
        self,
        kind: Kind,
        op: str,
        scope: str,
        inputs: list[int],
        shape: tuple[int, ...],
        function: str | None = None,
    ) -> int:
        result = self._value(shape)
        self._node(kind, op, scope, inputs, [result], {"function": function} if function else {})
        return result

    def _node(
        self,
        kind: Kind,
        op: str,
        scope: str,
        inputs: list[int],
        results: list[int],
        attributes: dict[str, Any] | None = None,
    ) -> None:
        node = Node.model_construct(
            kind=kind,
            op=f"aten.{op}",
            scope=scope,
            inputs=tuple(inputs),
            outputs=tuple(results),
            attributes=attributes or {},
        )
        self._nodes.append(node)

    def _value(self, shape: tuple[int, ...], *, grad: bool = True, dtype: str = "float32") -> int:
        key = (shape, grad, dtype)
        if key not in self._value_cache:  # immutable, so equal ones can be shared
            self._value_cache[key] = Value.model_construct(shape=shape, dtype=dtype, grad=grad)
        self._values.append(self._value_cache[key])
        return len(self._values) - 1

    def _parameter(self, name: str, shape: tuple[int, ...]) -> int:
        self._parameters[name] = _elements(shape)
        value = Value.model_construct(shape=shape, dtype="float32", grad=True, parameter=name)
        self._values.append(value)
        return len(self._values) - 1
