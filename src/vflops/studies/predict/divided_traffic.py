"""What ranks send each other if they divide a model, from its graph and its declarations.

Tensor parallelism sums over the ranks (Shoeybi et al. 2019): the output of each pair of layers in
the forward pass, the gradient of its input in the backward pass, and the states of a divided
embedding. If the rows of an output layer are divided, the gradient of its input is summed as well,
and three numbers per token in fp32: the largest logit, the sum of exponentials and the logit of the
target.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vflops.record.formats.divisible import Divisible
from vflops.record.formats.graph import NO_ARITHMETIC, Graph, Node
from vflops.studies.predict.stage_traffic import enclosing, has_weights, value_bytes

_BYTES = 4
"""Bytes of a weight, a gradient or a number of a loss: fp32."""


@dataclass(frozen=True)
class DividedTraffic:
    """The sums and copies of a model that ranks divide; bytes are those of one rank's data."""

    sums: int
    """Sums over the ranks per step of tensor parallelism; 0 if nothing can be divided."""
    sum_bytes: float
    """The mean bytes of such a sum per sample."""
    divisor: int
    """Ranks of tensor parallelism must divide this number."""
    block_bytes: int
    """Bytes of the weights in blocks, which sharded ranks gather twice."""
    tied_bytes: int
    """Bytes of the copies of tied weights, whose gradients the stages of a pipeline sum."""
    hidden_bytes: int
    """Bytes of the matrices that Muon gathers."""


def divided_traffic(
    graph: Graph,
    divisible: Divisible,
    *,
    half_precision: bool = False,
    half_weights: bool = False,
) -> DividedTraffic:
    """Return what ranks send if they divide the model of ``graph``.

    With ``half_precision``, outputs of layers and their gradients have 2 bytes, except for those of
    an embedding, which have the precision of its weights (``half_weights``).
    """
    sums = list(_sums(graph, divisible, half_precision, half_weights))
    counts = [count for pair in divisible.pairs for count in pair.counts.values()]
    blocks = frozenset(divisible.blocks)
    return DividedTraffic(
        sums=len(sums) if divisible.pairs else 0,
        sum_bytes=math.fsum(sums) / len(sums) / graph.batch if sums else 0.0,
        divisor=math.gcd(*counts) if counts else 1,
        block_bytes=_weight_bytes(graph, (n for n in graph.parameters if enclosing(n, blocks))),
        tied_bytes=_tied_bytes(graph),
        hidden_bytes=_weight_bytes(graph, divisible.hidden_matrices),
    )


def _sums(
    graph: Graph, divisible: Divisible, half_precision: bool, half_weights: bool
) -> Iterator[int]:
    """Yield the bytes of each sum over the ranks."""
    for pair in divisible.pairs:
        for node in _products(graph, pair.second):
            yield value_bytes(graph, node.outputs[0], half_precision)
        for node in _products(graph, pair.first[0]):
            yield from _input_gradient(graph, node, half_precision)
    for layer in divisible.rows:
        for node in _products(graph, layer):
            if node.kind == "embedding":
                yield value_bytes(graph, node.outputs[0], half_weights)
                continue
            yield from _input_gradient(graph, node, half_precision)
            rows = graph.output_of(node).elements // graph.output_of(node).shape[-1]
            yield from (_BYTES * rows, 2 * _BYTES * rows)


def _products(graph: Graph, layer: str) -> list[Node]:
    """Return the nodes of a layer that compute with its weights."""
    return [
        node
        for node in graph.nodes
        if node.scope == layer and node.kind not in NO_ARITHMETIC and has_weights(graph, node)
    ]


def _input_gradient(graph: Graph, node: Node, half_precision: bool) -> Iterator[int]:
    index = next(index for index in node.inputs if not graph.values[index].parameter)
    if graph.values[index].grad:
        yield value_bytes(graph, index, half_precision)


def _tied_bytes(graph: Graph) -> int:
    """Return the bytes of tied weights, once for each layer that uses them beyond the first."""
    layers: dict[str, set[str]] = {}
    for node in graph.nodes:
        for value in graph.inputs_of(node):
            if value.parameter and node.kind not in NO_ARITHMETIC:
                layers.setdefault(value.parameter, set()).add(node.scope)
    return sum(_BYTES * graph.parameters.get(n, 0) * (len(s) - 1) for n, s in layers.items())


def _weight_bytes(graph: Graph, names: Iterable[str]) -> int:
    return sum(_BYTES * graph.parameters.get(name, 0) for name in names)
