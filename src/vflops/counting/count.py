"""Counts the operations of a graph by a convention: in total, by kind and by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from vflops.counting.conventions.base import Convention, Ops
from vflops.counting.conventions.executed import EXECUTED
from vflops.counting.conventions.transformer_graph import token_count
from vflops.record.formats.graph import NO_ARITHMETIC, Graph

_KNOWN_NAMESPACES = ("aten", "prims", "vflops")


@dataclass(frozen=True)
class Row:
    """The operations of one kind of operator or of one layer."""

    name: str
    nodes: int
    ops: Ops
    ruled: bool
    """Whether the convention covers at least one of the nodes."""


@dataclass(frozen=True)
class Uncounted:
    """An operator that does arithmetic but is not covered by the convention."""

    op: str
    kind: str
    nodes: int
    share: float
    """Its share of the elements that all operators of the model read and write."""
    executed_share: float
    """Its share of the operations that the framework executes, by the convention ``executed``."""

    @property
    def is_foreign(self) -> bool:
        """Whether another package defines it, so that no convention knows what it computes."""
        return self.kind == "other" and self.op.partition(".")[0] not in _KNOWN_NAMESPACES


@dataclass(frozen=True)
class Count:
    """All operations of one batch by one convention."""

    graph: Graph
    convention: Convention
    ops: tuple[Ops | None, ...]
    """One entry per node of the graph; None if the convention does not cover it."""

    @cached_property
    def total(self) -> Ops:
        """The operations of the whole model."""
        return _sum(self.ops)

    @cached_property
    def tokens(self) -> int | None:
        """The number of tokens in the batch; None if the model does not look up tokens."""
        return token_count(self.graph)

    @property
    def per_token(self) -> int | float | None:
        """The operations of the whole model per token: an integer where the division is exact."""
        if self.tokens is None:
            return None
        whole, rest = divmod(self.total.total, self.tokens)
        return self.total.total / self.tokens if rest else whole

    @property
    def by_kind(self) -> list[Row]:
        """Totals per kind of operator that does arithmetic, largest first."""
        rows = self._rows(lambda index: self.graph.nodes[index].kind)
        return sorted(rows, key=lambda row: (-row.ops.total, row.name))

    @property
    def by_layer(self) -> list[Row]:
        """Totals per module, in the order of execution."""
        return self._rows(lambda index: self.graph.nodes[index].scope or "(model)")

    @cached_property
    def uncounted(self) -> tuple[Uncounted, ...]:
        """Operators that are not counted, in descending order of their share of elements."""
        elements_by_node = self.graph.elements_touched
        executed_by_node = [ops.total if ops else 0 for ops in count(self.graph, EXECUTED).ops]
        groups: dict[tuple[str, str], list[int]] = {}
        for index in self._arithmetic_nodes():
            if self.ops[index] is None:
                node = self.graph.nodes[index]
                groups.setdefault((node.op, node.kind), []).append(index)
        uncounted = [
            Uncounted(
                op=op,
                kind=kind,
                nodes=len(indices),
                share=_share(elements_by_node, indices),
                executed_share=_share(executed_by_node, indices),
            )
            for (op, kind), indices in groups.items()
        ]
        return tuple(sorted(uncounted, key=lambda operator: (-operator.share, operator.op)))

    def _arithmetic_nodes(self) -> Iterable[int]:
        nodes = self.graph.nodes
        return (index for index in range(len(nodes)) if nodes[index].kind not in NO_ARITHMETIC)

    def _rows(self, name_of: Callable[[int], str]) -> list[Row]:
        groups: dict[str, list[int]] = {}
        for index in self._arithmetic_nodes():
            groups.setdefault(name_of(index), []).append(index)
        return [
            Row(
                name=name,
                nodes=len(indices),
                ops=_sum(self.ops[index] for index in indices),
                ruled=any(self.ops[index] is not None for index in indices),
            )
            for name, indices in groups.items()
        ]


def count(graph: Graph, convention: Convention) -> Count:
    """Count the operations of ``graph`` by ``convention``, once for each convention."""
    known: Count | None = graph.counts.get(convention)
    if known is None:
        known = graph.counts[convention] = Count(graph, convention, convention.count_nodes(graph))
    return known


def _share(amounts: Sequence[int], indices: Sequence[int]) -> float:
    """Return the share of the nodes ``indices`` in the amounts of all nodes."""
    return sum(amounts[index] for index in indices) / (sum(amounts) or 1)


def _sum(node_ops: Iterable[Ops | None]) -> Ops:
    total = Ops()
    for ops in node_ops:
        if ops is not None:
            total += ops
    return total
