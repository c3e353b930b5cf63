"""Division of a sequence into consecutive parts of about equal work: plain arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

_SLACK = 0.02
"""Extra work of the largest part that is accepted if less is sent for it."""


def max_parts(cut_points: Sequence[int], layers: Sequence[bool]) -> int:
    """Return the largest number of parts with a layer each; a part may end at any cut point."""
    parts, start = 0, 0
    for cut_point in cut_points:
        if any(layers[start:cut_point]):
            parts, start = parts + 1, cut_point
    return parts


def balanced(
    cut_points: Sequence[int],
    work: Sequence[int],
    layers: Sequence[bool],
    costs: Sequence[int],
    parts: int,
) -> list[int]:
    """Return the cut points that end ``parts`` parts with a layer each; the last one is the end.

    The largest part has nearly the least possible work. Among the divisions with that property,
    this one has the smallest sum of ``costs``, the costs of ending a part at each cut point.
    """
    total = [0, *itertools.accumulate(work)]
    layer_counts = [0, *itertools.accumulate(layers)]
    starts = [0, *cut_points]

    def least(limit: float | None) -> tuple[float, list[int]]:
        """Minimise the largest work of a part; with ``limit``, the costs of parts within it."""
        reached: list[tuple[float, list[int]] | None] = [(0, []), *(None for _ in cut_points)]
        for _ in range(parts):
            ends: list[tuple[float, list[int]] | None] = [None]
            for number, end in enumerate(cut_points, start=1):
                best: tuple[float, list[int]] | None = None
                for start, before in zip(starts[:number], reached[:number], strict=True):
                    size = total[end] - total[start]
                    if before is None or layer_counts[end] == layer_counts[start]:
                        continue
                    if limit is not None and size > limit:
                        continue
                    value = max(before[0], size) if limit is None else before[0] + costs[number - 1]
                    if best is None or value < best[0]:
                        best = value, [*before[1], end]
                ends.append(best)
            reached = ends
        assert reached[-1] is not None, "there are enough cut points"
        return reached[-1]

    return least((1 + _SLACK) * least(None)[0])[1]
