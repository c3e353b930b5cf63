"""Counts what the framework executes: convolutions and matrix products.

A multiply-accumulate counts as 2 operations. Only gradients that training needs are counted: none
for an input image, none for an operand that was detached.
``executed`` counts all products as they are executed. ``executed-torch`` gives exactly the counts
of torch's FlopCounterMode, which counts the weight gradient of a grouped convolution as if there
were no groups (``groups`` times too much) and misses products for which it has no formula, such as
those with a vector. With it, a depthwise network would exceed any ceiling; it exists for comparison
with published figures that were obtained with FlopCounterMode.
"""

from __future__ import annotations

from vflops.counting.conventions.base import Convention, Ops, macc
from vflops.record.formats.graph import FLOP_COUNTER, OPERATIONS, Graph, Node


def _executed(graph: Graph, index: int) -> Ops | None:
    node = graph.nodes[index]
    operations = node.attributes.get(OPERATIONS)
    if isinstance(operations, int):
        return Ops(operations, _gradients_of(graph, index, operations))
    if not _is_product(node):
        return None
    forward = 2 * macc(graph, node)
    if index not in graph.backward_nodes:
        return Ops(forward=forward)
    left, right = (value.grad for value in graph.inputs_of(node)[:2])
    return Ops(forward=forward, backward=forward * left + forward * right)


def _executed_torch(graph: Graph, index: int) -> Ops | None:
    node = graph.nodes[index]
    counted = _executed(graph, index)
    if counted is None:
        return None
    backward = counted.backward
    if node.kind == "convolution" and graph.inputs_of(node)[1].grad and backward:
        backward += counted.forward * (int(str(node.attributes["groups"])) - 1)
    forward = node.attributes.get(FLOP_COUNTER, counted.forward)
    assert isinstance(forward, int)
    has_vector = any(len(value.shape) == 1 for value in graph.inputs_of(node)[:2])
    if forward == 0 and has_vector:
        backward = 0  # its gradients are products with a vector, too
    return Ops(forward, backward)


def _is_product(node: Node) -> bool:
    return node.kind in ("convolution", "dense", "product")


def _gradients_of(graph: Graph, index: int, operations: int) -> int:
    """Return the operations of the gradients of an operator with a formula of its own.

    If the backward pass was run, they are nodes of it.
    """
    if graph.backward is not None or index not in graph.backward_nodes:
        return 0
    node = graph.nodes[index]
    return operations * sum(value.grad for value in graph.inputs_of(node)[:2])


EXECUTED = Convention(
    id="executed",
    version=1,
    title="what the framework runs",
    source="convolutions and products with the gradients that training needs",
    rule=_executed,
    counts_gradients=True,
)
EXECUTED_TORCH = Convention(
    id="executed-torch",
    version=1,
    title="what FlopCounterMode says",
    source="torch.utils.flop_counter",
    rule=_executed_torch,
    counts_gradients=True,
)
