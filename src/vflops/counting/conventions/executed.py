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

TORCH_HAS_A_FORMULA = frozenset(
    "mm addmm bmm baddbmm _scaled_mm convolution _convolution cudnn_convolution "
    "convolution_overrideable _slow_conv2d_forward convolution_backward "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention_backward "
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_cudnn_attention_backward "
    "_flash_attention_forward _efficient_attention_forward _flash_attention_backward "
    "_efficient_attention_backward".split()
)
"""ATen operators that FlopCounterMode counts; operators that write in place have other names."""

_GRADIENTS_WITHOUT_FORMULA = frozenset("mv addmv dot vdot".split())
"""Products with a vector: torch has no formula for their gradients either."""


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
    if OPERATIONS in node.attributes:
        forward = node.attributes.get(FLOP_COUNTER, counted.forward)
        assert isinstance(forward, int)
        return Ops(forward if _torch_counts(node) else 0, counted.backward)
    name = node.op.split(".")[1].removesuffix("_") if node.op.startswith("aten.") else node.op
    if name in _GRADIENTS_WITHOUT_FORMULA:
        return Ops()
    backward = counted.backward
    if node.kind == "convolution" and graph.inputs_of(node)[1].grad and backward:
        backward += counted.forward * (int(str(node.attributes["groups"])) - 1)
    return Ops(counted.forward if _torch_counts(node) else 0, backward)


def _is_product(node: Node) -> bool:
    return node.kind in ("convolution", "dense", "product")


def _torch_counts(node: Node) -> bool:
    namespace, _, name = node.op.partition(".")
    return namespace != "aten" or name.split(".")[0] in TORCH_HAS_A_FORMULA


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
    version=2,
    title="what FlopCounterMode says",
    source="torch.utils.flop_counter",
    rule=_executed_torch,
    counts_gradients=True,
)
