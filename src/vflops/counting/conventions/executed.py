"""Counts what the framework executes: convolutions and matrix products.

A multiply-accumulate counts as 2 operations. Only gradients that training needs are counted: none
for an input image, none for an operand that was detached.
``executed`` counts a grouped convolution as it is executed. ``executed-torch`` gives exactly the
counts of torch's FlopCounterMode, which counts the weight gradient of a grouped convolution as if
there were no groups (``groups`` times too much). With it, a depthwise network would exceed any
ceiling; it exists for comparison with published figures that were obtained with FlopCounterMode.
"""

from __future__ import annotations

from vflops.counting.conventions.base import Convention, Ops, macc
from vflops.record.formats.graph import Graph


def _count(graph: Graph, index: int, *, like_torch: bool) -> Ops | None:
    node = graph.nodes[index]
    if node.kind not in ("convolution", "dense", "product"):
        return None
    forward = 2 * macc(graph, node)
    left, right = (value.grad for value in graph.inputs_of(node)[:2])
    if index not in graph.backward_nodes:
        return Ops(forward=forward)
    groups = int(str(node.attributes["groups"])) if node.kind == "convolution" and like_torch else 1
    return Ops(forward=forward, backward=forward * left + forward * groups * right)


EXECUTED = Convention(
    id="executed",
    version=1,
    title="what the framework runs",
    source="convolutions and products with the gradients that training needs",
    rule=lambda graph, index: _count(graph, index, like_torch=False),
    counts_gradients=True,
)
EXECUTED_TORCH = Convention(
    id="executed-torch",
    version=1,
    title="what FlopCounterMode says",
    source="torch.utils.flop_counter",
    rule=lambda graph, index: _count(graph, index, like_torch=True),
    counts_gradients=True,
)
