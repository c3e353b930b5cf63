"""Which communication between nodes is measured, and in which rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

from vflops.launch.node_layout import NodeLayout
from vflops.record.files.document import Data, Document

Backend = Literal["gloo", "nccl"]


class LinkTask(Data):
    """One measurement between some of the nodes, with as many ranks on each."""

    benchmark: Literal["all-reduce", "point-to-point"]
    nodes: tuple[int, ...]
    ranks_per_node: int = 1
    size_bytes: int | None = None
    """The only message size, for a check; None for the sizes of a ceiling."""

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.nodes) * self.ranks_per_node

    @property
    def bus_share(self) -> float:
        """The bytes that pass the slowest link, for each byte of the message."""
        return 2 * (self.ranks - 1) / self.ranks if self.benchmark == "all-reduce" else 2.0

    def case(self, backend: Backend) -> str:
        """Return the name of the measurement's case."""
        if self.benchmark == "point-to-point":
            return f"{backend}-pairs"
        on_nodes = f"-{len(self.nodes)}-nodes" if len(self.nodes) > 1 else ""
        return f"{backend}-{self.ranks}-ranks{on_nodes}"


Rounds = tuple[tuple[LinkTask, ...], ...]
"""Tasks of one round run at the same time, on different nodes."""


class LinkPlan(Document):
    """``plan.json``: what the nodes measure together."""

    schema_name: ClassVar[str] = "vflops.link-plan"

    nodes: tuple[int, ...]
    """The nodes that take part."""
    backend: Backend
    rounds: Rounds
    connect_s: float
    """How long the ranks of a task may take to connect."""
    seconds: float
    """How long a task may measure once its ranks are connected."""
    seed: int = 0

    @property
    def round_s(self) -> float:
        """The time limit of a round."""
        return self.connect_s + self.seconds


def ceiling_rounds(nodes: int, layout: NodeLayout) -> Rounds:
    """Return the rounds: the ranks of each job, then all ranks, then pairs of neighbours.

    The jobs are measured at the same time, as they will train.
    """
    rounds = []
    if layout.ranks > 1:
        starts = range(0, nodes - layout.nodes + 1, layout.nodes)
        jobs = (range(start, start + layout.nodes) for start in starts)
        rounds.append(tuple(_all_reduce(job, layout.ranks_per_node) for job in jobs))
    whole = _all_reduce(range(nodes), layout.slots)
    if whole.ranks > 1 and (whole,) not in rounds:
        rounds.append((whole,))
    for pairs in ring_rounds(range(nodes)):
        rounds.append(tuple(LinkTask(benchmark="point-to-point", nodes=pair) for pair in pairs))
    return tuple(rounds)


def check_rounds(nodes: Sequence[int], size_bytes: int) -> Rounds:
    """Return the rounds of a preflight: pairs of neighbours, then all nodes."""
    groups: list[list[tuple[int, ...]]] = [*ring_rounds(nodes)]
    if len(nodes) > 2:
        groups.append([tuple(nodes)])
    return tuple(tuple(_all_reduce(group, 1, size_bytes) for group in part) for part in groups)


def ring_rounds(nodes: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """Return the pairs of neighbours in a ring in up to three rounds, of pairs that share no node.

    A pair is a process group of its own, so that a broken link affects no other.
    """
    if len(nodes) < 2:
        return []
    pairs = list(zip(nodes, [*nodes[1:], nodes[0]], strict=True))[: None if nodes[2:] else 1]
    last = [pairs.pop()] if len(pairs) % 2 and nodes[2:] else []
    return [list(group) for group in (pairs[::2], pairs[1::2], last) if group]


def _all_reduce(
    nodes: Iterable[int], ranks_per_node: int, size_bytes: int | None = None
) -> LinkTask:
    return LinkTask(
        benchmark="all-reduce",
        nodes=tuple(nodes),
        ranks_per_node=ranks_per_node,
        size_bytes=size_bytes,
    )
