"""The time of an all-reduce between ranks: as a ring, as a tree, hierarchical, or on a torus.

B is the number of bytes that every rank holds, n the number of ranks, g the ranks per node, and
k = n/g the number of nodes. α is the latency of a link and β its bytes per second; the index ``w``
stands for links within a node, ``b`` for links between nodes. All ranks of a node share its link to
other nodes. Each bucket adds the latency once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vflops.errors import UsageError

Algorithm = Literal["ring", "tree"]
"""The algorithm that a library uses for its all-reduce."""
ExchangeMode = Literal["ring", "tree", "hierarchical", "torus"]


@dataclass(frozen=True)
class Link:
    """A link; a message takes ``latency_s`` plus its bytes divided by ``bandwidth``."""

    bandwidth: float
    latency_s: float

    def time_s(self, size: float, messages: float = 1) -> float:
        """Return the time to send ``size`` bytes in ``messages`` consecutive messages."""
        return size / self.bandwidth + messages * self.latency_s


@dataclass(frozen=True)
class Group:
    """Ranks that exchange data, placed node after node, and the links between them.

    A link that no message crosses is None.
    """

    ranks: int
    node: int
    """The number of accelerators of a node."""
    within: Link | None
    between: Link | None
    near: int | None = None
    """Ranks per row; None for the ranks of a node, or else the shorter side of a square torus."""

    @property
    def nodes(self) -> int:
        """The number of nodes; the ranks fill all of them, or fit on one."""
        return max(1, self.ranks // self.node)

    @property
    def ranks_per_node(self) -> int:
        """The number of ranks on one node."""
        return min(self.ranks, self.node)

    @property
    def slowest(self) -> Link:
        """A link with the lowest bandwidth and the highest latency of all links in use."""
        links = self.links
        return Link(min(link.bandwidth for link in links), max(link.latency_s for link in links))

    @property
    def links(self) -> list[Link]:
        """The links that messages cross."""
        crossed = [
            (self.within, self.ranks_per_node > 1, "node"),
            (self.between, self.nodes > 1, "link"),
        ]
        for link, used, name in crossed:
            if used and link is None:
                raise missing_input(f"{name}.bandwidth", f"{self.ranks:,} ranks exchange over it")
        return [link for link, used, _ in crossed if used and link is not None]


class UnknownInput(UsageError):
    """An input was neither measured nor given."""


def missing_input(name: str, why: str) -> UnknownInput:
    """Return the error for an input that is not known."""
    return UnknownInput(f"{name} is not known, but {why}", hint=f"give it: --set {name}=…")


def ring(group: Group, size: float, buckets: int = 1) -> float:
    """Return the time of a flat ring in seconds: 2(n−1)/n · B/β + 2(n−1) · α."""
    n = group.ranks
    if n == 1:
        return 0.0
    return group.slowest.time_s(2 * (n - 1) / n * size, 2 * (n - 1) * buckets)


def tree(group: Group, size: float, buckets: int = 1) -> float:
    """Return the time of a double binary tree: c·B/β + 2⌈log₂ k⌉·α_b + 2⌈log₂ g⌉·α_w seconds.

    Each half of the bytes goes up and down a separate tree. An inner node of one tree is a leaf of
    the other, so the busiest node sends c = 2 times B; with two nodes, each is the root of one tree
    and c = 1.
    """
    n = group.ranks
    if n == 1:
        return 0.0
    parts = group.nodes if group.nodes > 1 else group.ranks_per_node
    steps = [
        (group.between, math.ceil(math.log2(group.nodes))),
        (group.within, math.ceil(math.log2(group.ranks_per_node))),
    ]
    latency_s = sum(2 * depth * link.latency_s for link, depth in steps if link and depth)
    return (1 if parts == 2 else 2) * size / group.slowest.bandwidth + buckets * latency_s


def hierarchical(group: Group, size: float, buckets: int = 1) -> float:
    """Return the time of a reduce to row leaders, a ring of leaders, and a broadcast in rows.

    It is 2 · (B/β_w + (g−1)·α_w) + 2(k−1)/k · B/β_b + 2(k−1) · α_b seconds; reduce and broadcast
    are pipelined along the row.
    """
    rows, along, across = _rows(group)
    if not across:
        return 0.0
    leaders = group.ranks // rows
    ring_s = across.time_s(2 * (leaders - 1) / leaders * size, 2 * (leaders - 1) * buckets)
    return ring_s + (2 * along.time_s(size, (rows - 1) * buckets) if along else 0.0)


def torus(group: Group, size: float, buckets: int = 1) -> float:
    """Return the time of a reduce-scatter in rows, an all-reduce in columns, and an all-gather.

    It is 2 · ((g−1)/g · B/β_w + (g−1)·α_w) + 2(k−1)/k · B/β_b + 2(k−1)·α_b seconds: a column has
    B/g bytes, and all g columns share the node's link. Rows that are not nodes have separate links,
    so their columns take only 2(k−1)/k · B/g/β for the bytes.
    """
    rows, along, across = _rows(group)
    if not across:
        return 0.0
    columns = group.ranks // rows
    sent = 2 * (columns - 1) / columns * size
    shared = group.nodes > 1 and group.ranks_per_node > 1
    down_s = across.time_s(sent if shared else sent / rows, 2 * (columns - 1) * buckets)
    there_s = along.time_s((rows - 1) / rows * size, (rows - 1) * buckets) if along else 0.0
    return 2 * there_s + down_s


def _rows(group: Group) -> tuple[int, Link | None, Link | None]:
    """Return the ranks per row, the link along a row and the link between rows; None if unused.

    Rows are nodes. If all ranks are on one node, or each is on a different one, there is only one
    kind of link; a row is then as long as ``near``, or the shorter side of a square torus.
    """
    links = group.links
    if not links:
        return 1, None, None
    if len(links) == 2:
        if group.near not in (None, group.ranks_per_node):
            raise UsageError(
                f"communication.near = {group.near}, but predictions need rows of the"
                f" {group.ranks_per_node} ranks of a node, because the links within a node differ"
                " from those between nodes",
                hint=f"use --set communication.near={group.ranks_per_node}, or leave it out",
            )
        return group.ranks_per_node, links[0], links[1]
    side = group.near or shorter_torus_side(group.ranks)
    return side, links[0] if side > 1 else None, links[0]


def shorter_torus_side(n: int) -> int:
    """Return the shorter side of the squarest torus of ``n`` ranks.

    This is the largest divisor of ``n`` up to its square root.
    """
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
"""Bytes sent per byte of fp32; None for PowerSGD, where they depend on layer shapes and rank."""


def exposed_time(time_s: float, *, hidden_s: float, last: float) -> float:
    """Return how long a step waits for an exchange: max(t − hidden, last · t).

    Buckets are sent while the backward pass computes the next ones, so up to ``hidden_s`` of the
    exchange costs nothing. The last bucket, with a share ``last`` of the bytes, is ready only after
    the backward pass.
    """
    return max(time_s - hidden_s, last * time_s)
