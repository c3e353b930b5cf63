"""Division of a sequence into consecutive parts of about equal work."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from vflops.errors import UsageError

_SLACK = 0.02
"""Relative extra work of the largest part that is accepted if fewer bytes are sent."""


def max_parts(cut_points: Sequence[int], layers: Sequence[bool]) -> int:
    """Return the maximum number of parts if each has a layer and ends at a cut point."""
    parts, start = 0, 0
    for cut_point in cut_points:
        if any(layers[start:cut_point]):
            parts, start = parts + 1, cut_point
    return parts


def too_many_stages(name: str, stages: int, limit: int, hint: str) -> UsageError:
    """Return the error for a model that has layers for at most ``limit`` stages."""
    return UsageError(
        f"{name} cannot be cut into {stages} stages: it has layers for at most {limit}", hint=hint
    )


def balanced(
    cut_points: Sequence[int],
    work: Sequence[int],
    layers: Sequence[bool],
    costs: Sequence[int],
    parts: int,
) -> list[int]:
    """Return the cut points at which ``parts`` parts end; each part has a layer.

    The work of the largest part is within 2% of the minimum. Among the divisions with that
    property, this one has the smallest total cost; ``costs`` has the cost of each cut point.
    """
    total = [0, *itertools.accumulate(work)]
    layer_counts = [0, *itertools.accumulate(layers)]
    starts = [0, *cut_points]

    def best_division(limit: float | None) -> tuple[float, list[int]]:
        """Return the best division and its value.

        Without ``limit``, the value is the work of the largest part; with ``limit``, which no part
        may exceed, it is the total cost.
        """
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

    min_work, _ = best_division(None)
    return best_division((1 + _SLACK) * min_work)[1]
