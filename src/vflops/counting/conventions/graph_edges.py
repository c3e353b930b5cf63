"""The edges of an operation graph in both directions, and what its values are computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

from vflops.record.formats.graph import Graph, Node

PRODUCTS = frozenset({"convolution", "dense", "product"})
"""Kinds that multiply and add."""
_BOUNDARIES = PRODUCTS | {"embedding", "normalization"}
"""Kinds at which a search ends: what lies beyond is another part of the model."""


class GraphEdges:
    """Searches in a graph, each up to the next product, lookup or normalization."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._producer: dict[int, int] = {}
        self._consumers: dict[int, list[int]] = {}
        for index, node in enumerate(graph.nodes):
            for value in node.inputs:
                self._consumers.setdefault(value, []).append(index)
            for value in node.outputs:
                self._producer[value] = index

    @cached_property
    def origins(self) -> list[frozenset[str] | None]:
        """For each value the parameters that it is computed from; None if inputs play a part.

        The result of a lookup is an activation, also if its indices are constants.
        """
        origins: list[frozenset[str] | None] = [
            frozenset({value.parameter} if value.parameter else ()) for value in self._graph.values
        ]
        for value in self._graph.inputs:
            origins[value] = None
        for node in self._graph.nodes:
            origin: frozenset[str] | None = None if node.kind == "embedding" else frozenset()
            for value in node.inputs:
                source = origins[value]
                origin = None if origin is None or source is None else origin | source
            for value in node.outputs:
                origins[value] = origin
        return origins

    def reads_parameter(self, values: Iterable[int]) -> bool:
        """Whether one of ``values`` is computed from parameters alone."""
        return any(self.origins[value] for value in values)

    def behind(self, value: int) -> set[int]:
        """Return the nodes that lead to ``value``, back to the next boundary and including it."""
        return self._search(self._producers([value]), lambda node: self._producers(node.inputs))

    def ahead(self, values: Iterable[int]) -> set[int]:
        """Return the nodes that ``values`` lead to, up to the next boundary and including it."""
        return self._search(self._users(values), lambda node: self._users(node.outputs))

    def model_inputs(self, values: Iterable[int]) -> set[int]:
        """Return the inputs of the model that ``values`` depend on."""
        seen = set(values)
        waiting = list(seen)
        while waiting:
            for index in self._producers([waiting.pop()]):
                new = set(self._graph.nodes[index].inputs) - seen
                seen |= new
                waiting += new
        return seen.intersection(self._graph.inputs)

    def _producers(self, values: Iterable[int]) -> list[int]:
        return [self._producer[value] for value in values if value in self._producer]

    def _users(self, values: Iterable[int]) -> list[int]:
        return [index for value in values for index in self._consumers.get(value, ())]

    def _search(self, start: list[int], next_nodes: Callable[[Node], list[int]]) -> set[int]:
        seen, waiting = set(start), list(start)
        while waiting:
            node = self._graph.nodes[waiting.pop()]
            if node.kind not in _BOUNDARIES:
                new = set(next_nodes(node)) - seen
                seen |= new
                waiting += new
        return seen
