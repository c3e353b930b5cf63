"""Builds operation graphs by hand, without torch: the nodes that torch would execute, by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vflops.record.formats.graph import Graph, Kind, Node, Value

Shape = tuple[int, ...]


class GraphBuilder:
    """A graph under construction; values are numbered in the order in which they are added."""

    def __init__(self) -> None:
        self._values: list[Value] = []
        self._nodes: list[Node] = []
        self._value_cache: dict[tuple[Shape, bool, str], Value] = {}
        self._parameters: dict[str, int] = {}

    def graph(self, name: str, batch: int, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
        """Return the graph with all nodes that were added."""
        return Graph.model_construct(  # valid by construction; validation is slow
            model=name,
            framework="architecture",
            batch=batch,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            parameters=self._parameters,
            values=tuple(self._values),
            nodes=tuple(self._nodes),
        )

    def shape(self, value: int) -> Shape:
        """Return the shape of a value."""
        return self._values[value].shape

    def value(self, shape: Shape, *, grad: bool = True, dtype: str = "float32") -> int:
        """Add a tensor."""
        key = (shape, grad, dtype)
        if key not in self._value_cache:  # immutable, so equal ones can be shared
            self._value_cache[key] = Value.model_construct(shape=shape, dtype=dtype, grad=grad)
        self._values.append(self._value_cache[key])
        return len(self._values) - 1

    def parameter(self, name: str, shape: Shape) -> int:
        """Add a trainable parameter, or another view of it."""
        self._parameters[name] = math.prod(shape)
        value = Value.model_construct(shape=shape, dtype="float32", grad=True, parameter=name)
        self._values.append(value)
        return len(self._values) - 1

    def node(
        self,
        kind: Kind,
        op: str,
        scope: str,
        inputs: Sequence[int],
        results: Sequence[int],
        attributes: dict[str, Any] | None = None,
    ) -> None:
        """Add an operator of ATen."""
        node = Node.model_construct(
            kind=kind,
            op=f"aten.{op}",
            scope=scope,
            inputs=tuple(inputs),
            outputs=tuple(results),
            attributes=attributes or {},
        )
        self._nodes.append(node)

    def simple(
        self,
        kind: Kind,
        op: str,
        scope: str,
        inputs: Sequence[int],
        shape: Shape,
        function: str | None = None,
        *,
        grad: bool = True,
    ) -> int:
        """Add an operator with one result, and return the result."""
        result = self.value(shape, grad=grad)
        self.node(kind, op, scope, inputs, [result], {"function": function} if function else {})
        return result

    def convolution(
        self, scope: str, x: int, filters: int, kernel: int, stride: int = 1, *, bias: bool = False
    ) -> int:
        """Add a convolution of a batch of images, padded by ``kernel // 2``; return its result."""
        batch, channels, *plane = self.shape(x)
        window = (kernel, kernel)
        operands = [x, self.parameter(f"{scope}.weight", (filters, channels, *window))]
        if bias:
            operands.append(self.parameter(f"{scope}.bias", (filters,)))
        result = self.value((batch, filters, *(-(-size // stride) for size in plane)))
        attributes = {
            "kernel": window,
            "groups": 1,
            "transposed": False,
            "stride": (stride, stride),
            "padding": (kernel // 2, kernel // 2),
            "dilation": (1, 1),
        }
        self.node("convolution", "convolution.default", scope, operands, [result], attributes)
        return result

    def batch_norm(self, scope: str, x: int) -> int:
        """Add a batch normalization and return its result."""
        channels = (self.shape(x)[1],)
        scale = [self.parameter(f"{scope}.{name}", channels) for name in ("weight", "bias")]
        running = [self.value(channels, grad=False) for _ in range(2)]
        result = self.value(self.shape(x))
        saved = [self.value(channels, grad=False) for _ in range(2)]
        attributes = {"function": "native_batch_norm"}
        inputs, results = [x, *scale, *running], [result, *saved]
        self.node("normalization", "native_batch_norm.default", scope, inputs, results, attributes)
        return result

    def relu(self, scope: str, x: int) -> int:
        """Add a ReLU and return its result."""
        return self.simple("activation", "relu_.default", scope, [x], self.shape(x), "relu")

    def max_pool(self, scope: str, x: int, kernel: int, stride: int) -> int:
        """Add a max-pooling, padded by ``kernel // 2``, and return its result."""
        batch, channels, *plane = self.shape(x)
        shape = (batch, channels, *(-(-size // stride) for size in plane))
        results = [self.value(shape), self.value(shape, grad=False, dtype="int64")]
        op, attributes = "max_pool2d_with_indices.default", {"kernel": (kernel, kernel)}
        self.node("max-pool", op, scope, [x], results, attributes)
        return results[0]

    def dense(self, scope: str, x: int, outputs: int, *, bias: bool = True) -> int:
        """Add a dense layer for the rows of ``x``, and return its result."""
        rows, channels = self.shape(x)
        weight = self.parameter(f"{scope}.weight", (outputs, channels))
        transposed = self.parameter(f"{scope}.weight", (channels, outputs))
        self.node("layout", "t.default", scope, [weight], [transposed])
        operands, op = [x, transposed], "mm.default"
        if bias:
            operands, op = [*operands, self.parameter(f"{scope}.bias", (outputs,))], "addmm.default"
        return self.simple("dense", op, scope, operands, (rows, outputs))

    def softmax(self, function: str, scope: str, scores: int, *, dim: int) -> int:
        """Add a softmax along ``dim``, and return its result."""
        result = self.value(self.shape(scores))
        attributes = {"function": function, "dim": dim}
        self.node("softmax", f"{function}.default", scope, [scores], [result], attributes)
        return result

    def cross_entropy(
        self, scores: int, label_smoothing: float = 0.0, *, by_row: bool = False
    ) -> int:
        """Add the loss of class scores (rows, classes), and return its mean or that of each row."""
        rows = self.shape(scores)[0]
        labels = self.value((rows,), grad=False, dtype="int64")
        softmax = self.softmax("_log_softmax", "", scores, dim=1)
        results = [self.value((rows,) if by_row else ()), self.value((), grad=False)]
        attributes = {"function": "nll_loss_forward"}
        self.node("loss", "nll_loss_forward.default", "", [softmax, labels], results, attributes)
        if not label_smoothing:
            return results[0]
        each = self.simple("reduction", "sum.dim_IntList", "", [softmax], (rows,), "sum")
        each = self.simple("elementwise", "neg.default", "", [each], (rows,), "neg")
        smooth = self.simple("reduction", "sum.default", "", [each], (), "sum")
        smooth = self.simple("elementwise", "div.Tensor", "", [smooth], (), "div")
        parts = [
            self.simple("elementwise", "mul.Scalar", "", [part], (), "mul")
            for part in (results[0], smooth)
        ]
        return self.simple("elementwise", "add.Tensor", "", parts, (), "add")
