"""Which communication between nodes is measured, and in which rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vflops.launch.node_layout import NodeLayout
from vflops.launch.ring import ring_rounds

Benchmark = Literal["all-reduce", "point-to-point"]


@dataclass(frozen=True)
class LinkTask:
    """One measurement between some of the nodes, with as many ranks on each."""

    benchmark: Benchmark
    nodes: tuple[int, ...]
    ranks_per_node: int

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.nodes) * self.ranks_per_node

    def case(self, backend: str) -> str:
        """Return the name of the measurement's case."""
        if self.benchmark == "point-to-point":
            return f"{backend}-pairs"
        on_nodes = f"-{len(self.nodes)}-nodes" if len(self.nodes) > 1 else ""
        return f"{backend}-{self.ranks}-ranks{on_nodes}"


Rounds = list[list[LinkTask]]
"""Tasks of one round run at the same time, on different nodes."""


def link_rounds(nodes: int, layout: NodeLayout) -> Rounds:
    """Return the rounds: the ranks of each job, then all ranks, then pairs of neighbours.

    The jobs are measured at the same time, as they will train.
    """
    rounds: Rounds = []
    if layout.ranks > 1:
        starts = range(0, nodes - layout.nodes + 1, layout.nodes)
        rounds.append(
            [_all_reduce(_nodes(first, layout), layout.ranks_per_node) for first in starts]
        )
    whole = _all_reduce(range(nodes), layout.slots)
    if whole.ranks > 1 and [whole] not in rounds:
        rounds.append([whole])
    for pairs in ring_rounds(range(nodes)):
        rounds.append([LinkTask("point-to-point", pair, 1) for pair in pairs])
    return rounds


def _nodes(first: int, layout: NodeLayout) -> range:
    return range(first, first + layout.nodes)


def _all_reduce(nodes: Sequence[int], ranks_per_node: int) -> LinkTask:
    return LinkTask("all-reduce", tuple(nodes), ranks_per_node)
