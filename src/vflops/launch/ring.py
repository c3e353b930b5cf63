"""The nodes of an allocation as a ring, whose neighbours are measured."""

from __future__ import annotations

from collections.abc import Sequence


def ring_rounds(nodes: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Return the pairs of the ring in up to three rounds; the pairs of a round share no node."""
    if len(nodes) < 2:
        return []
    pairs = list(zip(nodes, [*nodes[1:], nodes[0]], strict=True))[: None if nodes[2:] else 1]
    last = [pairs.pop()] if len(pairs) % 2 and nodes[2:] else []
    return [group for group in (pairs[::2], pairs[1::2], last) if group]
