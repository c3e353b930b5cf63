"""A row of things in consecutive parts of about equal work: plain arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

_SLACK = 0.02
"""More work of the largest part than the least possible, where less is sent then."""


def most_parts(places: Sequence[int], layers: Sequence[bool]) -> int:
    """The most parts with a layer each; ``places`` are where one may end, the last is the end."""
    parts, start = 0, 0
    for place in places:
        if any(layers[start:place]):
            parts, start = parts + 1, place
    return parts


def balanced(
    places: Sequence[int],
    work: Sequence[int],
    layers: Sequence[bool],
    costs: Sequence[int],
    parts: int,
) -> list[int]:
    """The places that end ``parts`` parts with a layer each.

    The largest part has nearly the least work that is possible, and of the ways to have that, this
    one has the least sum of ``costs``, which are those of ending a part at each of the places.
    """
    total = [0, *itertools.accumulate(work)]
    held = [0, *itertools.accumulate(layers)]
    starts = [0, *places]

    def least(limit: float | None) -> tuple[float, list[int]]:
        """By limit None the largest work of a part, else the costs of parts within the limit."""
        found: list[tuple[float, list[int]] | None] = [(0, []), *(None for _ in places)]
        for _ in range(parts):
            ends: list[tuple[float, list[int]] | None] = [None]
            for number, end in enumerate(places, start=1):
                best: tuple[float, list[int]] | None = None
                for start, before in zip(starts[:number], found[:number], strict=True):
                    size = total[end] - total[start]
                    if before is None or held[end] == held[start]:
                        continue
                    if limit is not None and size > limit:
                        continue
                    value = max(before[0], size) if limit is None else before[0] + costs[number - 1]
                    if best is None or value < best[0]:
                        best = value, [*before[1], end]
                ends.append(best)
            found = ends
        assert found[-1] is not None, "there are as many parts"
        return found[-1]

    return least((1 + _SLACK) * least(None)[0])[1]
