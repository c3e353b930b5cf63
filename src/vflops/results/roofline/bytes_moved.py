"""Bytes that an operator must move if it reads or writes each of its tensors once.

This is the memory traffic of a framework with one kernel per operator. A compiler that fuses
element-wise operators moves less, so it can exceed the bound that follows from these bytes.
"""

from __future__ import annotations

from vflops.record.formats.graph import NO_ARITHMETIC, Graph, Node, Value

BYTES_OF = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
"""Bytes of one element in each precision."""

_LINEAR = frozenset({"add", "sub", "rsub", "neg", "mean", "sum"})
_PRODUCTS = frozenset({"convolution", "dense", "product"})


def forward_bytes(graph: Graph, node: Node, precision: str) -> int:
    """Return the bytes that the forward pass of ``node`` reads and writes."""
    if node.kind in NO_ARITHMETIC and node.kind != "copy":
        return 0
    values = (*graph.inputs_of(node), *(graph.values[index] for index in node.outputs))
    return sum(size(value, precision) for value in values)


def backward_bytes(graph: Graph, index: int, precision: str) -> int:
    """Return the bytes that the backward pass of a node reads and writes; 0 if it has none."""
    node = graph.nodes[index]
    if index not in graph.backward_nodes or node.kind in NO_ARITHMETIC:
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
    """Return the bytes of a tensor whose floating-point numbers have this ``precision``."""
    if value.dtype.startswith(("float", "bfloat")):
        return value.elements * BYTES_OF[precision]
    return value.elements * (1 if value.dtype in ("bool", "uint8", "int8") else 8)
