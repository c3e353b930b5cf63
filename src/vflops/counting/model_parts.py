"""The parts of a transformer, found in its operation graph: attention, MLP, embedding and others.

Attention is the module that contains its products. The module around it is a layer, whose other
modules with weights are MLPs or, if a router chooses among their weights, experts. What comes
before the first layer is the embedding, what comes after the last the output layer.
"""

from __future__ import annotations

from vflops.counting.conventions.transformer_graph import TransformerGraph
from vflops.errors import UsageError
from vflops.record.formats.graph import Graph

ATTENTION = "attention"
MLP = "MLP"
EXPERTS = "experts"
NORMS = "norms and sums"
EMBEDDING = "embedding"
OUTPUT = "output layer and loss"
OTHER = "between the layers"


def model_parts(graph: Graph) -> tuple[str, ...] | None:
    """Return the part that each node belongs to; None unless the model is a transformer.

    None also if its attention is not a module of its own within a layer.
    """
    if not graph.looks_up_tokens:
        return None
    try:
        transformer = TransformerGraph(graph)
    except UsageError:
        return None
    attentions = frozenset(graph.nodes[index].scope for index in transformer.attention)
    layers = frozenset(_parent(scope) for scope in attentions)
    if "" in attentions or "" in layers:
        return None
    children = [_layer_and_child(node.scope, layers) for node in graph.nodes]
    inside = [index for index, (layer, _) in enumerate(children) if layer is not None]
    weighted = {children[index] for index in transformer.weight_products}
    routed = {children[index] for index in transformer.routers}

    def part(index: int) -> str:
        layer, child = children[index]
        if layer is not None and f"{layer}.{child}" in attentions:
            return ATTENTION
        if layer is None:
            return EMBEDDING if index < inside[0] else OUTPUT if index > inside[-1] else OTHER
        if child is None or (layer, child) not in weighted:
            return NORMS
        return EXPERTS if (layer, child) in routed else MLP

    return tuple(part(index) for index in range(len(graph.nodes)))


def _parent(scope: str) -> str:
    return scope.rpartition(".")[0]


def _layer_and_child(scope: str, layers: frozenset[str]) -> tuple[str | None, str | None]:
    """Return the layer that a scope is in, and its module there; None for those it is not in."""
    parts = scope.split(".")
    for size in range(len(parts), 0, -1):
        layer = ".".join(parts[:size])
        if layer in layers:
            return layer, parts[size] if len(parts) > size else None
    return None, None
