"""How many bytes the parts of a split model exchange, from its graph of operations."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

from vflops.counting.conventions.executed import EXECUTED
from vflops.counting.count import count
from vflops.record.formats.graph import Graph

STAGES = 8
"""The number of stages that a model is divided into, unless it has fewer layers."""
_BYTES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "bool": 1}
"""Bytes per number by data type; other types have 4."""


@dataclass(frozen=True)
class Cuts:
    """The layers of a model, and the bytes per sample that pass between them."""

    layers: int
    """The number of layers with weights and operations; a model can be cut between any two."""
    activation_bytes: float
    """The mean bytes across a cut, over the cuts into stages of about equal work."""
    layer_bytes: float
    """Mean bytes of a layer's output."""
    stages: int
    """The number of stages."""


def find_cuts(graph: Graph, *, half_precision: bool = False) -> Cuts | None:
    """Return the cuts of a model; None if it has fewer than two layers.

    Two layers are separated where the fewest bytes pass: those of the values that are computed
    before the cut and used after it. The model's inputs and its weights do not count, because they
    are available everywhere. With ``half_precision``, floats have 2 bytes.
    """
    work = [ops.total if ops else 0 for ops in count(graph, EXECUTED).ops]
    layers = [
        number
        for number, node in enumerate(graph.nodes)
        if work[number] and any(value.parameter for value in graph.inputs_of(node))
    ]
    if len(layers) < 2:
        return None
    passing = _passing_bytes(graph, half_precision)
    between = [min(passing[first + 1 : last + 1]) for first, last in itertools.pairwise(layers)]
    done = list(itertools.accumulate(work))
    stages = min(STAGES, len(layers))
    chosen: list[int] = []
    for stage in range(1, stages):  # every stage has at least one layer
        work_before, first = done[-1] * stage / stages, chosen[-1] + 1 if chosen else 0
        candidates = range(first, len(layers) - stages + stage)
        chosen.append(min(candidates, key=lambda cut: abs(done[layers[cut]] - work_before)))
    output_bytes = [_size(graph, graph.nodes[layer].outputs[0], half_precision) for layer in layers]
    return Cuts(
        layers=len(layers),
        activation_bytes=statistics.fmean(between[cut] for cut in chosen) / graph.batch,
        layer_bytes=statistics.fmean(output_bytes) / graph.batch,
        stages=stages,
    )


def _passing_bytes(graph: Graph, half_precision: bool) -> list[int]:
    """Return the bytes that are computed and still needed, before each node and at the end."""
    producer: dict[int, int] = {}
    last_user: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        last_user.update((index, number) for index in node.inputs if index in producer)
        for index in node.outputs:
            producer.setdefault(index, number)
    last_user.update((index, len(graph.nodes)) for index in graph.outputs if index in producer)
    change = [0] * (len(graph.nodes) + 2)
    for index, last in last_user.items():
        size = _size(graph, index, half_precision)
        change[producer[index] + 1] += size
        change[last + 1] -= size
    return list(itertools.accumulate(change))[:-1]


def _size(graph: Graph, index: int, half_precision: bool) -> int:
    value = graph.values[index]
    number_bytes = 2 if half_precision and value.dtype == "float32" else _BYTES.get(value.dtype, 4)
    return value.elements * number_bytes
