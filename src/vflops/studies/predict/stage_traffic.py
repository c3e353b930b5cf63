"""What parts of a model would send each other, from the operation graph that a run counted."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

from vflops.counting.conventions.executed import EXECUTED
from vflops.counting.count import count
from vflops.record.formats.graph import Graph

STAGES = 8
"""Of equal work, or as many as there are layers: between them is looked."""
_BYTES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "bool": 1}
"""Of a number; all others have 4."""


@dataclass(frozen=True)
class Cuts:
    """A model's layers, and the bytes of one sample that pass between them."""

    layers: int
    """That learn and compute: between any two there may be a cut."""
    activation_bytes: float
    """That pass a cut: the mean over the cuts into stages of about equal work."""
    layer_bytes: float
    """Of what a layer gives: the mean."""
    stages: int
    """That these cuts make."""


def cuts(graph: Graph, *, halved: bool = False) -> Cuts | None:
    """Of the model; None where it has no two layers. ``halved``: trained with floats of 2 bytes.

    A cut between two layers is where the least passes: what was made before it and is used behind
    it. Inputs of the model and weights are where they are used.
    """
    work = [each.total if each else 0 for each in count(graph, EXECUTED).ops]
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
    for stage in range(1, stages):  # each has a layer: no cut twice, and enough are left
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
    """Before each node, and at the end: bytes that were made by then and are used from there on."""
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
    each = 2 if halved and value.dtype == "float32" else _BYTES.get(value.dtype, 4)
    return value.elements * each
