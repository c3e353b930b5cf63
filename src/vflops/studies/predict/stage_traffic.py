"""What parts of a model would send each other, from the counted operation graph."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

from vflops.counting.conventions.executed import EXECUTED
from vflops.counting.count import count
from vflops.record.formats.graph import Graph

STAGES = 8
"""The number of stages of equal work, at most the number of layers."""
_BYTES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "bool": 1}
"""Bytes of a number; other types have 4."""


@dataclass(frozen=True)
class Cuts:
    """A model's layers, and the bytes of one sample that pass between them."""

    layers: int
    """Layers with weights and work: any two can be cut apart."""
    activation_bytes: float
    """Bytes across a cut: the mean over the cuts into stages of about equal work."""
    layer_bytes: float
    """Mean bytes of a layer's output."""
    stages: int
    """The number of stages."""


def cuts(graph: Graph, *, halved: bool = False) -> Cuts | None:
    """Return the cuts of a model; None with fewer than two layers. ``halved``: floats of 2 bytes.

    A cut between two layers is where the least bytes pass: values that are computed before it and
    used after it. Inputs of the model and weights are available everywhere.
    """
    work = [ops.total if ops else 0 for ops in count(graph, EXECUTED).ops]
    layers = [
        number
        for number, node in enumerate(graph.nodes)
        if work[number] and any(value.parameter for value in graph.inputs_of(node))
    ]
    if len(layers) < 2:
        return None
    passing = _passing(graph, halved)
    between = [min(passing[first + 1 : last + 1]) for first, last in itertools.pairwise(layers)]
    done = list(itertools.accumulate(work))
    stages = min(STAGES, len(layers))
    chosen: list[int] = []
    for stage in range(1, stages):  # each stage has a layer, so no cut is used twice
        wanted, first = done[-1] * stage / stages, chosen[-1] + 1 if chosen else 0
        free = range(first, len(layers) - stages + stage)
        chosen.append(min(free, key=lambda at: abs(done[layers[at]] - wanted)))
    given = [_size(graph, graph.nodes[layer].outputs[0], halved) for layer in layers]
    return Cuts(
        layers=len(layers),
        activation_bytes=statistics.fmean(between[at] for at in chosen) / graph.batch,
        layer_bytes=statistics.fmean(given) / graph.batch,
        stages=stages,
    )


def _passing(graph: Graph, halved: bool) -> list[int]:
    """Return, before each node and at the end, the bytes that exist and are still needed."""
    made: dict[int, int] = {}
    used: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        used.update((index, number) for index in node.inputs if index in made)
        for index in node.outputs:
            made.setdefault(index, number)
    used.update((index, len(graph.nodes)) for index in graph.outputs if index in made)
    change = [0] * (len(graph.nodes) + 2)
    for index, last in used.items():
        size = _size(graph, index, halved)
        change[made[index] + 1] += size
        change[last + 1] -= size
    return list(itertools.accumulate(change))[:-1]


def _size(graph: Graph, index: int, halved: bool) -> int:
    value = graph.values[index]
    number_bytes = 2 if halved and value.dtype == "float32" else _BYTES.get(value.dtype, 4)
    return value.elements * number_bytes
