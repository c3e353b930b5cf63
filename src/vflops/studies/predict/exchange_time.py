"""The time of an exchange between ranks: all-reduce as a ring, a tree, by levels or on a torus.

B are the bytes that every rank holds, n the ranks, g those of a node, k = n/g the nodes, α a link's
latency and β its bytes a second; ``w`` is within a node, ``b`` between nodes. All ranks of a node
share its link to others. Latencies are paid once a bucket.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vflops.errors import UsageError

Algorithm = Literal["ring", "tree"]
"""By which a library adds up over all ranks at once."""
ExchangeMode = Literal["ring", "tree", "hierarchical", "torus"]


@dataclass(frozen=True)
class Link:
    """What a message pays: ``latency_s`` to begin, then ``bandwidth`` bytes a second."""

    bandwidth: float
    latency_s: float

    def time_s(self, size: float, messages: float = 1) -> float:
        """Seconds of ``size`` bytes in ``messages`` messages that wait for each other."""
        return size / self.bandwidth + messages * self.latency_s


@dataclass(frozen=True)
class Group:
    """Ranks that exchange, node after node, and the links that they have.

    A link that no message of theirs crosses is None.
    """

    ranks: int
    node: int
    """The most of them on a node."""
    within: Link | None
    between: Link | None
    near: int | None = None
    """Ranks of a row, where it is said; None: those of a node, or of the squarest torus."""

    @property
    def nodes(self) -> int:
        """Nodes that they are on, all full."""
        return max(1, self.ranks // self.node)

    @property
    def beside(self) -> int:
        """Ranks of theirs on one node."""
        return min(self.ranks, self.node)

    @property
    def slowest(self) -> Link:
        """The narrowest bandwidth and the longest latency on the way round."""
        links = self.links
        return Link(min(e.bandwidth for e in links), max(e.latency_s for e in links))

    @property
    def links(self) -> list[Link]:
        """Those that messages cross."""
        crossed = [
            (self.within, self.beside > 1, "node"),
            (self.between, self.nodes > 1, "link"),
        ]
        for link, used, name in crossed:
            if used and link is None:
                raise needs(f"{name}.bandwidth", f"{self.ranks:,} ranks exchange over it")
        return [link for link, used, _ in crossed if used and link is not None]


class NotKnown(UsageError):
    """A figure was neither measured nor typed."""


def needs(name: str, why: str) -> NotKnown:
    """An error for a figure that is not known."""
    return NotKnown(f"{name} is not known, and {why}", hint=f"type it: --set {name}=…")


def ring(group: Group, size: float, buckets: int = 1) -> float:
    """Seconds of a flat ring: 2(n−1)/n · B/β + 2(n−1) · α, by the slowest link on the way."""
    n = group.ranks
    if n == 1:
        return 0.0
    return group.slowest.time_s(2 * (n - 1) / n * size, 2 * (n - 1) * buckets)


def tree(group: Group, size: float, buckets: int = 1) -> float:
    """Seconds of a double binary tree: c·B/β + 2⌈log₂ k⌉·α_b + 2⌈log₂ g⌉·α_w.

    Each half of the bytes goes up and down a tree of its own. A node that is inside of one tree is
    a leaf of the other, so the busiest sends c = 2 times B; two sends c = 1, each a root once.
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
    """Seconds by levels: reduce to the leader of a row, ring of leaders, broadcast along the row.

    2 · (B/β_w + (g−1)·α_w) + 2(k−1)/k · B/β_b + 2(k−1) · α_b, both ways along a row pipelined.
    """
    rows, along, across = _rows(group)
    if not across:
        return 0.0
    leaders = group.ranks // rows
    ring_s = across.time_s(2 * (leaders - 1) / leaders * size, 2 * (leaders - 1) * buckets)
    return ring_s + (2 * along.time_s(size, (rows - 1) * buckets) if along else 0.0)


def torus(group: Group, size: float, buckets: int = 1) -> float:
    """Seconds of a 2-D torus: reduce-scatter along rows, all-reduce along columns, all-gather.

    2 · ((g−1)/g · B/β_w + (g−1)·α_w) + 2(k−1)/k · B/β_b + 2(k−1)·α_b: a column has B/g bytes, and
    all g of them share the node's link. Rows that are no nodes have links of their own: columns
    then cost 2(k−1)/k · B/g/β.
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
    """Ranks of a row, the link along it and the one across; None where nothing is sent.

    Rows are nodes. Where all ranks are on one, or each has its own, there is one kind of link, and
    the rows are as long as the side of the squarest torus.
    """
    links = group.links
    if not links:
        return 1, None, None
    if len(links) == 2:
        if group.near not in (None, group.beside):
            raise UsageError(
                f"communication.near {group.near}: rows are predicted for the {group.beside} ranks"
                " of a node, whose links differ from those between nodes",
                hint=f"--set communication.near={group.beside}, or leave it out",
            )
        return group.beside, links[0], links[1]
    side = group.near or square(group.ranks)
    return side, links[0] if side > 1 else None, links[0]


def square(n: int) -> int:
    """The largest divisor of ``n`` that is at most its root: the shorter side of a torus."""
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
"""Bytes on the wire for a byte of fp32; PowerSGD's depend on shapes and rank, so must be said."""


def exposed(time_s: float, *, hidden_s: float, last: float) -> float:
    """What of an exchange a step waits for: max(t − hidden, last · t).

    Buckets go out while the backward pass makes the next ones, so at most ``hidden_s`` of the
    exchange costs nothing; the last bucket, that share of it, is ready when the pass is over, and
    always waited for.
    """
    return max(time_s - hidden_s, last * time_s)
