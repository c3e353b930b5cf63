"""Bytes that ranks send to average numbers of theirs, in closed form, over near and far links.

n are the ranks, g those near each other, k = n/g the groups of them, B the bytes of what a rank
holds as it is sent: padded to a multiple of n; with int8 a byte an element, and a scale of 4 bytes
a piece. Sums are over all ranks. Seen on a loopback interface with gloo, to 0.3 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vflops.metrics.arguments import require_count

ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
"""On the wire."""
SCALE_BYTES = 4
"""Of a piece that is sent as int8."""
POWERSGD_GAIN = 2
"""A matrix is sent as two smaller ones where that divides its elements by more."""


@dataclass(frozen=True)
class Sent:
    """Bytes of all ranks together."""

    near: int
    far: int

    @property
    def all(self) -> int:
        """Over whichever links."""
        return self.near + self.far


def near_ranks(ranks: int, node: int, near: int | None = None) -> int:
    """Ranks of a row: as asked; else those of a node; else the divisor next to the square root.

    A node with one rank or with all of them makes no rows, nor one that does not divide them.
    """
    if near is not None:
        return near
    if 1 < node < ranks and ranks % node == 0:
        return node
    return next(side for side in range(math.isqrt(ranks), 0, -1) if ranks % side == 0)


def bytes_sent(mode: str, precision: str, ranks: int, near: int, parameters: int) -> Sent:
    """Bytes of one exchange of ``parameters`` numbers, as one bucket, over all ranks.

    all-reduce: a ring, 2(n−1)·B, of which each of its n edges carries as much; int8: all to all
    and a ring that gathers, (n−1)·B each. hierarchical: near k·2(g−1)·B (to the leader and back),
    far 2(k−1)·B. torus: near k·2(g−1)·B, far 2(k−1)·B, which all ranks send, not only leaders.
    """
    require_count("ranks", ranks, at_least=1)
    require_count("near", near, at_least=1)
    require_count("parameters", parameters, at_least=0)
    if precision not in ELEMENT_BYTES:
        raise ValueError(
            f"precision {precision!r} is none of {', '.join(ELEMENT_BYTES)}; PowerSGD sends "
            "powersgd_elements(shapes, rank) numbers in fp32"
        )
    piece = -(-parameters // ranks) * ELEMENT_BYTES[precision]  # a rank's, of n
    scale = SCALE_BYTES if precision == "int8" else 0
    if mode == "all-reduce":
        return _flat(ranks, near, piece, scale)
    if ranks % near:
        raise ValueError(f"near {near} does not divide {ranks} ranks")
    groups, whole = ranks // near, piece * ranks
    if mode == "hierarchical":
        back = (near - 1) * (whole + groups * scale)
        return Sent(
            groups * ((near - 1) * (whole + scale) + back),
            2 * (groups - 1) * (whole + groups * scale),
        )
    if mode == "torus":
        row = (near - 1) * (whole + near * scale)
        back = (near - 1) * (whole + ranks * scale)
        return Sent(groups * (row + back), 2 * (groups - 1) * (whole + ranks * scale))
    raise ValueError(f"mode {mode!r} is none of all-reduce, hierarchical, torus")


def powersgd_elements(shapes: Iterable[Sequence[int]], rank: int) -> int:
    """Numbers that PowerSGD sends of tensors: (rows + columns) · rank, or all of a small one.

    The first dimension are the rows; a tensor of one dimension is sent as it is (Vogels et al.
    2019, algorithm 1).
    """
    require_count("rank", rank, at_least=1)
    elements = 0
    for shape in shapes:
        whole = math.prod(shape)
        rows = shape[0] if len(shape) > 1 else 1
        columns = whole // max(rows, 1)
        narrow = (rows + columns) * rank
        elements += narrow if len(shape) > 1 and narrow * POWERSGD_GAIN < whole else whole
    return elements


def sharded_sent(blocks: int, rest: int, ranks: int, *, backend: str) -> int:
    """Bytes of one step of weights of which each rank keeps a part (FSDP2), over all ranks.

    Blocks are gathered forward and backward, the rest of a model once; the gradients of both are
    added up and scattered: (n−1)·(2·blocks + rest + blocks + rest). gloo sends the last two twice,
    since a reduce-scatter is a whole all-reduce there. Bytes of weights, their rows padded to n.
    """
    require_count("ranks", ranks, at_least=1)
    times = 2 if backend == "gloo" else 1
    return (ranks - 1) * (2 * blocks + rest + times * (blocks + rest))


def _flat(ranks: int, near: int, piece: int, scale: int) -> Sent:
    """One ring over all ranks, node after node, as int8 with pairs before it."""
    nodes = [min(near, ranks - first) for first in range(0, ranks, near)]
    far_edges = len(nodes) if len(nodes) > 1 else 0
    edge = (ranks - 1) * (piece + scale)
    if not scale:
        return Sent((ranks - far_edges) * 2 * edge, far_edges * 2 * edge)
    pairs = sum(size * (size - 1) for size in nodes)
    far_pairs = ranks * (ranks - 1) - pairs
    return Sent(
        pairs * (piece + scale) + (ranks - far_edges) * edge,
        far_pairs * (piece + scale) + far_edges * edge,
    )
