"""Bytes that an operator must move if it reads or writes each of its tensors once.

This is the memory traffic of a framework with one kernel per operator. A compiler that fuses
element-wise operators moves less, so it can exceed the bound that follows from these bytes.
torch's attention is one kernel although the graph shows its operators: what they pass to each other
never leaves it.
"""

from __future__ import annotations

from collections.abc import Collection

from vflops.counting.conventions.graph_edges import PRODUCTS, GraphEdges
from vflops.record.formats.graph import NO_ARITHMETIC, Graph, Node, Value

BYTES_OF = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
"""Bytes of one element in each precision."""

_LINEAR = frozenset({"add", "sub", "rsub", "neg", "mean", "sum"})
_FUSED_SOFTMAX = "aten._safe_softmax"
"""The softmax of torch's scaled_dot_product_attention; others are operators of their own."""


def inner_values(graph: Graph) -> frozenset[int]:
    """Return the values that stay within torch's kernel of attention: the scores and their mask."""
    softmaxes = [node for node in graph.nodes if node.op.startswith(_FUSED_SOFTMAX)]
    if not softmaxes:
        return frozenset()
    edges, inner = GraphEdges(graph), set[int]()
    for softmax in softmaxes:
        inner.update(softmax.outputs)
        for index in edges.behind(softmax.inputs[0]):
            inner.update(graph.nodes[index].outputs)
        for index in edges.ahead(softmax.outputs):
            if graph.nodes[index].kind not in PRODUCTS:
                inner.update(graph.nodes[index].outputs)
    return frozenset(inner)


def forward_bytes(graph: Graph, node: Node, precision: str, inner: Collection[int] = ()) -> int:
    """Return the bytes that the forward pass of ``node`` reads and writes.

    The values ``inner`` stay within a kernel.
    """
    if node.kind in NO_ARITHMETIC and node.kind != "copy":
        return 0
    values = (graph.values[i] for i in (*node.inputs, *node.outputs) if i not in inner)
    return sum(size(value, precision) for value in values)


def backward_bytes(graph: Graph, index: int, precision: str, inner: Collection[int] = ()) -> int:
    """Return the bytes that the backward pass of a node reads and writes; 0 if it has none.

    The values ``inner`` stay within a kernel.
    """
    node = graph.nodes[index]
    if index not in graph.backward_nodes or node.kind in NO_ARITHMETIC:
        return 0

    def moved(value: int) -> int:
        return 0 if value in inner else size(graph.values[value], precision)

    result = moved(node.outputs[0])
    if node.kind in PRODUCTS:
        left, right = (moved(value) for value in node.inputs[:2])
        gradients = sum(value.grad for value in graph.inputs_of(node)[:2])
        return gradients * (result + left + right)
    saved = 0 if node.attributes.get("function") in _LINEAR else moved(node.inputs[0])
    return result + saved + sum(moved(i) for i in node.inputs if graph.values[i].grad)


def size(value: Value, precision: str) -> int:
    """Return the bytes of a tensor whose floating-point numbers have this ``precision``."""
    if value.dtype.startswith(("float", "bfloat")):
        return value.elements * BYTES_OF[precision]
    return value.elements * (1 if value.dtype in ("bool", "uint8", "int8") else 8)
