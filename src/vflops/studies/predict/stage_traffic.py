"""How many bytes the stages of a cut model exchange, from its graph of operations."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

from vflops.counting.conventions.executed import EXECUTED
from vflops.counting.count import count
from vflops.record.formats.graph import Graph, Node

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
    """The mean bytes across a cut in one direction, over the cuts into stages of about equal work;
    half of the bytes of activations and of their gradients."""
    layer_bytes: float
    """Mean bytes of a layer's output."""
    stages: int
    """The number of stages."""


@dataclass(frozen=True)
class _Layer:
    """The nodes from ``first`` to ``last``, which are never on two stages."""

    first: int
    last: int


def find_cuts(graph: Graph, *, half_precision: bool = False) -> Cuts | None:
    """Return the cuts of a model; None if it has fewer than two layers.

    A layer is an operator with weights, or a module that the model declares as whole. Two layers
    are separated where the fewest bytes pass: those of the values that are computed before the cut
    and used after it. The model's inputs and its weights do not count, because they are available
    everywhere. With ``half_precision``, floats with gradients have 2 bytes.
    """
    work = [ops.total if ops else 0 for ops in count(graph, EXECUTED).ops]
    layers = _layers(graph, work)
    if len(layers) < 2:
        return None
    passing = _passing_bytes(graph, half_precision)
    between = [
        min(passing[before.last + 1 : after.first + 1])
        for before, after in itertools.pairwise(layers)
    ]
    done = list(itertools.accumulate(work))
    stages = min(STAGES, len(layers))
    chosen: list[int] = []
    for stage in range(1, stages):  # every stage has at least one layer
        work_before, first = done[-1] * stage / stages, chosen[-1] + 1 if chosen else 0
        candidates = range(first, len(layers) - stages + stage)
        chosen.append(min(candidates, key=lambda cut: abs(done[layers[cut].last] - work_before)))
    output_bytes = [
        value_bytes(graph, graph.nodes[layer.last].outputs[0], half_precision) for layer in layers
    ]
    return Cuts(
        layers=len(layers),
        activation_bytes=statistics.fmean(between[cut] for cut in chosen) / graph.batch,
        layer_bytes=statistics.fmean(output_bytes) / graph.batch,
        stages=stages,
    )


def _layers(graph: Graph, work: list[int]) -> list[_Layer]:
    """Return the layers with weights and operations, in the order of execution."""
    whole = frozenset(graph.divisible.whole if graph.divisible else ())
    modules: dict[str, list[int]] = {}
    for number, node in enumerate(graph.nodes):
        path = enclosing(node.scope, whole)
        modules.setdefault(f"node {number}" if path is None else path, []).append(number)
    return sorted(
        (
            _Layer(min(numbers), max(numbers))
            for numbers in modules.values()
            if any(work[number] for number in numbers)
            and any(has_weights(graph, graph.nodes[number]) for number in numbers)
        ),
        key=lambda layer: layer.first,
    )


def enclosing(scope: str, modules: frozenset[str]) -> str | None:
    """Return which of ``modules`` contains the module ``scope`` or is it; None if none does."""
    if not modules or not scope:
        return None
    paths = itertools.accumulate(scope.split("."), "{}.{}".format)
    return next((path for path in paths if path in modules), None)


def has_weights(graph: Graph, node: Node) -> bool:
    """Whether a parameter is among the operands of ``node``."""
    return any(value.parameter for value in graph.inputs_of(node))


def _passing_bytes(graph: Graph, half_precision: bool) -> list[float]:
    """Return the bytes that would pass before each node and at the end, in one direction.

    Values without a gradient, such as the angles of rotary positions, are sent forward only, so
    half of their bytes count.
    """
    producer: dict[int, int] = {}
    last_user: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        last_user.update((index, number) for index in node.inputs if index in producer)
        for index in node.outputs:
            producer.setdefault(index, number)
    last_user.update((index, len(graph.nodes)) for index in graph.outputs if index in producer)
    change = [0.0] * (len(graph.nodes) + 2)
    for index, last in last_user.items():
        if graph.values[index].parameter:
            continue
        both_ways = 1.0 if graph.values[index].grad else 0.5
        size = both_ways * value_bytes(graph, index, half_precision)
        change[producer[index] + 1] += size
        change[last + 1] -= size
    return list(itertools.accumulate(change))[:-1]


def value_bytes(graph: Graph, index: int, half_precision: bool) -> int:
    """Return the bytes of a value; with ``half_precision``, fp32 with a gradient has 2 bytes."""
    value = graph.values[index]
    is_half = half_precision and value.grad and value.dtype == "float32"
    return value.elements * (2 if is_half else _BYTES.get(value.dtype, 4))
