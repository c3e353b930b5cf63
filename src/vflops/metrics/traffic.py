"""Traffic: the bytes that ranks send to average their numbers, over near and far links.

All formulas are in closed form. n is the number of ranks, g the ranks near each other, k = n/g the
groups of near ranks, and B the bytes that one rank holds, in the precision on the wire and padded
to a multiple of n; int8 takes one byte per element and a scale of 4 bytes per piece. Sums are over
all ranks. Measured on a loopback interface with gloo, they agree to 0.3 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vflops.metrics.arguments import require_count

ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
"""Bytes of one element on the wire."""
SCALE_BYTES = 4
"""Bytes of the scale of a piece that is sent as int8."""
POWERSGD_RANK = 4
"""Columns of the two narrow matrices that PowerSGD sends in place of a gradient."""
POWERSGD_START = 8
"""Steps sent in full before PowerSGD starts: the first gradients are the least alike."""
POWERSGD_GAIN = 2
"""PowerSGD only compresses a matrix if that divides its elements by more than this."""
GLOO_ALGORITHMS = {
    "all-reduce": "ring",
    "all-gather": "ring",
    "all-to-all": "pairs",
    "gather": "pairs",
    "broadcast": "binomial tree",
    "reduce-scatter": "all-reduce by a ring",
    "send": "pairs",
}
"""The algorithm of gloo for each call; it has only one for each of these."""


@dataclass(frozen=True)
class Sent:
    """Bytes sent by all ranks together."""

    near: int
    far: int

    @property
    def all(self) -> int:
        """Bytes over near and far links."""
        return self.near + self.far


def near_ranks(ranks: int, node: int, near: int | None = None) -> int:
    """Return the ranks per row: ``near`` if given, else the ranks of a node.

    Where a node holds one rank, all ranks, or a number that does not divide them, it is the
    largest divisor of ``ranks`` up to their square root.
    """
    if near is not None:
        return near
    if 1 < node < ranks and ranks % node == 0:
        return node
    return next(side for side in range(math.isqrt(ranks), 0, -1) if ranks % side == 0)


def bytes_sent(mode: str, precision: str, ranks: int, near: int, parameters: int) -> Sent:
    """Return the bytes that all ranks send to average ``parameters`` numbers in one bucket.

    all-reduce: a ring, 2(n−1)·B, spread evenly over its n edges; with int8 an all-to-all and a
    ring all-gather, (n−1)·B each. hierarchical: near k·2(g−1)·B (to the leader and back), far
    2(k−1)·B. torus: near k·2(g−1)·B, far 2(k−1)·B, sent by all ranks and not only by leaders.
    """
    require_count("ranks", ranks, at_least=1)
    require_count("near", near, at_least=1)
    require_count("parameters", parameters, at_least=0)
    if precision not in ELEMENT_BYTES:
        raise ValueError(
            f"precision is {precision!r}: expected one of {', '.join(ELEMENT_BYTES)}; "
            "PowerSGD sends powersgd_elements(shapes, rank) numbers in fp32"
        )
    piece = -(-parameters // ranks) * ELEMENT_BYTES[precision]  # of one rank
    scale = SCALE_BYTES if precision == "int8" else 0
    if mode == "all-reduce":
        return _flat(ranks, near, piece, scale)
    if ranks % near:
        raise ValueError(f"near is {near}: expected a divisor of {ranks} ranks")
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
    raise ValueError(f"mode is {mode!r}: expected one of all-reduce, hierarchical, torus")


def ring_share(ranks: int) -> float:
    """Return the bytes that each rank sends in a ring all-reduce, per byte: 2(n−1)/n."""
    require_count("ranks", ranks, at_least=1)
    return 2 * (ranks - 1) / ranks


def powersgd_elements(shapes: Iterable[Sequence[int]], rank: int) -> int:
    """Return how many numbers PowerSGD sends: (rows + columns) · rank per matrix.

    The first dimension is the rows. Vectors, and matrices that this would not make small enough,
    are sent whole (Vogels et al. 2019, algorithm 1).
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
    """Return the bytes that all ranks send in one step with sharded weights (FSDP2).

    ``blocks`` and ``rest`` are bytes of weights, with rows padded to a multiple of n. Blocks are
    gathered in the forward and the backward pass, the rest of the model once; the gradients of
    both are reduced and scattered: (n−1)·(2·blocks + rest + blocks + rest). gloo sends the last
    two terms twice, because its reduce-scatter is a whole all-reduce.
    """
    require_count("ranks", ranks, at_least=1)
    times = 2 if backend == "gloo" else 1
    return (ranks - 1) * (2 * blocks + rest + times * (blocks + rest))


def _flat(ranks: int, near: int, piece: int, scale: int) -> Sent:
    """Return the traffic of one ring over all ranks, node after node; int8 adds pairs first."""
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
