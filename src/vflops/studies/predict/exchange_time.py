"""The time of an exchange between ranks: all-reduce as a ring, a tree, hierarchical, or on a torus.

B is the bytes that every rank holds, n the number of ranks, g those of a node, k = n/g the nodes,
α the latency of a link and β its bytes per second; ``w`` is within a node, ``b`` between
nodes. All ranks of a node share its link to others. Latency is paid once per bucket.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vflops.errors import UsageError

Algorithm = Literal["ring", "tree"]
"""The algorithm of a library's all-reduce."""
ExchangeMode = Literal["ring", "tree", "hierarchical", "torus"]


@dataclass(frozen=True)
class Link:
    """A link: a message takes ``latency_s``, and then ``bandwidth`` bytes per second."""

    bandwidth: float
    latency_s: float

    def time_s(self, size: float, messages: float = 1) -> float:
        """Return the time of ``size`` bytes in ``messages`` consecutive messages."""
        return size / self.bandwidth + messages * self.latency_s


@dataclass(frozen=True)
class Group:
    """Ranks that exchange, placed node after node, and their links.

    A link that no message crosses is None.
    """

    ranks: int
    node: int
    """The most ranks on a node."""
    within: Link | None
    between: Link | None
    near: int | None = None
    """Ranks of a row; None: those of a node, or of the squarest torus."""

    @property
    def nodes(self) -> int:
        """The number of nodes, all full."""
        return max(1, self.ranks // self.node)

    @property
    def beside(self) -> int:
        """The number of ranks on one node."""
        return min(self.ranks, self.node)

    @property
    def slowest(self) -> Link:
        """A link with the lowest bandwidth and the highest latency of all."""
        links = self.links
        return Link(min(link.bandwidth for link in links), max(link.latency_s for link in links))

    @property
    def links(self) -> list[Link]:
        """The links that messages cross."""
        crossed = [
            (self.within, self.beside > 1, "node"),
            (self.between, self.nodes > 1, "link"),
        ]
        for link, used, name in crossed:
            if used and link is None:
                raise needs(f"{name}.bandwidth", f"{self.ranks:,} ranks exchange over it")
        return [link for link, used, _ in crossed if used and link is not None]


class NotKnown(UsageError):
    """An input was neither measured nor given."""


def needs(name: str, why: str) -> NotKnown:
    """Return the error for an input that is not known."""
    return NotKnown(f"{name} is not known, but {why}", hint=f"give it: --set {name}=…")


def ring(group: Group, size: float, buckets: int = 1) -> float:
    """Return the seconds of a flat ring: 2(n−1)/n · B/β + 2(n−1) · α."""
    n = group.ranks
    if n == 1:
        return 0.0
    return group.slowest.time_s(2 * (n - 1) / n * size, 2 * (n - 1) * buckets)


def tree(group: Group, size: float, buckets: int = 1) -> float:
    """Return the seconds of a double binary tree: c·B/β + 2⌈log₂ k⌉·α_b + 2⌈log₂ g⌉·α_w.

    Each half of the bytes goes up and down its own tree. An inner node of one tree is a leaf of the
    other, so the busiest node sends c = 2 times B; with two nodes c = 1, as each is a root once.
    """
    n = group.ranks
    if n == 1:
        return 0.0
    parts = group.nodes if group.nodes > 1 else group.beside
    steps = [
        (group.between, math.ceil(math.log2(group.nodes))),
        (group.within, math.ceil(math.log2(group.beside))),
    ]
    latency_s = sum(2 * depth * link.latency_s for link, depth in steps if link and depth)
    return (1 if parts == 2 else 2) * size / group.slowest.bandwidth + buckets * latency_s


def hierarchical(group: Group, size: float, buckets: int = 1) -> float:
    """Return the seconds of reduce to row leaders, a ring of leaders, and broadcast in rows.

    2 · (B/β_w + (g−1)·α_w) + 2(k−1)/k · B/β_b + 2(k−1) · α_b, both ways along a row pipelined.
    """
    rows, along, across = _rows(group)
    if not across:
        return 0.0
    leaders = group.ranks // rows
    ring_s = across.time_s(2 * (leaders - 1) / leaders * size, 2 * (leaders - 1) * buckets)
    return ring_s + (2 * along.time_s(size, (rows - 1) * buckets) if along else 0.0)


def torus(group: Group, size: float, buckets: int = 1) -> float:
    """Return the seconds of a 2-D torus: reduce-scatter in rows, all-reduce in columns, all-gather.

    2 · ((g−1)/g · B/β_w + (g−1)·α_w) + 2(k−1)/k · B/β_b + 2(k−1)·α_b: a column has B/g bytes, and
    all g columns share the node's link. Rows that are not nodes have separate links: columns then
    cost 2(k−1)/k · B/g/β.
    """
    rows, along, across = _rows(group)
    if not across:
        return 0.0
    columns = group.ranks // rows
    sent = 2 * (columns - 1) / columns * size
    shared = group.nodes > 1 and group.beside > 1
    down_s = across.time_s(sent if shared else sent / rows, 2 * (columns - 1) * buckets)
    there_s = along.time_s((rows - 1) / rows * size, (rows - 1) * buckets) if along else 0.0
    return 2 * there_s + down_s


def _rows(group: Group) -> tuple[int, Link | None, Link | None]:
    """Return the ranks of a row, the link along it and the link across; None if unused.

    Rows are nodes. If all ranks are on one node, or each on its own, there is one kind of link, and
    rows are as long as the shorter side of the squarest torus.
    """
    links = group.links
    if not links:
        return 1, None, None
    if len(links) == 2:
        if group.near not in (None, group.beside):
            raise UsageError(
                f"communication.near {group.near}: predictions use rows of the {group.beside}"
                " ranks of a node, whose links differ from those between nodes",
                hint=f"--set communication.near={group.beside}, or leave it out",
            )
        return group.beside, links[0], links[1]
    side = group.near or square(group.ranks)
    return side, links[0] if side > 1 else None, links[0]


def square(n: int) -> int:
    """Return the largest divisor of ``n`` up to its root: the shorter side of a torus."""
    return next(side for side in range(math.isqrt(n), 0, -1) if n % side == 0)


EXCHANGES: dict[ExchangeMode, Callable[[Group, float, int], float]] = {
    "ring": ring,
    "tree": tree,
    "hierarchical": hierarchical,
    "torus": torus,
}

SHARES: dict[str, float | None] = {
    "fp32": 1.0,
    "fp16": 0.5,
    "bf16": 0.5,
    "int8": 0.25,
    "powersgd": None,
}
"""Bytes sent per byte of fp32; None: PowerSGD's depend on shapes and rank."""


def exposed(time_s: float, *, hidden_s: float, last: float) -> float:
    """Return how long a step waits for an exchange: max(t − hidden, last · t).

    Buckets are sent while the backward pass computes the next ones, so up to ``hidden_s`` of the
    exchange costs nothing. The last bucket, a share ``last`` of it, is ready only after the pass.
    """
    return max(time_s - hidden_s, last * time_s)
