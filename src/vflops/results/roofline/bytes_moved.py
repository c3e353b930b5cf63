"""Bytes that a node must move: each tensor read or written once by each operator, no fusion.

That is the traffic of a framework that runs one kernel an operator; a compiler that fuses element-
wise operators moves less, so it may beat the bound drawn from these bytes, and is meant to.
"""

from __future__ import annotations

from vflops.record.formats.graph import NO_ARITHMETIC, Graph, Node, Value

BYTES_OF = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
"""Bytes of one element in each precision."""

_LINEAR = frozenset({"add", "sub", "rsub", "neg", "mean", "sum"})
_PRODUCTS = frozenset({"convolution", "dense", "product"})


def forward_bytes(graph: Graph, node: Node, precision: str) -> int:
    """What the forward pass of ``node`` reads and writes."""
    if node.kind in NO_ARITHMETIC and node.kind != "copy":
        return 0
    values = (*graph.inputs_of(node), *(graph.values[index] for index in node.outputs))
    return sum(size(value, precision) for value in values)


def backward_bytes(graph: Graph, index: int, precision: str) -> int:
    """What the backward pass of node ``index`` reads and writes; 0 where there is none."""
    node = graph.nodes[index]
    if index not in graph.trained or node.kind in NO_ARITHMETIC:
        return 0
    inputs = graph.inputs_of(node)
    result = size(graph.output_of(node), precision)
    if node.kind in _PRODUCTS:
        left, right = (size(value, precision) for value in inputs[:2])
        gradients = sum(value.grad for value in inputs[:2])
        return gradients * (result + left + right)
    saved = 0 if node.attributes.get("function") in _LINEAR else size(inputs[0], precision)
    return result + saved + sum(size(value, precision) for value in inputs if value.grad)


def size(value: Value, precision: str) -> int:
    """Bytes of a tensor when floating-point numbers are kept in ``precision``."""
    if value.dtype.startswith(("float", "bfloat")):
        return value.elements * BYTES_OF[precision]
    return value.elements * (1 if value.dtype in ("bool", "uint8", "int8") else 8)
