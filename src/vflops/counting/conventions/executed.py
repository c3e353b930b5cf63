"""What the framework runs on matrix units: convolutions and products, 2 per multiply-accumulate.

Only gradients that training needs are counted: none for an input image, none behind a detach.
``executed`` counts a grouped convolution as it runs. ``executed-torch`` is torch's own
FlopCounterMode to the integer: it charges the weight gradient of a grouped convolution as if
there were no groups (``groups`` times too much), which would put a depthwise network above any
ceiling; it is kept for comparison with published figures that were obtained with it.
"""

from __future__ import annotations

from vflops.counting.conventions.base import Convention, Ops, macc
from vflops.record.formats.graph import Graph


def _count(graph: Graph, index: int, *, as_torch: bool) -> Ops | None:
    node = graph.nodes[index]
    if node.kind not in ("convolution", "dense", "product"):
        return None
    once = 2 * macc(graph, node)
    left, right = (value.grad for value in graph.inputs_of(node)[:2])
    if index not in graph.backward_nodes:
        return Ops(forward=once)
    groups = int(str(node.attributes["groups"])) if node.kind == "convolution" and as_torch else 1
    return Ops(forward=once, backward=once * left + once * groups * right)


EXECUTED = Convention(
    id="executed",
    version=1,
    title="what the framework runs",
    source="convolutions and products with the gradients that training needs",
    rule=lambda graph, index: _count(graph, index, as_torch=False),
)
EXECUTED_TORCH = Convention(
    id="executed-torch",
    version=1,
    title="what FlopCounterMode says",
    source="torch.utils.flop_counter",
    rule=lambda graph, index: _count(graph, index, as_torch=True),
)
