"""The counts of HPC AI500 V3.0, table 3; the backward pass counts twice the forward pass.

The table counts a fully-connected layer without the factor 2 that a convolution has. ``hpcai500``
counts as printed, ``hpcai500-fc2`` with the factor. The paper ignores operators that the table
does not list; here they are reported as not counted.

The table knows no transformers. In a model that looks up tokens, what it does not list is counted
in its terms: a product of activations like a convolution, 2 operations per multiply-accumulate;
softmax, sums and losses like a normalization, 1 per element; a lookup does no arithmetic. Other
networks are counted as published.
"""

from __future__ import annotations

from vflops.counting.conventions.base import Convention, Ops, macc, only_moves
from vflops.record.formats.graph import Graph, Node

BACKWARD_FACTOR = 2
"""Backward operations per forward operation."""


def _count(graph: Graph, index: int, *, dense_factor: int) -> Ops | None:
    node = graph.nodes[index]
    match node.kind:
        case "convolution":
            forward = 2 * macc(graph, node)
        case "dense":
            forward = dense_factor * macc(graph, node)
        case "activation" | "elementwise":
            forward = graph.output_of(node).elements
        case "max-pool" | "average-pool" | "global-pool" | "normalization":
            forward = graph.inputs_of(node)[0].elements
        case _:
            of_tokens = _of_tokens(graph, node) if graph.looks_up_tokens else None
            if of_tokens is None:
                return None
            forward = of_tokens
    return Ops(forward=forward, backward=BACKWARD_FACTOR * forward)


def _of_tokens(graph: Graph, node: Node) -> int | None:
    """Return the forward operations of what the table does not list, in a model on tokens."""
    match node.kind:
        case "product":
            return 2 * macc(graph, node)
        case "softmax" | "reduction" | "loss":
            return graph.inputs_of(node)[0].elements
        case "embedding":
            return 0
        case _:
            return 0 if only_moves(node) else None


HPCAI500 = Convention(
    id="hpcai500",
    version=1,
    title="HPC AI500, as printed",
    source="HPC AI500 V3.0, table 3",
    rule=lambda graph, index: _count(graph, index, dense_factor=1),
)
HPCAI500_FC2 = Convention(
    id="hpcai500-fc2",
    version=1,
    title="HPC AI500, fully-connected with the factor 2",
    source="HPC AI500 V3.0, table 3, corrected",
    rule=lambda graph, index: _count(graph, index, dense_factor=2),
)
